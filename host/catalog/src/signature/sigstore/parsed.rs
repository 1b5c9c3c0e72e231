use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use sigstore_verify::types::{
    Bundle, DsseEnvelope, HashAlgorithm, MessageDigest, Sha256Hash, SignatureBytes, SignatureContent, Statement,
};

use super::legacy;
use crate::{
    Digest,
    signature::{FoundSignature, Refusal, SIGNATURE_STATEMENT},
};

/// A signature of any format that was parsed, but not verified.
pub(super) struct ParsedSignature<'a> {
    pub(super) signed: SignedContent<'a>,
    pub(super) signature: SignatureBytes,
    /// The bundle that contains the signature's certificate and log entry; `None` for a detached signature.
    pub(super) bundle: Option<Bundle>,
}

pub(super) enum SignedContent<'a> {
    /// The bytes of the module or of its manifest are signed directly.
    Artifact(Option<MessageDigest>),
    /// A text that contains the digest of the manifest is signed.
    Payload(&'a [u8]),
    /// A statement that contains the digest of the module or of its manifest is signed.
    Envelope(DsseEnvelope),
}

impl<'a> ParsedSignature<'a> {
    pub(super) fn new(found_signature: &'a FoundSignature) -> Result<Self, Refusal> {
        match found_signature {
            FoundSignature::Detached { content, .. } => Ok(Self {
                signed: SignedContent::Artifact(None),
                signature: parse_detached(&content.0)?,
                bundle: None,
            }),
            FoundSignature::Bundle { content, .. } => Self::from_bundle(&content.0),
            FoundSignature::SimpleSigning {
                payload,
                signature,
                certificate,
                chain,
                log,
                ..
            } => {
                let signature = decode_base64("the signature", signature)?;
                let bundle = certificate
                    .as_deref()
                    .map(|certificate| {
                        legacy::create_bundle(certificate, chain.as_deref(), log.as_deref(), signature.clone())
                    })
                    .transpose()?;
                Ok(Self {
                    signed: SignedContent::Payload(&payload.0),
                    signature,
                    bundle,
                })
            }
        }
    }

    fn from_bundle(content: &[u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(content)
            .map_err(|error| Refusal::Damaged(format!("it is not valid UTF-8: {error}")))?;
        if let Some(blob_bundle) = legacy::BlobBundle::parse(text) {
            let (signature, bundle) = blob_bundle.into_parts()?;
            return Ok(Self {
                signed: SignedContent::Artifact(None),
                signature,
                bundle,
            });
        }
        let bundle = Bundle::from_json(text)
            .map_err(|error| Refusal::Damaged(format!("it is not a valid sigstore bundle: {error}")))?;
        let (signed, signature) = match &bundle.content {
            SignatureContent::MessageSignature(message) => {
                let digest = message.message_digest.clone();
                (SignedContent::Artifact(digest), message.signature.clone())
            }
            SignatureContent::DsseEnvelope(envelope) => {
                let signature = envelope.signature.sig.clone();
                (SignedContent::Envelope(envelope.clone()), signature)
            }
            _ => {
                return Err(Refusal::Unsupported(
                    "its content is neither a message signature nor a DSSE envelope".to_owned(),
                ));
            }
        };
        Ok(Self {
            signed,
            signature,
            bundle: Some(bundle),
        })
    }
}

impl SignedContent<'_> {
    pub(super) fn signed_message<'b>(&'b self, artifact: &'b [u8]) -> Cow<'b, [u8]> {
        match self {
            Self::Artifact(_) => Cow::Borrowed(artifact),
            Self::Payload(payload) => Cow::Borrowed(payload),
            Self::Envelope(envelope) => Cow::Owned(envelope.pae()),
        }
    }

    /// Returns the bytes with which to verify a bundle: the signed payload if there is one, and otherwise `artifact`.
    pub(super) fn bundle_artifact<'b>(&'b self, artifact: &'b [u8]) -> &'b [u8] {
        match self {
            Self::Payload(payload) => payload,
            Self::Artifact(_) | Self::Envelope(_) => artifact,
        }
    }

    /// Returns an error unless the signed content is the artifact or contains its digest.
    pub(super) fn check_subject(&self, artifact: &[u8]) -> Result<(), Refusal> {
        let actual = Digest::of_bytes(artifact);
        match self {
            Self::Artifact(None) => Ok(()),
            Self::Artifact(Some(declared)) => match declared.algorithm {
                HashAlgorithm::Sha2256 if declared.digest.as_bytes() != actual.as_bytes() => {
                    Err(Refusal::OtherSubject {
                        signed: format!("sha256:{}", declared.digest.to_hex()),
                        actual,
                    })
                }
                // The declared digest is correct, or it is not a SHA-256 digest and is not compared. It need not be
                // compared, because the signature covers the bytes of the artifact, and is invalid for any other bytes.
                _ => Ok(()),
            },
            Self::Payload(payload) => check_simple_signing(payload, actual),
            Self::Envelope(envelope) => check_statement(envelope, actual),
        }
    }
}

/// Parses a signature in the format of `cosign sign-blob` or `openssl dgst -sign`.
fn parse_detached(content: &[u8]) -> Result<SignatureBytes, Refusal> {
    let text = content.trim_ascii();
    if text.is_empty() {
        return Err(Refusal::Damaged("it is empty".to_owned()));
    }
    let is_base64 = text
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\r' | b'\n'));
    if !is_base64 {
        return Ok(SignatureBytes::from_bytes(content));
    }
    let joined: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let bytes = STANDARD
        .decode(joined)
        .map_err(|error| Refusal::Damaged(format!("it is not valid base64: {error}")))?;
    Ok(SignatureBytes::new(bytes))
}

pub(super) fn decode_base64(part: &str, text: &str) -> Result<SignatureBytes, Refusal> {
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|error| Refusal::Damaged(format!("{part} is not valid base64: {error}")))?;
    Ok(SignatureBytes::new(bytes))
}

/// The payload that `cosign sign` signs: <https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>.
#[derive(Deserialize)]
struct SimpleSigning {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: SignedImage,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct SignedImage {
    #[serde(rename = "docker-manifest-digest")]
    manifest: String,
}

const SIMPLE_SIGNING_KIND: &str = "cosign container image signature";

fn check_simple_signing(payload: &[u8], actual: Digest) -> Result<(), Refusal> {
    let text: SimpleSigning = serde_json::from_slice(payload)
        .map_err(|error| Refusal::Damaged(format!("its payload is not a cosign payload: {error}")))?;
    if text.critical.kind != SIMPLE_SIGNING_KIND {
        return Err(Refusal::Statement(text.critical.kind));
    }
    if text.critical.image.manifest.parse() != Ok(actual) {
        return Err(Refusal::OtherSubject {
            signed: text.critical.image.manifest,
            actual,
        });
    }
    Ok(())
}

const IN_TOTO_TYPE: &str = "application/vnd.in-toto+json";

/// The versions of in-toto statements. All have the fields that are read here.
const STATEMENT_TYPES: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];

fn check_statement(envelope: &DsseEnvelope, actual: Digest) -> Result<(), Refusal> {
    if envelope.payload_type != IN_TOTO_TYPE {
        return Err(Refusal::Statement(envelope.payload_type.clone()));
    }
    let statement: Statement = serde_json::from_slice(envelope.payload.as_bytes())
        .map_err(|error| Refusal::Damaged(format!("its payload is not a valid in-toto statement: {error}")))?;
    if !STATEMENT_TYPES.contains(&statement.type_.as_str()) {
        return Err(Refusal::Statement(statement.type_));
    }
    if statement.predicate_type != SIGNATURE_STATEMENT {
        return Err(Refusal::Statement(statement.predicate_type));
    }
    if statement.matches_sha256(&Sha256Hash::from(*actual.as_bytes())) {
        return Ok(());
    }
    let digests = statement
        .subject
        .iter()
        .filter_map(|subject| subject.digest.sha256.as_ref())
        .map(|digest| format!("sha256:{}", digest.to_hex()))
        .collect::<Vec<_>>()
        .join(", ");
    Err(Refusal::OtherSubject {
        signed: if digests.is_empty() {
            "something else".to_owned()
        } else {
            digests
        },
        actual,
    })
}
