//! TLS material: from PEM files to configurations that are known to work, and stay up to date.

mod client;
mod leaf;
mod live;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_watch::file;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use self::leaf::Leaf;
pub(crate) use self::live::Admission;
pub use self::{
    client::ClientTls,
    live::{Live, ServerTls},
};
use crate::secret_file;

/// What is wrong with TLS material.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A PEM file without what is wanted of it.
    #[error("{path}: it holds no {wanted}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
    },
    /// The parts do not go together, or are not accepted.
    #[error("{path}: {reason}", path = path.display())]
    Rejected {
        /// The file that is to blame first.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system's own certificate authorities cannot be read.
    #[error("the system's certificate authorities cannot be read: {0}; name a file with `ca`")]
    System(String),
}

/// A certificate with its chain, and its key: two PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, then those that lead to its authority.
    pub certificate: PathBuf,
    /// The certificate's private key, not encrypted.
    pub key: PathBuf,
}

impl Identity {
    fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        Ok((certificates(&self.certificate)?, private_key(&self.key)?))
    }

    /// The file of the key, when every user of the machine may read it.
    fn exposed_key(&self) -> Option<PathBuf> {
        secret_file::is_exposed(&self.key).then(|| self.key.clone())
    }
}

/// What a server shows to its clients, and, with `client_ca`, whom it lets in.
///
/// # Errors
///
/// When a file cannot be read, or key and certificate do not belong together.
pub fn server(identity: &Identity, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let clients = client_ca.map(ClientAuthorities::Demanded);
    load_server(identity, clients).map(|loaded| loaded.config)
}

/// PEM file with the authorities of clients, and what becomes of a client without a certificate.
#[derive(Clone, Copy, Debug)]
enum ClientAuthorities<'p> {
    /// It is not let in.
    Demanded(&'p Path),
    /// It is let in.
    Asked(&'p Path),
}

/// A configuration, and the certificate that it shows.
struct Loaded<C> {
    config: Arc<C>,
    leaf: Option<Leaf>,
    /// What decides on the certificates of clients; none when they show none.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The file of the private key, when every user of the machine may read it.
    exposed_key: Option<PathBuf>,
}

/// Each configuration remembers sessions of its own: who was let in by one is not let in by the next
/// without showing a certificate again.
fn load_server(
    identity: &Identity,
    clients: Option<ClientAuthorities<'_>>,
) -> Result<Loaded<ServerConfig>, TlsError> {
    let (chain, key) = identity.load()?;
    let leaf = leaf(&identity.certificate, &chain)?;
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| rejected(&identity.certificate, &error))?;
    let verifier = |path| {
        let roots = Arc::new(roots(path)?);
        Ok(WebPkiClientVerifier::builder_with_provider(roots, provider))
    };
    let clients = match clients {
        None => None,
        Some(ClientAuthorities::Demanded(path)) => {
            Some(verifier(path)?.build().map_err(|error| rejected(path, &error))?)
        }
        Some(ClientAuthorities::Asked(path)) => {
            let verifier = verifier(path)?.allow_unauthenticated().build();
            Some(verifier.map_err(|error| rejected(path, &error))?)
        }
    };
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients.clone()),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| rejected(&identity.certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded {
        config: Arc::new(config),
        leaf,
        clients,
        exposed_key: identity.exposed_key(),
    })
}

/// Whom a client trusts (`ca`, or else the system's authorities), and what it shows.
///
/// # Errors
///
/// When a file cannot be read, or key and certificate do not belong together.
pub fn client(ca: Option<&Path>, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
    load_client(ca, identity).map(|loaded| Arc::unwrap_or_clone(loaded.config))
}

fn load_client(ca: Option<&Path>, identity: Option<&Identity>) -> Result<Loaded<ClientConfig>, TlsError> {
    let roots = match ca {
        Some(path) => roots(path)?,
        None => system_roots()?,
    };
    with_roots(roots, identity)
}

/// For a client that speaks no TLS at all: it trusts nobody.
///
/// # Errors
///
/// When the cryptography that this was built with has no TLS in it.
pub fn no_client() -> Result<ClientConfig, TlsError> {
    with_roots(RootCertStore::empty(), None).map(|loaded| Arc::unwrap_or_clone(loaded.config))
}

fn with_roots(roots: RootCertStore, identity: Option<&Identity>) -> Result<Loaded<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| rejected(Path::new("TLS"), &error))?
        .with_root_certificates(roots);
    let (config, leaf) = match identity {
        None => (builder.with_no_client_auth(), None),
        Some(identity) => {
            let (chain, key) = identity.load()?;
            let leaf = leaf(&identity.certificate, &chain)?;
            let config = builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| rejected(&identity.certificate, &error))?;
            (config, leaf)
        }
    };
    Ok(Loaded {
        config: Arc::new(config),
        leaf,
        clients: None,
        exposed_key: identity.and_then(Identity::exposed_key),
    })
}

/// What the first certificate of the chain says.
fn leaf(path: &Path, chain: &[CertificateDer<'_>]) -> Result<Option<Leaf>, TlsError> {
    chain
        .first()
        .map(Leaf::read)
        .transpose()
        .map_err(|error| rejected(path, &error))
}

// Named here, so that no other crate's choice of a default can change it.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| rejected(path, &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems hold certificates that no verifier takes; what matters is that some are left.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::System(match reasons.as_slice() {
            [] => "there are none".to_owned(),
            reasons => reasons.join("; "),
        }));
    }
    Ok(roots)
}

/// The first private key in a PEM file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read_pem(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::Missing {
            path: path.to_owned(),
            wanted: "private key",
        },
        error => unreadable(path, &error),
    })
}

/// The certificates in a PEM file: at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&read_pem(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsError::Missing {
            path: path.to_owned(),
            wanted: "certificate",
        });
    }
    Ok(certificates)
}

/// The largest PEM file in bytes. A bundle with all authorities of a system has a fraction of it.
const LARGEST_PEM: u64 = 16 << 20;

fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    file::read(path, LARGEST_PEM).map_err(|error| TlsError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn unreadable(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: format!("not PEM: {error}"),
    }
}

fn rejected(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Rejected {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
