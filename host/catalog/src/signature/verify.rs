use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sigstore_verify::{
    CertificateError, Error, TimestampError, TransparencyLogError,
    bundle::Error as BundleError,
    crypto::parse_certificate_info,
    types::{Bundle, DerCertificate},
};

use super::{
    Finding, FoundSignature, Keyless, Material, PublicKeys, Refusal, Requirement, SignatureError, describe,
    opened::{Opened, Signed},
};
use crate::{Digest, ModuleReference, fetch::Layer};

/// The module whose signatures are checked. Lives during a check.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its reference.
    pub reference: &'a ModuleReference,
    /// Its bytes.
    pub module: &'a [u8],
}

/// The result of a signature check. Lives with the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Verified {
    /// None was required.
    #[default]
    Unrequired,
    /// Signed by a required key.
    Key {
        /// The [fingerprint](super::PublicKey::fingerprint) of the key.
        #[serde(with = "digest_text")]
        fingerprint: Digest,
    },
    /// Signed by a required identity.
    Identity {
        /// The identity in the certificate: an e-mail address or a URI.
        identity: String,
        /// The issuer of the identity.
        issuer: String,
        /// When a log or timestamp authority first recorded it.
        signed_at: Timestamp,
        /// Its index in the transparency log.
        log_index: Option<u64>,
    },
}

/// Checks whether one of the found signatures satisfies the requirement. Needs no network, and uses the clock
/// only to refuse log times in the future: the same material gives the same result later, even after
/// certificates that were valid at signing have expired.
///
/// # Errors
///
/// When none does; the error lists each signature, and why it is refused.
pub fn verify(
    requirement: &Requirement,
    subject: Subject<'_>,
    material: &Material,
) -> Result<Verified, SignatureError> {
    let check: &dyn Fn(&FoundSignature, &[u8]) -> Result<Verified, Refusal> = match requirement {
        Requirement::Unsigned => return Ok(Verified::Unrequired),
        Requirement::Keys(keys) => &|found, artifact| by_key(keys, found, artifact),
        Requirement::Keyless(keyless) => &|found, artifact| by_identity(keyless, found, artifact),
    };
    let artifact = subject.artifact(material)?;
    let mut found = Vec::new();
    for signature in &material.signatures {
        match check(signature, artifact) {
            Ok(verified) => return Ok(verified),
            Err(refusal) => found.push(Finding {
                signature: describe::one(signature),
                refusal,
            }),
        }
    }
    let reference = Box::new(subject.reference.clone());
    let required = requirement.to_string();
    let fix = subject.how_to_sign(requirement, artifact);
    Err(if found.is_empty() {
        SignatureError::Unsigned {
            reference,
            required,
            fix,
        }
    } else {
        SignatureError::Refused {
            reference,
            required,
            found,
            fix,
        }
    })
}

impl<'a> Subject<'a> {
    /// What is signed: the manifest that lists the module, or the module.
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
            .ok_or_else(|| unrelated("the signed manifest was not kept".to_owned()))?;
        let manifest = manifest.0.as_slice();
        let digest = Digest::of(manifest);
        if reference.digest().is_some_and(|expected| expected != digest) {
            return Err(unrelated(format!(
                "the kept manifest has the digest {digest}; if the reference names an index, name the artifact in it \
                 by this digest, because that is what is signed"
            )));
        }
        let listed = Layer::of_manifest(reference, manifest)
            .map_err(|error| unrelated(error.to_string()))?
            .digest;
        let actual = Digest::of(self.module);
        if listed != actual {
            return Err(unrelated(format!(
                "the manifest lists the module {listed}, but the module is {actual}"
            )));
        }
        Ok(manifest)
    }

    fn how_to_sign(&self, requirement: &Requirement, artifact: &[u8]) -> String {
        let key = match requirement {
            Requirement::Keys(_) => "--key <private key> ",
            Requirement::Keyless(_) | Requirement::Unsigned => "",
        };
        match self.reference {
            ModuleReference::File(path) => {
                let path = path.display();
                format!("sign it with `cosign sign-blob {key}--bundle {path}.sigstore.json {path}`")
            }
            ModuleReference::Https(url) => {
                let bundle = super::bundle_url(url);
                format!(
                    "sign it with `cosign sign-blob {key}--bundle <bundle> <module>`, and publish the bundle at {bundle}"
                )
            }
            ModuleReference::Oci(reference) => {
                let (registry, repository) = (reference.registry(), reference.repository());
                let digest = Digest::of(artifact);
                format!("sign it with `cosign sign {key}{registry}/{repository}@{digest}`")
            }
        }
    }
}

fn by_key(keys: &PublicKeys, found: &FoundSignature, artifact: &[u8]) -> Result<Verified, Refusal> {
    let opened = Opened::new(found)?;
    let message = opened.signed.message(artifact);
    let key = keys
        .iter()
        .find(|key| key.signed(&message, &opened.signature))
        .ok_or(Refusal::WrongKey)?;
    opened.signed.is_over(artifact)?;
    Ok(Verified::Key {
        fingerprint: key.fingerprint(),
    })
}

fn by_identity(keyless: &Keyless, found: &FoundSignature, artifact: &[u8]) -> Result<Verified, Refusal> {
    let opened = Opened::new(found)?;
    let bundle = opened.bundle.as_ref().ok_or(Refusal::NoCertificate)?;
    let certificate = bundle.signing_certificate().ok_or(Refusal::NoCertificate)?;
    // The bundle's own claim is checked first, so that a signature of another module is reported as such.
    opened.signed.is_over(artifact)?;
    let message = match opened.signed {
        Signed::Payload(payload) => payload,
        Signed::Artifact(_) | Signed::Envelope(_) => artifact,
    };
    let root = &keyless.trust_root;
    let result = root
        .verifier()
        .verify(message, bundle, &root.policy())
        .map_err(|error| refusal(error, bundle, certificate))?;
    let issuer = result.issuer().unwrap_or_default();
    if issuer != keyless.issuer.as_str() {
        return Err(Refusal::WrongIssuer {
            found: issuer.to_owned(),
            required: keyless.issuer.to_string(),
        });
    }
    let identity = result.identity().map(ToString::to_string).unwrap_or_default();
    if !keyless.identity.matches(&identity) {
        return Err(Refusal::WrongIdentity {
            found: identity,
            required: keyless.identity.to_string(),
        });
    }
    let signed_at = result.verified_timestamps().iter().min().copied();
    Ok(Verified::Identity {
        identity,
        issuer: issuer.to_owned(),
        signed_at: signed_at
            .ok_or_else(|| Refusal::NotInLog("the time of signing is not recorded".to_owned()))?,
        log_index: describe::log_index(bundle),
    })
}

/// Translates the verifier's error.
fn refusal(error: Error, bundle: &Bundle, certificate: &DerCertificate) -> Refusal {
    match error {
        Error::SignatureInvalid(_) | Error::ArtifactMismatch(_) => Refusal::WrongKey,
        Error::Certificate(error) => expired(bundle, certificate).unwrap_or_else(|| untrusted(&error)),
        Error::TransparencyLog(TransparencyLogError::IntegratedTime(problem)) => {
            expired(bundle, certificate).unwrap_or(Refusal::NotInLog(problem))
        }
        Error::TransparencyLog(error) => Refusal::NotInLog(error.to_string()),
        Error::Timestamp(TimestampError::NoVerifiedTimestamp(_)) => Refusal::NotInLog(
            "neither a log nor a timestamp authority records the time of signing".to_owned(),
        ),
        Error::Timestamp(error) => Refusal::NotInLog(error.to_string()),
        Error::Bundle(
            error @ (BundleError::MissingInclusionPromise(_)
            | BundleError::MissingInclusionProof(_)
            | BundleError::MissingSigningTimeEvidence),
        ) => Refusal::NotInLog(error.to_string()),
        Error::UnsupportedBundle(problem) | Error::UnsupportedArtifact(problem) => {
            Refusal::Unsupported(problem)
        }
        error => Refusal::Damaged(error.to_string()),
    }
}

fn untrusted(error: &CertificateError) -> Refusal {
    match error {
        CertificateError::Malformed(problem) => Refusal::Damaged(problem.clone()),
        error => Refusal::UntrustedCertificate(error.to_string()),
    }
}

/// Whether the log's time is outside the certificate's validity; the verifier does not distinguish that from
/// other errors of a chain.
fn expired(bundle: &Bundle, certificate: &DerCertificate) -> Option<Refusal> {
    let certificate = parse_certificate_info(certificate).ok()?;
    let (not_before, not_after) = (certificate.not_before, certificate.not_after);
    let entries = &bundle.verification_material.tlog_entries;
    let signed_at = entries
        .iter()
        .filter_map(|entry| entry.integrated_time)
        .find(|time| *time < not_before || *time > not_after)?;
    Some(Refusal::Expired {
        signed_at,
        not_before,
        not_after,
    })
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrequired => f.write_str("not required"),
            Self::Key { fingerprint } => write!(f, "by the key {fingerprint}"),
            Self::Identity {
                identity,
                issuer,
                signed_at,
                ..
            } => write!(f, "by {identity} of {issuer} at {signed_at}"),
        }
    }
}

/// A digest as its text.
mod digest_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::Digest;

    pub(super) fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
