use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FoundSignature, Material, sigstore};

/// The claims of a signature, which are not verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignatureDescription {
    pub kind: SignatureKind,
    /// The signature's file, URL or digest.
    pub name: String,
    /// The key hint, which is the base64 of the key's SHA-256 digest in sigstore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hint: Option<String>,
    /// The identity in the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The issuer of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The index in the transparency log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
    /// The time at which the log recorded the signature, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged_at: Option<String>,
    /// The reason for which the signature cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// The form of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignatureKind {
    /// A bare signature.
    #[default]
    Detached,
    /// A bundle with a signature of the module or its manifest.
    Bundle,
    /// A bundle with a statement about the module or its manifest.
    Statement,
    /// The older form of `cosign sign`.
    SimpleSigning,
}

/// Describes all signatures of a module, independent of the policy.
pub fn describe(material: &Material) -> Vec<SignatureDescription> {
    material.signatures.iter().map(sigstore::describe).collect()
}

impl SignatureDescription {
    pub(super) fn of(found: &FoundSignature) -> Self {
        Self {
            kind: match found {
                FoundSignature::Detached { .. } => SignatureKind::Detached,
                FoundSignature::Bundle { .. } => SignatureKind::Bundle,
                FoundSignature::SimpleSigning { .. } => SignatureKind::SimpleSigning,
            },
            name: found.name().to_owned(),
            ..Self::default()
        }
    }
}

impl fmt::Display for SignatureDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (&self.identity, &self.issuer, &self.key_hint) {
            (Some(identity), Some(issuer), _) => write!(f, " by {identity} of {issuer}")?,
            (Some(identity), None, _) => write!(f, " by {identity}")?,
            (None, _, Some(hint)) => write!(f, " by the key {hint}")?,
            (None, _, None) => {}
        }
        if let Some(time) = &self.logged_at {
            write!(f, " at {time}")?;
        }
        Ok(())
    }
}
