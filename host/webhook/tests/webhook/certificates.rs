use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

pub(crate) struct WebhookAuthority(CertifiedIssuer<'static, KeyPair>);

impl WebhookAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // All CAs have the same name. Thus a test shows whether they are distinguished by their keys.
        params.distinguished_name.push(DnType::CommonName, "test CA");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns the certificate of a CA with a 1024-bit RSA key, and the configuration of a server whose certificate for
    /// `hook.ns` is signed by this CA. Both are read from files because the TLS library cannot generate short keys.
    pub(crate) fn short() -> (CertificateDer<'static>, ServerConfig) {
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("short_key/server.key")).unwrap();
        let server = server_config_builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate(include_str!("short_key/server.pem"))], key)
            .unwrap();
        (certificate(include_str!("short_key/ca.pem")), server)
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn server(&self, names: &[&str]) -> ServerConfig {
        self.server_with(server_params(names))
    }

    pub(crate) fn server_with(&self, params: CertificateParams) -> ServerConfig {
        let (chain, key) = self.sign(params);
        server_config_builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// Returns the configuration of a server that requires a client certificate from this CA.
    pub(crate) fn server_for_clients(&self, names: &[&str]) -> ServerConfig {
        let (chain, key) = self.sign(server_params(names));
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        server_config_builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// Returns the configuration of a server that wrongly uses the certificate of the CA as its own.
    pub(crate) fn as_server(&self) -> ServerConfig {
        let key = PrivateKeyDer::try_from(self.0.key().serialize_der()).unwrap();
        server_config_builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate()], key)
            .unwrap()
    }

    fn sign(&self, params: CertificateParams) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone()], key)
    }
}

pub(crate) fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn server_config_builder() -> ConfigBuilder<ServerConfig, WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
}
