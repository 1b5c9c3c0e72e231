use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FoundSignature, Material, sigstore};

/// The claims of a signature of a module, which were not verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignatureDescription {
    pub kind: SignatureKind,
    /// The file, URL or digest of the signature.
    pub name: String,
    /// A hint at the key that made the signature. In sigstore's formats, it is the SHA-256 digest of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hint: Option<String>,
    /// The identity in the signature's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The issuer of the identity in the signature's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The index of the signature's entry in the transparency log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
    /// The time of the signature's entry in the transparency log, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged_at: Option<String>,
    /// The reason why the signature cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignatureKind {
    /// A signature without certificate or log entry.
    #[default]
    Detached,
    /// A bundle that signs the module or its manifest directly.
    Bundle,
    /// A bundle that signs a statement about the module or its manifest.
    Statement,
    /// The payload that older versions of `cosign sign` sign.
    SimpleSigning,
}

/// Describes all signatures of a module, whatever the policy requires.
pub fn describe(material: &Material) -> Vec<SignatureDescription> {
    material.signatures.iter().map(sigstore::describe).collect()
}

impl SignatureDescription {
    pub(super) fn new(signature: &FoundSignature) -> Self {
        Self {
            kind: match signature {
                FoundSignature::Detached { .. } => SignatureKind::Detached,
                FoundSignature::Bundle { .. } => SignatureKind::Bundle,
                FoundSignature::SimpleSigning { .. } => SignatureKind::SimpleSigning,
            },
            name: signature.name().to_owned(),
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
