use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ConfigBuilder, ServerConfig, WantsVerifier, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;

use super::{
    Identity, SharedIdentity, TlsError, Trust, provider,
    reload::{ReloadableTls, TlsMaterial, Usage},
};

/// The TLS settings of a port: its certificate, and the CAs of the client certificates that it accepts.
pub type ServerTls = ReloadableTls<ServerConfig>;

impl ServerTls {
    /// Loads the TLS settings of the client port. With `client_ca`, clients must present a certificate of these CAs.
    pub fn of_files(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        Self::of_port(Usage::Listen, identity, client_ca)
    }

    /// Loads the TLS settings of the admin port. With `client_ca`, clients may present a certificate of these CAs.
    pub fn of_admin_files(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        Self::of_port(Usage::Admin, identity, client_ca)
    }

    /// Creates the TLS settings of the client port with a certificate that does not come from files. After the
    /// certificate is replaced, call [`reload`](ReloadableTls::reload).
    pub fn of_shared(identity: SharedIdentity) -> Result<Self, TlsError> {
        Self::load(Usage::Listen, Vec::new(), move || {
            let (chain, key) = identity.load()?;
            let builder = config_builder()?.with_no_client_auth();
            TlsMaterial::of_chain(&identity.source, &chain.clone(), || {
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
        Self::load(usage, files, move || {
            load_server_material(usage, &identity, client_ca.as_deref())
        })
    }

    /// Returns the TLS state for a connection that was accepted.
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

/// Loads the TLS configuration of a server. The TLS sessions of the previous configuration cannot be resumed in it, so
/// clients have to present their certificates again.
fn load_server_material(
    usage: Usage,
    identity: &Identity,
    client_ca: Option<&Path>,
) -> Result<TlsMaterial<ServerConfig>, TlsError> {
    let (chain, key) = identity.load()?;
    let builder = config_builder()?;
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
    let mut material = TlsMaterial::of_identity(identity, &chain.clone(), || {
        Ok(with_protocols(builder.with_single_cert(chain, key)?))
    })?;
    material.clients = clients;
    Ok(material)
}

fn config_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Provider)
}

fn with_protocols(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The TLS state of an accepted connection: its configuration, and the client's certificate.
#[derive(derive_more::Debug)]
#[debug("TlsConnection {{ .. }}")]
pub struct TlsConnection {
    current: watch::Receiver<Arc<TlsMaterial<ServerConfig>>>,
    config: Arc<ServerConfig>,
    /// The certificate of the client with its chain; empty if the client has presented none.
    client: Vec<CertificateDer<'static>>,
}

impl TlsConnection {
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Records the certificates of the client, which the TLS handshake has verified.
    pub fn record_client(&mut self, client: &[CertificateDer<'_>]) {
        self.client = client.iter().map(|one| one.clone().into_owned()).collect();
    }

    pub fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.client.first()
    }

    /// Waits until a configuration is loaded that does not accept the certificate of the client.
    pub async fn wait_until_revoked(&mut self) {
        while self.current.changed().await.is_ok() {
            if !self.current.borrow_and_update().accepts(&self.client) {
                return;
            }
        }
        std::future::pending().await
    }
}

impl TlsMaterial<ServerConfig> {
    fn accepts(&self, client: &[CertificateDer<'_>]) -> bool {
        let (Some(clients), Some((certificate, chain))) = (&self.clients, client.split_first()) else {
            // There is nothing to check if the client has presented no certificate, or if the port has no CAs for
            // client certificates.
            return true;
        };
        clients.verify_client_cert(certificate, chain, UnixTime::now()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_key_that_does_not_belong_to_the_certificate_is_reported() {
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
        assert!(error.contains("b.key does not belong to the certificate "), "{error}");
    }
}
