pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod identity;
pub(crate) mod spelling;
pub(crate) mod tree;

use std::sync::{Arc, OnceLock};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    Deadline, Failure, Labels, ObjectHead,
    object::head::check_unique_keys,
    scheduling::offload::{MAX_SHORT_WORK_SIZE, drop_on_long_work_thread, offload},
};

/// A JSON object, such as the resource of a request. Clones share the content.
///
/// An object is stored as text, as a tree, or both. If a form is missing, it is created on first use.
#[derive(Clone, derive_more::Debug)]
#[debug("Object({:?})", self.text())]
pub struct Object(Arc<ObjectForms>);

struct ObjectForms {
    text: OnceLock<ByteString>,
    value: OnceLock<Value>,
    head: OnceLock<ObjectHead>,
}

impl Drop for ObjectForms {
    /// Drops a large tree on a thread for long work, because freeing all its parts takes time.
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            drop_on_long_work_thread(value, self.text.get().map_or(0, |text| text.len()));
        }
    }
}

/// The error for bytes that are not a JSON object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The bytes are not valid JSON, not an object, or have a duplicate top-level field.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    /// The bytes are not UTF-8.
    #[error("not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
}

impl Object {
    /// Parses a JSON text that must be one object. The object keeps the text verbatim.
    ///
    /// # Errors
    ///
    /// Fails if the text is not UTF-8 or not one JSON object; if it is nested too deeply, or has a number or escape out
    /// of range; or if `apiVersion`, `kind` or `metadata` occurs twice, because parsers disagree about duplicates.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ObjectError> {
        let text = std::str::from_utf8(text.as_ref())?;
        let head = ObjectHead::read(text)?;
        Ok(Self::with_head(text.into(), head))
    }

    /// Parses the text of an object inside a document as [`parse`](Self::parse) does, without copying the text. The
    /// object keeps the whole document in memory.
    ///
    /// # Errors
    ///
    /// Fails as [`parse`](Self::parse) does.
    pub fn parse_within(document: &ByteString, part: &RawValue) -> Result<Self, ObjectError> {
        let head = ObjectHead::read_valid(part)?;
        Ok(Self::with_head(document.slice_ref(part.get()), head))
    }

    fn with_head(text: ByteString, head: ObjectHead) -> Self {
        Self(Arc::new(ObjectForms {
            text: OnceLock::from(text),
            value: OnceLock::new(),
            head: OnceLock::from(head),
        }))
    }

    /// Parses a JSON object as [`parse`](Self::parse) does, and refuses duplicate keys on every level.
    ///
    /// # Errors
    ///
    /// Fails as [`parse`](Self::parse) does, and when a key is duplicated, because parsers disagree about duplicates.
    pub fn parse_unique(text: impl AsRef<[u8]>) -> Result<Self, ObjectError> {
        let object = Self::parse(text)?;
        check_unique_keys(object.text())?;
        Ok(object)
    }

    /// Creates an object from a value; `None` if the value is not an object.
    pub fn from_value(value: Value) -> Option<Self> {
        value.is_object().then(|| {
            Self(Arc::new(ObjectForms {
                text: OnceLock::new(),
                value: OnceLock::from(value),
                head: OnceLock::new(),
            }))
        })
    }

    /// Creates an object by serializing a value.
    ///
    /// # Errors
    ///
    /// Fails when the value cannot be serialized, or its JSON is not an object.
    pub fn from_serialize(value: &(impl Serialize + ?Sized)) -> Result<Self, ObjectError> {
        Self::parse(serde_json::to_vec(value)?)
    }

    pub(crate) fn from_checked(text: String) -> Self {
        Self(Arc::new(ObjectForms {
            text: OnceLock::from(ByteString::from(text)),
            value: OnceLock::new(),
            head: OnceLock::new(),
        }))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the object as JSON text, exactly as received or patched.
    pub fn text(&self) -> &str {
        self.shared_text()
    }

    /// Returns the object's JSON text, which may be kept longer than the object.
    pub fn shared_text(&self) -> &ByteString {
        self.0.text.get_or_init(|| self.value().to_string().into())
    }

    /// Returns the object as a tree, which is built on first use.
    pub fn value(&self) -> &Value {
        // If the object has no tree yet, its text was checked when the object was created. So parsing it does not fail.
        self.0.value.get_or_init(|| {
            self.0
                .text
                .get()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or(Value::Null)
        })
    }

    /// Builds the tree of a large object in advance, on a thread for long work. Fails when the deadline passes.
    pub(crate) async fn prepare_value(&self, deadline: Deadline) -> Result<(), Failure> {
        let is_built = self.0.value.get().is_some();
        let Some(text) = self
            .0
            .text
            .get()
            .filter(|text| !is_built && text.len() > MAX_SHORT_WORK_SIZE)
        else {
            return Ok(());
        };
        let object = self.clone();
        offload(text.len(), deadline, move || {
            object.value();
        })
        .await
    }

    /// Deserializes the object into a type, which may borrow from the object's text.
    ///
    /// # Errors
    ///
    /// Fails when the object does not match the type.
    pub fn deserialize<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// Returns the object's head, which has the top-level fields that selectors use.
    pub fn head(&self) -> &ObjectHead {
        self.0.head.get_or_init(|| {
            // The head is read from the text, unless the object has been parsed into a tree already. Reading it from
            // the tree is faster.
            let text = self.0.text.get().filter(|_| self.0.value.get().is_none());
            text.and_then(|text| ObjectHead::read(text).ok())
                .unwrap_or_else(|| ObjectHead::from_value(self.value()))
        })
    }

    /// Returns whether a key that identifies a Kubernetes object occurs twice or in a wrong spelling. This is `false`
    /// for an object that was created from a value instead of a text.
    /// [`EnforcedSpelling::canonical_text`](crate::EnforcedSpelling::canonical_text) reports the key.
    pub fn is_ambiguous(&self) -> bool {
        self.head().is_ambiguous
    }

    /// Returns the object's labels, from `metadata.labels`.
    pub fn labels(&self) -> &Labels {
        &self.head().labels
    }
}

impl PartialEq for Object {
    /// Compares the JSON values of two objects. The order of members and white space do not matter.
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.value() == other.value()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::EnforcedSpelling;

    fn part_of_a_document(text: &str) -> Option<Object> {
        let document = ByteString::from(format!("{{\"before\": 1, \"object\" : {text} }}"));
        let raw = document
            .split_once(" : ")
            .and_then(|(_, rest)| rest.strip_suffix('}'))
            .and_then(|part| serde_json::from_str::<&RawValue>(part).ok())?;
        let part = Object::parse_within(&document, raw);
        let alone = Object::parse(text);
        let text = |error: &ObjectError| error.to_string();
        assert_eq!(part.as_ref().err().map(text), alone.as_ref().err().map(text));
        let (part, alone) = (part.ok()?, alone.ok()?);
        assert_eq!((part.text(), part.head()), (alone.text().trim(), alone.head()));
        Some(part)
    }

    #[test]
    fn an_object_keeps_its_text_verbatim() {
        let text = r#" { "b" : 1.0, "a": 12345678901234567890123 } "#;
        assert_eq!(Object::parse(text).unwrap().text(), text);
    }

    #[test]
    fn input_that_is_not_one_json_object_is_refused() {
        for (case, text) in [
            ("nothing", ""),
            ("null", "null"),
            ("array", "[]"),
            ("array of heads", r#"["v1","Pod",{}]"#),
            ("text", r#""a""#),
            ("number", "1"),
            ("cut off", r#"{"a":"#),
            ("two values", "{} {}"),
            ("kind twice", r#"{"kind":"a","kind":"b"}"#),
            ("namespace twice", r#"{"metadata":{"namespace":"a","namespace":"b"}}"#),
        ] {
            assert!(Object::parse(text).is_err(), "{case}");
            assert!(part_of_a_document(text).is_none(), "{case}");
        }
        assert!(matches!(Object::parse(b"{\"a\":\"\xff\"}"), Err(ObjectError::Utf8(_))));
        assert!(Object::from_value(json!([])).is_none());
    }

    #[tokio::test]
    async fn the_tree_of_a_large_object_is_built_on_another_thread() {
        for (length, is_built) in [(10, false), (MAX_SHORT_WORK_SIZE, true)] {
            let object = Object::parse(json!({"a": "x".repeat(length)}).to_string()).unwrap();
            let deadline = Deadline::after(std::time::Duration::from_secs(60));
            object.prepare_value(deadline).await.unwrap();
            assert_eq!(object.0.value.get().is_some(), is_built);
            assert_eq!(object.value()["a"].as_str().unwrap().len(), length);
        }
    }

    #[test]
    fn an_object_round_trips_through_serde() {
        #[derive(Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        struct Widget<'a> {
            name: &'a str,
            size: u32,
        }
        let widget = Widget { name: "disc", size: 3 };
        let object = Object::from_serialize(&widget).unwrap();
        assert_eq!(object.text(), r#"{"name":"disc","size":3}"#);
        assert_eq!(object.deserialize::<Widget<'_>>().unwrap(), widget);
        assert!(object.deserialize::<Vec<u32>>().is_err());
        assert!(Object::from_serialize(&[1, 2]).is_err());
    }

    #[test]
    fn json_from_which_no_tree_can_be_built_is_refused() {
        let deep = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        for (case, text) in [
            ("a number beyond all", r#"{"a":1e999}"#.to_owned()),
            ("half a character", r#"{"a":"\ud800"}"#.to_owned()),
            ("half a character in a key", r#"{"a":{"\udc00":1}}"#.to_owned()),
            (
                "a number beyond all, in the middle",
                r#"{"a":[1,-12.5E+400,2]}"#.to_owned(),
            ),
            (
                "more digits than a number has",
                format!(r#"{{"a":{}}}"#, "9".repeat(400)),
            ),
            ("half a character after an escape", r#"{"a":"\\\"\udc00"}"#.to_owned()),
            ("too deep", deep(1000)),
            ("a little too deep", deep(127)),
        ] {
            assert!(Object::parse(&text).is_err(), "{case}");
            assert!(part_of_a_document(&text).is_none(), "{case}");
        }
        for text in [
            deep(126),
            r#"{"a":"1e999 \\u \\","b":[0.5e300,-7,true,null],"\"e":"\u0065"}"#.to_owned(),
            format!(r#"{{"a":{},"b":{{}}}}"#, "1".repeat(308)),
        ] {
            let object = Object::parse(&text).unwrap();
            assert!(object.value().is_object(), "{text}");
            assert!(part_of_a_document(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn an_object_with_another_spelling_of_kubernetes_keys_is_ambiguous() {
        for text in [
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"b","labels":{"Name":"x"}},"spec":{"Kind":1}}"#,
            r#"{"Kind":"Pod"}"#,
            r#"{"kind":"Pod","\u212aind":"Pod"}"#,
            r#"{"metadata":{"Name":"a"}}"#,
            r#"{"metadata":{"generateName":"a","generateName":"b"}}"#,
            r#"{"metadata":{"uid":"a","UID":"b"}}"#,
            r#"{"METADATA":{}}"#,
            r#"{"metadata":null,"spec":{}}"#,
        ] {
            let object = Object::parse(text).unwrap();
            let is_canonical = matches!(EnforcedSpelling::kubernetes().canonical_text(text), Ok(None));
            assert_eq!(object.is_ambiguous(), !is_canonical, "{text}");
            assert!(part_of_a_document(text).is_some(), "{text}");
        }
    }

    #[test]
    fn the_head_of_an_object_is_the_same_from_text_and_tree() {
        for value in [
            json!({}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "labels": {"x": "y", "n": 1}}}),
            json!({"kind": 1, "metadata": []}),
            json!({"metadata": {"name": 1, "labels": "x"}}),
            json!({"metadata": null}),
        ] {
            let parsed = Object::parse(value.to_string()).unwrap();
            let built = Object::from_value(value.clone()).unwrap();
            assert_eq!(parsed.head(), built.head(), "{value}");
            assert_eq!(part_of_a_document(&value.to_string()).unwrap(), parsed, "{value}");
            assert_eq!(parsed, built);
        }
    }
}
