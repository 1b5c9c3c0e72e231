//! `admittance certs`: a CA, and certificates that it signs.

mod authority;
mod service;

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::json;
use tempfile::NamedTempFile;
use time::OffsetDateTime;

use self::authority::{Authority, Client, Host, Subject};
pub(crate) use self::{authority::Service, service::ServiceCertificate};
use crate::output::Output;

/// Make certificates for webhook servers: a CA, and what it signs, with the names that callers check.
///
/// Each --service gets a certificate of its own, which also holds every --host. Without --service, the
/// hosts share one. The CA in the directory is used again if there is one, so that what trusts it goes
/// on working.
///
/// To keep certificates good, run the same command with --renew, daily for instance: the driver takes a
/// replaced certificate as it runs. To change the CA without a gap, run with --new-ca, hand out ca.pem or
/// the `caBundle:` line, which then hold both CAs, and run with --renew after that.
///
/// Prints the `caBundle:` line for chain and webhook definitions.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory that the files are written to.
    #[arg(long, value_name = "DIRECTORY", default_value = "certs")]
    out: PathBuf,
    /// A service to make a server certificate for: it is valid for NAME.NAMESPACE,
    /// NAME.NAMESPACE.svc and NAME.NAMESPACE.svc.cluster.local. May be given again.
    #[arg(long = "service", value_name = "NAME.NAMESPACE")]
    services: Vec<Service>,
    /// A further host name or IP address for the server certificates. May be given again.
    #[arg(long = "host", value_name = "NAME|ADDRESS")]
    hosts: Vec<Host>,
    /// A client to make a certificate for, for mutual TLS. May be given again.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<Client>,
    /// How many days the certificates are valid, but no longer than the CA. A new CA is valid for ten
    /// years.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// The certificate of the CA to sign with; its key is beside it, with the ending `.key` [default:
    /// ca.pem in the directory, made if it is not there].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Replace certificates that are there. The CA stays.
    #[arg(long)]
    force: bool,
    /// Replace those of the certificates that are there of which less than a third of their time is left,
    /// that have other names, or that the CA did not sign. The others, and the CA, stay.
    #[arg(long, conflicts_with = "force")]
    renew: bool,
    /// Make a new CA in place of the one in the directory. ca.pem then holds the new one and the one
    /// before; certificates that are there stay.
    #[arg(long, conflicts_with_all = ["force", "renew", "ca"])]
    new_ca: bool,
    /// How to print what was made.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

impl Arguments {
    /// A row for each certificate to make.
    fn subjects(&self) -> Vec<Subject> {
        let of_service = |service: &Service| {
            let own = service.names().map(Host::Name);
            Subject::Server(own.into_iter().chain(self.hosts.iter().cloned()).collect())
        };
        let mut subjects: Vec<_> = self.services.iter().map(of_service).collect();
        if subjects.is_empty() && !self.hosts.is_empty() {
            subjects.push(Subject::Server(self.hosts.clone()));
        }
        subjects.extend(self.clients.iter().cloned().map(Subject::Client));
        subjects
    }
}

/// Make what the arguments say, write it, and print it.
pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let made = make(arguments, OffsetDateTime::now_utc())?;
    match arguments.output {
        Output::Text => anstream::print!("{made}"),
        Output::Json => anstream::println!("{:#}", made.to_json()),
    }
    Ok(())
}

/// Why certificates cannot be made or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} there already; give --renew or --force to replace, or another --out", are(.0))]
    Exists(Vec<PathBuf>),
    #[error("two certificates would both be written to {path}; change one of the names", path = .0.display())]
    SameFile(PathBuf),
    #[error(
        "{present} is there and {absent} is not; bring it back, or move the other away to make a new CA",
        present = present.display(),
        absent = absent.display()
    )]
    HalfAuthority { present: PathBuf, absent: PathBuf },
    #[error("{path} cannot sign certificates: {reason}", path = path.display())]
    Authority { path: PathBuf, reason: String },
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

fn are(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    format!(
        "{} {}",
        names.join(", "),
        if names.len() == 1 { "is" } else { "are" }
    )
}

/// What was made, and where it is.
#[derive(Debug)]
struct Made {
    authority: Files,
    authority_is_new: bool,
    authority_ends: OffsetDateTime,
    authority_ends_soon: bool,
    certificates: Vec<Certificate>,
    ca_bundle: String,
}

/// A certificate that was asked for.
#[derive(Debug)]
struct Certificate {
    subject: Subject,
    files: Files,
    /// Whether it was made just now; otherwise it was there and is still good.
    is_new: bool,
    ends: OffsetDateTime,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        }
    }

    fn paths(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }

    /// Both are on the disk before the first of them takes its place, so that whoever reads them meanwhile
    /// is hardly ever given one old and one new. The key first: a certificate without its key is of no use,
    /// and says so less clearly.
    fn write(&self, certificate: &str, key: &str, replace: bool) -> Result<(), Error> {
        let key = Written::new(&self.key, key, SECRET)?;
        let certificate = Written::new(&self.certificate, certificate, PUBLIC)?;
        key.keep(replace)?;
        certificate.keep(replace)
    }

    fn read(&self) -> Result<[String; 2], Error> {
        let [certificate, key] = self.paths().map(|path| {
            std::fs::read_to_string(path).map_err(|source| Error::File {
                path: path.to_owned(),
                source,
            })
        });
        Ok([certificate?, key?])
    }
}

/// Make and write everything, or nothing that was there already.
fn make(arguments: &Arguments, now: OffsetDateTime) -> Result<Made, Error> {
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

/// A CA with no more time than this should have a successor.
const LAST_YEAR: time::Duration = time::Duration::days(365);

/// The CA to sign with, and whether it was made just now.
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
            // The certificates first: they say which of them the key is for, the old one or the new.
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

/// Who may read a file.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// A file that is on the disk and not yet in its place: it comes there whole, or not at all.
struct Written<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Written<'a> {
    fn new(path: &'a Path, text: &str, mode: u32) -> Result<Self, Error> {
        let at = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(at)?;
        // Only its owner may read it until it says otherwise.
        let mut file = NamedTempFile::new_in(directory).map_err(at)?;
        file.write_all(text.as_bytes()).map_err(at)?;
        set_mode(file.as_file(), mode).map_err(at)?;
        file.as_file().sync_all().map_err(at)?;
        Ok(Self { path, file })
    }

    fn keep(self, replace: bool) -> Result<(), Error> {
        let kept = if replace {
            self.file.persist(self.path)
        } else {
            self.file.persist_noclobber(self.path)
        };
        kept.map(drop).map_err(|error| Error::File {
            path: self.path.to_owned(),
            source: error.error,
        })
    }
}

#[cfg(unix)]
fn set_mode(file: &std::fs::File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &std::fs::File, _: u32) -> io::Result<()> {
    Ok(())
}

impl Made {
    fn to_json(&self) -> serde_json::Value {
        let certificates: Vec<_> = self
            .certificates
            .iter()
            .map(|certificate| {
                json!({
                    "kind": certificate.subject.kind(),
                    "names": certificate.subject.names(),
                    "certificate": certificate.files.certificate,
                    "key": certificate.files.key,
                    "new": certificate.is_new,
                    "notAfter": rfc3339(certificate.ends),
                })
            })
            .collect();
        json!({
            "ca": {
                "certificate": self.authority.certificate,
                "key": self.authority.key,
                "new": self.authority_is_new,
                "notAfter": rfc3339(self.authority_ends),
            },
            "certificates": certificates,
            "caBundle": self.ca_bundle,
        })
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Files { certificate, key } = &self.authority;
        let verb = if self.authority_is_new { "wrote" } else { "used" };
        writeln!(
            f,
            "{verb} {}, the CA, valid until {}",
            certificate.display(),
            self.authority_ends.date()
        )?;
        writeln!(
            f,
            "{verb} {}, its key: keep it where nobody else can read it",
            key.display()
        )?;
        if self.authority_ends_soon {
            writeln!(
                f,
                "the CA is valid for less than a year: make its successor with --new-ca"
            )?;
        }
        for made in &self.certificates {
            let Files { certificate, key } = &made.files;
            let verb = if made.is_new { "wrote" } else { "kept" };
            writeln!(
                f,
                "{verb} {}, for the {} {}, valid until {}",
                certificate.display(),
                made.subject.kind(),
                made.subject.names().join(", "),
                made.ends.date(),
            )?;
            writeln!(f, "{verb} {}, its key", key.display())?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "Paste this line under `webhook:` of the stage in an AdmissionChain, or under `clientConfig:`"
        )?;
        writeln!(
            f,
            "in a BCS admissionwebhook or a Kubernetes webhook configuration:"
        )?;
        writeln!(f)?;
        writeln!(f, "caBundle: {}", self.ca_bundle)
    }
}

fn rfc3339(time: OffsetDateTime) -> String {
    humantime::format_rfc3339_seconds(SystemTime::from(time)).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        server::WebPkiClientVerifier,
    };
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
    use tempfile::TempDir;
    use time::Duration;
    use x509_parser::extensions::GeneralName;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn now() -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    /// The command line, written to the directory.
    fn arguments(directory: &TempDir, line: &str) -> Arguments {
        let out = ["certs", "--out", directory.path().to_str().unwrap()];
        Command::try_parse_from(out.into_iter().chain(line.split_whitespace()))
            .unwrap()
            .arguments
    }

    fn certs(directory: &TempDir, line: &str) -> Result<Made, Error> {
        make(&arguments(directory, line), now())
    }

    fn der(path: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(path).unwrap()
    }

    fn roots(ca_bundle: &str) -> Arc<RootCertStore> {
        let pem = BASE64_STANDARD.decode(ca_bundle).unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Arc::new(roots)
    }

    fn serves(made: &Made, certificate: &Path, name: &str) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(&made.ca_bundle), provider)
            .build()
            .unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&der(certificate), &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    fn is_client(made: &Made, certificate: &Path) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots(&made.ca_bundle), provider)
            .build()
            .unwrap();
        verifier
            .verify_client_cert(&der(certificate), &[], UnixTime::now())
            .is_ok()
    }

    #[test]
    fn rustls_accepts_each_name_and_no_other() {
        let directory = TempDir::new().unwrap();
        let made = certs(
            &directory,
            "--service hook.ns --service images.image-ns --host localhost --host 127.0.0.1 --host ::1 \
             --host *.example.com --client driver",
        )
        .unwrap();
        for (file, names, others) in [
            (
                "hook.ns",
                &[
                    "hook.ns",
                    "hook.ns.svc",
                    "hook.ns.svc.cluster.local",
                    "localhost",
                    "127.0.0.1",
                    "::1",
                    "a.example.com",
                ][..],
                &["images.image-ns", "hook", "example.com", "127.0.0.2", "driver"][..],
            ),
            (
                "images.image-ns",
                &["images.image-ns", "images.image-ns.svc", "localhost"],
                &["hook.ns", "hook.ns.svc"],
            ),
            ("driver", &[], &["driver", "localhost"]),
        ] {
            let path = directory.path().join(format!("{file}.pem"));
            for name in names {
                assert!(serves(&made, &path, name), "{file} for {name}");
            }
            for name in others {
                assert!(!serves(&made, &path, name), "{file} for {name}");
            }
            assert_eq!(is_client(&made, &path), file == "driver", "{file}");
        }
    }

    /// What a reader of certificates other than rustls sees.
    #[test]
    fn what_is_in_the_certificates() {
        let directory = TempDir::new().unwrap();
        let made = certs(&directory, "--service hook.ns --host 127.0.0.1 --days 30").unwrap();
        let files = &made.certificates[0].files;
        let leaf = der(&files.certificate);
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap().value;
        let names: Vec<_> = names.general_names.iter().map(GeneralName::to_string).collect();
        assert_eq!(
            names,
            [
                "DNSName(hook.ns)",
                "DNSName(hook.ns.svc)",
                "DNSName(hook.ns.svc.cluster.local)",
                "IPAddress(7f:00:00:01)"
            ]
        );
        assert_eq!(leaf.subject().to_string(), "CN=hook.ns");
        assert!(!leaf.is_ca());
        assert!(leaf.extended_key_usage().unwrap().unwrap().value.server_auth);
        let days = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
            (certificate.validity().not_after.timestamp() - now().unix_timestamp() + 60) / 86_400
        };
        assert_eq!(days(&leaf), 30);

        let authority = der(&made.authority.certificate);
        let (_, authority) = x509_parser::parse_x509_certificate(&authority).unwrap();
        assert!(authority.is_ca());
        assert_eq!(days(&authority), 3650);
        assert_eq!(leaf.issuer(), authority.subject());
    }

    #[test]
    fn the_authority_is_used_again() {
        let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let made = certs(&first, "--service hook.ns").unwrap();
        assert!(made.authority_is_new);

        let again = certs(&first, "--service other.ns").unwrap();
        assert!(!again.authority_is_new);
        assert_eq!(again.ca_bundle, made.ca_bundle);
        assert!(serves(&made, &first.path().join("other.ns.pem"), "other.ns.svc"));

        let ca = first.path().join("ca.pem");
        let elsewhere = certs(&second, &format!("--service third.ns --ca {}", ca.display())).unwrap();
        assert_eq!(elsewhere.ca_bundle, made.ca_bundle);
        assert!(serves(&made, &second.path().join("third.ns.pem"), "third.ns"));
        assert!(!second.path().join("ca.pem").exists());

        // --force is for certificates, not for the CA.
        let forced = certs(&first, "--service hook.ns --force").unwrap();
        assert_eq!(forced.ca_bundle, made.ca_bundle);
    }

    #[test]
    fn nothing_is_overwritten_without_force() {
        let directory = TempDir::new().unwrap();
        certs(&directory, "--service hook.ns").unwrap();
        let read = || std::fs::read(directory.path().join("hook.ns.key")).unwrap();
        let before = read();
        let error = certs(&directory, "--service new.ns --service hook.ns").unwrap_err();
        assert!(
            matches!(&error, Error::Exists(paths) if paths.len() == 2),
            "{error}"
        );
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(read(), before);
        assert!(!directory.path().join("new.ns.pem").exists(), "all or nothing");

        certs(&directory, "--service hook.ns --force").unwrap();
        assert_ne!(read(), before);
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_for_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let directory = TempDir::new().unwrap();
        certs(&directory, "--service hook.ns --client driver").unwrap();
        let mut seen = 0;
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let entry = entry.unwrap();
            let is_key = entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "key");
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if is_key { 0o600 } else { 0o644 }, "{:?}", entry.path());
            seen += 1;
        }
        assert_eq!(seen, 6, "no temporary file is left");
    }

    /// Each row: what happens to the certificates of `--service hook.ns --days 90`, how many days later which
    /// line is given with `--renew`, and whether the certificate is made anew.
    #[test]
    fn renewal_replaces_what_is_not_good_any_more() {
        const LINE: &str = "--service hook.ns";
        type Change = fn(&Path);
        let cases: [(&str, Change, i64, &str, bool); 11] = [
            ("fresh", |_| {}, 0, LINE, false),
            ("two thirds of its time are not over", |_| {}, 59, LINE, false),
            ("less than a third is left", |_| {}, 61, LINE, true),
            ("it has expired", |_| {}, 91, LINE, true),
            (
                "another name",
                |_| {},
                0,
                "--service hook.ns --host localhost",
                true,
            ),
            ("the same name as a host", |_| {}, 0, "--host hook.ns", true),
            ("a client", |_| {}, 0, "--client hook.ns", true),
            (
                "no key",
                |at| std::fs::remove_file(at.join("hook.ns.key")).unwrap(),
                0,
                LINE,
                true,
            ),
            (
                "another key",
                |at| {
                    std::fs::copy(at.join("ca.key"), at.join("hook.ns.key")).unwrap();
                },
                0,
                LINE,
                true,
            ),
            (
                "no certificate in it",
                |at| std::fs::write(at.join("hook.ns.pem"), "x").unwrap(),
                0,
                LINE,
                true,
            ),
            (
                "another CA",
                |at| {
                    std::fs::remove_file(at.join("ca.pem")).unwrap();
                    std::fs::remove_file(at.join("ca.key")).unwrap();
                },
                0,
                LINE,
                true,
            ),
        ];
        for (case, change, days, line, expected) in cases {
            let directory = TempDir::new().unwrap();
            certs(&directory, "--service hook.ns --days 90").unwrap();
            change(directory.path());
            let path = directory.path().join("hook.ns.pem");
            let before = std::fs::read(&path).unwrap();
            let line = arguments(&directory, &format!("{line} --renew --days 90"));
            let made = make(&line, now() + Duration::days(days)).unwrap();
            assert_eq!(made.certificates[0].is_new, expected, "{case}");
            assert_eq!(std::fs::read(&path).unwrap() != before, expected, "{case}");
            assert_eq!(made.to_json()["certificates"][0]["new"], expected, "{case}");
            let verb = if expected { "wrote" } else { "kept" };
            let told = format!("{verb} {}", path.display());
            assert!(made.to_string().contains(&told), "{case}: {made}");
            // Once more changes nothing.
            let again = make(&line, now() + Duration::days(days)).unwrap();
            assert!(!again.certificates[0].is_new, "{case}");
        }
    }

    #[test]
    fn what_is_not_there_is_made_by_renewal_too() {
        let directory = TempDir::new().unwrap();
        let made = certs(&directory, "--service hook.ns --client driver --renew").unwrap();
        assert!(made.authority_is_new);
        assert!(made.certificates.iter().all(|certificate| certificate.is_new));
        let made = certs(&directory, "--service hook.ns --host ::1 --client driver --renew").unwrap();
        let new: Vec<_> = made.certificates.iter().map(|made| made.is_new).collect();
        assert_eq!(new, [true, false]);
        let made = certs(&directory, "--service hook.ns --host ::1 --client driver --renew").unwrap();
        assert!(!made.certificates[0].is_new, "an address is known again");
    }

    #[test]
    fn a_new_authority_is_trusted_beside_the_one_before() {
        let directory = TempDir::new().unwrap();
        let leaf = directory.path().join("hook.ns.pem");
        let first = certs(&directory, "--service hook.ns").unwrap();
        let first_key = std::fs::read(directory.path().join("ca.key")).unwrap();

        let second = certs(&directory, "--new-ca").unwrap();
        assert!(second.authority_is_new);
        let bundle = std::fs::read(directory.path().join("ca.pem")).unwrap();
        assert_eq!(BASE64_STANDARD.decode(&second.ca_bundle).unwrap(), bundle);
        assert_eq!(roots(&second.ca_bundle).len(), 2);
        assert!(
            serves(&second, &leaf, "hook.ns"),
            "it was not touched, and is trusted still"
        );

        // When it stopped between the two files, the CA is the one whose key is there.
        let second_key = std::fs::read(directory.path().join("ca.key")).unwrap();
        std::fs::write(directory.path().join("ca.key"), first_key).unwrap();
        certs(&directory, "--service between.ns").unwrap();
        assert!(serves(
            &first,
            &directory.path().join("between.ns.pem"),
            "between.ns"
        ));
        std::fs::write(directory.path().join("ca.key"), second_key).unwrap();

        let renewed = certs(&directory, "--service hook.ns --renew").unwrap();
        assert!(renewed.certificates[0].is_new && !renewed.authority_is_new);
        assert!(serves(&second, &leaf, "hook.ns"));
        assert!(!serves(&first, &leaf, "hook.ns"), "the new one signs");

        let third = certs(&directory, "--new-ca").unwrap();
        assert_eq!(roots(&third.ca_bundle).len(), 2, "the first is gone");
        assert!(serves(&third, &leaf, "hook.ns"));

        let much_later = make(&arguments(&directory, "--new-ca"), now() + Duration::days(3651)).unwrap();
        assert_eq!(
            roots(&much_later.ca_bundle).len(),
            1,
            "what has expired is not trusted"
        );
    }

    #[test]
    fn the_last_year_of_an_authority_is_told() {
        let directory = TempDir::new().unwrap();
        certs(&directory, "").unwrap();
        for (days, expected) in [(0, false), (3284, false), (3286, true)] {
            let made = make(&arguments(&directory, ""), now() + Duration::days(days)).unwrap();
            assert_eq!(made.to_string().contains("--new-ca"), expected, "{days}");
        }
    }

    /// Each row changes the files of a good CA.
    #[test]
    fn a_broken_authority_is_refused() {
        type Change = fn(&Path);
        let cases: [(&str, Change, &str); 7] = [
            (
                "no key",
                |at| std::fs::remove_file(at.join("ca.key")).unwrap(),
                "bring it back",
            ),
            (
                "no certificate",
                |at| std::fs::remove_file(at.join("ca.pem")).unwrap(),
                "bring it back",
            ),
            (
                "no PEM",
                |at| std::fs::write(at.join("ca.pem"), "x").unwrap(),
                "0 certificates",
            ),
            (
                "broken key",
                |at| std::fs::write(at.join("ca.key"), "x").unwrap(),
                "key cannot be read",
            ),
            (
                "another key",
                |at| {
                    std::fs::copy(at.join("hook.ns.key"), at.join("ca.key")).unwrap();
                },
                "not its key",
            ),
            (
                "not a CA",
                |at| {
                    std::fs::copy(at.join("hook.ns.key"), at.join("ca.key")).unwrap();
                    std::fs::copy(at.join("hook.ns.pem"), at.join("ca.pem")).unwrap();
                },
                "CA:TRUE",
            ),
            (
                "the key in the same file",
                |at| {
                    let both =
                        ["ca.pem", "ca.key"].map(|name| std::fs::read_to_string(at.join(name)).unwrap());
                    std::fs::write(at.join("ca.pem"), both.concat()).unwrap();
                },
                "a file of its own",
            ),
        ];
        for (case, change, part) in cases {
            let directory = TempDir::new().unwrap();
            certs(&directory, "--service hook.ns").unwrap();
            change(directory.path());
            let error = certs(&directory, "--service other.ns").unwrap_err();
            assert!(error.to_string().contains(part), "{case}: {error}");
            assert!(!directory.path().join("other.ns.pem").exists(), "{case}");
        }
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let directory = TempDir::new().unwrap();
        let line = "--service hook.ns --days 3650";
        let made = certs(&directory, line).unwrap();
        let later = now() + Duration::days(3000);
        let again = make(&arguments(&directory, "--service other.ns --days 3650"), later).unwrap();
        assert_eq!(again.certificates[0].ends.date(), made.authority_ends.date());
        let too_late = now() + Duration::days(3651);
        let error = make(&arguments(&directory, "--service third.ns"), too_late).unwrap_err();
        assert!(error.to_string().contains("expired"), "{error}");
    }

    #[test]
    fn file_names() {
        for (line, expected) in [
            ("", Ok(vec!["ca"])),
            ("--host localhost --host 127.0.0.1", Ok(vec!["ca", "localhost"])),
            ("--host ::1", Ok(vec!["ca", "__1"])),
            ("--host *.example.com", Ok(vec!["ca", "_.example.com"])),
            ("--service hook.ns --host localhost", Ok(vec!["ca", "hook.ns"])),
            ("--client driver", Ok(vec!["ca", "driver"])),
            ("--service hook.ns --client hook.ns", Err("both be written")),
            ("--client ca", Err("both be written")),
            ("--client a --ca /nowhere/ca.pem", Err("/nowhere/ca.pem")),
        ] {
            let directory = TempDir::new().unwrap();
            match (certs(&directory, line), expected) {
                (Ok(_), Ok(names)) => {
                    for name in &names {
                        assert!(
                            directory.path().join(format!("{name}.pem")).exists(),
                            "{line}: {name}"
                        );
                        assert!(
                            directory.path().join(format!("{name}.key")).exists(),
                            "{line}: {name}"
                        );
                    }
                    let count = std::fs::read_dir(directory.path()).unwrap().count();
                    assert_eq!(count, 2 * names.len(), "{line}");
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{line}: {error}"),
                (made, _) => panic!("{line}: {made:?}"),
            }
        }
    }

    #[test]
    fn arguments_are_checked() {
        for (line, ok) in [
            ("--service hook.ns", true),
            ("--service hook", false),
            ("--service hook.ns.svc", false),
            ("--service hook.", false),
            ("--service ../x.ns", false),
            ("--host hooks.example.com", true),
            ("--host hooks.example.com:443", false),
            ("--host https://hooks.example.com", false),
            ("--host a/../b", false),
            ("--client driver_1.a-b", true),
            ("--client a/b", false),
            ("--renew", true),
            ("--renew --force", false),
            ("--new-ca", true),
            ("--new-ca --renew", false),
            ("--new-ca --force", false),
            ("--new-ca --ca ca.pem", false),
            ("--days 0", false),
            ("--days 3651", false),
        ] {
            let parsed = Command::try_parse_from(["certs"].into_iter().chain(line.split_whitespace()));
            assert_eq!(parsed.is_ok(), ok, "{line}");
        }
    }

    #[test]
    fn the_bundle_is_one_line_to_paste() {
        let directory = TempDir::new().unwrap();
        let made = certs(&directory, "--service hook.ns --client driver").unwrap();
        let text = made.to_string();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("caBundle: "))
            .unwrap();
        let pem = std::fs::read(directory.path().join("ca.pem")).unwrap();
        assert_eq!(BASE64_STANDARD.decode(line).unwrap(), pem);
        for part in ["hook.ns.pem", "driver.key", "under `webhook:`", "`clientConfig:`"] {
            assert!(text.contains(part), "{part} in {text}");
        }

        let json = made.to_json();
        assert_eq!(json["caBundle"], line);
        assert_eq!(json["ca"]["new"], true);
        assert_eq!(json["certificates"][0]["kind"], "server");
        assert_eq!(json["certificates"][0]["names"][1], "hook.ns.svc");
        assert_eq!(json["certificates"][1]["names"][0], "driver");
        let ends = json["certificates"][0]["notAfter"].as_str().unwrap();
        assert!(humantime::parse_rfc3339(ends).is_ok(), "{ends}");
    }
}
