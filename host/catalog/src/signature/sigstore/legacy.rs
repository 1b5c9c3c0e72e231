//! Converts the certificates and log entries of cosign 2 and earlier to bundles.

use serde::Deserialize;
use sigstore_verify::types::{
    Bundle, CanonicalizedBody, DerCertificate, InclusionPromise, KindVersion, LogId, LogIndex, LogKeyId, MediaType,
    MessageSignature, SignatureBytes, SignatureContent, SignedTimestamp, TransparencyLogEntry, VerificationMaterial,
    VerificationMaterialContent, X509Certificate,
};

use super::parsed::decode_base64;
use crate::signature::Refusal;

/// The promise of a log to include the signature: the annotation `dev.sigstore.cosign/bundle`, or the field
/// `rekorBundle` in a bundle file.
#[derive(Deserialize)]
struct LogPromise {
    #[serde(rename = "SignedEntryTimestamp")]
    signature: String,
    #[serde(rename = "Payload")]
    entry: TransparencyEntry,
}

#[derive(Deserialize)]
struct TransparencyEntry {
    body: String,
    #[serde(rename = "integratedTime")]
    integrated_time: i64,
    #[serde(rename = "logIndex")]
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

#[derive(Deserialize)]
struct EntryKind {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
}

/// Builds a bundle from the parts of a signature. `log` is the promise of a log to include the signature. If it is
/// missing, the bundle is still built, but is refused when it is verified: nothing proves the time of the signature.
pub(super) fn create_bundle(
    certificate: &str,
    chain: Option<&str>,
    log: Option<&str>,
    signature: SignatureBytes,
) -> Result<Bundle, Refusal> {
    let promise = log
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| damaged_refusal("the log's promise", &error))?;
    assemble_bundle(certificate, chain, promise, signature)
}

fn assemble_bundle(
    certificate: &str,
    chain: Option<&str>,
    promise: Option<LogPromise>,
    signature: SignatureBytes,
) -> Result<Bundle, Refusal> {
    let mut certificates = parse_certificates(certificate)?;
    if certificates.len() != 1 {
        let count = certificates.len();
        return Err(Refusal::Damaged(format!("expected one certificate, found {count}")));
    }
    certificates.extend(chain.map(self::parse_certificates).transpose()?.unwrap_or_default());
    let entries = promise.map(create_log_entry).transpose()?.into_iter().collect();
    let material = VerificationMaterial::new(VerificationMaterialContent::X509CertificateChain { certificates })
        .with_tlog_entries(entries);
    let content = SignatureContent::MessageSignature(MessageSignature::new(signature));
    Ok(Bundle::new(MediaType::Bundle0_1, material, content))
}

fn parse_certificates(text: &str) -> Result<Vec<X509Certificate>, Refusal> {
    let blocks = pem::parse_many(text).map_err(|error| damaged_refusal("the certificate", &error))?;
    let certificate = |block: &pem::Pem| match block.tag() {
        "CERTIFICATE" => Ok(X509Certificate::new(DerCertificate::from_bytes(block.contents()))),
        tag => Err(Refusal::Damaged(format!("expected a certificate, found a `{tag}`"))),
    };
    blocks.iter().map(certificate).collect()
}

fn create_log_entry(promise: LogPromise) -> Result<TransparencyLogEntry, Refusal> {
    let body = decode_base64("the log's entry", &promise.entry.body)?.into_bytes();
    let entry_kind: EntryKind =
        serde_json::from_slice(&body).map_err(|error| damaged_refusal("the log's entry", &error))?;
    let kind: KindVersion = serde_json::from_value(serde_json::json!({
        "kind": entry_kind.kind,
        "version": entry_kind.version,
    }))
    .map_err(|error| Refusal::Unsupported(error.to_string()))?;
    let log = hex::decode(&promise.entry.log_id).map_err(|error| damaged_refusal("the log's identity", &error))?;
    let index =
        LogIndex::try_from(promise.entry.log_index).map_err(|error| damaged_refusal("the index in the log", &error))?;
    let time = jiff::Timestamp::from_second(promise.entry.integrated_time)
        .map_err(|error| damaged_refusal("the time of the log's entry", &error))?;
    let signature = decode_base64("the log's signature", &promise.signature)?.into_bytes();
    let id = LogId::new(LogKeyId::new(log));
    Ok(TransparencyLogEntry::new(index, id, kind, CanonicalizedBody::new(body))
        .with_integrated_time(time)
        .with_inclusion_promise(InclusionPromise::new(SignedTimestamp::new(signature))))
}

fn damaged_refusal(part: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::Damaged(format!("{part} cannot be read: {error}"))
}

/// A bundle file as `cosign sign-blob --bundle` of cosign 2 writes it.
#[derive(Deserialize)]
pub(super) struct BlobBundle {
    #[serde(rename = "base64Signature")]
    signature: String,
    /// The PEM text of the certificate or the public key, as base64.
    #[serde(default)]
    cert: Option<String>,
    #[serde(default, rename = "rekorBundle")]
    log: Option<LogPromise>,
}

impl BlobBundle {
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the signature in the bundle file, and a bundle in sigstore's format if the signature has a certificate.
    pub(super) fn into_parts(self) -> Result<(SignatureBytes, Option<Bundle>), Refusal> {
        let signature = decode_base64("the signature", &self.signature)?;
        let Some(cert) = self.cert.filter(|cert| !cert.is_empty()) else {
            return Ok((signature, None));
        };
        let pem = String::from_utf8(decode_base64("the certificate", &cert)?.into_bytes())
            .map_err(|error| damaged_refusal("the certificate", &error))?;
        if !pem.contains("BEGIN CERTIFICATE") {
            return Ok((signature, None));
        }
        let bundle = assemble_bundle(&pem, None, self.log, signature.clone())?;
        Ok((signature, Some(bundle)))
    }
}
