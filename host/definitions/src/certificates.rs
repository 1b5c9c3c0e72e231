//! A CA for tests. It is generated when a test first uses it.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

static CA_PEM: LazyLock<String> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.self_signed(&key).unwrap().pem()
});

pub(crate) fn ca_pem() -> &'static str {
    &CA_PEM
}

pub(crate) fn ca_bundle() -> String {
    encode_base64(ca_pem())
}

pub(crate) fn encode_base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
