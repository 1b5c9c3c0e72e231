use std::{fmt, path::Path};

use admittance_watch::file;
use sigstore_verify::{
    crypto::{KeyAlgorithm, SigningScheme, VerificationKey, validate_raw_public_key},
    types::{DerPublicKey, SignatureBytes},
};

use super::provider;
use crate::{Digest, signature::InvalidTrust};

const TRUST_SIZE_LIMIT: u64 = 1 << 20;

/// A public key with which signatures are verified: ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits.
#[derive(Clone, PartialEq, Eq, derive_more::Display, derive_more::Debug)]
#[debug("PublicKey({fingerprint})")]
#[display("{fingerprint}")]
pub struct PublicKey {
    der: DerPublicKey,
    algorithm: KeyAlgorithm,
    fingerprint: Digest,
}

impl PublicKey {
    /// Reads the only public key in a PEM text (`-----BEGIN PUBLIC KEY-----`), such as the file `cosign.pub` of `cosign
    /// generate-key-pair`.
    ///
    /// # Errors
    ///
    /// Returns an error when the text contains anything else, or a key of an unsupported kind.
    pub fn from_pem(text: &str) -> Result<Self, InvalidTrust> {
        Self::parse(text).map_err(invalid_trust_error("public key", None))
    }

    /// Reads the only public key in a PEM file.
    ///
    /// # Errors
    ///
    /// Fails as [`from_pem`](Self::from_pem) does, and when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, InvalidTrust> {
        Self::parse(&read_text(path)?).map_err(invalid_trust_error("public key", Some(path)))
    }

    fn parse(text: &str) -> Result<Self, String> {
        provider::install();
        let blocks = pem::parse_many(text).map_err(|error| format!("it is not valid PEM: {error}"))?;
        let block = match blocks.as_slice() {
            [block] => block,
            [] => return Err("it holds no PEM block: write `-----BEGIN PUBLIC KEY-----`".to_owned()),
            blocks => {
                let count = blocks.len();
                return Err(format!(
                    "it holds {count} PEM blocks: write each key into a file of its own"
                ));
            }
        };
        match block.tag() {
            "PUBLIC KEY" => {}
            tag if tag.ends_with("PRIVATE KEY") => {
                return Err(
                    "it is a private key: name the public key, and keep the private key where you sign".to_owned(),
                );
            }
            tag => return Err(format!("it is a `{tag}`: write a `PUBLIC KEY`")),
        }
        Self::from_der(DerPublicKey::new(block.contents().to_vec()))
    }

    pub(super) fn from_der(der: DerPublicKey) -> Result<Self, String> {
        let kinds = "ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits";
        let error_text = |error: &dyn fmt::Display| format!("it is not a key for {kinds}: {error}");
        let algorithm = KeyAlgorithm::from_spki(&der).map_err(|error| error_text(&error))?;
        if signing_schemes(algorithm).is_empty() {
            return Err(format!("it is not a key for {kinds}"));
        }
        let key = VerificationKey::from_spki(&der).map_err(|error| error_text(&error))?;
        validate_raw_public_key(key.scheme(), key.as_bytes()).map_err(|error| error_text(&error))?;
        let fingerprint = Digest::of_bytes(der.as_bytes());
        Ok(Self {
            der,
            algorithm,
            fingerprint,
        })
    }

    /// Returns the SHA-256 digest of the key's DER form, as `openssl pkey -pubin -outform DER | sha256sum` prints it.
    pub fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    pub(super) fn der(&self) -> &[u8] {
        self.der.as_bytes()
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &SignatureBytes) -> bool {
        signing_schemes(self.algorithm).iter().any(|scheme| {
            VerificationKey::from_spki_with_scheme(&self.der, *scheme)
                .is_ok_and(|key| key.verify(message, signature).is_ok())
        })
    }
}

/// cosign uses SHA-256 with every curve, while other tools use the hash of the curve's size.
fn signing_schemes(algorithm: KeyAlgorithm) -> &'static [SigningScheme] {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => &[SigningScheme::EcdsaP256Sha256],
        KeyAlgorithm::EcdsaP384 => &[SigningScheme::EcdsaP384Sha384, SigningScheme::EcdsaP384Sha256],
        KeyAlgorithm::Ed25519 => &[SigningScheme::Ed25519],
        KeyAlgorithm::Rsa => &[
            SigningScheme::RsaPkcs1Sha256,
            SigningScheme::RsaPkcs1Sha384,
            SigningScheme::RsaPkcs1Sha512,
            SigningScheme::RsaPssSha256,
            SigningScheme::RsaPssSha384,
            SigningScheme::RsaPssSha512,
        ],
        _ => &[],
    }
}

pub(super) fn read_text(path: &Path) -> Result<String, InvalidTrust> {
    file::read_to_string(path, TRUST_SIZE_LIMIT).map_err(|source| InvalidTrust::Unreadable {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn invalid_trust_error(kind: &'static str, path: Option<&Path>) -> impl Fn(String) -> InvalidTrust {
    let path = path.map(Path::to_owned);
    move |problem| InvalidTrust::Invalid {
        kind,
        path: path.clone(),
        problem,
    }
}
