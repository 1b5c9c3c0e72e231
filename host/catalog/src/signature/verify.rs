use serde::{Deserialize, Serialize};

use super::{
    FoundSignature, Material, Refusal, Requirement, SignatureError, SignatureFinding,
    material::{BUNDLE_SUFFIX, signature_url},
    sigstore::{describe, verify_by_certificate, verify_by_identity, verify_by_key},
};
use crate::{Digest, ModuleReference, manifest::ModuleLayer};

#[derive(Clone, Copy, Debug)]
pub struct SignedModule<'a> {
    pub reference: &'a ModuleReference,
    pub module: &'a [u8],
    pub digest: Digest,
}

/// The reason why a module was accepted: the result of a successful signature check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "by", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum VerifiedSignature {
    /// The policy requires no signature.
    #[default]
    #[display("not required")]
    Unrequired,
    /// A required key signed the module.
    #[display("by the key {fingerprint}")]
    Key {
        /// The [fingerprint](super::PublicKey::fingerprint) of the key.
        fingerprint: Digest,
    },
    /// A required identity signed the module.
    #[display("by {identity} of {issuer} at {signed_at}")]
    Identity {
        /// The identity in the certificate, which is an e-mail address or a URI.
        identity: String,
        issuer: String,
        /// The earliest time at which a log or timestamp authority recorded the signature, in RFC 3339.
        signed_at: String,
        /// The index of the signature's entry in the transparency log.
        log_index: Option<u64>,
    },
}

/// Checks whether one of the signatures satisfies the requirement. The check needs no network. It uses the clock only
/// to refuse log times in the future, so a signature stays valid after its certificate has expired.
///
/// # Errors
///
/// Returns an error when no signature satisfies the requirement; it lists the reason for refusing each signature.
pub fn verify(
    requirement: &Requirement,
    subject: SignedModule<'_>,
    material: &Material,
) -> Result<VerifiedSignature, SignatureError> {
    if *requirement == Requirement::Unsigned {
        return Ok(VerifiedSignature::Unrequired);
    }
    let artifact = subject.artifact(material)?;
    let findings = match find_valid_signature(requirement, artifact, material) {
        Ok(verified) => return Ok(verified),
        Err(findings) => findings,
    };
    let reference = Box::new(subject.reference.clone());
    let required = requirement.to_string();
    let fix = subject.signing_advice(requirement, artifact);
    Err(if findings.is_empty() {
        SignatureError::Unsigned {
            reference,
            required,
            fix,
        }
    } else {
        SignatureError::Refused {
            reference,
            required,
            findings,
            fix,
        }
    })
}

pub(crate) fn find_valid_signature(
    requirement: &Requirement,
    artifact: &[u8],
    material: &Material,
) -> Result<VerifiedSignature, Vec<SignatureFinding>> {
    let check: &dyn Fn(&FoundSignature) -> Result<VerifiedSignature, Refusal> = match requirement {
        Requirement::Unsigned => return Ok(VerifiedSignature::Unrequired),
        Requirement::Keys(keys) => &|candidate| verify_by_key(keys, candidate, artifact),
        Requirement::Keyless(keyless) => &|candidate| verify_by_identity(keyless, candidate, artifact),
        Requirement::Certified(certified) => &|candidate| verify_by_certificate(certified, candidate, artifact),
    };
    let mut findings = Vec::new();
    for signature in &material.signatures {
        match check(signature) {
            Ok(verified) => return Ok(verified),
            Err(refusal) => findings.push(SignatureFinding {
                signature: describe(signature),
                refusal,
            }),
        }
    }
    Err(findings)
}

impl<'a> SignedModule<'a> {
    /// Returns the bytes that a signature must cover: the manifest of a module from a registry, or else the module.
    fn artifact(&self, material: &'a Material) -> Result<&'a [u8], SignatureError> {
        let ModuleReference::Oci(reference) = self.reference else {
            return Ok(self.module);
        };
        let unrelated = |problem: String| SignatureError::Unrelated {
            reference: Box::new(self.reference.clone()),
            problem,
        };
        let manifest = material
            .manifest
            .as_ref()
            .ok_or_else(|| unrelated("the signed manifest was not kept".to_owned()))?
            .0
            .as_slice();
        let digest = Digest::of_bytes(manifest);
        if reference.digest().is_some_and(|expected| expected != digest) {
            return Err(unrelated(format!(
                "the kept manifest has the digest {digest}; if the reference names an index, name the artifact in it \
                 by this digest, because that is what is signed"
            )));
        }
        let listed_digest = ModuleLayer::find_in_manifest(reference, manifest)
            .map_err(|error| unrelated(error.to_string()))?
            .digest;
        let actual = self.digest;
        if listed_digest != actual {
            return Err(unrelated(format!(
                "the manifest lists the module {listed_digest}, but the module is {actual}"
            )));
        }
        Ok(manifest)
    }

    fn signing_advice(&self, requirement: &Requirement, artifact: &[u8]) -> String {
        let key = match requirement {
            Requirement::Keys(_) => "--key <private key> ",
            Requirement::Certified(_) => "--key <private key> --certificate <certificate> ",
            Requirement::Keyless(_) | Requirement::Unsigned => "",
        };
        match self.reference {
            ModuleReference::File(path) => {
                let path = path.display();
                format!("sign it with `cosign sign-blob {key}--bundle {path}.sigstore.json {path}`")
            }
            ModuleReference::Https(url) => {
                let bundle = signature_url(url, BUNDLE_SUFFIX);
                format!(
                    "sign it with `cosign sign-blob {key}--bundle <bundle> <module>`, and publish the bundle at {bundle}"
                )
            }
            ModuleReference::Oci(reference) => {
                let (name, digest) = (reference.name(), Digest::of_bytes(artifact));
                format!("sign it with `cosign sign {key}{name}@{digest}`")
            }
        }
    }
}
