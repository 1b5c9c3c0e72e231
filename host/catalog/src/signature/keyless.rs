use std::{fmt, path::Path, str::FromStr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sigstore_verify::{VerificationPolicy, Verifier, trust_root::TrustedRoot};
use url::Url;

use super::{InvalidTrust, PublicKey, glob::Glob, key::read_text, provider};

/// The requirements of a keyless signature: a certificate that an authority of the trust root issued to this
/// identity, valid when a log or a timestamp authority of the trust root recorded the signature. Lives as
/// long as the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyless {
    /// The trust root.
    pub trust_root: TrustRoot,
    /// The required signer: the certificate's e-mail address or URI.
    pub identity: IdentityPattern,
    /// The required issuer of the identity.
    pub issuer: IssuerUrl,
}

/// The URL of an OpenID provider, as its certificates have it: `https://token.actions.githubusercontent.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerUrl(String);

/// The trusted certificate authorities and logs. Lives as long as the policy; cheap to clone.
#[derive(Clone)]
pub struct TrustRoot(Arc<Trusted>);

struct Trusted {
    verifier: Verifier,
    has_certificate_logs: bool,
    /// For comparison.
    text: String,
}

/// An identity, or a pattern for it: `*` matches any characters but `/`; `**`, alone between two `/`, matches
/// any number of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityPattern(Identity);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    Exact(String),
    Pattern(Glob),
}

/// A text that is not a valid identity pattern. The message says what is wrong, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}: write the e-mail address or the URI of the signer")]
pub struct InvalidIdentity {
    /// The text.
    pub text: String,
    /// The problem, as the rest of a sentence.
    pub problem: &'static str,
}

/// A text that is not a valid issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid issuer: write the URL of the OpenID provider, `https://token.actions.githubusercontent.com`"
)]
pub struct InvalidIssuer(pub String);

impl TrustRoot {
    /// Reads a `trusted_root.json`, as written by `cosign trusted-root create` and as published by sigstore
    /// for its public services.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or holds keys or certificates that cannot be used.
    pub fn from_json(text: &str) -> Result<Self, InvalidTrust> {
        Self::parse(text).map_err(|problem| InvalidTrust::Root {
            origin: None,
            problem,
        })
    }

    /// [`from_json`](Self::from_json) of a file.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, InvalidTrust> {
        let text = read_text(path)?;
        Self::parse(&text).map_err(|problem| InvalidTrust::Root {
            origin: Some(path.to_owned()),
            problem,
        })
    }

    /// The PEM texts of the certificates of an authority (Fulcio; root and intermediates), and of the public
    /// keys of the signature log (Rekor) and, if there is one, of the certificate transparency log.
    ///
    /// # Errors
    ///
    /// When one of them is something else.
    pub fn from_pem(
        authorities: &str,
        signature_log: &str,
        certificate_log: Option<&str>,
    ) -> Result<Self, InvalidTrust> {
        let root = |problem| InvalidTrust::Root {
            origin: None,
            problem,
        };
        let blocks =
            pem::parse_many(authorities).map_err(|error| root(format!("it is not valid PEM: {error}")))?;
        let certificates: Vec<Value> = blocks
            .iter()
            .filter(|block| block.tag() == "CERTIFICATE")
            .map(|block| json!({ "rawBytes": STANDARD.encode(block.contents()) }))
            .collect();
        if certificates.is_empty() || certificates.len() != blocks.len() {
            return Err(root(
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
        Self::parse(&text.to_string()).map_err(root)
    }

    fn parse(text: &str) -> Result<Self, String> {
        provider::install();
        let wrong = |error: &dyn fmt::Display| format!("it is not a valid sigstore trust root: {error}");
        let root = TrustedRoot::from_json(text).map_err(|error| wrong(&error))?;
        if root.certificate_authorities.is_empty() {
            return Err("it names no certificate authority, so no signature could be verified".to_owned());
        }
        if root.tlogs.is_empty() {
            return Err("it names no transparency log, so no signature could be verified".to_owned());
        }
        let verifier = Verifier::new(&root).map_err(|error| wrong(&error))?;
        Ok(Self(Arc::new(Trusted {
            verifier,
            has_certificate_logs: !root.ctlogs.is_empty(),
            text: text.to_owned(),
        })))
    }

    pub(super) fn verifier(&self) -> &Verifier {
        &self.0.verifier
    }

    /// The identity is checked afterwards, so that a wrong identity and an invalid proof have different
    /// errors.
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

impl fmt::Debug for TrustRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustRoot").finish_non_exhaustive()
    }
}

impl IdentityPattern {
    /// Whether the identity matches.
    pub fn matches(&self, identity: &str) -> bool {
        match &self.0 {
            Identity::Exact(exact) => exact == identity,
            Identity::Pattern(glob) => glob.matches(identity),
        }
    }
}

impl IssuerUrl {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IssuerUrl {
    type Err = InvalidIssuer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The issuer is compared literally; `url` would add a `/`.
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "https" | "http") => Ok(Self(text.to_owned())),
            _ => Err(InvalidIssuer(text.to_owned())),
        }
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IdentityPattern {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |problem| InvalidIdentity {
            text: text.to_owned(),
            problem,
        };
        if text.trim().is_empty() {
            return Err(wrong("is empty"));
        }
        if text.chars().all(|c| matches!(c, '*' | '/')) {
            return Err(wrong("matches every identity"));
        }
        if !text.contains('*') {
            return Ok(Self(Identity::Exact(text.to_owned())));
        }
        let glob = Glob::new(text).map_err(wrong)?;
        Ok(Self(Identity::Pattern(glob)))
    }
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Identity::Exact(text) => f.write_str(text),
            Identity::Pattern(glob) => glob.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_meant() {
        for (pattern, identity, expected) in [
            ("a@example.com", "a@example.com", true),
            ("a@example.com", "b@example.com", false),
            ("*@example.com", "b@example.com", true),
            ("*@example.com", "b@example.com.evil.example", false),
            (
                "https://github.com/o/r/.github/workflows/release.yml@refs/tags/v*",
                "https://github.com/o/r/.github/workflows/release.yml@refs/tags/v1.0",
                true,
            ),
            (
                "https://github.com/o/r/.github/workflows/release.yml@refs/tags/v*",
                "https://github.com/o/r/.github/workflows/release.yml@refs/heads/v1",
                false,
            ),
            ("https://github.com/o/**", "https://github.com/o/r/x", true),
            ("https://github.com/o/**", "https://github.com/o2/r/x", false),
        ] {
            let parsed: IdentityPattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(identity), expected, "{pattern} {identity}");
        }
        for wrong in ["", " ", "*", "**", "*/**", "https://a**"] {
            assert!(wrong.parse::<IdentityPattern>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn issuers_are_urls() {
        for right in ["https://accounts.google.com", "https://gitlab.example.com/oidc"] {
            assert_eq!(right.parse::<IssuerUrl>().unwrap().as_str(), right);
        }
        for wrong in ["", "accounts.google.com", "file:/a", "*"] {
            let error = wrong.parse::<IssuerUrl>().unwrap_err();
            assert_eq!(error, InvalidIssuer(wrong.to_owned()));
        }
    }
}
