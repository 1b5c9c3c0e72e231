//! A CA for tests. It is generated when a test first uses it.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

static CA: LazyLock<String> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.self_signed(&key).unwrap().pem()
});

pub(crate) fn pem() -> &'static str {
    &CA
}

pub(crate) fn bundle() -> String {
    encode(pem())
}

pub(crate) fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
