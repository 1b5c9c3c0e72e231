//! Amounts of processor time and memory.

use std::str::FromStr;

/// As Kubernetes writes it: `100m`, `0.5`, `256Mi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quantity(String);

impl FromStr for Quantity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: [&str; 10] = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text.strip_prefix(number).unwrap_or_default();
        let is_number = number.starts_with(|c: char| c.is_ascii_digit())
            && number.ends_with(|c: char| c.is_ascii_digit())
            && number.parse::<f64>().is_ok_and(|number| number > 0.0);
        if is_number && UNITS.contains(&unit) {
            Ok(Self(text.to_owned()))
        } else {
            Err("write a quantity of Kubernetes, 100m or 256Mi")
        }
    }
}

impl Quantity {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
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
            assert_eq!(text.parse::<Quantity>().is_ok(), ok, "{text}");
        }
    }
}
