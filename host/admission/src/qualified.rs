//! Kubernetes' qualified names: `name`, or `prefix.example.com/name`.

/// The most characters of the name in a qualified name.
pub const NAME_PART_LENGTH: usize = 63;

/// Whether this is the name in a qualified name of Kubernetes: at most 63 letters, digits, `-`, `_` and `.`,
/// with a letter or digit at both ends. Keys of audit annotations and names of match conditions are such.
pub fn is_name_part(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let at_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= NAME_PART_LENGTH
        && bytes.iter().copied().all(inside)
        && at_end(bytes.first())
        && at_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_parts() {
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
