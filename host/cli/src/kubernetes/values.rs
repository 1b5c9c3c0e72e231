//! Parses values in arguments of `kubernetes`.

use std::str::FromStr;

use admittance_admission::{is_dns_label, is_dns_subdomain};

/// Parses the name of a namespace, a DNS label.
pub(super) fn label(text: &str) -> Result<String, &'static str> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("write 1 to 63 lower-case letters, digits and `-`, with no `-` at either end")
    }
}

/// Parses the name of an installation. A Service gets this name too, so it must start with a letter. Other objects have
/// a suffix after the name, so it must be shorter than the longest name that Kubernetes allows.
pub(super) fn name(text: &str) -> Result<String, &'static str> {
    let name = label(text)?;
    if name.starts_with(|first: char| first.is_ascii_lowercase()) && name.len() <= 40 {
        Ok(name)
    } else {
        Err("begin with a letter, and use at most 40 characters")
    }
}

/// Parses the name of a PersistentVolumeClaim, a DNS subdomain.
pub(super) fn claim(text: &str) -> Result<String, &'static str> {
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("write lower-case letters, digits, `-` and `.`, as in the name of a PersistentVolumeClaim")
    }
}

/// Groups of Kubernetes itself (`system:`) would give users of the gateway too many permissions.
pub(super) fn group(text: &str) -> Result<String, &'static str> {
    let is_printable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_printable && !text.starts_with("system:") {
        Ok(text.to_owned())
    } else {
        Err("write the name of a group that does not begin with system:")
    }
}

/// Parses a directory in the image. Its characters must need no quotes in YAML.
pub(super) fn directory(text: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    if text.starts_with('/') && text.chars().all(fits) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write an absolute path of letters, digits, `-`, `_` and `.`")
    }
}

/// Parses an amount of CPU or memory as in Kubernetes: `100m`, `0.5`, `256Mi`.
pub(super) fn quantity(text: &str) -> Result<String, &'static str> {
    const UNITS: [&str; 10] = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(number).unwrap_or_default();
    let is_number = number.starts_with(|c: char| c.is_ascii_digit())
        && number.ends_with(|c: char| c.is_ascii_digit())
        && number.parse::<f64>().is_ok_and(|number| number > 0.0);
    if is_number && UNITS.contains(&unit) {
        Ok(text.to_owned())
    } else {
        Err("write a quantity of Kubernetes, 100m or 256Mi")
    }
}

/// The version of a cluster: the minor version of Kubernetes 1, such as 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display("1.{_0}")]
pub(super) struct KubernetesVersion(u16);

impl FromStr for KubernetesVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "write major and minor version, 1.30";
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let minor = numbers.strip_prefix("1.").ok_or(wrong)?;
        // The patch version in `1.30.2` and the sign in some vendors' `1.30+` are ignored.
        let digits = minor.split('.').next().unwrap_or_default().trim_end_matches('+');
        match digits.parse().map_err(|_| wrong)? {
            ..16 => Err("1.16 is the oldest with admissionregistration.k8s.io/v1"),
            minor => Ok(Self(minor)),
        }
    }
}

impl KubernetesVersion {
    pub(super) fn has_match_conditions(self) -> bool {
        self.0 >= 28
    }

    pub(super) fn reads_webhooks_from_files(self) -> bool {
        self.0 >= 36
    }

    pub(super) fn labels_namespaces(self) -> bool {
        self.0 >= 21
    }

    pub(super) fn has_stable_autoscaling(self) -> bool {
        self.0 >= 23
    }

    pub(super) fn has_stable_policies(self) -> bool {
        self.0 >= 21
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_versions_before_1_16_are_refused() {
        for (text, expected) in [
            ("1.30", Some(30)),
            ("v1.20.2", Some(20)),
            ("1.27+", Some(27)),
            ("1.16", Some(16)),
            ("1.15", None),
            ("1", None),
            ("2.0", None),
            ("1.x", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected.map(KubernetesVersion), "{text}");
        }
    }

    #[test]
    fn quantities_are_positive_and_have_known_units() {
        for (text, ok) in [
            ("100m", true),
            ("1", true),
            ("0.5", true),
            ("256Mi", true),
            ("1G", true),
            ("0", false),
            ("256MB", false),
            ("-1", false),
            ("1e", false),
            (".5", false),
            ("Mi", false),
            ("inf", false),
            ("", false),
        ] {
            assert_eq!(quantity(text).is_ok(), ok, "{text}");
        }
    }
}
