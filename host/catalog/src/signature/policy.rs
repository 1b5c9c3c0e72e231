use std::fmt;

use super::{InvalidTrust, Keyless, PublicKey, SignatureError, Source, SourcePattern};
use crate::ModuleReference;

/// Which signatures modules must have, by source. The first matching rule applies. If there are rules and
/// none matches, modules from that source are refused; without rules no signature is required. Lives as long
/// as the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignaturePolicy(Vec<SignatureRule>);

/// A rule for some sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRule {
    /// The sources.
    pub source: SourcePattern,
    /// The requirement.
    pub requirement: Requirement,
}

/// The signature that a module must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Made by one of these keys. Neither log nor certificate is needed.
    Keys(PublicKeys),
    /// Made by an identity that the trust root confirms.
    Keyless(Keyless),
    /// None.
    Unsigned,
}

/// One or more keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKeys(Vec<PublicKey>);

impl PublicKeys {
    /// # Errors
    ///
    /// When the list is empty.
    pub fn new(keys: Vec<PublicKey>) -> Result<Self, InvalidTrust> {
        if keys.is_empty() {
            Err(InvalidTrust::NoKeys)
        } else {
            Ok(Self(keys))
        }
    }

    /// In the given order.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.iter()
    }
}

impl SignaturePolicy {
    /// A policy of these rules, in this order.
    pub fn new(rules: Vec<SignatureRule>) -> Self {
        Self(rules)
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[SignatureRule] {
        &self.0
    }

    /// Whether nothing is required of anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is required of this source, which the reference [names](Source::of); `None` if the policy is
    /// empty.
    ///
    /// # Errors
    ///
    /// When there are rules, and none matches.
    pub fn requirement(
        &self,
        reference: &ModuleReference,
        source: &Source,
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
                    f.write_str("a signature by one of the keys ")?;
                    for (index, key) in keys.iter().enumerate() {
                        let separator = if index == 0 { "" } else { ", " };
                        write!(f, "{separator}{key}")?;
                    }
                    Ok(())
                }
            },
            Self::Keyless(keyless) => {
                write!(f, "a signature by `{}` of `{}`", keyless.identity, keyless.issuer)
            }
            Self::Unsigned => f.write_str("no signature"),
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
    fn the_first_rule_counts_and_there_must_be_one() {
        let reference: ModuleReference = "oci://example.com/plugins/a:1".parse().unwrap();
        let source = Source::of(&reference).unwrap();
        assert_eq!(
            SignaturePolicy::default()
                .requirement(&reference, &source)
                .unwrap(),
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
}
