//! JSON Merge Patch (RFC 7386), which keeps the text of the object's parts that are not patched.

use jsonptr::PointerBuf;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    Object, ObjectError, Patch, PatchError,
    object::tree::{PatchBudget, TreeNode},
    patch::difference::MAX_PATHS_SIZE,
    patch::{OperationAction, PatchOperation},
};

/// A JSON Merge Patch (RFC 7386). It is an object, because any other value would replace the whole patched object.
#[derive(Clone, Debug)]
pub struct MergePatch(Object);

/// The number of rounds in which a merge patch is amended. The first round sets the members that are wrong or missing
/// in the patched object. This may bring superfluous members into the patched object, which the second round removes.
const AMENDMENT_ROUNDS: usize = 2;

impl MergePatch {
    /// Parses a merge patch.
    ///
    /// # Errors
    ///
    /// Fails when the text is not a JSON object, or has duplicate keys on any level, on which servers disagree.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ObjectError> {
        Object::parse_unique(text).map(Self)
    }

    /// Returns the patch as JSON text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Applies the patch to an object.
    ///
    /// # Errors
    ///
    /// Fails when the patch changes more than [`Patch::MAX_OPERATIONS`] values, or the result is too large.
    pub fn apply(&self, object: &Object) -> Result<Object, PatchError> {
        let mut steps = MergeOperations::new(&self.0);
        if let (Some(patch), Some(target)) = (self.0.value().as_object(), object.value().as_object()) {
            steps.merge(patch, Some(target))?;
        }
        Patch::from_operations(steps.operations).apply(object)
    }

    /// Returns this merge patch, changed so that it turns `before` into `after`. Returns `None` if the changed patch
    /// exceeds the limits of a patch, or if no merge patch can do it. For example, no merge patch can set a member to
    /// null, because a null in a merge patch removes the member.
    pub fn amend(&self, before: &Object, after: &Object) -> Option<Self> {
        let mut patch = self.clone();
        for _ in 0..AMENDMENT_ROUNDS {
            let result = patch.apply(before).ok()?;
            if result == *after {
                return Some(patch);
            }
            let mut steps = MergeOperations::new(after);
            let (patch_value, result, target) = (patch.0.value(), result.value(), after.value());
            steps
                .amend(Some(patch_value), result.as_object()?, target.as_object()?)
                .ok()?;
            patch = Self(Patch::from_operations(steps.operations).apply(&patch.0).ok()?);
        }
        (patch.apply(before).ok()? == *after).then_some(patch)
    }
}

struct MergeOperations<'a> {
    operations: Vec<PatchOperation>,
    path: PointerBuf,
    paths: usize,
    source: TreeNode<'a>,
    budget: PatchBudget,
}

impl<'a> MergeOperations<'a> {
    fn new(source: &'a Object) -> Self {
        let text = source.text();
        Self {
            operations: Vec::new(),
            path: PointerBuf::default(),
            paths: 0,
            source: TreeNode::new(text),
            budget: Patch::budget(text.len(), None),
        }
    }

    fn merge(&mut self, patch: &Map<String, Value>, target: Option<&Map<String, Value>>) -> Result<(), PatchError> {
        for (key, value) in patch {
            self.path.push_back(key);
            match (value, target.and_then(|target| target.get(key))) {
                (Value::Null, None) => {}
                (Value::Null, Some(_)) => self.push(OperationAction::Remove)?,
                (Value::Object(patch), Some(Value::Object(target))) => self.merge(patch, Some(target))?,
                (Value::Object(patch), _) if removes_members(patch) => {
                    self.push_empty()?;
                    self.merge(patch, None)?;
                }
                _ => self.push_value()?,
            }
            self.path.pop_back();
        }
        Ok(())
    }

    /// Corrects a part of a merge patch. Without the correction, this part of the patch gives the members `result`. The
    /// operations that this function adds change the patch so that it gives the members `target`.
    fn amend(
        &mut self,
        patch: Option<&Value>,
        result: &Map<String, Value>,
        target: &Map<String, Value>,
    ) -> Result<(), PatchError> {
        let child_patch = |key: &str| patch.and_then(|patch| patch.get(key));
        for (key, target_value) in target {
            self.path.push_back(key);
            match (result.get(key), target_value) {
                (Some(current), value) if current == value => {}
                (Some(Value::Object(current)), Value::Object(target_members)) => {
                    if child_patch(key).is_none() {
                        self.push_empty()?;
                    }
                    self.amend(child_patch(key), current, target_members)?;
                }
                _ => self.push_value()?,
            }
            self.path.pop_back();
        }
        for key in result.keys().filter(|key| !target.contains_key(*key)) {
            self.path.push_back(key);
            self.push(OperationAction::Add(RawValue::NULL.to_owned()))?;
            self.path.pop_back();
        }
        Ok(())
    }

    fn push_empty(&mut self) -> Result<(), PatchError> {
        let empty = RawValue::from_string("{}".to_owned())?;
        self.push(OperationAction::Add(empty))
    }

    fn push_value(&mut self) -> Result<(), PatchError> {
        let mut text = String::new();
        let too_large = self.too_large();
        let source_node = self.source.get(&self.path, &mut self.budget);
        source_node.map_err(|_| too_large)?.write(&mut text);
        self.push(OperationAction::Add(RawValue::from_string(text)?))
    }

    fn push(&mut self, action: OperationAction) -> Result<(), PatchError> {
        self.paths += self.path.len();
        if self.operations.len() >= Patch::MAX_OPERATIONS || self.paths > MAX_PATHS_SIZE {
            return Err(self.too_large());
        }
        let path = self.path.clone();
        self.operations.push(PatchOperation { path, action });
        Ok(())
    }

    fn too_large(&self) -> PatchError {
        PatchError::TooManyOperations(self.operations.len() + 1)
    }
}

/// Returns whether merging this patch may remove members, because the patch contains a null outside lists.
fn removes_members(patch: &Map<String, Value>) -> bool {
    patch.values().any(|value| match value {
        Value::Null => true,
        Value::Object(patch) => removes_members(patch),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(text: &str) -> MergePatch {
        MergePatch::parse(text).unwrap()
    }

    fn object(text: &str) -> Object {
        Object::parse(text).unwrap()
    }

    /// (object, patch, result), with RFC 7386's examples for objects.
    const MERGE_CASES: [(&str, &str, &str); 15] = [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (
            r#"{"a":{"b":"c"}}"#,
            r#"{"a":{"b":"d","c":null}}"#,
            r#"{"a":{"b":"d"}}"#,
        ),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        (
            "{}",
            r#"{"a":{"bb":{"ccc":null}},"x":[{"y":null}]}"#,
            r#"{"a":{"bb":{}},"x":[{"y":null}]}"#,
        ),
        (r#"{"a":1}"#, r#"{"a":{"b":null,"c":2}}"#, r#"{"a":{"c":2}}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":{}}"#, r#"{"a":{"b":1}}"#),
        (r#"{"a":1}"#, "{}", r#"{"a":1}"#),
        (r#"{"a/b":{"~":1}}"#, r#"{"a/b":{"~":null}}"#, r#"{"a/b":{}}"#),
        (
            r#"{"a":1.0,"b":12345678901234567890123}"#,
            r#"{"c":[22345678901234567890123]}"#,
            r#"{"a":1.0,"b":12345678901234567890123,"c":[22345678901234567890123]}"#,
        ),
    ];

    #[test]
    fn merge_patches_have_the_results_of_the_examples_in_the_rfc() {
        for (before, text, after) in MERGE_CASES {
            let result = patch(text).apply(&object(before)).unwrap();
            assert_eq!(result.text(), after, "{before} {text}");
            let mut reference = object(before).value().clone();
            json_patch::merge(&mut reference, patch(text).0.value());
            assert_eq!(result.value(), &reference, "{before} {text}");
        }
        for text in ["[]", "null", "1", r#"{"a":1,"a":null}"#, r#"{"a":{"b":1,"b":2}}"#] {
            assert!(MergePatch::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_merge_patch_is_amended_to_include_further_changes() {
        // (object before, merge patch, object after, amended merge patch)
        // The amended patch turns the first object into the second one; `None` if no merge patch can do it.
        for (before, text, after, expected) in [
            (r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":2}"#, Some(r#"{"a":2}"#)),
            (r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":1,"b":2}"#, Some(r#"{"a":1,"b":2}"#)),
            (
                r#"{"o":{"x":1,"y":{"z":2}}}"#,
                r#"{"a":1}"#,
                r#"{"o":{"x":1,"y":{"z":3}},"a":1}"#,
                Some(r#"{"a":1,"o":{"y":{"z":3}}}"#),
            ),
            (
                r#"{"a":1,"b":2}"#,
                r#"{"a":3}"#,
                r#"{"a":3}"#,
                Some(r#"{"a":3,"b":null}"#),
            ),
            (r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":1}"#, Some(r#"{"a":1}"#)),
            (
                r#"{"o":{"x":1,"y":{"z":2}}}"#,
                r#"{"o":null}"#,
                r#"{"o":{"y":{"w":3}}}"#,
                Some(r#"{"o":{"y":{"w":3,"z":null},"x":null}}"#),
            ),
            (
                r#"{"o":{"x":1}}"#,
                r#"{"o":5}"#,
                r#"{"o":{}}"#,
                Some(r#"{"o":{"x":null}}"#),
            ),
            (
                r#"{"l":[12345678901234567890123,1]}"#,
                r#"{"l":[12345678901234567890123,2]}"#,
                r#"{"l":[12345678901234567890123,2,3]}"#,
                Some(r#"{"l":[12345678901234567890123,2,3]}"#),
            ),
            // In this row, the object has `"n": null` from the beginning, so the patch need not set it. In the next two
            // rows, the patch would have to set a member to null, which a merge patch cannot do.
            (r#"{"n":null}"#, r#"{"a":1}"#, r#"{"n":null,"a":2}"#, Some(r#"{"a":2}"#)),
            (r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":null,"b":1}"#, None),
            (r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1,"b":{"c":null}}"#, None),
        ] {
            let amended_patch = patch(text).amend(&object(before), &object(after));
            let amended = amended_patch.as_ref().map(MergePatch::text);
            assert_eq!(amended, expected, "{before} {text} {after}");
        }
    }

    #[test]
    fn a_merge_patch_that_changes_too_much_is_refused() {
        let members: Map<String, Value> = (0..=Patch::MAX_OPERATIONS)
            .map(|key| (key.to_string(), json!(1)))
            .collect();
        let large_patch = patch(&Value::Object(members).to_string());
        assert!(matches!(
            large_patch.apply(&object("{}")),
            Err(PatchError::TooManyOperations(_))
        ));
        let deep = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
        assert_eq!(patch(&deep).apply(&object("{}")).unwrap().text(), deep);
    }
}
