//! `admittance certs`: makes a CA, and certificates that it signs.

mod report;
#[cfg(test)]
mod tests;

use std::{fmt::Display, fs, path::PathBuf};

use admittance::Moment;
use admittance_fleet::certificates::{Authority, CertificateSubject, ClientName, Service, SubjectHost};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use time::{Duration, OffsetDateTime};

use self::report::{CertificateEntry, CertificateFiles, CertificateReport, FileEntry};
use crate::{
    files::{self, FileDraft, PUBLIC_MODE, SECRET_MODE},
    output::Output,
};

/// Make certificates for webhook servers: a CA, and server certificates with the names that callers check.
///
/// Each --service gets its own certificate, which also includes every --host. Without --service, all hosts share one
/// certificate. An existing CA in the directory is reused, so that clients that trust it continue to work.
///
/// Run the same command with --renew regularly, for instance daily, to keep certificates valid: the driver reloads
/// replaced certificates while it runs. To rotate the CA without downtime, run with --new-ca, distribute ca.pem or the
/// `caBundle:` line, which then hold both CAs, and run with --renew after that.
///
/// Prints the `caBundle:` line for chain and webhook definitions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance certs --service rules.policy --out certs
  admittance certs --service rules.policy --out certs --renew")]
pub(crate) struct Arguments {
    /// The directory to which the files are written.
    #[arg(long, value_name = "DIRECTORY", default_value = "certs")]
    out: PathBuf,
    /// A service for which a server certificate is made. It is valid for NAME.NAMESPACE, NAME.NAMESPACE.svc and
    /// NAME.NAMESPACE.svc.cluster.local. May be given more than once.
    #[arg(long = "service", value_name = "NAME.NAMESPACE")]
    services: Vec<Service>,
    /// An additional host name or IP address for the server certificates. May be given more than once.
    #[arg(long = "host", value_name = "NAME|ADDRESS")]
    hosts: Vec<SubjectHost>,
    /// A client for which a certificate is made, for mutual TLS. May be given more than once.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<ClientName>,
    /// The number of days for which the certificates are valid, but no longer than the CA. A new CA is valid for ten
    /// years.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// The certificate of the CA that signs the new certificates. The CA's key is next to it, with the extension `.key`
    /// [default: ca.pem in the directory, created if it does not exist].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Replace certificates that exist, but keep the CA.
    #[arg(long)]
    force: bool,
    /// Replace certificates that have less than a third of their validity left, that are for other names, or that the
    /// CA did not sign. Keep all other certificates, and the CA.
    #[arg(long, conflicts_with = "force")]
    renew: bool,
    /// Replace the CA in the directory with a new one. Then ca.pem holds the new and the previous CA, so that
    /// certificates of the previous CA, which are kept, remain trusted.
    #[arg(long, conflicts_with_all = ["force", "renew", "ca"])]
    new_ca: bool,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

impl Arguments {
    fn subjects(&self) -> Vec<CertificateSubject> {
        let of_service = |service: &Service| {
            let service_hosts = service.hosts().into_iter();
            CertificateSubject::Server(service_hosts.chain(self.hosts.iter().cloned()).collect())
        };
        let mut subjects: Vec<_> = self.services.iter().map(of_service).collect();
        if subjects.is_empty() && !self.hosts.is_empty() {
            subjects.push(CertificateSubject::Server(self.hosts.clone()));
        }
        subjects.extend(self.clients.iter().cloned().map(CertificateSubject::Client));
        subjects
    }
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let report = make_certificates(arguments, Moment::now().0.into())?;
    arguments.output.print(&report, CertificateReport::to_string)
}

fn creation_error(subject: impl Display) -> impl FnOnce(rcgen::Error) -> String {
    move |error| format!("{subject} cannot be made: {error}")
}

/// If the CA is valid for less than this time, the report advises making a new one.
const LAST_YEAR: Duration = Duration::days(365);

fn make_certificates(arguments: &Arguments, now: OffsetDateTime) -> crate::Result<CertificateReport> {
    let ca_files = match &arguments.ca {
        Some(path) => CertificateFiles {
            certificate: path.clone(),
            key: path.with_extension("key"),
        },
        None => CertificateFiles::in_directory(&arguments.out, "ca"),
    };
    let subjects = plan_files(arguments, &ca_files)?;
    let replace = arguments.force || arguments.renew;
    let paths = subjects.iter().flat_map(|(_, files)| files.paths());
    let existing: Vec<_> = paths.filter(|path| path.exists()).collect();
    if !existing.is_empty() && !replace {
        let verb = if existing.len() == 1 { "exists" } else { "exist" };
        return Err(format!(
            "{} already {verb}; give --renew or --force to replace, or another --out",
            files::join_paths(&existing)
        )
        .into());
    }

    let (authority, is_new) = read_or_make_authority(&ca_files, arguments, now)?;
    let mut certificates = Vec::new();
    for (subject, files) in subjects {
        let current_pair = arguments.renew.then(|| read_pair(&files).ok()).flatten();
        let current_expiry =
            current_pair.and_then(|[certificate, key]| authority.expiry_if_valid(&certificate, &key, &subject, now));
        let not_after = match current_expiry {
            Some(not_after) => not_after,
            None => {
                let issued = authority
                    .issue(&subject, arguments.days, now)
                    .map_err(creation_error(files.certificate.display()))?;
                write_pair(&files, &issued.certificate, &issued.key, replace)?;
                issued.not_after
            }
        };
        certificates.push(CertificateEntry {
            kind: subject.kind(),
            names: subject.names(),
            entry: FileEntry {
                files,
                is_new: current_expiry.is_none(),
                not_after,
            },
        });
    }
    Ok(CertificateReport {
        ca: FileEntry {
            files: ca_files,
            is_new,
            not_after: authority.not_after,
        },
        certificates,
        ca_bundle: BASE64_STANDARD.encode(&authority.pem),
        ca_expires_soon: authority.not_after - now < LAST_YEAR,
    })
}

fn plan_files(
    arguments: &Arguments,
    ca_files: &CertificateFiles,
) -> Result<Vec<(CertificateSubject, CertificateFiles)>, String> {
    let mut reserved_paths = vec![ca_files.certificate.clone(), arguments.out.join("ca.pem")];
    let mut plan = Vec::new();
    for subject in arguments.subjects() {
        let files = CertificateFiles::in_directory(&arguments.out, &subject.file_name());
        if reserved_paths.contains(&files.certificate) {
            return Err(format!(
                "two certificates would both be written to {}; change one of the names",
                files.certificate.display()
            ));
        }
        reserved_paths.push(files.certificate.clone());
        plan.push((subject, files));
    }
    Ok(plan)
}

fn read_or_make_authority(
    files: &CertificateFiles,
    arguments: &Arguments,
    now: OffsetDateTime,
) -> crate::Result<(Authority, bool)> {
    let unusable = |reason| format!("{} cannot sign certificates: {reason}", files.certificate.display());
    let half = |present: &PathBuf, absent: &PathBuf| {
        let (present, absent) = (present.display(), absent.display());
        format!("{present} exists but {absent} does not; restore it, or move the other file away to make a new CA")
    };
    match files.paths().map(|path| path.exists()) {
        [true, true] => {
            let [certificates, key] = read_pair(files)?;
            if !arguments.new_ca {
                let authority = Authority::from_pem(&certificates, &key, now).map_err(unusable)?;
                return Ok((authority, false));
            }
            let authority = Authority::new_successor(&certificates, &key, now).map_err(unusable)?;
            // ca.pem is replaced first, and ca.key after it. If the program is interrupted in between, ca.key is still
            // the key of the previous CA. This works: the new ca.pem contains the certificate of the previous CA too.
            let certificates = FileDraft::new(&files.certificate, authority.pem.as_bytes(), PUBLIC_MODE)?;
            let key = FileDraft::new(&files.key, authority.key_pem().as_bytes(), SECRET_MODE)?;
            certificates.publish(true)?;
            key.publish(true)?;
            Ok((authority, true))
        }
        [true, false] => Err(half(&files.certificate, &files.key).into()),
        [false, true] => Err(half(&files.key, &files.certificate).into()),
        [false, false] if arguments.ca.is_some() => {
            Err(format!("{}: the file does not exist", files.certificate.display()).into())
        }
        [false, false] => {
            let authority = Authority::new(now).map_err(creation_error(files.certificate.display()))?;
            write_pair(files, &authority.pem, &authority.key_pem(), false)?;
            Ok((authority, true))
        }
    }
}

/// Two files cannot be replaced at once. The key is written first, because a certificate without its key causes less
/// clear errors than a key without its certificate.
fn write_pair(files: &CertificateFiles, certificate: &str, key: &str, replace: bool) -> Result<(), String> {
    let directory = files::parent_directory(&files.certificate);
    fs::create_dir_all(directory).map_err(files::error_at(directory))?;
    let key = FileDraft::new(&files.key, key.as_bytes(), SECRET_MODE)?;
    let certificate = FileDraft::new(&files.certificate, certificate.as_bytes(), PUBLIC_MODE)?;
    key.publish(replace)?;
    certificate.publish(replace)
}

fn read_pair(files: &CertificateFiles) -> Result<[String; 2], String> {
    Ok([files::read(&files.certificate)?, files::read(&files.key)?])
}
