//! JSON Patches (RFC 6902), serialized as they are built.

use jsonptr::{Pointer, PointerBuf};
use serde::Serialize;

use crate::Error;

/// A JSON Patch against the object of the request.
///
/// The operations are applied in the order in which they were added. The patch is stored as JSON text, so that it is
/// serialized only once.
///
/// ```
/// use admittance_sdk::{Patch, pointer};
///
/// # fn main() -> Result<(), admittance_sdk::Error> {
/// let object_has_annotations = false;
/// let mut patch = Patch::new();
/// patch.ensure_object(pointer!["metadata", "annotations"], object_has_annotations);
/// patch.add(pointer!["metadata", "annotations", "example.com/team"], "storage")?;
/// assert_eq!(
///     patch.into_json(),
///     r#"[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/example.com~1team","value":"storage"}]"#
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// The JSON text of the patch without the closing bracket of its list; empty if there are no operations.
    text: String,
    /// The paths at which [`Patch::ensure_object`] and [`Patch::ensure_array`] created a value. Each path occurs once.
    created_paths: Vec<PointerBuf>,
}

impl Patch {
    /// Returns an empty patch. A response with an empty patch is the verdict `allow`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds a value at a path: a new or replaced member, or a new element that is inserted before the existing one.
    /// The last segment `-` appends to a list. The parent must exist.
    ///
    /// # Errors
    /// Fails if the value cannot be serialized as JSON, such as a map whose keys are not strings.
    pub fn add(&mut self, path: impl AsRef<Pointer>, value: &(impl Serialize + ?Sized)) -> Result<&mut Self, Error> {
        self.push_operation("add", path.as_ref(), value)
    }

    /// Replaces the value at a path. The value must exist.
    ///
    /// # Errors
    /// Fails if the value cannot be serialized as JSON.
    pub fn replace(
        &mut self,
        path: impl AsRef<Pointer>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<&mut Self, Error> {
        self.push_operation("replace", path.as_ref(), value)
    }

    /// Makes the whole patch fail unless the value at the path is equal to this one.
    ///
    /// # Errors
    /// Fails if the value cannot be serialized as JSON.
    pub fn test(&mut self, path: impl AsRef<Pointer>, value: &(impl Serialize + ?Sized)) -> Result<&mut Self, Error> {
        self.push_operation("test", path.as_ref(), value)
    }

    /// Removes the value at a path. The value must exist.
    pub fn remove(&mut self, path: impl AsRef<Pointer>) -> &mut Self {
        self.begin_operation("remove", path.as_ref());
        self.text.push('}');
        self
    }

    /// Moves a value from one path to another.
    pub fn move_to(&mut self, from: impl AsRef<Pointer>, path: impl AsRef<Pointer>) -> &mut Self {
        self.push_operation_with_source("move", from.as_ref(), path.as_ref())
    }

    /// Copies the value at one path to another.
    pub fn copy_to(&mut self, from: impl AsRef<Pointer>, path: impl AsRef<Pointer>) -> &mut Self {
        self.push_operation_with_source("copy", from.as_ref(), path.as_ref())
    }

    /// Creates an empty object at a path unless there is one. `exists` says whether the request's object has an object
    /// at this path (`null` does not count). Calling this method again for the same path does nothing.
    pub fn ensure_object(&mut self, path: impl AsRef<Pointer>, exists: bool) -> &mut Self {
        self.ensure_value(path.as_ref(), exists, "{}")
    }

    /// Creates an empty list at a path unless there is one. `exists` says whether the request's object has a list at
    /// this path, as for [`Patch::ensure_object`].
    pub fn ensure_array(&mut self, path: impl AsRef<Pointer>, exists: bool) -> &mut Self {
        self.ensure_value(path.as_ref(), exists, "[]")
    }

    /// Returns the JSON text of the patch, `[]` if it is empty.
    pub fn into_json(mut self) -> String {
        if self.text.is_empty() {
            self.text.push('[');
        }
        self.text.push(']');
        self.text
    }

    fn ensure_value(&mut self, path: &Pointer, exists: bool, empty: &str) -> &mut Self {
        if !exists && !self.created_paths.iter().any(|created_path| created_path == path) {
            self.begin_operation("add", path);
            self.text.push_str(",\"value\":");
            self.text.push_str(empty);
            self.text.push('}');
            self.created_paths.push(path.to_owned());
        }
        self
    }

    fn push_operation(
        &mut self,
        operation: &str,
        path: &Pointer,
        value: &(impl Serialize + ?Sized),
    ) -> Result<&mut Self, Error> {
        // The value is serialized before the operation is appended, so that an error leaves the patch unchanged.
        let value = serde_json::to_string(value).map_err(|source| Error::Write {
            pointer: path.to_owned(),
            source,
        })?;
        self.begin_operation(operation, path);
        self.text.push_str(",\"value\":");
        self.text.push_str(&value);
        self.text.push('}');
        Ok(self)
    }

    fn push_operation_with_source(&mut self, operation: &str, from: &Pointer, path: &Pointer) -> &mut Self {
        self.begin_operation(operation, path);
        self.text.push_str(",\"from\":");
        push_string(&mut self.text, from.as_str());
        self.text.push('}');
        self
    }

    fn begin_operation(&mut self, operation: &str, path: &Pointer) {
        self.text.push(if self.text.is_empty() { '[' } else { ',' });
        self.text.push_str("{\"op\":\"");
        self.text.push_str(operation);
        self.text.push_str("\",\"path\":");
        push_string(&mut self.text, path.as_str());
    }
}

/// Appends a string to JSON text, with quotes around it. Most strings need no escapes, and are copied as a whole.
fn push_string(text: &mut String, string: &str) {
    text.push('"');
    if string.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        for character in string.chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                control if control < ' ' => {
                    text.push_str("\\u00");
                    text.extend(char::from_digit(u32::from(control) >> 4, 16));
                    text.extend(char::from_digit(u32::from(control) & 15, 16));
                }
                other => text.push(other),
            }
        }
    } else {
        text.push_str(string);
    }
    text.push('"');
}

impl TryFrom<&json_patch::Patch> for Patch {
    type Error = Error;

    fn try_from(patch: &json_patch::Patch) -> Result<Self, Error> {
        if patch.0.is_empty() {
            return Ok(Self::new());
        }
        let mut text = serde_json::to_string(patch).map_err(|source| Error::Write {
            pointer: PointerBuf::new(),
            source,
        })?;
        text.pop();
        Ok(Self {
            text,
            created_paths: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pointer;

    #[test]
    fn another_patch_library_applies_every_operation_in_the_same_way() {
        let mut patch = Patch::new();
        patch
            .test(pointer!["a"], &1)
            .and_then(|patch| patch.replace(pointer!["a"], &2))
            .and_then(|patch| patch.add(pointer!["list", "-"], "last"))
            .and_then(|patch| patch.add(pointer!["list", 0], "first"))
            .expect("plain values can be written")
            .copy_to(pointer!["list", 1], pointer!["copied"])
            .move_to(pointer!["old"], pointer!["new"])
            .remove(pointer!["gone"])
            .ensure_object(pointer!["made"], false)
            .ensure_object(pointer!["made"], false)
            .ensure_array(pointer!["list"], true);
        let parsed: json_patch::Patch = serde_json::from_str(&patch.into_json()).expect("it is a JSON Patch");
        let mut object = json!({"a": 1, "list": ["middle"], "old": true, "gone": 0});
        json_patch::patch(&mut object, &parsed).expect("it applies");
        assert_eq!(
            object,
            json!({"a": 2, "list": ["first", "middle", "last"], "copied": "middle", "new": true, "made": {}})
        );
    }

    #[test]
    fn paths_are_escaped_as_json_strings() {
        for key in [
            "plain",
            "a/b~c",
            "quo\"te",
            "back\\slash",
            "line\nbreak",
            "\u{1}\u{1f}",
            "ümlaut",
        ] {
            let mut patch = Patch::new();
            patch.add(pointer![key], &true).expect("a boolean can be written");
            let parsed: json_patch::Patch = serde_json::from_str(&patch.into_json()).expect(key);
            let mut object = json!({});
            json_patch::patch(&mut object, &parsed).expect(key);
            assert_eq!(object.get(key), Some(&Value::Bool(true)), "{key:?}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_serialized_leaves_the_patch_unchanged() {
        let mut patch = Patch::new();
        patch.remove(pointer!["a"]);
        let before = patch.clone();
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(patch.add(pointer!["b"], &map).is_err());
        assert_eq!(patch, before);
    }

    #[test]
    fn a_patch_without_operations_is_an_empty_list() {
        assert!(Patch::new().is_empty());
        assert_eq!(Patch::new().into_json(), "[]");
    }
}
