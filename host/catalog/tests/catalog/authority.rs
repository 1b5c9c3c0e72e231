//! A certificate authority (CA) that issues server certificates.

use std::{path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) struct HttpsAuthority(CertifiedIssuer<'static, KeyPair>);

impl HttpsAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "test CA");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue_certificate(&self) -> (CertificateDer<'static>, KeyPair) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), key)
    }

    pub(crate) fn server_config(&self) -> ServerConfig {
        let (certificate, key) = self.issue_certificate();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap()
    }

    pub(crate) fn write_certificate(&self, certificate: &Path, key: &Path) {
        let (der, pair) = self.issue_certificate();
        let pem = pem::encode(&pem::Pem::new("CERTIFICATE", der.to_vec()));
        std::fs::write(certificate, pem).unwrap();
        std::fs::write(key, pair.serialize_pem()).unwrap();
    }
}
