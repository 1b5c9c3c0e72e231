use std::{fmt, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sigstore_verify::{VerificationPolicy, Verifier, trust_root::TrustedRoot};

use super::{
    PublicKey,
    key::{invalid_trust_error, read_text},
    provider,
};
use crate::signature::InvalidTrust;

const TRUST_ROOT_KIND: &str = "trust root";

/// The certificate authorities and logs that are trusted. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("TrustRoot {{ .. }}")]
pub struct TrustRoot(Arc<TrustedMaterial>);

struct TrustedMaterial {
    verifier: Verifier,
    has_certificate_logs: bool,
    /// The text of the trust root, by which trust roots are compared.
    text: String,
}

impl TrustRoot {
    /// Reads a `trusted_root.json`, as `cosign trusted-root create` writes it and sigstore publishes it.
    ///
    /// # Errors
    ///
    /// Returns an error when the text is invalid, or contains an unusable key or certificate.
    pub fn from_json(text: &str) -> Result<Self, InvalidTrust> {
        Self::parse(text).map_err(invalid_trust_error(TRUST_ROOT_KIND, None))
    }

    /// Reads a `trusted_root.json` from a file.
    ///
    /// # Errors
    ///
    /// Fails as [`from_json`](Self::from_json) does, and when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, InvalidTrust> {
        Self::parse(&read_text(path)?).map_err(invalid_trust_error(TRUST_ROOT_KIND, Some(path)))
    }

    /// Creates a trust root from PEM texts: the certificates of an authority (Fulcio: root and intermediates), and the
    /// public keys of the signature log (Rekor) and of an optional certificate transparency log.
    ///
    /// # Errors
    ///
    /// Returns an error when a text is not PEM of the expected kind.
    pub fn from_pem(
        authorities: &str,
        signature_log: &str,
        certificate_log: Option<&str>,
    ) -> Result<Self, InvalidTrust> {
        let root_error = invalid_trust_error(TRUST_ROOT_KIND, None);
        let blocks =
            pem::parse_many(authorities).map_err(|error| root_error(format!("it is not valid PEM: {error}")))?;
        let certificates: Vec<Value> = blocks
            .iter()
            .filter(|block| block.tag() == "CERTIFICATE")
            .map(|block| json!({ "rawBytes": STANDARD.encode(block.contents()) }))
            .collect();
        if certificates.is_empty() || certificates.len() != blocks.len() {
            return Err(root_error(
                "it is empty, or holds a PEM block that is not a `CERTIFICATE`".to_owned(),
            ));
        }
        let log = |pem: &str| -> Result<Value, InvalidTrust> {
            let key = PublicKey::from_pem(pem)?;
            Ok(json!({
                "baseUrl": "",
                "hashAlgorithm": "SHA2_256",
                "publicKey": { "rawBytes": STANDARD.encode(key.der()), "keyDetails": "" },
                "logId": { "keyId": STANDARD.encode(key.fingerprint().as_bytes()) },
            }))
        };
        let certificate_logs = certificate_log.map(log).transpose()?;
        let text = json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [{ "uri": "", "certChain": { "certificates": certificates } }],
            "tlogs": [log(signature_log)?],
            "ctlogs": certificate_logs.into_iter().collect::<Vec<_>>(),
        });
        Self::parse(&text.to_string()).map_err(root_error)
    }

    fn parse(text: &str) -> Result<Self, String> {
        provider::install();
        let error_text = |error: &dyn fmt::Display| format!("it is not a valid sigstore trust root: {error}");
        let root = TrustedRoot::from_json(text).map_err(|error| error_text(&error))?;
        if root.certificate_authorities.is_empty() {
            return Err("it names no certificate authority, so no signature could be verified".to_owned());
        }
        if root.tlogs.is_empty() {
            return Err("it names no transparency log, so no signature could be verified".to_owned());
        }
        Ok(Self(Arc::new(TrustedMaterial {
            verifier: Verifier::new(&root).map_err(|error| error_text(&error))?,
            has_certificate_logs: !root.ctlogs.is_empty(),
            text: text.to_owned(),
        })))
    }

    pub(super) fn verifier(&self) -> &Verifier {
        &self.0.verifier
    }

    /// Returns the policy for sigstore's verifier, which accepts any identity. The identity is checked after that, so
    /// that a wrong identity and an invalid proof get different errors.
    pub(super) fn policy(&self) -> VerificationPolicy {
        let policy = VerificationPolicy::any_identity();
        if self.0.has_certificate_logs {
            policy
        } else {
            policy.skip_sct()
        }
    }
}

impl PartialEq for TrustRoot {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for TrustRoot {}
