//! The version of a cluster, and the features that it supports.

use std::{fmt, str::FromStr};

/// The minor version of Kubernetes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u16);

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "write major and minor version, 1.30";
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let minor = numbers.strip_prefix("1.").ok_or(wrong)?;
        // `1.30.2`, and the `1.30+` of some vendors.
        let digits = minor.split('.').next().unwrap_or_default().trim_end_matches('+');
        let minor = digits.parse().map_err(|_| wrong)?;
        if minor < Self::OLDEST {
            return Err("1.16 is the oldest with admissionregistration.k8s.io/v1");
        }
        Ok(Self(minor))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

impl Version {
    const OLDEST: u16 = 16;

    /// Match conditions of webhooks are enabled: from 1.28.
    pub(super) fn has_match_conditions(self) -> bool {
        self.0 >= 28
    }

    /// Every namespace has its name as a label: from 1.21.
    pub(super) fn labels_namespaces(self) -> bool {
        self.0 >= 21
    }

    /// PodDisruptionBudgets are in `policy/v1`: from 1.21.
    pub(super) fn policy_group(self) -> &'static str {
        if self.0 >= 21 {
            "policy/v1"
        } else {
            "policy/v1beta1"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("1.30", Some("1.30")),
            ("v1.20.2", Some("1.20")),
            ("1.27+", Some("1.27")),
            ("1.16", Some("1.16")),
            ("1.15", None),
            ("1", None),
            ("2.0", None),
            ("1.x", None),
            ("", None),
        ] {
            let version = text.parse::<Version>().ok().map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{text}");
        }
    }
}
