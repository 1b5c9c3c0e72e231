//! The tree of a document: its values with their positions. The mistakes that are found while the tree is built have no
//! path, because the paths of fields are not known yet.

use std::ops::Range;

use serde::{Serialize, Serializer};
use serde_json::Number;

use super::{Location, MAX_VALUE_COUNT, Mistake, saturating_u32};

/// The maximum nesting of values. Without a limit, functions that recurse into the tree could overflow the stack.
pub(super) const MAX_DEPTH: usize = 64;

/// A line, and a column in characters, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Debug)]
pub(super) struct PositionedValue {
    pub(super) position: Position,
    /// The byte range of the value in the text, counted without a byte order mark. An omitted value has an empty range.
    pub(super) span: Range<usize>,
    pub(super) value: DocumentValue,
}

#[derive(Clone, Debug)]
pub(super) enum DocumentValue {
    Null,
    /// A boolean, and how it is written in the document.
    Bool(bool, String),
    Number(Number, String),
    String(String),
    List(Vec<PositionedValue>),
    Map(Vec<TreeEntry>),
}

impl Serialize for PositionedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            DocumentValue::Null => serializer.serialize_unit(),
            DocumentValue::Bool(value, _) => serializer.serialize_bool(*value),
            DocumentValue::Number(number, _) => number.serialize(serializer),
            DocumentValue::String(text) => serializer.serialize_str(text),
            DocumentValue::List(entries) => serializer.collect_seq(entries),
            DocumentValue::Map(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&entry.key, &entry.value)))
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct TreeEntry {
    pub(super) key: String,
    pub(super) key_position: Position,
    pub(super) value: PositionedValue,
}

/// A scalar that has different values in YAML 1.1 and YAML 1.2.
#[derive(Clone, Debug)]
pub(super) struct Ambiguity {
    pub(super) position: Position,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) fix: String,
}

impl Ambiguity {
    pub(super) fn new(position: Position, path: String, text: &str, kubectl_value: &str, other_value: &str) -> Self {
        Self {
            position,
            path,
            message: format!(
                "`{text}` is {kubectl_value}, as kubectl reads it (YAML 1.1); in YAML 1.2 it is {other_value}"
            ),
            fix: format!("write {kubectl_value} or {other_value}"),
        }
    }
}

/// Returns the path of a field, such as `spec.stages` or `metadata.labels["a.b/c"]`.
pub(super) fn join_path(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    match (is_plain, path) {
        (true, "") => key.to_owned(),
        (true, path) => format!("{path}.{key}"),
        (false, path) => format!("{path}[{key:?}]"),
    }
}

/// Returns the position after the last visible character. Mistakes at the end of a text are reported there.
pub(super) fn end_position(text: &str) -> Position {
    let text = text.trim_end();
    let is_break =
        |(index, byte): (usize, u8)| byte == b'\n' || byte == b'\r' && text.as_bytes().get(index + 1) != Some(&b'\n');
    let breaks = text.bytes().enumerate().filter(|byte| is_break(*byte)).count();
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    Position {
        line: saturating_u32(breaks + 1),
        column: saturating_u32(last.chars().count() + 1),
    }
}

/// A mistake that is found in parsing, when the path of the field is not known yet.
#[derive(Debug)]
pub(super) struct SyntaxMistake {
    pub(super) position: Position,
    pub(super) message: String,
    pub(super) fix: &'static str,
}

impl SyntaxMistake {
    pub(super) fn new(position: Position, message: impl Into<String>, fix: &'static str) -> Self {
        Self {
            position,
            message: message.into(),
            fix,
        }
    }

    pub(super) fn too_deep(position: Position) -> Self {
        Self::new(
            position,
            format!("the document is nested deeper than {MAX_DEPTH} levels"),
            "write it flatter",
        )
    }

    pub(super) fn too_many(position: Position) -> Self {
        let message = format!("the file has more than {MAX_VALUE_COUNT} values");
        Self::new(position, message, "split it")
    }

    pub(super) fn too_large(position: Position, limit: usize) -> Self {
        Self::new(
            position,
            format!("as JSON it is larger than the {limit} bytes that are allowed here"),
            "",
        )
    }

    pub(super) fn second_document(position: Position) -> Self {
        Self::new(
            position,
            "a second document begins here, and only one is read",
            "keep one of them",
        )
    }

    pub(super) fn duplicate(position: Position, key: &str, first: Position) -> Self {
        Self::new(
            position,
            format!(
                "the field `{key}` is written a second time; the first is on line {}",
                first.line
            ),
            "keep one of the two",
        )
    }

    pub(super) fn clamp_to(self, end: Position) -> Self {
        let position = self.position.min(end);
        Self { position, ..self }
    }

    pub(super) fn into_mistake(self, file: &str) -> Mistake {
        Mistake {
            location: Location {
                file: file.to_owned(),
                line: self.position.line,
                column: self.position.column,
            },
            path: String::new(),
            message: self.message,
            fix: self.fix.to_owned(),
        }
    }
}

/// Builds a map from its fields. If a field is written twice, the first is kept, and the second is a mistake.
#[derive(Debug, Default)]
pub(super) struct MapBuilder {
    entries: Vec<TreeEntry>,
    /// For each key, the index of its field in `entries`, and whether the key is written in this map itself. The
    /// boolean is false if the key only comes from a map that was merged into this one with `<<`.
    keys: std::collections::HashMap<String, (usize, bool)>,
}

impl MapBuilder {
    pub(super) fn insert(&mut self, entry: TreeEntry, flaws: &mut Vec<SyntaxMistake>) {
        if let Some(first) = self.set_entry(entry, true) {
            flaws.push(first);
        }
    }

    pub(super) fn merge(&mut self, entries: Vec<TreeEntry>) {
        for entry in entries {
            self.set_entry(entry, false);
        }
    }

    /// Adds a field to the map. `is_written` is true if the field is written in the map itself, and false if it comes
    /// from a merge, such as `<<: *other`. Returns a mistake if the map itself has the field twice.
    fn set_entry(&mut self, entry: TreeEntry, is_written: bool) -> Option<SyntaxMistake> {
        let next = self.entries.len();
        let (index, was_written) = self.keys.entry(entry.key.clone()).or_insert((next, is_written));
        match self.entries.get_mut(*index) {
            Some(first) if is_written && *was_written => {
                return Some(SyntaxMistake::duplicate(
                    entry.key_position,
                    &entry.key,
                    first.key_position,
                ));
            }
            Some(first) => *first = entry,
            None => self.entries.push(entry),
        }
        *was_written |= is_written;
        None
    }

    pub(super) fn finish(self) -> DocumentValue {
        DocumentValue::Map(self.entries)
    }
}
