//! One spelling for the keys that chains look at.
//!
//! Servers written in Go read JSON keys whatever their case, and of two spellings of one key the last
//! one counts. A chain looks at the spelling of the documentation. Without this module a client could
//! write `"Kind"` or `"Spec"` and have the control plane act on what no stage has seen.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A JSON Pointer (RFC 6901): a place in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

/// A JSON Pointer in which the segment `*` stands for every element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Pointer);

/// A text that is not a JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no JSON Pointer: write `/Job/Name`, with `~0` for `~` and `~1` for `/` in a key")]
pub struct PointerError(pub String);

impl Pointer {
    /// As it was written; empty for the whole document.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The keys on the way, unescaped.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The pointer from the place `base` to this place, when this place is at or below it.
    pub fn relative_to(&self, base: &Self) -> Option<&str> {
        self.segments
            .starts_with(&base.segments)
            .then(|| self.text.get(base.text.len()..).unwrap_or_default())
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
                    .then(|| segment.replace("~1", "/").replace("~0", "~"))
                    .ok_or_else(error)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The keys whose spelling matters, and where they stand. Lives as long as the dialect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    members: Vec<(String, Shape)>,
    elements: Option<Box<Shape>>,
}

/// Why a document cannot be brought into one spelling.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Not JSON.
    Json(serde_json::Error),
    /// One key in two spellings, or twice.
    Ambiguous(serde_json::Error),
}

impl Shape {
    /// The shape in which every key on the way of these pointers matters.
    pub(crate) fn of<'a>(pointers: impl IntoIterator<Item = &'a Pointer>) -> Self {
        let mut shape = Self::default();
        for pointer in pointers {
            shape.add(&pointer.segments, false);
        }
        shape
    }

    pub(crate) fn add_patterns<'a>(&mut self, patterns: impl IntoIterator<Item = &'a Pattern>) {
        for Pattern(pointer) in patterns {
            self.add(&pointer.segments, true);
        }
    }

    fn add(&mut self, segments: &[String], wildcards: bool) {
        let Some((first, rest)) = segments.split_first() else {
            return;
        };
        let next = if wildcards && first == "*" {
            self.elements.get_or_insert_default().as_mut()
        } else {
            if self.members.iter().all(|(key, _)| key != first) {
                self.members.push((first.clone(), Self::default()));
            }
            match self.members.iter_mut().find(|(key, _)| key == first) {
                Some((_, shape)) => shape,
                None => return,
            }
        };
        next.add(rest, wildcards);
    }

    fn member(&self, key: &str) -> Option<(usize, &str, &Self)> {
        self.members
            .iter()
            .enumerate()
            .find(|(_, (canonical, _))| same_key(key, canonical))
            .map(|(index, (canonical, shape))| (index, canonical.as_str(), shape))
    }

    /// The document with its keys spelled as in the shape, when they are not so already.
    ///
    /// # Errors
    ///
    /// When it is not JSON, or has one of the keys twice.
    pub(crate) fn canonical(&self, document: &str) -> Result<Option<String>, Unreadable> {
        let mut found = Found::default();
        let mut reader = serde_json::Deserializer::from_str(document);
        let walked = Walk {
            shape: self,
            found: &mut found,
        }
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
        match walked {
            Err(error) if found.twice => Err(Unreadable::Ambiguous(error)),
            Err(error) => Err(Unreadable::Json(error)),
            Ok(()) if !found.other_spelling => Ok(None),
            Ok(()) => {
                let mut text = String::with_capacity(document.len());
                self.respell(document.trim(), &mut text)
                    .map_err(Unreadable::Json)?;
                Ok(Some(text))
            }
        }
    }

    fn respell(&self, value: &str, out: &mut String) -> Result<(), serde_json::Error> {
        match (value.as_bytes().first(), &self.elements) {
            (Some(b'{'), _) if !self.members.is_empty() => {
                out.push('{');
                for (index, (key, value)) in serde_json::from_str::<Members<'_>>(value)?.0.iter().enumerate()
                {
                    if index > 0 {
                        out.push(',');
                    }
                    let member = self.member(key);
                    out.push_str(&serde_json::to_string(
                        member.map_or(key.as_str(), |(_, key, _)| key),
                    )?);
                    out.push(':');
                    match member {
                        Some((_, _, shape)) => shape.respell(value.get(), out)?,
                        None => out.push_str(value.get()),
                    }
                }
                out.push('}');
            }
            (Some(b'['), Some(shape)) => {
                out.push('[');
                for (index, value) in serde_json::from_str::<Vec<&RawValue>>(value)?.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    shape.respell(value.get(), out)?;
                }
                out.push(']');
            }
            _ => out.push_str(value),
        }
        Ok(())
    }
}

/// Where the value at a pointer stands in a document: from, to. `None` when there is nothing.
pub(crate) fn locate(document: &str, pointer: &Pointer) -> Option<std::ops::Range<usize>> {
    let mut value = document.trim();
    for segment in &pointer.segments {
        value = match value.as_bytes().first()? {
            b'{' => serde_json::from_str::<Members<'_>>(value)
                .ok()?
                .0
                .into_iter()
                .rev()
                .find(|(key, _)| key == segment)?
                .1
                .get(),
            b'[' => serde_json::from_str::<Vec<&RawValue>>(value)
                .ok()?
                .get(segment.parse::<usize>().ok()?)?
                .get(),
            _ => return None,
        };
    }
    // The value is a part of the document's own text.
    let start = (value.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
    Some(start..start + value.len())
}

/// Whether a Go server takes `key` for `canonical`: ASCII letters whatever their case, and the two
/// letters beyond ASCII that Unicode folds into ASCII.
pub(crate) fn same_key(key: &str, canonical: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(canonical.chars().map(fold))
}

#[derive(Default)]
struct Found {
    other_spelling: bool,
    twice: bool,
}

/// One pass over a document that only looks at the keys of its shape.
struct Walk<'s> {
    shape: &'s Shape,
    found: &'s mut Found,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.shape.members.is_empty() && self.shape.elements.is_none() {
            IgnoredAny::deserialize(reader).map(|_| ())
        } else {
            reader.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<Option<String>> = vec![None; self.shape.members.len()];
        while let Some(key) = map.next_key::<String>()? {
            let Some((index, canonical, shape)) = self.shape.member(&key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if let Some(earlier) = seen.get(index).and_then(Option::as_ref) {
                self.found.twice = true;
                let what = if *earlier == key {
                    format!("the key `{key}` stands twice in one object; keep one")
                } else {
                    format!("`{earlier}` and `{key}` are two spellings of one key; keep `{canonical}`")
                };
                return Err(A::Error::custom(what));
            }
            self.found.other_spelling |= key != canonical;
            map.next_value_seed(Walk {
                shape,
                found: self.found,
            })?;
            if let Some(seen) = seen.get_mut(index) {
                *seen = Some(key);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let nothing = Shape::default();
        let shape = self.shape.elements.as_deref().unwrap_or(&nothing);
        while seq
            .next_element_seed(Walk {
                shape,
                found: self.found,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The members of an object in order, each value as its text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
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
        reader.deserialize_map(Collect).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(patterns: &[&str]) -> Shape {
        let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        let mut shape = Shape::default();
        shape.add_patterns(&patterns);
        shape
    }

    #[test]
    fn one_spelling() {
        let shape = shape(&["/kind", "/metadata/labels", "/spec/items/*/image"]);
        for (case, document, expected) in [
            ("right", r#"{"kind": "a", "other": 1}"#, Ok(None)),
            ("not an object", "[1, null, true, 1.5, \"\"]", Ok(None)),
            ("case", r#"{"KIND": "a"}"#, Ok(Some(r#"{"kind":"a"}"#))),
            ("Kelvin sign", "{\"\u{212a}ind\": 1}", Ok(Some(r#"{"kind":1}"#))),
            ("long s", "{\"\u{17f}pec\": 1}", Ok(Some(r#"{"spec":1}"#))),
            ("escaped key", r#"{"\u004bind": 1}"#, Ok(Some(r#"{"kind":1}"#))),
            (
                "what is not in the shape stays to the letter",
                r#" {"Spec": {"Items": [{"Image": 1.10, "Other" : [1, 2]}, 5]}, "x\u00e9": {"Kind": 1}} "#,
                Ok(Some(
                    r#"{"spec":{"items":[{"image":1.10,"Other":[1, 2]},5]},"xé":{"Kind": 1}}"#,
                )),
            ),
            (
                "the keys of labels are the user's",
                r#"{"metadata":{"labels":{"App":"a","app":"b"}}}"#,
                Ok(None),
            ),
            (
                "another type than the shape has",
                r#"{"spec": [{"Items": 1}]}"#,
                Ok(None),
            ),
            (
                "two spellings",
                r#"{"kind":"a","Kind":"b"}"#,
                Err("`kind` and `Kind` are two spellings of one key; keep `kind` at line 1 column 18"),
            ),
            (
                "twice, deep",
                r#"{"spec":{"items":[{"image":1,"image":2}]}}"#,
                Err("the key `image` stands twice in one object; keep one at line 1 column 36"),
            ),
            (
                "not JSON",
                "{",
                Err("EOF while parsing an object at line 1 column 1"),
            ),
            (
                "more behind",
                "{} {}",
                Err("trailing characters at line 1 column 4"),
            ),
        ] {
            let got = shape.canonical(document).map_err(|error| match error {
                Unreadable::Json(error) | Unreadable::Ambiguous(error) => error.to_string(),
            });
            assert_eq!(
                got,
                expected
                    .map(|text| text.map(str::to_owned))
                    .map_err(str::to_owned),
                "{case}"
            );
        }
    }

    #[test]
    fn pointers() {
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
    fn places() {
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
            let place = locate(document, &pointer.parse().unwrap());
            assert_eq!(place.map(|place| &document[place]), expected, "{pointer}");
        }
    }
}
