//! The certificate of the webhook server, and the CA that the API server trusts for it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_net::tls::{self, Trust};
use rustls::{
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{ServerName, UnixTime};
use time::{Date, OffsetDateTime};

use super::layout::{Label, Name};
use crate::certs::{Service, ServiceCertificate};

/// Validated certificates, as PEM.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
    /// The last day of the certificate.
    pub(super) ends: Date,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("{path}: {reason}; {fix}", path = path.display())]
    File {
        path: PathBuf,
        reason: String,
        fix: String,
    },
    #[error("the certificate cannot be made: {0}")]
    Make(String),
}

/// The validity of certificates that are made for the manifests.
const DAYS: u16 = 365;

/// The host that the API server calls, which the certificate must have.
fn host(name: &Name, namespace: &Label) -> String {
    format!("{name}.{namespace}.svc")
}

impl Certificates {
    /// New ones, from a new CA.
    pub(super) fn make(
        name: &Name,
        namespace: &Label,
        now: OffsetDateTime,
    ) -> Result<Self, CertificateError> {
        let service: Service = format!("{name}.{namespace}")
            .parse()
            .map_err(|error: &str| CertificateError::Make(error.to_owned()))?;
        let made = ServiceCertificate::make(&service, DAYS, now)
            .map_err(|error| CertificateError::Make(error.to_string()))?;
        Self::of(
            made.authority,
            made.certificate,
            made.key,
            &host(name, namespace),
            now,
        )
        .map_err(|(_, reason)| CertificateError::Make(reason))
    }

    /// Those that `admittance certs --service NAME.NAMESPACE` wrote to this directory.
    pub(super) fn read(
        directory: &Path,
        name: &Name,
        namespace: &Label,
        now: OffsetDateTime,
    ) -> Result<Self, CertificateError> {
        let make = format!(
            "admittance certs --service {name}.{namespace} --out {}",
            directory.display()
        );
        let files = [
            "ca.pem".to_owned(),
            format!("{name}.{namespace}.pem"),
            format!("{name}.{namespace}.key"),
        ]
        .map(|file| directory.join(file));
        let read = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|error| CertificateError::File {
                path: path.clone(),
                reason: error.to_string(),
                fix: format!("make it with `{make}`"),
            })
        };
        let [authority, certificate, key] = files.each_ref().map(read);
        let read = Self::of(authority?, certificate?, key?, &host(name, namespace), now);
        read.map_err(|(part, reason)| CertificateError::File {
            path: match (part, files) {
                (Part::Authority, [path, _, _])
                | (Part::Certificate, [_, path, _])
                | (Part::Key, [_, _, path]) => path,
            },
            reason,
            fix: format!("make a new certificate with `{make} --force`"),
        })
    }

    /// Validates the certificates as the API server does.
    fn of(
        authority: String,
        certificate: String,
        key: String,
        host: &str,
        now: OffsetDateTime,
    ) -> Result<Self, (Part, String)> {
        fn at<E: std::fmt::Display>(part: Part) -> impl Fn(E) -> (Part, String) {
            move |error| (part, error.to_string())
        }
        if authority.contains("PRIVATE KEY") {
            return Err((
                Part::Authority,
                "it contains a private key, which would become public".to_owned(),
            ));
        }
        let roots = tls::certificates_in(authority.as_bytes()).map_err(at(Part::Authority))?;
        let roots = Trust::Only(&roots).roots().map_err(at(Part::Authority))?;
        let chain = tls::certificates_in(certificate.as_bytes()).map_err(at(Part::Certificate))?;
        let private = tls::private_key_in(key.as_bytes()).map_err(at(Part::Key))?;
        let provider = tls::provider();
        CertifiedKey::from_der(chain.clone(), private, &provider)
            .and_then(|identity| identity.keys_match())
            .map_err(at(Part::Key))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(at(Part::Authority))?;
        let name = ServerName::try_from(host).map_err(at(Part::Certificate))?;
        let (end, others) = chain
            .split_first()
            .ok_or_else(|| (Part::Certificate, "it holds no certificate".to_owned()))?;
        let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier
            .verify_server_cert(end, others, &name, &[], time)
            .map_err(|error| {
                let reason = format!("the API server would not accept it for {host}: {error}");
                (Part::Certificate, reason)
            })?;
        let ends = tls::not_after(end)
            .ok_or_else(|| (Part::Certificate, "its expiry date is not valid".to_owned()))?;
        Ok(Self {
            authority,
            certificate,
            key,
            ends: OffsetDateTime::from(ends).date(),
        })
    }
}

/// The invalid file.
#[derive(Clone, Copy, Debug)]
enum Part {
    Authority,
    Certificate,
    Key,
}
