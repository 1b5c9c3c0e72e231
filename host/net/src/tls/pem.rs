use std::path::Path;

use admittance_watch::file;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::TlsError;

/// The largest PEM file in bytes. A bundle with all authorities of a system has a fraction of it.
const LARGEST: u64 = 16 << 20;

/// Why there is no certificate or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("{0}")]
    Unreadable(String),
    #[error("not PEM: {0}")]
    Malformed(String),
    #[error("it holds no {}; it must be PEM, with `-----BEGIN {}-----`", .0.to_lowercase(), .0)]
    Missing(&'static str),
}

impl PemError {
    fn of(error: pem::Error, wanted: &'static str) -> Self {
        match error {
            pem::Error::NoItemsFound => Self::Missing(wanted),
            error => Self::Malformed(error.to_string()),
        }
    }
}

/// The certificates in a PEM file: at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    read(path, certificates_in)
}

/// The certificates in a PEM text: at least one.
pub fn certificates_in(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(PemError::Missing("CERTIFICATE")),
        Ok(found) => Ok(found),
        Err(error) => Err(PemError::of(error, "CERTIFICATE")),
    }
}

/// The first private key in a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    read(path, private_key_in)
}

/// The first private key in a PEM text.
pub fn private_key_in(text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| PemError::of(error, "PRIVATE KEY"))
}

fn read<T>(path: &Path, parse: fn(&[u8]) -> Result<T, PemError>) -> Result<T, TlsError> {
    file::read(path, LARGEST)
        .map_err(|error| PemError::Unreadable(error.to_string()))
        .and_then(|text| parse(&text))
        .map_err(|problem| TlsError::File {
            path: path.to_owned(),
            problem,
        })
}
