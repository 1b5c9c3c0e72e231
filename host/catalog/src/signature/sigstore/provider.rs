//! Makes sigstore use ring, which is the cryptographic library of this program.

use ring::{digest, signature};
use sigstore_verify::{
    crypto::{CryptoProvider, Error, HashContext, SigningScheme, install_default_provider},
    types::HashAlgorithm,
};

#[derive(Debug)]
struct RingProvider;

static RING: RingProvider = RingProvider;

/// Makes ring the cryptographic library of sigstore. This must happen before sigstore is used. If the process has
/// chosen another library already, that choice is kept.
pub(super) fn install() {
    let _ = install_default_provider(&RING);
}

struct Hash(digest::Context);

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

fn unsupported_error(algorithm: impl std::fmt::Display) -> Error {
    Error::UnsupportedAlgorithm(format!("{algorithm} is not supported"))
}

fn invalid_signature_error(scheme: SigningScheme) -> Error {
    Error::Verification(format!("{} signature is not valid", scheme.name()))
}

impl CryptoProvider for RingProvider {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Error> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha2256 => &digest::SHA256,
            HashAlgorithm::Sha2384 => &digest::SHA384,
            HashAlgorithm::Sha2512 => &digest::SHA512,
            other => return Err(unsupported_error(other)),
        };
        Ok(Box::new(Hash(digest::Context::new(algorithm))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<(), Error> {
        let algorithm: &dyn signature::VerificationAlgorithm = match scheme {
            SigningScheme::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
            SigningScheme::EcdsaP256Sha384 => &signature::ECDSA_P256_SHA384_ASN1,
            SigningScheme::EcdsaP384Sha256 => &signature::ECDSA_P384_SHA256_ASN1,
            SigningScheme::EcdsaP384Sha384 => &signature::ECDSA_P384_SHA384_ASN1,
            SigningScheme::Ed25519 => &signature::ED25519,
            SigningScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            SigningScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            SigningScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            SigningScheme::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
            SigningScheme::RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
            SigningScheme::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
            other => return Err(unsupported_error(other.name())),
        };
        signature::UnparsedPublicKey::new(algorithm, key)
            .verify(data, signature)
            .map_err(|_| invalid_signature_error(scheme))
    }

    /// Verifies the signature of a digest. ring cannot do this, so other crates do it. RSA is not supported here,
    /// because every crate for RSA has open security advisories.
    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        use p256::ecdsa::signature::hazmat::PrehashVerifier;
        let valid = match scheme {
            SigningScheme::EcdsaP256Sha256 | SigningScheme::EcdsaP256Sha384 => {
                use p256::ecdsa::{Signature, VerifyingKey};
                VerifyingKey::from_sec1_bytes(key)
                    .and_then(|key| key.verify_prehash(digest, &Signature::from_der(signature)?))
            }
            SigningScheme::EcdsaP384Sha256 | SigningScheme::EcdsaP384Sha384 => {
                use p384::ecdsa::{Signature, VerifyingKey};
                VerifyingKey::from_sec1_bytes(key)
                    .and_then(|key| key.verify_prehash(digest, &Signature::from_der(signature)?))
            }
            other => return Err(unsupported_error(format_args!("{} of a certificate", other.name()))),
        };
        valid.map_err(|_| invalid_signature_error(scheme))
    }
}

#[cfg(test)]
mod tests {
    use sigstore_verify::{
        crypto::{VerificationKey, sha256, sha384, sha512},
        types::{DerPublicKey, SignatureBytes},
    };

    use super::*;

    const MODULE: &[u8] = include_bytes!("../../../tests/signature/fixtures/module.wasm");
    const P256: &str = include_str!("../../../tests/signature/fixtures/p256.pub");
    const P384: &str = include_str!("../../../tests/signature/fixtures/p384.pub");
    const RSA: &str = include_str!("../../../tests/signature/fixtures/rsa.pub");

    #[test]
    fn signatures_of_digests_are_verified() {
        install();
        let sha256 = sha256(MODULE).as_bytes().to_vec();
        let sha384 = sha384(MODULE).as_bytes().to_vec();
        for (key, signature, scheme, digest, expected) in [
            (
                P256,
                include_str!("../../../tests/signature/fixtures/p256.sig"),
                SigningScheme::EcdsaP256Sha256,
                &sha256,
                true,
            ),
            (
                P384,
                include_str!("../../../tests/signature/fixtures/p384.sig"),
                SigningScheme::EcdsaP384Sha384,
                &sha384,
                true,
            ),
            (
                P384,
                include_str!("../../../tests/signature/fixtures/p384-sha256.sig"),
                SigningScheme::EcdsaP384Sha256,
                &sha256,
                true,
            ),
            (
                P384,
                include_str!("../../../tests/signature/fixtures/p384.sig"),
                SigningScheme::EcdsaP384Sha256,
                &sha256,
                false,
            ),
            (
                P256,
                include_str!("../../../tests/signature/fixtures/p256.sig"),
                SigningScheme::EcdsaP256Sha384,
                &sha384,
                false,
            ),
            (
                RSA,
                include_str!("../../../tests/signature/fixtures/rsa.sig"),
                SigningScheme::RsaPkcs1Sha256,
                &sha256,
                false,
            ),
        ] {
            let key = DerPublicKey::from_pem(key).unwrap();
            let key = VerificationKey::from_spki_with_scheme(&key, scheme).unwrap();
            let signature = SignatureBytes::from_base64(signature).unwrap();
            assert_eq!(
                key.verify_prehashed(digest, &signature).is_ok(),
                expected,
                "{}",
                scheme.name()
            );
        }
    }

    /// The expected values are the digests of "abc" in FIPS 180-4.
    #[test]
    fn every_supported_hash_function_returns_the_standard_digest() {
        install();
        assert!(sha256(b"abc").to_hex().starts_with("ba7816bf8f01cfea"));
        assert!(sha384(b"abc").to_hex().starts_with("cb00753f45a35e8b"));
        assert!(sha512(b"abc").to_hex().starts_with("ddaf35a193617aba"));
    }
}
