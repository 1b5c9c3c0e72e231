//! Accepts signatures by RSA keys of 1024 bits and more. An operator may allow such keys until they are replaced.
//!
//! The crypto library `ring` verifies signatures by keys of less than 2048 bits only if they have the form PKCS #1 with
//! SHA-256. CAs use this form in certificates, but TLS 1.3 requires the form PSS in the handshake, so TLS 1.2 is used.

use std::sync::{Arc, LazyLock};

use ring::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls::{
    SignatureScheme,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

#[derive(Debug)]
struct ShortRsa;

impl SignatureVerificationAlgorithm for ShortRsa {
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_PKCS1_SHA256
    }

    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, public_key);
        key.verify(message, signature).map_err(|_| InvalidSignature)
    }
}

static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let usual = super::provider().signature_verification_algorithms;
    // If several algorithms fit a signature, rustls uses the first of them in this list. So `ShortRsa` must come first.
    let all: Vec<Algorithm> = std::iter::once(&ShortRsa as Algorithm)
        .chain(usual.all.iter().copied())
        .collect();
    let other_mappings = usual.mapping.iter().copied().filter(|(scheme, _)| {
        !matches!(
            scheme,
            SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PSS_SHA256
                | SignatureScheme::RSA_PSS_SHA384
                | SignatureScheme::RSA_PSS_SHA512
        )
    });
    let short: &'static [Algorithm] = &[&ShortRsa];
    let mapping: Vec<_> = std::iter::once((SignatureScheme::RSA_PKCS1_SHA256, short))
        .chain(other_mappings)
        .collect();
    // rustls requires `'static` slices, so these lists are leaked, but only once per process.
    WebPkiSupportedAlgorithms {
        all: all.leak(),
        mapping: mapping.leak(),
    }
});

pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = Arc::unwrap_or_clone(super::provider());
    provider.signature_verification_algorithms = *ALGORITHMS;
    Arc::new(provider)
}
