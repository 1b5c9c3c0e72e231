use std::{fmt, str::FromStr};

use url::Url;

use super::{
    InvalidPattern, InvalidTrust, PublicKey, ReferenceSource, SignatureError, SigningCertificate, SourcePattern,
    TrustRoot, glob::PathGlob,
};
use crate::ModuleReference;

/// The required signatures, by source. The first rule that matches a source applies. If none matches, modules from that
/// source are refused. An empty policy requires no signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignaturePolicy(Vec<SignatureRule>);

/// The requirement for the modules from sources that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRule {
    pub source: SourcePattern,
    pub requirement: Requirement,
}

/// The predicate type of the statement that `cosign sign` makes. Only this type is accepted, because other statements,
/// such as provenance or scan results, may be signed with the same key without approving the module.
pub const SIGNATURE_STATEMENT: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// One of these keys must have signed the module. The signature needs neither a log entry nor a certificate.
    Keys(PublicKeys),
    /// An identity must have signed the module, and the trust root must confirm the identity.
    Keyless(Keyless),
    /// The owner of this certificate must have signed the module.
    Certified(CertificateRequirement),
    Unsigned,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKeys(Vec<PublicKey>);

impl PublicKeys {
    /// # Errors
    ///
    /// Returns an error when the list is empty.
    pub fn new(keys: Vec<PublicKey>) -> Result<Self, InvalidTrust> {
        if keys.is_empty() {
            Err(InvalidTrust::NoKeys)
        } else {
            Ok(Self(keys))
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.iter()
    }
}

impl SignaturePolicy {
    pub fn new(rules: Vec<SignatureRule>) -> Self {
        Self(rules)
    }

    pub fn rules(&self) -> &[SignatureRule] {
        &self.0
    }

    /// Returns whether the policy requires no signatures.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the requirement for the [source](ReferenceSource::from_reference) of the reference; `None` if the policy
    /// is empty.
    ///
    /// # Errors
    ///
    /// Returns an error when the policy has rules, but none of them matches.
    pub fn requirement(
        &self,
        reference: &ModuleReference,
        source: &ReferenceSource,
    ) -> Result<Option<&Requirement>, SignatureError> {
        if self.is_empty() {
            return Ok(None);
        }
        let rule = self.0.iter().find(|rule| rule.source.matches(source));
        rule.map(|rule| Some(&rule.requirement))
            .ok_or_else(|| SignatureError::NotCovered {
                reference: Box::new(reference.clone()),
                patterns: self.0.iter().map(|rule| rule.source.clone()).collect(),
            })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(keys) => match keys.0.as_slice() {
                [key] => write!(f, "a signature by the key {key}"),
                keys => {
                    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                    write!(f, "a signature by one of the keys {}", keys.join(", "))
                }
            },
            Self::Keyless(keyless) => {
                write!(f, "a signature by `{}` of `{}`", keyless.identity, keyless.issuer)
            }
            Self::Certified(certified) => {
                write!(f, "a signature by the owner of {}", certified.certificate)
            }
            Self::Unsigned => f.write_str("no signature"),
        }
    }
}

/// The requirements for a keyless signature. An authority of the trust root must have issued the signature's
/// certificate to the identity. The certificate must have been valid when a log or timestamp authority of the trust
/// root recorded the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyless {
    pub trust_root: TrustRoot,
    /// The identity of the required signer, which is an e-mail address or URI in the certificate.
    pub identity: IdentityPattern,
    /// The required issuer of the identity.
    pub issuer: IssuerUrl,
}

/// The requirements for a signature that the owner of a known certificate made. The certificate may lack an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequirement {
    pub certificate: SigningCertificate,
    /// The trust root that verifies the log entry of the signature. The certificate must have been valid at the time of
    /// this entry.
    pub trust_root: Option<TrustRoot>,
    /// Whether a signature without a log entry is refused.
    pub must_be_logged: bool,
}

/// The URL of an OpenID provider as certificates contain it, such as `https://token.actions.githubusercontent.com`.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub struct IssuerUrl(String);

/// An identity, or a pattern of identities. In a pattern, `*` matches any characters except `/`. `**` must be a whole
/// part, and matches any number of parts.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub struct IdentityPattern(PathGlob);

impl IdentityPattern {
    pub fn matches(&self, identity: &str) -> bool {
        self.0.matches(identity)
    }
}

impl FromStr for IdentityPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let glob = if text.trim().is_empty() {
            Err("is empty")
        } else if text.chars().all(|c| matches!(c, '*' | '/')) {
            Err("matches every identity")
        } else {
            PathGlob::new(text)
        };
        glob.map(Self).map_err(|problem| InvalidPattern {
            text: text.to_owned(),
            problem,
            fix: "write the e-mail address or the URI of the signer",
        })
    }
}

impl IssuerUrl {
    /// Returns the URL of the issuer exactly as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IssuerUrl {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text of the issuer is kept, because issuers are compared literally, and `url` would append a `/`.
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "https" | "http") => Ok(Self(text.to_owned())),
            _ => Err(InvalidPattern {
                text: text.to_owned(),
                problem: "is not a valid issuer",
                fix: "write the URL of the OpenID provider, `https://token.actions.githubusercontent.com`",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: &str) -> SignatureRule {
        SignatureRule {
            source: source.parse().unwrap(),
            requirement: Requirement::Unsigned,
        }
    }

    #[test]
    fn the_first_matching_rule_applies_and_at_least_one_must_match() {
        let reference: ModuleReference = "oci://example.com/plugins/a:1".parse().unwrap();
        let source = ReferenceSource::from_reference(&reference).unwrap();
        assert_eq!(
            SignaturePolicy::default().requirement(&reference, &source).unwrap(),
            None
        );
        let policy = SignaturePolicy::new(vec![rule("oci://other.example.com/**"), rule("https://**")]);
        let error = policy.requirement(&reference, &source).unwrap_err();
        assert_eq!(
            error.to_string(),
            "module oci://example.com/plugins/a:1: no rule of `signatures` matches it (there are rules for \
             oci://other.example.com/**; https://**): add one, with `accept: Unsigned` if it need not be signed"
        );
        let key = include_str!("../../tests/signature/fixtures/p256.pub");
        let keys = PublicKeys::new(vec![PublicKey::from_pem(key).unwrap()]).unwrap();
        let keyed = SignatureRule {
            source: "oci://example.com/**".parse().unwrap(),
            requirement: Requirement::Keys(keys),
        };
        for (rules, expected) in [
            (vec![keyed.clone(), rule("**")], &keyed.requirement),
            (vec![rule("**"), keyed.clone()], &Requirement::Unsigned),
            (vec![rule("file:**"), keyed.clone()], &keyed.requirement),
        ] {
            let policy = SignaturePolicy::new(rules);
            assert_eq!(policy.requirement(&reference, &source).unwrap(), Some(expected));
        }
        assert!(matches!(PublicKeys::new(Vec::new()), Err(InvalidTrust::NoKeys)));
    }

    #[test]
    fn an_identity_pattern_has_wildcards_and_matches_whole_identities() {
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
    fn an_issuer_must_be_a_url() {
        for right in ["https://accounts.google.com", "https://gitlab.example.com/oidc"] {
            assert_eq!(right.parse::<IssuerUrl>().unwrap().as_str(), right);
        }
        for wrong in ["", "accounts.google.com", "file:/a", "*"] {
            let error = wrong.parse::<IssuerUrl>().unwrap_err();
            assert_eq!(error.problem, "is not a valid issuer");
        }
    }
}
