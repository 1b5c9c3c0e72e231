use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sigstore_verify::{
    crypto::parse_certificate_info,
    types::{Bundle, VerificationMaterialContent},
};

use super::{
    FoundSignature, Material,
    opened::{Opened, Signed},
    provider,
};

/// What a signature claims. Nothing of it is verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignatureDescription {
    /// Its form.
    pub kind: SignatureKind,
    /// Its file, URL or digest.
    pub name: String,
    /// The key hint; with sigstore the base64 of the key's SHA-256 digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hint: Option<String>,
    /// The identity in its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The issuer of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Its index in the transparency log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
    /// When the log recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged_at: Option<Timestamp>,
    /// Why it cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// The form of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignatureKind {
    /// A bare signature.
    Detached,
    /// A bundle with a signature of the module or its manifest.
    Bundle,
    /// A bundle with a statement about the module or its manifest.
    Statement,
    /// The older form of `cosign sign`.
    SimpleSigning,
}

/// The signatures that were found, whatever is required.
pub fn describe(material: &Material) -> Vec<SignatureDescription> {
    material.signatures.iter().map(one).collect()
}

pub(super) fn one(found: &FoundSignature) -> SignatureDescription {
    provider::install();
    let mut description = SignatureDescription {
        kind: match found {
            FoundSignature::Detached { .. } => SignatureKind::Detached,
            FoundSignature::Bundle { .. } => SignatureKind::Bundle,
            FoundSignature::SimpleSigning { .. } => SignatureKind::SimpleSigning,
        },
        name: found.name().to_owned(),
        key_hint: None,
        identity: None,
        issuer: None,
        log_index: None,
        logged_at: None,
        damage: None,
    };
    match Opened::new(found) {
        Ok(opened) => {
            if matches!(opened.signed, Signed::Envelope(_)) {
                description.kind = SignatureKind::Statement;
            }
            if let Some(bundle) = &opened.bundle {
                add_bundle(&mut description, bundle);
            }
        }
        Err(refusal) => description.damage = Some(refusal.to_string()),
    }
    description
}

fn add_bundle(description: &mut SignatureDescription, bundle: &Bundle) {
    let certificate = bundle
        .signing_certificate()
        .and_then(|certificate| parse_certificate_info(certificate).ok());
    if let Some(certificate) = certificate {
        description.identity = certificate.identity.map(|identity| identity.to_string());
        description.issuer = certificate.issuer;
    }
    if let VerificationMaterialContent::PublicKey(key) = &bundle.verification_material.content {
        description.key_hint = Some(key.hint.clone()).filter(|hint| !hint.is_empty());
    }
    description.log_index = log_index(bundle);
    let entries = &bundle.verification_material.tlog_entries;
    description.logged_at = entries.iter().find_map(|entry| entry.integrated_time);
}

pub(super) fn log_index(bundle: &Bundle) -> Option<u64> {
    let entry = bundle.verification_material.tlog_entries.first()?;
    Some(entry.log_index.get())
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
        if let Some(time) = self.logged_at {
            write!(f, " at {time}")?;
        }
        Ok(())
    }
}
