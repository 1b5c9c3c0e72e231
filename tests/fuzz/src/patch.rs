use admittance::admission::{Object, Patch, PatchError};
use serde_json::Value;

use crate::parts;

/// Applies a JSON Patch to an object, and checks three properties: The result is the same as with the crate json-patch,
/// and can be parsed. The patch is the same after it is written and read again. The diff between the original and the
/// result transforms the original into the result.
pub fn patch(input: &[u8]) {
    let [document, patch] = parts(input);
    let (Ok(object), Ok(parsed)) = (Object::parse(document), Patch::parse(patch)) else {
        return;
    };
    assert_eq!(
        Patch::parse(parsed.to_string()).expect("a written patch can be read"),
        parsed
    );
    let result = parsed.apply(&object);
    if let Ok(after) = &result {
        let again = Object::parse(after.text()).expect("a patched object can be read");
        assert_eq!(again.value(), after.value());
        let difference = Patch::between(&object, after);
        let patched = difference.apply(&object).expect("a difference applies");
        assert_eq!(patched.value(), after.value());
    }
    // The program rejects a patch that exceeds its limits. The crate json-patch has no limits, so there is nothing to
    // compare for such a patch.
    if matches!(
        result,
        Ok(_) | Err(PatchError::DoesNotApply { .. } | PatchError::NotAnObject)
    ) {
        compare_with_json_patch(&object, &parsed, &result);
    }
}

fn compare_with_json_patch(object: &Object, patch: &Patch, result: &Result<Object, PatchError>) {
    let operations: Value = serde_json::from_str(&patch.to_string()).expect("a written patch is JSON");
    if operations
        .as_array()
        .is_none_or(|operations| operations.iter().any(is_applied_differently))
    {
        return;
    }
    let Ok(other) = serde_json::from_value::<json_patch::Patch>(operations) else {
        panic!("only here a patch: {patch}");
    };
    let mut expected = object.value().clone();
    // If an operation of the patch fails, `json_patch::patch` undoes all earlier operations, and panics if it cannot
    // undo one of them. `patch_unsafe` does not undo operations, so it does not panic.
    let applies = json_patch::patch_unsafe(&mut expected, &other).is_ok() && expected.is_object();
    match result {
        Ok(after) => {
            assert!(applies, "only here: {} {patch}", object.text());
            assert_eq!(after.value(), &expected, "{} {patch}", object.text());
        }
        Err(error) => assert!(!applies, "only there: {} {patch}: {error}", object.text()),
    }
}

/// Returns whether the crate json-patch applies this operation differently than Admittance. There are three such
/// operations: removing the root (the crate leaves `null`), moving a value onto itself (the crate rejects it), and
/// moving the root (the crate accepts it).
fn is_applied_differently(operation: &Value) -> bool {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    match text("op") {
        Some("remove") => text("path") == Some(""),
        Some("move") => text("from") == Some("") || text("from") == text("path"),
        _ => false,
    }
}
