use std::fmt::{Debug, Display};
use std::str::FromStr;

use admittance::{
    Digest, ModuleReference,
    definitions::{DefinitionId, StageId},
};
use admittance_catalog::signature::{IdentityPattern, ReferenceSource, SourcePattern};

use crate::parts;

/// Parses a reference to a module, and a pattern that references are compared with. Checks that a valid reference is
/// the same after it is written and read again, and that patterns see it in only one form. Also checks that no part of
/// a reference to a registry leads out of this registry.
pub fn references(input: &[u8]) {
    let [reference, pattern] = parts(input);
    let (Ok(reference), Ok(pattern)) = (std::str::from_utf8(reference), std::str::from_utf8(pattern)) else {
        return;
    };
    check_round_trip::<Digest>(reference);
    check_round_trip::<DefinitionId>(reference);
    check_round_trip::<StageId>(reference);
    let _ = pattern.parse::<IdentityPattern>();
    let pattern = check_round_trip::<SourcePattern>(pattern);
    let Some(reference) = check_round_trip::<ModuleReference>(reference) else {
        return;
    };
    if let ModuleReference::Oci(name) = &reference {
        for part in name.repository().split('/') {
            assert!(!part.is_empty() && part != "." && part != "..", "{name}");
        }
        assert!(!name.registry().contains(['/', '@', ' ']), "{name}");
    }
    // A reference to a file is not checked here, because only the file system knows the canonical form of a path.
    if matches!(reference, ModuleReference::File(_)) {
        return;
    }
    if let (Ok(source), Some(pattern)) = (ReferenceSource::from_reference(&reference), pattern) {
        let again = ReferenceSource::from_reference(&reference.to_string().parse().expect("it was read before"));
        assert_eq!(again.expect("it was understood before"), source);
        let all: SourcePattern = "**".parse().expect("the pattern of everything");
        assert!(all.matches(&source));
        pattern.matches(&source);
    }
}

fn check_round_trip<T>(text: &str) -> Option<T>
where
    T: FromStr + Display + PartialEq + Debug,
    T::Err: Debug,
{
    let parsed: T = text.parse().ok()?;
    let again: T = parsed.to_string().parse().expect("what is written can be read");
    assert_eq!(again, parsed, "{text}");
    Some(parsed)
}
