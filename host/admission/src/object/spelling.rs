//! The canonical spelling of the object keys that chains use.
//!
//! Servers written in Go ignore the case of JSON keys: if a client sends `"Spec"`, the server reads it as `spec`. A
//! stage looks only for the documented spelling, so it would not see this field. Clients could bypass stages in this
//! way. This module prevents that.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    Patch, Pointer, PointerPattern, object::tree::MemberKey, patch::OperationAction, patch::pointer::MemberTexts,
};

/// The keys whose spelling is enforced, with their paths in a document. Clones share the keys.
///
/// The spelling is enforced in objects that arrive, and in the result of every stage.
#[derive(Clone, Debug, Default)]
pub struct EnforcedSpelling(Arc<KeyTree>);

#[derive(Clone, Debug, Default)]
struct KeyTree {
    members: Vec<(String, KeyTree)>,
    elements: Option<Box<KeyTree>>,
}

pub(crate) const TOP_LEVEL_KEYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(crate) const METADATA_KEYS: [&str; 5] = ["name", "generateName", "namespace", "uid", "labels"];

static KUBERNETES_SPELLING: LazyLock<EnforcedSpelling> = LazyLock::new(|| {
    let keys = TOP_LEVEL_KEYS.map(|key| format!("/{key}"));
    let metadata_keys = METADATA_KEYS.map(|key| format!("/metadata/{key}"));
    let texts = keys.iter().chain(&metadata_keys);
    let pointers: Vec<Pointer> = texts.filter_map(|text| text.parse().ok()).collect();
    EnforcedSpelling::new(&pointers, [])
});

/// The reason why a document cannot be converted to the canonical spelling.
#[derive(Debug)]
pub enum SpellingError {
    /// The document is not JSON.
    Json(serde_json::Error),
    /// The document has a duplicate key, or a key in two spellings.
    Ambiguous(serde_json::Error),
}

impl EnforcedSpelling {
    /// Returns whether one of the two values is a clone of the other, so that both have the same keys. The keys are not
    /// compared: two values that were created separately are never the same.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Creates a spelling that is enforced for all keys in these pointers and patterns. For example, the pointer
    /// `/metadata/name` enforces the spelling of `metadata` at the top level, and of `name` inside `metadata`.
    pub fn new<'a>(
        pointers: impl IntoIterator<Item = &'a Pointer>,
        patterns: impl IntoIterator<Item = PointerPattern>,
    ) -> Self {
        let mut tree = KeyTree::default();
        for pointer in pointers {
            tree.add(pointer.segments(), false);
        }
        for PointerPattern(pointer) in patterns {
            tree.add(pointer.segments(), true);
        }
        Self(Arc::new(tree))
    }

    /// Returns the spelling for objects of Kubernetes and BCS. It is enforced for `apiVersion`, `kind` and `metadata`.
    /// Inside `metadata`, it is enforced for the keys that identify the object, and for `labels`.
    pub fn kubernetes() -> Self {
        KUBERNETES_SPELLING.clone()
    }

    /// Returns the spelling for the value at the pointer `pointer`. It contains the keys that are enforced inside this
    /// value: for the pointer `/metadata`, these are keys such as `name`. It can be applied to the value alone, without
    /// the document around it.
    pub fn spelling_below(&self, pointer: &Pointer) -> Self {
        let mut tree = &*self.0;
        for segment in pointer.segments() {
            let member = tree.member(segment).map(|(_, _, tree)| tree);
            match member.or(tree.elements.as_deref()) {
                Some(below) => tree = below,
                None => return Self::default(),
            }
        }
        Self(Arc::new(tree.clone()))
    }

    /// Converts a document so that its keys have the canonical spelling. Returns `None` if all keys have it already.
    ///
    /// # Errors
    ///
    /// Fails when the document is not JSON, or if a key whose spelling is enforced occurs twice. For example, `kind`
    /// and `Kind` count as the same key.
    pub fn canonical_text(&self, document: &str) -> Result<Option<String>, SpellingError> {
        self.0.canonical_text(document)
    }

    pub(crate) fn may_be_broken_by(&self, patch: &Patch) -> bool {
        patch
            .operations()
            .any(|operation| self.0.may_change_at(&operation.path, &operation.action))
    }
}

impl KeyTree {
    fn add(&mut self, segments: &[String], has_wildcards: bool) {
        let Some((first, rest)) = segments.split_first() else {
            return;
        };
        let child = if has_wildcards && first == "*" {
            self.elements.get_or_insert_default().as_mut()
        } else {
            if self.members.iter().all(|(key, _)| key != first) {
                self.members.push((first.clone(), Self::default()));
            }
            match self.members.iter_mut().find(|(key, _)| key == first) {
                Some((_, tree)) => tree,
                None => return,
            }
        };
        child.add(rest, has_wildcards);
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.elements.is_none()
    }

    fn member(&self, key: &str) -> Option<(usize, &str, &Self)> {
        self.members
            .iter()
            .enumerate()
            .find(|(_, (canonical, _))| same_key(key, canonical))
            .map(|(index, (canonical, tree))| (index, canonical.as_str(), tree))
    }

    fn may_change_at(&self, pointer: &jsonptr::Pointer, action: &OperationAction) -> bool {
        let Some((token, rest)) = pointer.split_front() else {
            return match action {
                OperationAction::Add(value) | OperationAction::Replace(value) => {
                    !matches!(self.canonical_text(value.get()), Ok(None))
                }
                // A move or copy puts a value from an old path at a new path. The schema of the new path may list keys
                // that the schema of the old path does not, so the keys of the value must be compared again.
                OperationAction::Move(_) | OperationAction::Copy(_) => !self.is_empty(),
                OperationAction::Remove | OperationAction::Test(_) => false,
            };
        };
        let key = token.decoded();
        let member = self.member(&key);
        member.is_some_and(|(_, canonical, tree)| *key != *canonical || tree.may_change_at(rest, action))
            || self
                .elements
                .as_ref()
                .is_some_and(|tree| tree.may_change_at(rest, action))
    }

    fn canonical_text(&self, document: &str) -> Result<Option<String>, SpellingError> {
        let mut findings = KeyFindings::default();
        let mut reader = serde_json::Deserializer::from_str(document);
        let walk_result = SpellingWalk {
            tree: self,
            findings: &mut findings,
        }
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
        match walk_result {
            Err(error) if findings.has_duplicate_key => Err(SpellingError::Ambiguous(error)),
            Err(error) => Err(SpellingError::Json(error)),
            Ok(()) if !findings.has_other_spelling => Ok(None),
            Ok(()) => {
                let mut text = String::with_capacity(document.len());
                self.respell(document.trim(), &mut text).map_err(SpellingError::Json)?;
                Ok(Some(text))
            }
        }
    }

    fn respell(&self, value: &str, out: &mut String) -> Result<(), serde_json::Error> {
        if self.is_empty() {
            out.push_str(value);
            return Ok(());
        }
        match (value.as_bytes().first(), &self.elements) {
            (Some(b'{'), _) => {
                out.push('{');
                for (index, (key, value)) in serde_json::from_str::<MemberTexts<'_>>(value)?.0.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    let member = self.member(key);
                    out.push_str(&serde_json::to_string(member.map_or(key.as_str(), |(_, key, _)| key))?);
                    out.push(':');
                    match member.map(|(_, _, tree)| tree).or(self.elements.as_deref()) {
                        Some(tree) => tree.respell(value.get(), out)?,
                        None => out.push_str(value.get()),
                    }
                }
                out.push('}');
            }
            (Some(b'['), Some(tree)) => {
                out.push('[');
                for (index, value) in serde_json::from_str::<Vec<&RawValue>>(value)?.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    tree.respell(value.get(), out)?;
                }
                out.push(']');
            }
            _ => out.push_str(value),
        }
        Ok(())
    }
}

/// Returns whether a Go server reads `key` as `canonical`. Go ignores case, and reads `ſ` as `s`, and U+212A as `k`.
pub fn same_key(key: &str, canonical: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(canonical.chars().map(fold))
}

#[derive(Default)]
struct KeyFindings {
    has_other_spelling: bool,
    has_duplicate_key: bool,
}

struct SpellingWalk<'s> {
    tree: &'s KeyTree,
    findings: &'s mut KeyFindings,
}

impl<'de> DeserializeSeed<'de> for SpellingWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.tree.is_empty() {
            IgnoredAny::deserialize(reader).map(|_| ())
        } else {
            reader.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for SpellingWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let empty_tree = KeyTree::default();
        let element_tree = self.tree.elements.as_deref().unwrap_or(&empty_tree);
        let mut earlier_keys: Vec<Option<String>> = vec![None; self.tree.members.len()];
        while let Some(MemberKey(key)) = map.next_key::<MemberKey<'de>>()? {
            let Some((index, canonical, tree)) = self.tree.member(&key) else {
                map.next_value_seed(SpellingWalk {
                    tree: element_tree,
                    findings: self.findings,
                })?;
                continue;
            };
            if let Some(earlier) = earlier_keys.get(index).and_then(Option::as_ref) {
                self.findings.has_duplicate_key = true;
                let message = if *earlier == key {
                    format!("duplicate key `{key}` in an object; remove one of them")
                } else {
                    format!("`{earlier}` and `{key}` are two spellings of one key; keep `{canonical}`")
                };
                return Err(A::Error::custom(message));
            }
            self.findings.has_other_spelling |= key != canonical;
            map.next_value_seed(SpellingWalk {
                tree,
                findings: self.findings,
            })?;
            if let Some(earlier_key) = earlier_keys.get_mut(index) {
                *earlier_key = Some(key.into_owned());
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let empty_tree = KeyTree::default();
        let tree = self.tree.elements.as_deref().unwrap_or(&empty_tree);
        while seq
            .next_element_seed(SpellingWalk {
                tree,
                findings: self.findings,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(patterns: &[&str]) -> EnforcedSpelling {
        EnforcedSpelling::new([], patterns.iter().map(|text| text.parse::<PointerPattern>().unwrap()))
    }

    #[test]
    fn a_document_is_converted_to_the_canonical_spelling() {
        let spelling = spelling(&["/kind", "/metadata/labels", "/spec/items/*/image"]);
        for (case, document, expected) in [
            ("right", r#"{"kind": "a", "other": 1}"#, Ok(None)),
            ("not an object", "[1, null, true, 1.5, \"\"]", Ok(None)),
            ("case", r#"{"KIND": "a"}"#, Ok(Some(r#"{"kind":"a"}"#))),
            ("Kelvin sign", "{\"\u{212a}ind\": 1}", Ok(Some(r#"{"kind":1}"#))),
            ("long s", "{\"\u{17f}pec\": 1}", Ok(Some(r#"{"spec":1}"#))),
            ("escaped key", r#"{"\u004bind": 1}"#, Ok(Some(r#"{"kind":1}"#))),
            (
                "what is not in the spelling stays to the letter",
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
                "another type than the spelling has",
                r#"{"spec": [{"Items": 1}]}"#,
                Ok(None),
            ),
            (
                "every member of a map, whose own keys are the user's",
                r#"{"spec": {"items": {"A": {"Image": 1}, "a": {"image": 2}}}}"#,
                Ok(Some(r#"{"spec":{"items":{"A":{"image":1},"a":{"image":2}}}}"#)),
            ),
            (
                "two spellings",
                r#"{"kind":"a","Kind":"b"}"#,
                Err("`kind` and `Kind` are two spellings of one key; keep `kind` at line 1 column 18"),
            ),
            (
                "twice, deep",
                r#"{"spec":{"items":[{"image":1,"image":2}]}}"#,
                Err("duplicate key `image` in an object; remove one of them at line 1 column 36"),
            ),
            ("not JSON", "{", Err("EOF while parsing an object at line 1 column 1")),
            ("more behind", "{} {}", Err("trailing characters at line 1 column 4")),
        ] {
            let actual = spelling.canonical_text(document).map_err(|error| match error {
                SpellingError::Json(error) | SpellingError::Ambiguous(error) => error.to_string(),
            });
            assert_eq!(
                actual,
                expected.map(|text| text.map(str::to_owned)).map_err(str::to_owned),
                "{case}"
            );
        }
    }
}
