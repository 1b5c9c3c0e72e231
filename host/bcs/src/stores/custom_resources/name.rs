//! Derives the names of resources from the names of definitions.

use std::fmt::Write as _;

use admittance_admission::is_dns_subdomain;
use sha2::{Digest as _, Sha256};

use crate::definition_name::DefinitionName;

/// The maximum number of characters from the definition's name that a derived name contains.
const MAX_READABLE_LENGTH: usize = 200;
/// The number of bytes of the digest at the end of a derived name, which makes it unique.
const DIGEST_LENGTH: usize = 8;

/// Returns the name of the resource that stores a definition. It is derived if BCS allows the definition's name but
/// Kubernetes does not, for example because of capitals.
pub(super) fn resource_name(definition: &DefinitionName, namespace: &str) -> String {
    if definition.namespace == namespace && is_dns_subdomain(&definition.name) && !is_derived(&definition.name) {
        return definition.name.clone();
    }
    let full_name = definition.to_string();
    let mut name = String::new();
    for c in full_name.chars().take(MAX_READABLE_LENGTH) {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    if !name.is_empty() && !name.ends_with('-') {
        name.push('-');
    }
    for byte in Sha256::digest(full_name.as_bytes()).iter().take(DIGEST_LENGTH) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Returns whether a name ends with a digest, as the derived names of resources do. If the name of a definition ends in
/// this way, its resource gets a derived name too. Otherwise, two definitions could get resources of the same name.
fn is_derived(name: &str) -> bool {
    let end = name.rsplit('-').next().unwrap_or_default();
    end.len() == DIGEST_LENGTH * 2 && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_name_of_a_resource_is_derived_from_its_definition() {
        let long = "a".repeat(300);
        // (namespace, name, expected name of the resource, or only its beginning if the name is derived)
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
        let mut resource_names = HashSet::new();
        for (namespace, name, expected) in rows {
            let derived = resource_name(&DefinitionName::new(namespace, name), "bkbcs");
            assert!(derived.starts_with(expected), "{namespace}/{name}: {derived}");
            assert!(is_dns_subdomain(&derived), "{namespace}/{name}: {derived}");
            assert_eq!(derived == expected, !is_derived(&derived), "{derived}");
            assert_eq!(derived, resource_name(&DefinitionName::new(namespace, name), "bkbcs"));
            assert!(resource_names.insert(derived.clone()), "{derived} is there twice");
        }
        for derived in resource_names.iter().filter(|derived| is_derived(derived)) {
            let name = derived.as_str();
            assert!(!resource_names.contains(&resource_name(&DefinitionName::new("bkbcs", name), "bkbcs")));
        }
    }
}
