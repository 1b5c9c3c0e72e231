use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use http::Uri;
use rustls::{ClientConfig, RootCertStore, client::WebPkiServerVerifier, pki_types::ServerName};
use rustls_pki_types::{CertificateDer, DnsName};

use super::{
    Identity, TlsError, certificates, provider,
    reload::{CertificateState, ReloadableTls, TlsMaterial, Usage},
    short_key::KeySizeVerifier,
    short_rsa,
};

/// The CAs whose certificates a client accepts.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// The client trusts the CAs of the operating system. There must be at least one.
    System,
    /// The client trusts the CAs of the operating system, if it has any, and the certificates in the PEM file, if any.
    SystemAnd(Option<&'a Path>),
    /// The client trusts the certificates in this PEM file.
    File(&'a Path),
    /// The client trusts only these certificates.
    Only(&'a [CertificateDer<'static>]),
}

impl<'a> Trust<'a> {
    /// Chooses the certificates in the file as trusted CAs, or without a file, the CAs of the operating system.
    pub fn file_or_system(file: Option<&'a Path>) -> Self {
        file.map_or(Self::System, Self::File)
    }

    /// Loads the trusted CAs. The CAs of the operating system are read only once per process.
    pub fn roots(self) -> Result<Arc<RootCertStore>, TlsError> {
        match self {
            Self::System => system_roots(),
            Self::SystemAnd(None) => Ok(system_roots().unwrap_or_else(|_| Arc::new(RootCertStore::empty()))),
            Self::SystemAnd(Some(path)) => {
                let mut roots = Self::SystemAnd(None).roots()?;
                add_file(Arc::make_mut(&mut roots), path)?;
                Ok(roots)
            }
            Self::File(path) => {
                let mut roots = RootCertStore::empty();
                add_file(&mut roots, path)?;
                Ok(Arc::new(roots))
            }
            Self::Only([]) => Err(TlsError::NoAuthority),
            Self::Only(certificates) => {
                let mut roots = RootCertStore::empty();
                add_certificates(&mut roots, certificates)?;
                Ok(Arc::new(roots))
            }
        }
    }
}

fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let native_certificates = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(native_certificates.certs);
    if roots.is_empty() {
        let reasons: Vec<String> = native_certificates.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::NoSystemAuthority {
            details: match reasons.as_slice() {
                [] => String::new(),
                reasons => format!(": {}", reasons.join("; ")),
            },
        });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    add_certificates(roots, &certificates(path)?).map_err(|error| TlsError::rejected(path, &error))
}

fn add_certificates(roots: &mut RootCertStore, certificates: &[CertificateDer<'static>]) -> Result<(), TlsError> {
    for (index, certificate) in certificates.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|source| TlsError::Authority {
            number: index + 1,
            source,
        })?;
    }
    Ok(())
}

/// Returns a client configuration that trusts only these CAs, and also accepts CAs and servers whose RSA key is shorter
/// than [`SHORTEST_RSA_KEY`](super::SHORTEST_RSA_KEY), but has at least 1024 bits. Use it only until the keys are
/// replaced.
pub fn client_of_short_keys(authorities: &[CertificateDer<'static>]) -> Result<ClientConfig, TlsError> {
    let provider = short_rsa::provider();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .map_err(TlsError::Provider)?;
    let roots = Trust::Only(authorities).roots()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the TLS configuration of a client that trusts these CAs. If a server requests a certificate, the client
/// presents `identity`.
pub fn client_config(trust: Trust<'_>, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
    load_client_material(trust, identity).map(|material| Arc::unwrap_or_clone(material.config))
}

fn load_client_material(trust: Trust<'_>, identity: Option<&Identity>) -> Result<TlsMaterial<ClientConfig>, TlsError> {
    let roots = trust.roots()?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Provider)?;
    // Without roots, this verifier cannot be built. Then the default verifier of rustls is used. It refuses every
    // certificate, because no root can have signed the certificate.
    let builder = match WebPkiServerVerifier::builder_with_provider(roots.clone(), provider()).build() {
        Ok(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(KeySizeVerifier::new(verifier, roots))),
        Err(_) => builder.with_root_certificates(roots),
    };
    let Some(identity) = identity else {
        return Ok(TlsMaterial::from(builder.with_no_client_auth()));
    };
    let (chain, key) = identity.load()?;
    TlsMaterial::of_identity(identity, &chain.clone(), || builder.with_client_auth_cert(chain, key))
}

/// The TLS settings of a client: the CAs that it trusts, its certificate, and the name that it expects in servers'
/// certificates. Clones share the certificates.
#[derive(Clone, Debug)]
pub struct ClientTls {
    material: ReloadableTls<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// The error if this text is not a valid name of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host name that a certificate can hold")]
pub struct InvalidServerName(pub String);

impl ClientTls {
    /// Returns settings for a client that trusts the CAs in the file `ca`, or without a file, the CAs of the operating
    /// system. If a server requests a certificate, the client presents `identity`.
    pub fn of_files(ca: Option<PathBuf>, identity: Option<Identity>) -> Result<Self, TlsError> {
        let own_files = identity
            .iter()
            .flat_map(|identity| [&identity.certificate, &identity.key]);
        let files = own_files.chain(&ca).cloned().collect();
        let material = ReloadableTls::load(Usage::Upstream, files, move || {
            load_client_material(Trust::file_or_system(ca.as_deref()), identity.as_ref())
        })?;
        Ok(Self {
            material,
            server_name: None,
        })
    }

    /// Makes the client expect this name in servers' certificates, instead of the host of the URL.
    pub fn with_server_name(self, name: &str) -> Result<Self, InvalidServerName> {
        let name = DnsName::try_from(name).map_err(|_| InvalidServerName(name.to_owned()))?;
        Ok(Self {
            server_name: Some(ServerName::DnsName(name.to_owned())),
            ..self
        })
    }

    /// Returns the TLS configuration to use for a new connection.
    pub fn current(&self) -> Arc<ClientConfig> {
        self.material.current()
    }

    /// Returns the name that the client expects in the certificate of the server at this URL.
    pub fn server_name(&self, server: &Uri) -> Result<ServerName<'static>, InvalidServerName> {
        if let Some(name) = &self.server_name {
            return Ok(name.clone());
        }
        let host = server.host().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        ServerName::try_from(bare.unwrap_or(host).to_owned()).map_err(|_| InvalidServerName(host.to_owned()))
    }

    /// See [`ReloadableTls::warning`].
    pub fn warning(&self) -> Option<String> {
        self.material.warning()
    }

    /// See [`ReloadableTls::status`].
    pub fn status(&self) -> Option<CertificateState> {
        self.material.status()
    }

    /// See [`ReloadableTls::keep_fresh`].
    pub async fn keep_fresh(&self) {
        self.material.keep_fresh().await;
    }
}

impl From<ClientConfig> for ClientTls {
    fn from(config: ClientConfig) -> Self {
        Self {
            material: config.into(),
            server_name: None,
        }
    }
}
