//! A certificate authority and a transparency log as sigstore runs them, for one test. The certificates and log entries
//! that they issue have the format of cosign 2 and earlier.

use admittance_catalog::signature::{Blob, FoundSignature, TrustRoot};
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use ring::{
    digest,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

/// The time at which all signatures in these tests were made, in Unix seconds.
pub(crate) const SIGNED_AT: i64 = 1_750_000_000;

pub(crate) const IDENTITY: &str = "signer@example.com";
pub(crate) const ISSUER: &str = "https://accounts.example.com";

pub(crate) struct SigningAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    log: EcdsaKeyPair,
}

pub(crate) struct CertificateProperties<'a> {
    pub(crate) identity: SanType,
    pub(crate) issuer: &'a str,
    /// When the certificate becomes valid and when it expires, in seconds relative to [`SIGNED_AT`].
    pub(crate) validity: (i64, i64),
    pub(crate) logged_at: i64,
    pub(crate) usage: ExtendedKeyUsagePurpose,
}

impl Default for CertificateProperties<'_> {
    fn default() -> Self {
        Self {
            identity: SanType::Rfc822Name(IDENTITY.try_into().unwrap()),
            issuer: ISSUER,
            validity: (-60, 540),
            logged_at: SIGNED_AT,
            usage: ExtendedKeyUsagePurpose::CodeSigning,
        }
    }
}

#[derive(Clone)]
pub(crate) struct SignedLayer {
    pub(crate) payload: String,
    pub(crate) signature: String,
    pub(crate) certificate: String,
    pub(crate) log: Value,
}

pub(crate) fn ecdsa_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap()
}

pub(crate) fn sign(key: &EcdsaKeyPair, message: &[u8]) -> String {
    STANDARD.encode(key.sign(&SystemRandom::new(), message).unwrap())
}

impl SigningAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.not_before = OffsetDateTime::from_unix_timestamp(SIGNED_AT).unwrap() - Duration::days(365);
        params.not_after = params.not_before + Duration::days(3650);
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
            log: ecdsa_key(),
        }
    }

    pub(crate) fn trust_root(&self) -> TrustRoot {
        let log = public_pem(self.log.public_key().as_ref());
        TrustRoot::from_pem(&self.certificate, &log, None).unwrap()
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    pub(crate) fn sign(&self, payload: &str, request: CertificateProperties<'_>) -> SignedLayer {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![request.identity];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![request.usage];
        let at = |seconds| OffsetDateTime::from_unix_timestamp(SIGNED_AT + seconds).unwrap();
        params.not_before = at(request.validity.0);
        params.not_after = at(request.validity.1);
        let fulcio = [1, 3, 6, 1, 4, 1, 57264, 1, 1];
        params.custom_extensions = vec![CustomExtension::from_oid_content(
            &fulcio,
            request.issuer.as_bytes().to_vec(),
        )];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.serialized_der(), &SystemRandom::new()).unwrap();
        let signature = sign(&key, payload.as_bytes());
        let log = self.log_promise(payload, &signature, &certificate, request.logged_at);
        SignedLayer {
            payload: payload.to_owned(),
            signature,
            certificate,
            log,
        }
    }

    pub(crate) fn log_promise(&self, payload: &str, signature: &str, certificate: &str, at: i64) -> Value {
        let digest = digest::digest(&digest::SHA256, payload.as_bytes());
        // The log signs the canonical form of this JSON (RFC 8785), in which the members are sorted by name.
        let body = json!({
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": { "hash": { "algorithm": "sha256", "value": hex::encode(digest) } },
                "signature": {
                    "content": signature,
                    "publicKey": { "content": STANDARD.encode(certificate) },
                },
            },
        });
        self.sign_log_entry(&body, at)
    }

    pub(crate) fn sign_log_entry(&self, body: &Value, at: i64) -> Value {
        let key = public_der(self.log.public_key().as_ref());
        let entry = json!({
            "body": STANDARD.encode(body.to_string()),
            "integratedTime": at,
            "logID": hex::encode(digest::digest(&digest::SHA256, &key)),
            "logIndex": 7,
        });
        json!({
            "SignedEntryTimestamp": sign(&self.log, entry.to_string().as_bytes()),
            "Payload": entry,
        })
    }
}

impl SignedLayer {
    pub(crate) fn simple_signing(&self) -> FoundSignature {
        FoundSignature::SimpleSigning {
            name: "sha256-0.sig".to_owned(),
            payload: Blob(self.payload.clone().into_bytes()),
            signature: self.signature.clone(),
            certificate: Some(self.certificate.clone()),
            chain: None,
            log: Some(self.log.to_string()),
        }
    }
}

/// The bytes that begin the DER form of every P-256 public key. The point of the key follows them.
const P256_KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn public_der(point: &[u8]) -> Vec<u8> {
    [P256_KEY_PREFIX.as_slice(), point].concat()
}

pub(crate) fn public_pem(point: &[u8]) -> String {
    let der = STANDARD.encode(public_der(point));
    format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
}
