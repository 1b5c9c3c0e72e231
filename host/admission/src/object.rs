use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::Labels;

/// A JSON object: the resource that a request is about. Cheap to clone.
///
/// It stays the text that came in until something asks for the tree, and stays the tree that a patch
/// made until something asks for the text.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    text: OnceLock<Box<str>>,
    value: OnceLock<Value>,
    head: OnceLock<Head>,
}

/// What an object says of itself at its top: the fields that selectors and front doors ask for.
/// A field that is absent or of another type is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `apiVersion`.
    pub api_version: Option<String>,
    /// `kind`.
    pub kind: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.labels`; values that are not text are left out.
    pub labels: Labels,
    /// Whether there is a `metadata` object at all.
    pub has_metadata: bool,
}

/// Why bytes are not an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Not JSON that can be read whole, or not a JSON object, or a field at its top twice.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    /// Not UTF-8.
    #[error("not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
}

impl Object {
    /// Take a JSON text that must be one object. The text is checked whole and kept as it is.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8 or not one JSON object; when a tree of it cannot be made, because it is nested
    /// too deeply or a number or an escape in it has no value; or when `apiVersion`, `kind` or `metadata`
    /// stands in it twice (readers disagree about which one counts).
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ObjectError> {
        let text = std::str::from_utf8(text.as_ref())?;
        serde_json::from_str::<Whole>(text)?;
        let head = Head::read(text)?;
        Ok(Self(Arc::new(Inner {
            text: OnceLock::from(Box::<str>::from(text)),
            value: OnceLock::new(),
            head: OnceLock::from(head),
        })))
    }

    /// Take a tree; `None` when it is not an object.
    pub fn from_value(value: Value) -> Option<Self> {
        value.is_object().then(|| {
            Self(Arc::new(Inner {
                text: OnceLock::new(),
                value: OnceLock::from(value),
                head: OnceLock::new(),
            }))
        })
    }

    /// Take a text that is known to be one object whose tree can be made.
    pub(crate) fn from_checked(text: String) -> Self {
        Self(Arc::new(Inner {
            text: OnceLock::from(text.into_boxed_str()),
            value: OnceLock::new(),
            head: OnceLock::new(),
        }))
    }

    /// Whether this is the very same object, not just an equal one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The object as JSON text: what came in, or what a patch made of it.
    pub fn text(&self) -> &str {
        self.0.text.get_or_init(|| self.value().to_string().into())
    }

    /// The object as a tree, parsed when it is first asked for.
    pub fn value(&self) -> &Value {
        // Without a value there is a text, and it was parsed before: null stands for the impossible.
        self.0.value.get_or_init(|| {
            self.0
                .text
                .get()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or(Value::Null)
        })
    }

    /// The fields at its top.
    pub fn head(&self) -> &Head {
        self.0.head.get_or_init(|| {
            // A tree that was made already is quicker to look into than the text.
            let text = self.0.text.get().filter(|_| self.0.value.get().is_none());
            text.and_then(|text| Head::read(text).ok())
                .unwrap_or_else(|| Head::of(self.value()))
        })
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> &Labels {
        &self.head().labels
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.text()).finish()
    }
}

impl PartialEq for Object {
    /// Equal as JSON: order of members and white space do not matter.
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.value() == other.value()
    }
}

/// Whether a tree can be made of a text.
pub(crate) fn is_whole(text: &str) -> bool {
    serde_json::from_str::<Whole>(text).is_ok()
}

/// Any JSON that [`Value`] can hold, without making one. What is skipped is not checked as strictly by
/// `serde_json` (`1e999`, `"\ud800"`, a thousand brackets), and an object whose tree cannot be made must
/// not exist: its stages would see nothing where the control plane sees everything.
struct Whole;

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Whole {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RawHead<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
}

fn text_of(raw: Option<&RawValue>) -> Option<String> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

impl Head {
    /// Read the head without building a tree; checks the whole text on its way.
    fn read(text: &str) -> Result<Self, serde_json::Error> {
        // serde would read a struct from an array too.
        if text.trim_start().starts_with('[') {
            return Err(serde::de::Error::custom("it is an array"));
        }
        let raw: RawHead<'_> = serde_json::from_str(text)?;
        let mut head = Self {
            api_version: text_of(raw.api_version),
            kind: text_of(raw.kind),
            ..Self::default()
        };
        if let Some(metadata) = raw.metadata.filter(|raw| raw.get().starts_with('{')) {
            let metadata: RawMetadata<'_> = serde_json::from_str(metadata.get())?;
            head.has_metadata = true;
            head.name = text_of(metadata.name);
            head.namespace = text_of(metadata.namespace);
            if let Some(labels) = metadata.labels
                && let Ok(labels) = serde_json::from_str::<BTreeMap<String, Value>>(labels.get())
            {
                head.labels = labels.into_iter().filter_map(only_text).collect();
            }
        }
        Ok(head)
    }

    fn of(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            labels: labels
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone()))
                .filter_map(only_text)
                .collect(),
            has_metadata: value.get("metadata").is_some_and(Value::is_object),
        }
    }
}

fn only_text((key, value): (String, Value)) -> Option<(String, String)> {
    match value {
        Value::String(value) => Some((key, value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_kept_to_the_letter() {
        let text = r#" { "b" : 1.0, "a": 12345678901234567890123 } "#;
        assert_eq!(Object::parse(text).unwrap().text(), text);
    }

    #[test]
    fn what_is_not_an_object() {
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
            (
                "namespace twice",
                r#"{"metadata":{"namespace":"a","namespace":"b"}}"#,
            ),
        ] {
            assert!(Object::parse(text).is_err(), "{case}");
        }
        assert!(matches!(
            Object::parse(b"{\"a\":\"\xff\"}"),
            Err(ObjectError::Utf8(_))
        ));
        assert!(Object::from_value(json!([])).is_none());
    }

    #[test]
    fn what_has_no_tree() {
        let deep = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        for (case, text) in [
            ("a number beyond all", r#"{"a":1e999}"#.to_owned()),
            ("half a character", r#"{"a":"\ud800"}"#.to_owned()),
            ("half a character in a key", r#"{"a":{"\udc00":1}}"#.to_owned()),
            ("too deep", deep(1000)),
        ] {
            assert!(Object::parse(text).is_err(), "{case}");
        }
        assert!(Object::parse(deep(100)).unwrap().value().is_object());
    }

    #[test]
    fn text_and_tree_have_the_same_head() {
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
            assert_eq!(parsed, built);
        }
    }
}
