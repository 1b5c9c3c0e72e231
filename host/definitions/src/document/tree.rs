//! The values of a document, with their positions.

use std::ops::Range;

use serde::{Serialize, Serializer};
use serde_json::{Number, value::RawValue};

use super::{Location, Mistake};

/// Deeper nesting than this is refused: no document needs it, and the tree is walked recursively.
pub(super) const DEEPEST: usize = 64;

/// A line and a column, counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct Positioned {
    pub(super) position: Position,
    /// Its bytes in the text, after a byte order mark. Those of a block scalar (`|`, `>`) are its content,
    /// without the lines that end it; those of a value that is not written are none.
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    /// With the text that was written.
    Bool(bool, String),
    /// With the text that was written, or as JSON if a [`Schema`](super::Schema) resolved it.
    Number(Number, String),
    String(String),
    List(Vec<Positioned>),
    Map(Vec<Entry>),
}

impl Serialize for Positioned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value, _) => serializer.serialize_bool(*value),
            // A number of any size stays exact.
            Value::Number(number, json) => match RawValue::from_string(json.clone()) {
                Ok(json) => json.serialize(serializer),
                Err(_) => number.serialize(serializer),
            },
            Value::String(text) => serializer.serialize_str(text),
            Value::List(entries) => serializer.collect_seq(entries),
            Value::Map(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&entry.key, &entry.value)))
            }
        }
    }
}

/// A field of a map. No two fields of a map have the same key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_position: Position,
    pub(super) value: Positioned,
}

/// A mistake that prevents parsing, before paths are known.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) position: Position,
    pub(super) message: String,
    pub(super) fix: &'static str,
}

impl Flaw {
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
            format!("the document is nested deeper than {DEEPEST} levels"),
            "write it flatter",
        )
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

    pub(super) fn mistake(self, file: &str) -> Mistake {
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

/// Reads a map's fields in, keeping the first of two with the same key.
#[derive(Debug, Default)]
pub(super) struct MapBuilder {
    entries: Vec<Entry>,
    keys: std::collections::HashMap<String, Position>,
}

impl MapBuilder {
    pub(super) fn insert(&mut self, entry: Entry, flaws: &mut Vec<Flaw>) {
        if let Some(first) = self.keys.get(&entry.key) {
            flaws.push(Flaw::duplicate(entry.key_position, &entry.key, *first));
            return;
        }
        self.keys.insert(entry.key.clone(), entry.key_position);
        self.entries.push(entry);
    }

    /// Adds these fields, except those that are already there.
    pub(super) fn merge(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if !self.keys.contains_key(&entry.key) {
                self.insert(entry, &mut Vec::new());
            }
        }
    }

    pub(super) fn finish(self) -> Value {
        Value::Map(self.entries)
    }
}
