//! Sets up an API server, a kubeconfig for it, and a `Cluster` for each test.

use std::{path::PathBuf, time::Duration};

use admittance_cluster::{Cluster, ClusterConfig, ClusterSource, ConfigError};
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use std::sync::Arc;
use tempfile::TempDir;

use crate::api_server::ScriptedApiServer;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const TOKEN: &str = "a-token";

pub(crate) struct Setting {
    pub(crate) server: ScriptedApiServer,
    pub(crate) directory: TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Setting {
    pub(crate) fn new() -> Self {
        Self::with_authentication(TOKEN, false)
    }

    pub(crate) fn with_client_certificates() -> Self {
        Self::with_authentication("", true)
    }

    fn with_authentication(token: &'static str, wants_certificates: bool) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if wants_certificates {
            let mut roots = RootCertStore::empty();
            roots.add(ca.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Self {
            server: ScriptedApiServer::start(tls, token),
            directory: TempDir::new().unwrap(),
            ca,
        }
    }

    /// Returns a client certificate that the server accepts and its key, both in PEM.
    pub(crate) fn client_certificate(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(Vec::<String>::new()).unwrap();
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn ca_data(&self) -> String {
        STANDARD.encode(self.ca.pem())
    }

    pub(crate) fn kubeconfig_for_user(&self, user: &str) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
             clusters: [{{name: here, cluster: {{server: 'https://{}', certificate-authority-data: {}}}}}]\n\
             contexts: [{{name: main, context: {{cluster: here, user: me}}}}]\n\
             users: [{{name: me, user: {user}}}]\n",
            self.server.address,
            self.ca_data(),
        );
        self.write_kubeconfig(&text)
    }

    pub(crate) fn write_kubeconfig(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) async fn cluster(&self) -> Cluster {
        connect(self.kubeconfig_for_user(&format!("{{token: {TOKEN}}}")), None)
            .await
            .unwrap()
    }
}

pub(crate) async fn connect(path: PathBuf, context: Option<&str>) -> Result<Cluster, ConfigError> {
    let source = ClusterSource::Kubeconfig {
        path: Some(path),
        context: context.map(str::to_owned),
    };
    Cluster::connect(&ClusterConfig { source }).await
}

pub(crate) async fn wait_until(condition: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_met().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(TEST_TIMEOUT, wait).await.is_err() {
        panic!("it did not come about: {condition}");
    }
}
