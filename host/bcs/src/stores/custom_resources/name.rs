//! The names of resources.

use std::fmt::Write as _;

use admittance_admission::is_dns_subdomain;
use sha2::{Digest as _, Sha256};

use crate::stores::document::Place;

/// The length of the readable part of a derived name.
const READABLE: usize = 200;
/// The bytes of the digest that makes derived names unique.
const DIGEST: usize = 8;

/// The name of the resource of a definition: stable, unique for every definition, and one that
/// Kubernetes allows.
///
/// Definitions that BCS itself keeps in `namespace` have the name that BCS uses. It knows no other namespace; its names
/// may have capitals, and dots anywhere.
pub(super) fn of(definition: Place<'_>, namespace: &str) -> String {
    if definition.namespace == namespace && is_dns_subdomain(definition.name) && !is_made(definition.name) {
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
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Whether it ends like a derived name, and so could collide with one.
fn is_made(name: &str) -> bool {
    let end = name.rsplit('-').next().unwrap_or_default();
    end.len() == DIGEST * 2 && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_letter(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names() {
        let long = "a".repeat(300);
        // (namespace, name, name of the resource, or its beginning)
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
            assert!(is_dns_subdomain(&made), "{namespace}/{name}: {made}");
            assert_eq!(made == expected, !is_made(&made), "{made}");
            assert_eq!(made, of(Place { namespace, name }, "bkbcs"));
            assert!(seen.insert(made.clone()), "{made} is there twice");
        }
        // A derived name cannot be the name of another definition.
        for made in seen.iter().filter(|made| is_made(made)) {
            let name = made.as_str();
            let namespace = "bkbcs";
            assert!(!seen.contains(&of(Place { namespace, name }, "bkbcs")));
        }
    }
}
