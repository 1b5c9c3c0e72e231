//! TLS configurations of servers and clients. They are validated when read, and reloaded when their files change.

mod advice;
mod certificate;
mod client;
mod pem;
mod reload;
mod server;
mod short_key;
mod short_rsa;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub use self::{
    advice::TlsAdvice,
    certificate::{not_after, subject_names},
    client::{ClientTls, InvalidServerName, Trust, client_config, client_of_short_keys},
    pem::{PemError, certificates, certificates_in, private_key, private_key_in},
    reload::{CertificateState, ReloadableTls},
    server::{ServerTls, TlsConnection},
    short_key::{SHORTEST_RSA_KEY, rsa_bits},
};

#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {problem}", path = path.display())]
    File { path: PathBuf, problem: PemError },
    /// The file contains a certificate that cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    Rejected { path: PathBuf, reason: String },
    /// The private key does not belong to the certificate.
    #[error(
        "the key {} does not belong to the certificate {}; name the key for which it was issued",
        .0.key.display(), .0.certificate.display()
    )]
    OtherKey(Identity),
    /// One of the CA certificates cannot be used. `number` is its position, which begins with 1.
    #[error("certificate {number} cannot be used: {source}")]
    Authority { number: usize, source: rustls::Error },
    /// The list of CAs that a client should trust is empty.
    #[error("it holds no certificate; put the PEM of at least one CA there")]
    NoAuthority,
    /// The operating system has no CAs. `details` is empty, or contains the reason after a colon.
    #[error("no CA certificates were found on this system{details}")]
    NoSystemAuthority { details: String },
    /// The crypto provider does not support the TLS versions that are required.
    #[error("TLS cannot be used: {0}")]
    Provider(rustls::Error),
}

impl TlsError {
    fn rejected(path: &Path, error: &dyn std::fmt::Display) -> Self {
        Self::Rejected {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// The PEM files with a certificate and its chain, and with its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    /// The file with the private key of the certificate. The key must not be encrypted.
    pub key: PathBuf,
}

type CertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Identity {
    fn load(&self) -> Result<CertificateAndKey, TlsError> {
        Ok((certificates(&self.certificate)?, private_key(&self.key)?))
    }
}

/// A certificate with its chain and private key, as PEM in memory instead of in files. Clones share the PEM.
#[derive(Clone, derive_more::Debug)]
// The output of `Debug` does not contain the private key, which is secret.
#[debug("SharedIdentity {{ source: {source:?}, .. }}")]
pub struct SharedIdentity {
    source: Arc<Path>,
    pem: Arc<Mutex<IdentityPem>>,
}

#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// The output of `Debug` does not contain the private key, which is secret.
#[debug("IdentityPem {{ certificate: {certificate:?}, .. }}")]
pub struct IdentityPem {
    pub certificate: String,
    pub key: String,
}

impl SharedIdentity {
    pub fn new(source: impl Into<PathBuf>, pem: IdentityPem) -> Self {
        Self {
            source: source.into().into(),
            pem: Arc::new(Mutex::new(pem)),
        }
    }

    pub fn current(&self) -> IdentityPem {
        self.pem.lock().clone()
    }

    /// Replaces the certificate and its private key. New connections use them after a [reload](ReloadableTls::reload).
    pub fn replace(&self, pem: IdentityPem) {
        *self.pem.lock() = pem;
    }

    fn load(&self) -> Result<CertificateAndKey, TlsError> {
        let pem = self.current();
        let of_source = |problem| TlsError::File {
            path: self.source.to_path_buf(),
            problem,
        };
        let certificates = certificates_in(pem.certificate.as_bytes()).map_err(of_source)?;
        Ok((certificates, private_key_in(pem.key.as_bytes()).map_err(of_source)?))
    }
}

/// Returns the crypto provider for all TLS connections. It is explicit, because another crate could change rustls'
/// default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write_identity(directory: &Path, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        let identity = Identity {
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        };
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    #[tokio::test]
    async fn a_certificate_that_is_not_in_a_file_can_be_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let read_pem = |identity: &Identity| IdentityPem {
            certificate: std::fs::read_to_string(&identity.certificate).unwrap(),
            key: std::fs::read_to_string(&identity.key).unwrap(),
        };
        let [first, second] = ["a", "b"].map(|name| read_pem(&write_identity(directory.path(), name)));
        let shared = SharedIdentity::new("the Secret ns/tls", first.clone());
        let tls = ServerTls::of_shared(shared.clone()).unwrap();
        let before = tls.current();
        shared.replace(second.clone());
        tls.reload().await;
        let after = tls.current();
        assert!(!Arc::ptr_eq(&before, &after));

        shared.replace(IdentityPem {
            key: second.key,
            ..first
        });
        tls.reload().await;
        assert!(Arc::ptr_eq(&after, &tls.current()));
        let problem = tls.status().unwrap().problem.unwrap();
        assert!(problem.starts_with("the Secret ns/tls: "), "{problem}");
    }

    #[test]
    fn an_error_names_the_unusable_file_and_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let (good, other) = (
            write_identity(directory.path(), "a"),
            write_identity(directory.path(), "b"),
        );
        let (empty, broken) = (file("empty.pem"), file("broken.pem"));
        std::fs::write(&empty, "no PEM here\n").unwrap();
        std::fs::write(
            &broken,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        let with = |certificate: &Path, key: &Path| Identity {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        for (identity, client_ca, expected) in [
            (good.clone(), None, None),
            (
                with(&file("missing.pem"), &good.key),
                None,
                Some("missing.pem: No such file"),
            ),
            (
                with(&empty, &good.key),
                None,
                Some("empty.pem: it holds no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`"),
            ),
            (
                with(&good.certificate, &good.certificate),
                None,
                Some("a.pem: it holds no private key; it must be PEM"),
            ),
            (
                with(&good.certificate, &other.key),
                None,
                Some("a.pem; name the key for which it was issued"),
            ),
            (good.clone(), Some(empty), Some("empty.pem: it holds no certificate")),
            (
                good.clone(),
                Some(broken),
                Some("broken.pem: certificate 1 cannot be used"),
            ),
        ] {
            let error = ServerTls::of_files(identity.clone(), client_ca).err();
            match (error.map(|error| error.to_string()), expected) {
                (None, None) => {}
                (Some(error), Some(part)) if error.contains(part) => {}
                (error, expected) => panic!("{identity:?}: {error:?}, not {expected:?}"),
            }
        }
    }
}
