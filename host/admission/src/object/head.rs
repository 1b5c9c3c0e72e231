//! Reads the top-level fields of an object in one pass, which also checks that the whole text is valid.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::{
    Labels,
    object::spelling::{METADATA_KEYS, TOP_LEVEL_KEYS, same_key},
    object::tree::MemberKey,
    shortened,
};

/// The fields of an object that selectors and front ends use. A field is `None` if it is absent or not a string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHead {
    /// The object's `apiVersion`.
    pub api_version: Option<String>,
    /// The object's `kind`.
    pub kind: Option<String>,
    /// The object's `metadata.name`.
    pub name: Option<String>,
    /// The object's `metadata.namespace`.
    pub namespace: Option<String>,
    /// The labels in `metadata.labels`, without those whose value is not a string.
    pub labels: Labels,
    /// Whether the object has a field `metadata` that is an object.
    pub has_metadata: bool,
    /// Whether a key that identifies the object occurs twice or in a wrong spelling.
    pub(crate) is_ambiguous: bool,
}

impl ObjectHead {
    /// Reads the head of an object's text: `apiVersion`, `kind` and a part of `metadata`. Fails if `serde_json` could
    /// not build a tree from the text.
    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let top = TopLevel {
            skips_values: value_length(text.trim_ascii_start().as_bytes()).is_some(),
        };
        let head = top.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(head)
    }

    pub(crate) fn read_valid(raw: &RawValue) -> Result<Self, serde_json::Error> {
        Self::skim(raw.get()).map_or_else(|| Self::read(raw.get()), Ok)
    }

    fn skim(text: &str) -> Option<Self> {
        let (mut api_version, mut kind, mut metadata) = (None, None, None);
        let mut is_ambiguous = false;
        let mut rest = text.trim_ascii().strip_prefix('{')?.trim_ascii_start();
        while let Some(text_from_key) = rest.strip_prefix('"') {
            let bytes_after_key = bytes_after_string(text_from_key.as_bytes())?;
            let key = text_from_key.get(..text_from_key.len() - bytes_after_key.len() - 1)?;
            let text_after_key = text_from_key.get(key.len() + 1..)?.trim_ascii_start();
            let text_from_value = text_after_key.strip_prefix(':')?.trim_ascii_start();
            let value = text_from_value.get(..value_length(text_from_value.as_bytes())?)?;
            let is_first = match key {
                "apiVersion" => api_version.replace(parse_part::<OptionalText>(value)?.0).is_none(),
                "kind" => kind.replace(parse_part::<OptionalText>(value)?.0).is_none(),
                "metadata" => metadata.replace(parse_part::<HeadMetadata>(value)?.0).is_none(),
                // A key with an escape may mean `apiVersion`, `kind` or `metadata`. For example, `"k\u0069nd"` means
                // `kind`. The slower parser handles a text with such a key.
                other if other.contains('\\') => return None,
                other => {
                    is_ambiguous |= is_other_spelling(other, &TOP_LEVEL_KEYS);
                    true
                }
            };
            if !is_first {
                return None;
            }
            rest = text_from_value.get(value.len()..)?.trim_ascii_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_ascii_start();
        }
        Some(Self::of_parts(api_version, kind, metadata, is_ambiguous))
    }

    fn of_parts(
        api_version: Option<Option<String>>,
        kind: Option<Option<String>>,
        metadata: Option<Option<Self>>,
        is_ambiguous: bool,
    ) -> Self {
        let metadata = metadata.flatten();
        let has_metadata = metadata.is_some();
        let metadata = metadata.unwrap_or_default();
        Self {
            api_version: api_version.flatten(),
            kind: kind.flatten(),
            has_metadata,
            is_ambiguous: is_ambiguous || metadata.is_ambiguous,
            ..metadata
        }
    }

    pub(crate) fn from_value(value: &Value) -> Self {
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
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            has_metadata: value.get("metadata").is_some_and(Value::is_object),
            is_ambiguous: false,
        }
    }
}

pub(crate) fn can_build_tree(text: &str) -> bool {
    serde_json::from_str::<ValidJson>(text).is_ok()
}

pub(crate) fn check_unique_keys(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<UniqueKeys>(text).map(|_| ())
}

/// Sets a field, and fails if it was set before: parsers treat duplicate fields differently, so none may occur.
fn set_once<T, E: Error>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

fn parse_part<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Returns the length in bytes of the value at the beginning of a valid JSON text. Returns `None` if `serde_json` may
/// refuse this value because of its nesting, a number or an escape.
fn value_length(text: &[u8]) -> Option<usize> {
    /// The maximum nesting of a value that this function skips. If a value nests more deeply, the slower parser handles
    /// the text, because `serde_json` refuses more than 128 levels.
    const MAX_DEPTH: usize = 100;
    /// The maximum number of digits in a number that this function skips. If a number has more digits, the slower
    /// parser handles the text, because the number may be out of range: the largest double has 309 digits.
    const MAX_DIGITS: usize = 300;
    let mut rest = text;
    let mut depth = 0_usize;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = match byte {
            b'"' => bytes_after_string(after)?,
            b'{' | b'[' if depth == MAX_DEPTH => return None,
            b'{' | b'[' => {
                depth += 1;
                rest = after;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                after
            }
            b'-' | b'0'..=b'9' => {
                let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                let digits = after.iter().take_while(|byte| is_digit(byte)).count();
                let after = after.get(digits..)?;
                if digits > MAX_DIGITS || matches!(after.first(), Some(b'e' | b'E')) {
                    return None;
                }
                after
            }
            b'a'..=b'z' => {
                let letters = after.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
                after.get(letters..)?
            }
            _ => {
                rest = after;
                continue;
            }
        };
        if depth == 0 {
            return Some(text.len() - rest.len());
        }
    }
}

fn bytes_after_string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let offset = memchr::memchr2(b'"', b'\\', rest)?;
        match rest.get(offset..)? {
            [b'"', after @ ..] => return Some(after),
            [_, b'u', ..] => return None,
            [_, _, after @ ..] => rest = after,
            _ => return None,
        }
    }
}

/// Returns whether `key` is another spelling of one of these keys, such as `Kind` for `kind`. A server written in Go
/// accepts it. The caller has checked already that `key` is not one of the keys themselves.
fn is_other_spelling(key: &str, keys: &[&str]) -> bool {
    keys.iter().any(|canonical| same_key(key, canonical))
}

struct TopLevel {
    /// Whether values other than `apiVersion`, `kind` and `metadata` are skipped, and not checked.
    skips_values: bool,
}

impl<'de> DeserializeSeed<'de> for TopLevel {
    type Value = ObjectHead;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectHead, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel {
    type Value = ObjectHead;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectHead, A::Error> {
        let (mut api_version, mut kind, mut metadata) = (None, None, None);
        let mut is_ambiguous = false;
        while let Some(MemberKey(key)) = map.next_key()? {
            match &*key {
                "apiVersion" => set_once(&mut api_version, "apiVersion", map.next_value::<OptionalText>()?.0)?,
                "kind" => set_once(&mut kind, "kind", map.next_value::<OptionalText>()?.0)?,
                "metadata" => set_once(&mut metadata, "metadata", map.next_value::<HeadMetadata>()?.0)?,
                other => {
                    is_ambiguous |= is_other_spelling(other, &TOP_LEVEL_KEYS);
                    if self.skips_values {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        map.next_value::<ValidJson>()?;
                    }
                }
            }
        }
        Ok(ObjectHead::of_parts(api_version, kind, metadata, is_ambiguous))
    }
}

/// Accepts any JSON from which a [`Value`] can be built. `serde_json` accepts more in a value that it skips: `1e999`,
/// `"\ud800"` and a thousand nested brackets. A stage could not parse an object with such a value.
struct ValidJson;

/// A JSON value of any type, of which only a string is kept; `None` for other types.
struct OptionalText(Option<String>);

struct HeadMetadata(Option<ObjectHead>);

struct OptionalTextMap(Labels);

/// Implements a visitor that accepts JSON values of all types. A value of a type that the caller does not need is
/// checked and dropped.
macro_rules! visit_anything {
    ($type:ty, $otherwise:expr, { $($chosen:item)* }, [$($rest:ident),*], $inner:ty) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Anything;

                impl<'de> Visitor<'de> for Anything {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("JSON")
                    }

                    $($chosen)*
                    $(visit_anything!(@$rest $type, $otherwise);)*

                    fn visit_bool<E>(self, _: bool) -> Result<$type, E> {
                        Ok($otherwise)
                    }

                    fn visit_i64<E>(self, _: i64) -> Result<$type, E> {
                        Ok($otherwise)
                    }

                    fn visit_u64<E>(self, _: u64) -> Result<$type, E> {
                        Ok($otherwise)
                    }

                    fn visit_f64<E>(self, _: f64) -> Result<$type, E> {
                        Ok($otherwise)
                    }

                    fn visit_unit<E>(self) -> Result<$type, E> {
                        Ok($otherwise)
                    }

                    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$type, A::Error> {
                        while seq.next_element::<$inner>()?.is_some() {}
                        Ok($otherwise)
                    }
                }

                deserializer.deserialize_any(Anything)
            }
        }
    };
    (@text $type:ty, $otherwise:expr) => {
        fn visit_str<E>(self, _: &str) -> Result<$type, E> {
            Ok($otherwise)
        }
    };
    (@object $type:ty, $otherwise:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
            while map.next_entry::<ValidJson, ValidJson>()?.is_some() {}
            Ok($otherwise)
        }
    };
}

visit_anything!(ValidJson, ValidJson, {}, [text, object], ValidJson);

struct UniqueKeys;

visit_anything!(
    UniqueKeys,
    UniqueKeys,
    {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueKeys, A::Error> {
            // Up to this many keys of an object are compared one by one, because that is faster than hashing them.
            const MAX_COMPARED_KEYS: usize = 16;
            let mut compared_keys: Vec<Cow<'de, str>> = Vec::new();
            let mut hashed_keys = HashSet::new();
            while let Some((MemberKey(key), UniqueKeys)) = map.next_entry::<MemberKey<'de>, UniqueKeys>()? {
                if compared_keys.contains(&key) || hashed_keys.contains(&key) {
                    let key = shortened(&key, 80);
                    return Err(A::Error::custom(format!(
                        "duplicate key `{key}` in an object; remove one of them"
                    )));
                }
                if compared_keys.len() < MAX_COMPARED_KEYS {
                    compared_keys.push(key);
                } else {
                    hashed_keys.insert(key);
                }
            }
            Ok(UniqueKeys)
        }
    },
    [text],
    UniqueKeys
);

visit_anything!(
    OptionalText,
    OptionalText(None),
    {
        fn visit_str<E>(self, text: &str) -> Result<OptionalText, E> {
            Ok(OptionalText(Some(text.to_owned())))
        }
    },
    [object],
    ValidJson
);

visit_anything!(
    HeadMetadata,
    HeadMetadata(None),
    {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadMetadata, A::Error> {
            let (mut name, mut namespace, mut labels) = (None, None, None);
            let (mut seen_keys, mut is_ambiguous) = ([false; 2], false);
            while let Some(MemberKey(key)) = map.next_key()? {
                match &*key {
                    "name" => set_once(&mut name, "name", map.next_value::<OptionalText>()?.0)?,
                    "namespace" => set_once(&mut namespace, "namespace", map.next_value::<OptionalText>()?.0)?,
                    "labels" => set_once(&mut labels, "labels", map.next_value::<OptionalTextMap>()?.0)?,
                    other => {
                        is_ambiguous |= match other {
                            "uid" => std::mem::replace(&mut seen_keys[0], true),
                            "generateName" => std::mem::replace(&mut seen_keys[1], true),
                            _ => is_other_spelling(other, &METADATA_KEYS),
                        };
                        map.next_value::<ValidJson>()?;
                    }
                }
            }
            Ok(HeadMetadata(Some(ObjectHead {
                name: name.flatten(),
                namespace: namespace.flatten(),
                labels: labels.unwrap_or_default(),
                is_ambiguous,
                ..ObjectHead::default()
            })))
        }
    },
    [text],
    ValidJson
);

visit_anything!(
    OptionalTextMap,
    OptionalTextMap(Labels::new()),
    {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OptionalTextMap, A::Error> {
            let mut labels = Labels::new();
            while let Some((key, value)) = map.next_entry::<String, OptionalText>()? {
                match value.0 {
                    Some(value) => labels.insert(key, value),
                    // The last of several duplicate labels counts. If its value is not a string, the label is absent.
                    None => labels.remove(&key),
                };
            }
            Ok(OptionalTextMap(labels))
        }
    },
    [text],
    ValidJson
);
