use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ConfigBuilder, ServerConfig, WantsVerifier, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;

use super::{
    Identity, SharedIdentity, TlsError, Trust, provider,
    reload::{Material, Reloading, Usage},
};

/// The server certificate of a port, and the client certificates that it accepts.
pub type ServerTls = Reloading<ServerConfig>;

impl ServerTls {
    /// Creates the TLS of the port for clients. With `client_ca`, only clients with a certificate of one of these CAs
    /// are accepted.
    pub fn of_files(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        Self::of_port(Usage::Listen, identity, client_ca)
    }

    /// Creates the TLS of the admin port. With `client_ca`, a client certificate is optional, and a certificate of
    /// another CA is refused.
    pub fn of_admin_files(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        Self::of_port(Usage::Admin, identity, client_ca)
    }

    /// Creates the TLS of the port for clients with a certificate that comes from no file. [Reload](Reloading::reload)
    /// it after the certificate was replaced.
    pub fn of_shared(identity: SharedIdentity) -> Result<Self, TlsError> {
        Self::load(Usage::Listen, Vec::new(), move || {
            let (chain, key) = identity.load()?;
            let builder = builder()?.with_no_client_auth();
            Material::of_chain(&identity.source, &chain.clone(), || {
                let config = builder
                    .with_single_cert(chain, key)
                    .map_err(|error| TlsError::rejected(&identity.source, &error));
                Ok(with_protocols(config?))
            })
        })
    }

    fn of_port(usage: Usage, identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        let files = [&identity.certificate, &identity.key]
            .into_iter()
            .chain(&client_ca)
            .cloned()
            .collect();
        Self::load(usage, files, move || load(usage, &identity, client_ca.as_deref()))
    }

    /// Returns the TLS of the next connection.
    pub fn connection(&self) -> TlsConnection {
        let mut current = self.subscribe();
        let config = current.borrow_and_update().config.clone();
        TlsConnection {
            current,
            config,
            client: Vec::new(),
        }
    }
}

/// Loads a configuration, which has sessions of its own: after a reload, a client cannot resume a session without
/// presenting its certificate again.
fn load(
    usage: Usage,
    identity: &Identity,
    client_ca: Option<&Path>,
) -> Result<Material<ServerConfig>, TlsError> {
    let (chain, key) = identity.load()?;
    let builder = builder()?;
    let clients = match client_ca {
        None => None,
        Some(path) => {
            let roots = Trust::File(path).roots()?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match usage {
                Usage::Admin => verifier.allow_unauthenticated(),
                Usage::Listen | Usage::Upstream => verifier,
            };
            let verifier = verifier.build();
            Some(verifier.map_err(|error| TlsError::rejected(path, &error))?)
        }
    };
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients.clone()),
    };
    let mut material = Material::of_identity(identity, &chain.clone(), || {
        Ok(with_protocols(builder.with_single_cert(chain, key)?))
    })?;
    material.clients = clients;
    Ok(material)
}

fn builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Provider)
}

fn with_protocols(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The TLS state of one accepted connection: its configuration, and the client's certificate.
pub struct TlsConnection {
    current: watch::Receiver<Arc<Material<ServerConfig>>>,
    config: Arc<ServerConfig>,
    /// The client's certificate, followed by its chain. Empty without a client certificate.
    client: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for TlsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnection").finish_non_exhaustive()
    }
}

impl TlsConnection {
    /// Returns the configuration for the handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Records the client's certificates after the handshake.
    pub fn record_client(&mut self, client: &[CertificateDer<'_>]) {
        self.client = client.iter().map(|one| one.clone().into_owned()).collect();
    }

    /// Returns the client's certificate, if there is one.
    pub fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.client.first()
    }

    /// Waits until the files change and the client's certificate is no longer accepted.
    pub async fn revoked(&mut self) {
        while self.current.changed().await.is_ok() {
            if !self.current.borrow_and_update().accepts(&self.client) {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Material<ServerConfig> {
    fn accepts(&self, client: &[CertificateDer<'_>]) -> bool {
        let (Some(clients), Some((certificate, chain))) = (&self.clients, client.split_first()) else {
            // The connection was accepted without a certificate, and still would be.
            return true;
        };
        clients
            .verify_client_cert(certificate, chain, UnixTime::now())
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let identity = Identity {
            certificate: folder.path().join("a.pem"),
            key: folder.path().join("b.key"),
        };
        let certificate = certificate.self_signed(&own).unwrap().pem();
        std::fs::write(&identity.certificate, certificate).unwrap();
        std::fs::write(&identity.key, other.serialize_pem()).unwrap();
        let error = ServerTls::of_files(identity, None).err().unwrap().to_string();
        assert!(
            error.contains("b.key does not belong to the certificate "),
            "{error}"
        );
    }
}
