//! Makes or reads the certificate of the webhook server, and the CA that the API server is to trust.

use std::{fmt::Display, path::Path, time::Duration};

use admittance_fleet::certificates;
use admittance_net::tls::{self, Trust};
use rustls::{
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{ServerName, UnixTime};
use time::{Date, OffsetDateTime};

use super::Installation;
use crate::files;

#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) last_day: Date,
}

const VALIDITY_DAYS: u16 = 365;

struct Pem {
    name: String,
    text: String,
}

impl Pem {
    fn pem_error(&self, reason: impl Display) -> String {
        format!("{}: {reason}", self.name)
    }
}

/// The address at which the API server calls a Pod on the same node.
pub(super) const LOOPBACK: &str = "127.0.0.1";

pub(super) struct CertifiedServer {
    host: String,
    file: String,
    pub(super) argument: String,
}

impl CertifiedServer {
    pub(super) fn from_installation(installation: &Installation) -> Self {
        if installation.static_pod {
            return Self {
                host: LOOPBACK.to_owned(),
                file: LOOPBACK.to_owned(),
                argument: format!("--host {LOOPBACK}"),
            };
        }
        let service = format!("{}.{}", installation.name, installation.namespace);
        Self {
            host: format!("{service}.svc"),
            argument: format!("--service {service}"),
            file: service,
        }
    }
}

impl Certificates {
    pub(super) fn make(installation: &Installation, now: OffsetDateTime) -> crate::Result<Self> {
        let Installation { name, namespace, .. } = installation;
        let creation = certificates::for_service(&format!("{name}.{namespace}").parse()?, VALIDITY_DAYS, now);
        let (authority, issued) = creation.map_err(|error| format!("the certificate cannot be made: {error}"))?;
        let pems = [authority, issued.certificate, issued.key].map(|text| Pem {
            name: "the new certificate".to_owned(),
            text,
        });
        Ok(Self::validate(
            pems,
            &CertifiedServer::from_installation(installation).host,
            now,
        )?)
    }

    pub(super) fn read(directory: &Path, installation: &Installation, now: OffsetDateTime) -> crate::Result<Self> {
        let server = CertifiedServer::from_installation(installation);
        let command = format!("admittance certs {} --out {}", server.argument, directory.display());
        let [authority, certificate, key] = [
            "ca.pem".to_owned(),
            format!("{}.pem", server.file),
            format!("{}.key", server.file),
        ]
        .map(|file| {
            let path = directory.join(file);
            let text = files::read(&path).map_err(|error| format!("{error}; make it with `{command}`"))?;
            let name = path.display().to_string();
            Ok::<_, String>(Pem { name, text })
        });
        let validated = Self::validate([authority?, certificate?, key?], &server.host, now);
        Ok(validated.map_err(|error| format!("{error}; make a new certificate with `{command} --force`"))?)
    }

    fn validate([authority, certificate, key]: [Pem; 3], host: &str, now: OffsetDateTime) -> Result<Self, String> {
        if authority.text.contains("PRIVATE KEY") {
            return Err(authority.pem_error("it contains a private key, which would become public"));
        }
        let roots = tls::certificates_in(authority.text.as_bytes()).map_err(|error| authority.pem_error(error))?;
        let roots = Trust::Only(&roots)
            .roots()
            .map_err(|error| authority.pem_error(error))?;
        let chain = tls::certificates_in(certificate.text.as_bytes()).map_err(|error| certificate.pem_error(error))?;
        let private = tls::private_key_in(key.text.as_bytes()).map_err(|error| key.pem_error(error))?;
        let provider = tls::provider();
        CertifiedKey::from_der(chain.clone(), private, &provider)
            .and_then(|identity| identity.keys_match())
            .map_err(|error| key.pem_error(error))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| authority.pem_error(error))?;
        let name = ServerName::try_from(host).map_err(|error| certificate.pem_error(error))?;
        let (end_entity, intermediates) = chain
            .split_first()
            .ok_or_else(|| certificate.pem_error("it holds no certificate"))?;
        let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier
            .verify_server_cert(end_entity, intermediates, &name, &[], time)
            .map_err(|error| {
                certificate.pem_error(format!("the API server would not accept it for {host}: {error}"))
            })?;
        let expiry = tls::not_after(end_entity).ok_or_else(|| certificate.pem_error("its expiry date is not valid"))?;
        Ok(Self {
            authority: authority.text,
            certificate: certificate.text,
            key: key.text,
            last_day: OffsetDateTime::from(expiry).date(),
        })
    }
}
