//! Makes the files for the arguments.

use std::{io, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use time::OffsetDateTime;

use super::{
    Arguments, Error,
    authority::Authority,
    files::{Files, PUBLIC, SECRET, Written},
    made::{Certificate, Made},
};

/// Makes and writes everything, or fails without replacing existing files.
pub(super) fn make(arguments: &Arguments, now: OffsetDateTime) -> Result<Made, Error> {
    let subjects = arguments.subjects();
    let authority_files = match &arguments.ca {
        Some(path) => Files {
            certificate: path.clone(),
            key: path.with_extension("key"),
        },
        None => Files::in_directory(&arguments.out, "ca"),
    };
    let mut taken = vec![authority_files.certificate.clone(), arguments.out.join("ca.pem")];
    let mut existing = Vec::new();
    let mut files = Vec::new();
    for subject in &subjects {
        let own = Files::in_directory(&arguments.out, &subject.file_name());
        if taken.contains(&own.certificate) {
            return Err(Error::SameFile(own.certificate));
        }
        taken.push(own.certificate.clone());
        existing.extend(
            own.paths()
                .into_iter()
                .filter(|path| path.exists())
                .map(Path::to_owned),
        );
        files.push(own);
    }
    let replace = arguments.force || arguments.renew;
    if !existing.is_empty() && !replace {
        return Err(Error::Exists(existing));
    }

    let (authority, authority_is_new) = authority(&authority_files, arguments, now)?;
    let mut certificates = Vec::new();
    for (subject, files) in subjects.into_iter().zip(files) {
        let kept = arguments
            .renew
            .then(|| files.read().ok())
            .flatten()
            .and_then(|[certificate, key]| authority.good_until(&certificate, &key, &subject, now));
        let ends = match kept {
            Some(ends) => ends,
            None => {
                let issued = authority.issue(&subject, arguments.days, now)?;
                files.write(&issued.certificate, &issued.key, replace)?;
                issued.not_after
            }
        };
        certificates.push(Certificate {
            subject,
            files,
            is_new: kept.is_none(),
            ends,
        });
    }
    Ok(Made {
        authority: authority_files,
        authority_is_new,
        authority_ends: authority.not_after,
        authority_ends_soon: authority.not_after - now < LAST_YEAR,
        certificates,
        ca_bundle: BASE64_STANDARD.encode(&authority.pem),
    })
}

/// A CA that expires within this time should be replaced.
const LAST_YEAR: time::Duration = time::Duration::days(365);

/// The CA to sign with, and whether it is new.
fn authority(files: &Files, arguments: &Arguments, now: OffsetDateTime) -> Result<(Authority, bool), Error> {
    let wrong = |reason| Error::Authority {
        path: files.certificate.clone(),
        reason,
    };
    match files.paths().map(Path::exists) {
        [true, true] => {
            let [certificates, key] = files.read()?;
            if !arguments.new_ca {
                let authority = Authority::from_pem(&certificates, &key, now).map_err(wrong)?;
                return Ok((authority, false));
            }
            let authority = Authority::succeeding(&certificates, &key, now)?.map_err(wrong)?;
            // The certificates first: they show whether the key is for the old or the new one.
            let certificates = Written::new(&files.certificate, &authority.pem, PUBLIC)?;
            let key = Written::new(&files.key, &authority.issuer.key().serialize_pem(), SECRET)?;
            certificates.keep(true)?;
            key.keep(true)?;
            Ok((authority, true))
        }
        [true, false] => Err(Error::HalfAuthority {
            present: files.certificate.clone(),
            absent: files.key.clone(),
        }),
        [false, true] => Err(Error::HalfAuthority {
            present: files.key.clone(),
            absent: files.certificate.clone(),
        }),
        [false, false] if arguments.ca.is_some() => Err(Error::File {
            path: files.certificate.clone(),
            source: io::ErrorKind::NotFound.into(),
        }),
        [false, false] => {
            let authority = Authority::new(now)?;
            std::fs::create_dir_all(&arguments.out).map_err(|source| Error::File {
                path: arguments.out.clone(),
                source,
            })?;
            files.write(&authority.pem, &authority.issuer.key().serialize_pem(), false)?;
            Ok((authority, true))
        }
    }
}
