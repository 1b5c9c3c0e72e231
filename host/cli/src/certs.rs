//! `admittance certs`: a CA, and certificates that it signs.

mod authority;
mod files;
mod made;
mod making;
mod service;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf};

use clap::Args;
use time::OffsetDateTime;

pub(crate) use self::{authority::Service, service::ServiceCertificate};
use self::{
    authority::{Client, Host, Subject},
    making::make,
};
use crate::output::Output;

/// Make certificates for webhook servers: a CA, and server certificates with the names that callers check.
///
/// Each --service gets its own certificate, which also includes every --host. Without --service, the hosts
/// share one. An existing CA in the directory is reused, so that clients that trust it continue to work.
///
/// To keep certificates valid, run the same command with --renew, for instance daily: the driver reloads
/// replaced certificates while it runs. To rotate the CA without downtime, run with --new-ca, distribute
/// ca.pem or the `caBundle:` line, which then hold both CAs, and run with --renew after that.
///
/// Prints the `caBundle:` line for chain and webhook definitions.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory that the files are written to.
    #[arg(long, value_name = "DIRECTORY", default_value = "certs")]
    out: PathBuf,
    /// A service to make a server certificate for: it is valid for NAME.NAMESPACE,
    /// NAME.NAMESPACE.svc and NAME.NAMESPACE.svc.cluster.local. May be given more than once.
    #[arg(long = "service", value_name = "NAME.NAMESPACE")]
    services: Vec<Service>,
    /// An additional host name or IP address for the server certificates. May be given more than once.
    #[arg(long = "host", value_name = "NAME|ADDRESS")]
    hosts: Vec<Host>,
    /// A client to make a certificate for, for mutual TLS. May be given more than once.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<Client>,
    /// How many days the certificates are valid, but no longer than the CA. A new CA is valid for ten
    /// years.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// The certificate of the CA to sign with; its key is next to it, with the extension `.key` [default:
    /// ca.pem in the directory, created if it does not exist].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Replace existing certificates. The CA stays.
    #[arg(long)]
    force: bool,
    /// Replace existing certificates that have less than a third of their validity left, that have other
    /// names, or that the CA did not sign. The others, and the CA, stay.
    #[arg(long, conflicts_with = "force")]
    renew: bool,
    /// Replace the CA in the directory with a new one. ca.pem then holds the new and the previous CA;
    /// existing certificates stay.
    #[arg(long, conflicts_with_all = ["force", "renew", "ca"])]
    new_ca: bool,
    /// How to print what was made.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

impl Arguments {
    /// The certificates to make.
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

/// Makes, writes and prints the certificates.
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
        "{present} exists but {absent} does not; restore it, or move the other file away to make a new CA",
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
