//! Reduces the text of an object to selected fields.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::{PointerPattern, patch::pointer::MemberTexts};

/// The maximum number of JSON Pointers from which a field mask is created.
const MAX_POINTERS: usize = 64;

/// The maximum number of segments in a JSON Pointer of a field mask.
const MAX_SEGMENTS: usize = 32;

/// The segment of a pointer that selects every element of a list.
const EACH_ELEMENT: &str = "*";

/// The fields to which objects are reduced. By default, objects stay whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMask(SelectedFields);

/// The selected fields of a value, by key. If there are none, the whole value is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SelectedFields(BTreeMap<String, SelectedFields>);

impl FieldMask {
    /// Creates a mask that selects `/metadata/name`, `/metadata/namespace`, and the fields at these JSON Pointers, in
    /// which the segment `*` matches every element of a list. Without pointers, it selects whole objects.
    ///
    /// # Errors
    ///
    /// Returns a sentence about an invalid pointer, or about too many pointers.
    pub fn new<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut mask = Self::default();
        for (count, text) in pointers.into_iter().enumerate() {
            let PointerPattern(pointer) = text.parse().map_err(|error: crate::PointerError| error.to_string())?;
            let segments = pointer.segments();
            if count == MAX_POINTERS || segments.len() > MAX_SEGMENTS {
                return Err(format!(
                    "there are more than {MAX_POINTERS} fields, or one has more than {MAX_SEGMENTS} segments"
                ));
            }
            if segments.is_empty() {
                return Ok(Self::default());
            }
            mask.0.add(segments);
        }
        if !mask.selects_all() {
            for field in ["name", "namespace"] {
                mask.0.add(&["metadata".to_owned(), field.to_owned()]);
            }
        }
        Ok(mask)
    }

    /// Returns whether the mask selects whole objects.
    pub fn selects_all(&self) -> bool {
        self.0.0.is_empty()
    }

    /// Returns whether all selected fields are below `metadata`.
    pub fn is_metadata(&self) -> bool {
        self.0.0.keys().all(|key| key == "metadata") && !self.selects_all()
    }

    /// Returns the object reduced to the fields that the mask selects.
    ///
    /// # Errors
    ///
    /// Fails when the text is not JSON.
    pub fn apply(&self, object: &str) -> Result<String, serde_json::Error> {
        let mut out = String::new();
        if !self.0.write(object.trim(), &mut out)? {
            out.push_str("{}");
        }
        Ok(out)
    }
}

impl SelectedFields {
    fn add(&mut self, segments: &[String]) {
        let Some((first, rest)) = segments.split_first() else {
            self.0.clear();
            return;
        };
        match self.0.get_mut(first) {
            Some(subfields) if subfields.0.is_empty() => {}
            Some(subfields) => subfields.add(rest),
            None => {
                let mut fields = Self::default();
                fields.add(rest);
                self.0.insert(first.clone(), fields);
            }
        }
    }

    fn write(&self, value: &str, out: &mut String) -> Result<bool, serde_json::Error> {
        if self.0.is_empty() {
            out.push_str(value);
            return Ok(true);
        }
        match value.as_bytes().first() {
            Some(b'{') => {
                out.push('{');
                for (key, member) in serde_json::from_str::<MemberTexts<'_>>(value)?.0 {
                    if let Some(fields) = self.0.get(&key) {
                        let key = serde_json::to_string(&key)?;
                        fields.write_with_prefix(&format!("{key}:"), member, out)?;
                    }
                }
                out.push('}');
            }
            Some(b'[') => {
                let Some(fields) = self.0.get(EACH_ELEMENT) else {
                    return Ok(false);
                };
                out.push('[');
                for element in serde_json::from_str::<Vec<&RawValue>>(value)? {
                    fields.write_with_prefix("", element, out)?;
                }
                out.push(']');
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write_with_prefix(&self, before: &str, value: &RawValue, out: &mut String) -> Result<(), serde_json::Error> {
        let start = out.len();
        if !out.ends_with(['{', '[']) {
            out.push(',');
        }
        out.push_str(before);
        if !self.write(value.get(), out)? {
            out.truncate(start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_mask_keeps_only_the_selected_fields() {
        let object = r#" {"kind":"Pod","metadata":{"name":"web","labels":{"a/b":"x","~":1.50}},
            "spec":{"containers":[{"image":"a","name":"{,"},7,{"name":"b"},{"image":["b"]}],"nodeName":"n"}} "#;
        for (pointers, expected) in [
            (vec![], object.trim()),
            (vec!["/spec", ""], object.trim()),
            (vec!["/absent"], r#"{"metadata":{"name":"web"}}"#),
            (
                vec!["/spec/nodeName"],
                r#"{"metadata":{"name":"web"},"spec":{"nodeName":"n"}}"#,
            ),
            (
                vec!["/metadata/labels/a~1b", "/metadata/labels/~0"],
                r#"{"metadata":{"name":"web","labels":{"a/b":"x","~":1.50}}}"#,
            ),
            (
                vec!["/spec/containers/*/image"],
                r#"{"metadata":{"name":"web"},"spec":{"containers":[{"image":"a"},{},{"image":["b"]}]}}"#,
            ),
            (
                vec!["/spec/containers/image", "/kind/x"],
                r#"{"metadata":{"name":"web"},"spec":{}}"#,
            ),
            (
                vec!["/metadata", "/metadata/labels", "/kind/*", "/kind"],
                r#"{"kind":"Pod","metadata":{"name":"web","labels":{"a/b":"x","~":1.50}}}"#,
            ),
        ] {
            let mask = FieldMask::new(pointers.iter().copied()).unwrap();
            assert_eq!(mask.apply(object).unwrap(), expected, "{pointers:?}");
        }
        let mask = FieldMask::new(["/a"]).unwrap();
        assert_eq!(mask.apply("[1]").unwrap(), "{}");
        assert!(mask.apply("{").is_err());
    }

    #[test]
    fn a_field_mask_with_invalid_or_too_many_pointers_is_refused() {
        let mask = |pointers: &[&str]| FieldMask::new(pointers.iter().copied()).unwrap();
        assert!(mask(&[]).selects_all() && !mask(&[]).is_metadata());
        assert!(mask(&["/metadata/labels"]).is_metadata());
        assert!(!mask(&["/metadata/labels", "/spec"]).is_metadata());
        let deep = "/a".repeat(MAX_SEGMENTS + 1);
        for (pointers, expected) in [
            (vec!["spec"], "`spec` is not a JSON Pointer"),
            (vec![deep.as_str()], "32 segments"),
            (vec!["/a"; MAX_POINTERS + 1], "more than 64 fields"),
        ] {
            let error = FieldMask::new(pointers).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
