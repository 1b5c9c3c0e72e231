//! Replaces the types of signature checks in a build without the feature `signatures`. None of them can be created.

use std::{convert::Infallible, fmt, path::Path};

use super::{
    CertificateRequirement, FoundSignature, InvalidTrust, Keyless, PublicKeys, Refusal, SignatureDescription,
    VerifiedSignature,
};
use crate::Digest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Infallible);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRoot(Infallible);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningCertificate(Infallible);

impl SigningCertificate {
    pub fn new(_: &str, _: Option<&[String]>) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }
}

impl fmt::Display for SigningCertificate {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl PublicKey {
    pub fn from_pem(_: &str) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }

    pub fn read(_: &Path) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }

    pub fn fingerprint(&self) -> Digest {
        match self.0 {}
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl TrustRoot {
    pub fn from_json(_: &str) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }

    pub fn read(_: &Path) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }

    pub fn from_pem(_: &str, _: &str, _: Option<&str>) -> Result<Self, InvalidTrust> {
        Err(InvalidTrust::NoSignatures)
    }
}

/// Never called, because keys cannot be created.
pub(super) fn verify_by_key(_: &PublicKeys, _: &FoundSignature, _: &[u8]) -> Result<VerifiedSignature, Refusal> {
    Err(Refusal::WrongKey)
}

pub(super) fn verify_by_identity(
    keyless: &Keyless,
    _: &FoundSignature,
    _: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    match keyless.trust_root.0 {}
}

pub(super) fn verify_by_certificate(
    certified: &CertificateRequirement,
    _: &FoundSignature,
    _: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    match certified.certificate.0 {}
}

pub(super) fn describe(found: &FoundSignature) -> SignatureDescription {
    SignatureDescription {
        damage: Some(InvalidTrust::NoSignatures.to_string()),
        ..SignatureDescription::new(found)
    }
}
