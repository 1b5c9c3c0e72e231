use std::path::Path;

use admittance_watch::file;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::TlsError;

/// The largest PEM file that is read, in bytes. A bundle with all CAs of an operating system is much smaller.
const LARGEST_FILE: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("{0}")]
    Unreadable(String),
    #[error("not PEM: {0}")]
    Malformed(String),
    #[error("it holds no {}; it must be PEM, with `-----BEGIN {}-----`", .0.to_lowercase(), .0)]
    Missing(&'static str),
}

/// Reads the certificates in a PEM file. It is an error if there are none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    read_file(path, certificates_in)
}

/// Reads the certificates in text in the PEM format. It is an error if there are none.
pub fn certificates_in(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| PemError::Malformed(error.to_string()))?;
    if certificates.is_empty() {
        Err(PemError::Missing("CERTIFICATE"))
    } else {
        Ok(certificates)
    }
}

/// Reads the first private key in a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    read_file(path, private_key_in)
}

/// Reads the first private key in text in the PEM format.
pub fn private_key_in(text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => PemError::Missing("PRIVATE KEY"),
        error => PemError::Malformed(error.to_string()),
    })
}

fn read_file<T>(path: &Path, parse: fn(&[u8]) -> Result<T, PemError>) -> Result<T, TlsError> {
    file::read(path, LARGEST_FILE)
        .map_err(|error| PemError::Unreadable(error.to_string()))
        .and_then(|text| parse(&text))
        .map_err(|problem| TlsError::File {
            path: path.to_owned(),
            problem,
        })
}
