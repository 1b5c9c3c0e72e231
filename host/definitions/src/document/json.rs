//! Reads JSON with positions. serde_json parses the text, and the offset of each value gives its line and column.

use std::ops::Range;

use serde::{
    Deserialize,
    de::{Deserializer as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    MAX_VALUE_COUNT,
    tree::{DocumentValue, MAX_DEPTH, MapBuilder, Position, PositionedValue, SyntaxMistake, TreeEntry},
};

/// Parses a JSON text. Duplicate keys are added to `flaws`, and parsing continues.
pub(super) fn read(text: &str, flaws: &mut Vec<SyntaxMistake>) -> Result<PositionedValue, SyntaxMistake> {
    let mut lines = LineCounter::new(text);
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
        // The column in an error of serde_json counts the bytes of the line up to the wrong byte, which is included.
        // Thus it already counts from 1.
        let position = Position {
            line: u32::try_from(error.line()).unwrap_or(u32::MAX),
            column: u32::try_from(error.column()).unwrap_or(u32::MAX).max(1),
        };
        json_mistake(position, &error)
    })?;
    read_value(&mut lines, raw, 0, flaws)
}

fn json_mistake(position: Position, error: &serde_json::Error) -> SyntaxMistake {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    SyntaxMistake::new(position, format!("this is not JSON: {message}"), "")
}

/// Converts offsets to lines and columns.
struct LineCounter<'a> {
    text: &'a str,
    offset: usize,
    position: Position,
    value_count: usize,
}

impl<'a> LineCounter<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            offset: 0,
            position: Position { line: 1, column: 1 },
            value_count: 0,
        }
    }

    fn span(&self, part: &str) -> Range<usize> {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + part.len()
    }

    fn position(&mut self, part: &str) -> Position {
        let offset = self.span(part).start;
        if offset < self.offset {
            *self = Self {
                value_count: self.value_count,
                ..Self::new(self.text)
            };
        }
        for c in self.text.get(self.offset..offset).unwrap_or_default().chars() {
            if c == '\n' {
                self.position.line += 1;
                self.position.column = 1;
            } else {
                self.position.column += 1;
            }
        }
        self.offset = offset;
        self.position
    }
}

fn read_value(
    lines: &mut LineCounter<'_>,
    raw: &RawValue,
    depth: usize,
    flaws: &mut Vec<SyntaxMistake>,
) -> Result<PositionedValue, SyntaxMistake> {
    let text = raw.get();
    let position = lines.position(text);
    if depth > MAX_DEPTH {
        return Err(SyntaxMistake::too_deep(position));
    }
    lines.value_count += 1;
    if lines.value_count > MAX_VALUE_COUNT {
        return Err(SyntaxMistake::too_many(position));
    }
    let wrong = |error: serde_json::Error| json_mistake(position, &error);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = match text.as_bytes().first() {
        Some(b'{') => {
            let mut map = MapBuilder::default();
            for (key, field) in reader.deserialize_map(RawFields).map_err(wrong)? {
                let entry = TreeEntry {
                    key: serde_json::from_str(key.get()).map_err(wrong)?,
                    key_position: lines.position(key.get()),
                    value: self::read_value(lines, field, depth + 1, flaws)?,
                };
                map.insert(entry, flaws);
            }
            map.finish()
        }
        Some(b'[') => DocumentValue::List(
            Vec::<&RawValue>::deserialize(&mut reader)
                .map_err(wrong)?
                .into_iter()
                .map(|entry| self::read_value(lines, entry, depth + 1, flaws))
                .collect::<Result<_, _>>()?,
        ),
        Some(b'"') => DocumentValue::String(String::deserialize(&mut reader).map_err(wrong)?),
        Some(b't' | b'f') => DocumentValue::Bool(bool::deserialize(&mut reader).map_err(wrong)?, text.to_owned()),
        Some(b'n') => DocumentValue::Null,
        _ => DocumentValue::Number(
            serde_json::Number::deserialize(&mut reader).map_err(wrong)?,
            text.to_owned(),
        ),
    };
    Ok(PositionedValue {
        position,
        span: lines.span(text),
        value,
    })
}

struct RawFields;

impl<'de> Visitor<'de> for RawFields {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}
