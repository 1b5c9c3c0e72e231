//! Kubernetes' rules for names: DNS labels and subdomains, and qualified names such as `name` or
//! `prefix.example.com/name`.

/// The maximum length of a qualified name's last part, in characters.
pub const NAME_PART_LENGTH: usize = 63;

/// Returns whether this text may be the last part of a qualified name in Kubernetes: at most 63 letters, digits, `-`,
/// `_` and `.`, with a letter or digit at both ends. Keys of audit annotations must be such names.
pub fn is_name_part(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let at_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= NAME_PART_LENGTH
        && bytes.iter().copied().all(inside)
        && at_end(bytes.first())
        && at_end(bytes.last())
}

/// Returns whether this is a DNS-1123 label: at most 63 characters a-z, 0-9 and `-`, with no `-` at either end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_part_of_subdomain(text)
}

/// Returns whether this is a DNS-1123 subdomain, such as `www.example.com`: at most 253 characters, in labels that are
/// separated by dots. A label may be longer than 63 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part_of_subdomain)
}

fn is_part_of_subdomain(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels_and_subdomains_follow_rfc_1123() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for (text, label, subdomain) in [
            ("a", true, true),
            ("0-9", true, true),
            (longest.as_str(), true, true),
            (longer.as_str(), false, true),
            ("a.b", false, true),
            ("", false, false),
            ("a..b", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a.-b", false, false),
            ("A", false, false),
            ("a_b", false, false),
        ] {
            assert_eq!(is_dns_label(text), label, "{text}");
            assert_eq!(is_dns_subdomain(text), subdomain, "{text}");
        }
        assert!(is_dns_subdomain(&"a.".repeat(127)[..253]));
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn name_parts_follow_the_rules_of_kubernetes() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for (text, expected) in [
            ("a", true),
            ("A-b_c.9", true),
            (longest.as_str(), true),
            (longer.as_str(), false),
            ("", false),
            ("-a", false),
            ("a.", false),
            ("a/b", false),
            ("a*b", false),
            ("größe", false),
        ] {
            assert_eq!(is_name_part(text), expected, "{text}");
        }
    }
}
