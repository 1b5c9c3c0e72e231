//! What resources are called.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::stores::document::Place;

/// The longest name that the API server takes.
const LONGEST: usize = 253;
/// How much of a definition's own name is in one that is made of it.
const READABLE: usize = 200;
/// Bytes of the digest that tells names apart which read alike.
const DIGEST: usize = 8;

/// The name of the resource of a definition: always the same, another for every definition, and one that
/// Kubernetes allows.
///
/// What BCS itself keeps in `namespace` is called as BCS calls it. It knows no other namespace; its names
/// may have capitals, and dots at any place.
pub(super) fn of(definition: Place<'_>, namespace: &str) -> String {
    if definition.namespace == namespace && is_allowed(definition.name) && !is_made(definition.name) {
        return definition.name.to_owned();
    }
    let whole = format!("{}/{}", definition.namespace, definition.name);
    let mut name = String::new();
    for c in whole.chars().take(READABLE) {
        let c = c.to_ascii_lowercase();
        if is_letter(c) {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    if !name.is_empty() && !name.ends_with('-') {
        name.push('-');
    }
    for byte in Sha256::digest(whole.as_bytes()).iter().take(DIGEST) {
        // A text takes whatever is written.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Whether it ends as a name that is made of another, so that no two are the same.
fn is_made(name: &str) -> bool {
    let end = name.rsplit('-').next().unwrap_or_default();
    end.len() == DIGEST * 2 && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_letter(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Kubernetes' rule for names of resources (RFC 1123 subdomain).
fn is_allowed(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| is_letter(c) || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names() {
        let long = "a".repeat(300);
        // (namespace, name, how the resource is called, or begins to be)
        let rows = [
            ("bkbcs", "webhook-test", "webhook-test"),
            ("bkbcs", "a.b", "a.b"),
            ("bkbcs", "A.b", "bkbcs-a-b-"),
            ("bkbcs", "a..b", "bkbcs-a-b-"),
            ("bkbcs", "-a", "bkbcs-a-"),
            ("bkbcs", "a-0123456789abcdef", "bkbcs-a-0123456789abcdef-"),
            ("defaultGroup", "webhook-test", "defaultgroup-webhook-test-"),
            ("defaultgroup", "webhook-test", "defaultgroup-webhook-test-"),
            ("defaultgroup-webhook", "test", "defaultgroup-webhook-test-"),
            ("钩子", "_", ""),
            ("a", long.as_str(), "a-aaa"),
            ("bkbcs", long.as_str(), "bkbcs-aaa"),
        ];
        let mut seen = HashSet::new();
        for (namespace, name, expected) in rows {
            let made = of(Place { namespace, name }, "bkbcs");
            assert!(made.starts_with(expected), "{namespace}/{name}: {made}");
            assert!(is_allowed(&made), "{namespace}/{name}: {made}");
            assert_eq!(made == expected, !is_made(&made), "{made}");
            assert_eq!(made, of(Place { namespace, name }, "bkbcs"));
            assert!(seen.insert(made.clone()), "{made} is there twice");
        }
        // One that is made cannot be the name of another.
        for made in seen.iter().filter(|made| is_made(made)) {
            let name = made.as_str();
            let namespace = "bkbcs";
            assert!(!seen.contains(&of(Place { namespace, name }, "bkbcs")));
        }
    }
}
