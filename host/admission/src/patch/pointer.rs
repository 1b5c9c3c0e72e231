//! JSON Pointers, and patterns of JSON Pointers.

use std::{fmt, ops::Range, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::object::tree::MemberKey;

/// A JSON Pointer (RFC 6901).
#[derive(Clone, Debug, Default, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

/// A JSON Pointer in which the segment `*` stands for every element of an array. In an object, `*` stands for every
/// member, except those that another pattern names: with the patterns `/a/x` and `/*/y`, it does not stand for `a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerPattern(pub(crate) Pointer);

/// The error for a text that is not a JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a JSON Pointer: write `/Job/Name`, with `~0` for `~` and `~1` for `/` in a key")]
pub struct PointerError(pub String);

impl Pointer {
    /// Returns the pointer as text, exactly as written; empty for the whole document.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the pointer's segments, which are keys and indices without escapes.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Returns the part of the pointer after `base`; `None` if the pointer is neither equal to `base` nor below it.
    pub fn relative_to(&self, base: &Self) -> Option<&str> {
        self.segments
            .starts_with(&base.segments)
            .then(|| self.text.get(base.text.len()..).unwrap_or_default())
    }

    /// Returns the byte range of the value at this pointer in a JSON document; `None` if there is no such value.
    pub fn locate(&self, document: &str) -> Option<Range<usize>> {
        let mut value = document.trim();
        for segment in &self.segments {
            value = match value.as_bytes().first()? {
                b'{' => {
                    let mut reader = serde_json::Deserializer::from_str(value);
                    MemberValueSeed(segment).deserialize(&mut reader).ok()??.get()
                }
                b'[' => serde_json::from_str::<Vec<&RawValue>>(value)
                    .ok()?
                    .get(segment.parse::<usize>().ok()?)?
                    .get(),
                _ => return None,
            };
        }
        // The value is a slice of the document, so its position is the difference of the two memory addresses.
        let start = (value.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
        Some(start..start + value.len())
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PointerError(text.to_owned());
        if text.is_empty() {
            return Ok(Self::default());
        }
        let segments = text
            .strip_prefix('/')
            .ok_or_else(error)?
            .split('/')
            .map(|segment| {
                let escapes = segment.split('~').skip(1);
                escapes
                    .clone()
                    .all(|rest| rest.starts_with(['0', '1']))
                    .then(|| unescaped_token(segment))
                    .ok_or_else(error)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }
}

/// Returns the key or index that a segment of a JSON Pointer represents (RFC 6901, section 4).
pub fn unescaped_token(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

impl PointerPattern {
    /// Returns the pattern for the member `key` of each value to which this pattern points. For example, the pattern
    /// `/items/*` and the key `name` give `/items/*/name`.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let mut pointer = self.0.clone();
        pointer.text.extend(["/", &key.replace('~', "~0").replace('/', "~1")]);
        pointer.segments.push(key.to_owned());
        Self(pointer)
    }
}

impl FromStr for PointerPattern {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

struct MemberValueSeed<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for MemberValueSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MemberValueSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(MemberKey(key)) = map.next_key()? {
            if key == self.0 {
                value = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value)
    }
}

pub(crate) struct MemberTexts<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberTexts<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct MemberTextsVisitor;
        impl<'de> Visitor<'de> for MemberTextsVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        reader.deserialize_map(MemberTextsVisitor).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_split_into_unescaped_segments() {
        for (text, segments) in [
            ("", Some(vec![])),
            ("/", Some(vec![""])),
            ("/a~1b/m~0n/~01", Some(vec!["a/b", "m~n", "~1"])),
            ("a", None),
            ("/a~2", None),
            ("/a~", None),
        ] {
            let pointer = text.parse::<Pointer>();
            assert_eq!(pointer.is_ok(), segments.is_some(), "{text}");
            if let (Ok(pointer), Some(segments)) = (pointer, segments) {
                assert_eq!(pointer.segments(), segments, "{text}");
                assert_eq!(pointer.as_str(), text);
            }
        }
    }

    #[test]
    fn a_pointer_locates_its_value_in_a_document() {
        let document = r#" {"a": [1, {"b~/": "x"}], "c": {}} "#;
        for (pointer, expected) in [
            ("", Some(r#"{"a": [1, {"b~/": "x"}], "c": {}}"#)),
            ("/a/1/b~0~1", Some(r#""x""#)),
            ("/c", Some("{}")),
            ("/c/d", None),
            ("/a/2", None),
            ("/a/x", None),
            ("/a/0/x", None),
        ] {
            let location = pointer.parse::<Pointer>().unwrap().locate(document);
            assert_eq!(location.map(|range| &document[range]), expected, "{pointer}");
        }
    }
}
