//! YAML with positions, from the parser's events: version 1.2 without aliases, or with a [`Schema`] of its own.

use std::{borrow::Cow, ops::Range};

use admittance_admission::pause;
use saphyr::Scalar as CoreScalar;
use saphyr_parser::{Event, Marker, ScalarStyle, Span, Tag};
use serde_json::Number;

use super::{
    MOST_DOCUMENTS, UNINTERRUPTED,
    events::Events,
    tree::{DEEPEST, Entry, Flaw, MapBuilder, Position, Positioned, Value},
};

/// The rules of another version of YAML, in which aliases and merge keys are allowed.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// What a scalar is, by its text, whether it is plain, and the name of its tag (`int`).
    pub scalar: fn(&str, bool, Option<&str>) -> Result<Scalar, InvalidScalar>,
    /// The most bytes that aliases may repeat, and that the JSON may have.
    pub limit: usize,
}

/// What a scalar of a [`Schema`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `null`, or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// With its text: JSON, so that it stays exact.
    Number(Number, String),
    /// Anything else.
    String,
    /// The key `<<`: the maps in its value are merged into the one around it.
    Merge,
}

/// Why a scalar has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidScalar {
    /// It does not fit its tag.
    Tag,
    /// JSON cannot hold the number.
    Number,
}

/// The trees of the documents in a YAML text. Empty documents are left out. A flaw that leaves no
/// tree ends the reading; the documents before it are there.
pub(super) fn read(text: &str, schema: Option<Schema>, flaws: &mut Vec<Flaw>) -> Vec<Positioned> {
    let mut documents = Vec::new();
    if let Err(flaw) = read_into(&mut documents, text, schema, flaws) {
        flaws.push(flaw);
    }
    documents
}

fn read_into(
    documents: &mut Vec<Positioned>,
    text: &str,
    schema: Option<Schema>,
    flaws: &mut Vec<Flaw>,
) -> Result<(), Flaw> {
    let mut begun = 0_usize;
    let mut events = Events::new(text, schema.map(|schema| schema.limit));
    let mut builder = Builder::new(text, schema);
    while let Some((event, span)) = events.next()? {
        if matches!(event, Event::DocumentStart(_)) {
            pause(begun, UNINTERRUPTED);
            begun += 1;
            if begun > MOST_DOCUMENTS {
                return Err(Flaw::new(
                    position(span.start),
                    format!("the file has more than {MOST_DOCUMENTS} documents"),
                    "split it",
                ));
            }
        }
        if let Some(document) = builder.take(event, span, flaws)? {
            // With a schema, an explicit `null` is a document.
            let is_empty =
                matches!(document.value, Value::Null) && (schema.is_none() || document.span.is_empty());
            if !is_empty {
                documents.push(document);
            }
        }
    }
    Ok(())
}

pub(super) fn position(mark: Marker) -> Position {
    Position {
        line: u32::try_from(mark.line()).unwrap_or(u32::MAX),
        column: u32::try_from(mark.col() + 1).unwrap_or(u32::MAX),
    }
}

/// A collection whose end has not come yet.
struct Open {
    position: Position,
    /// Where it begins.
    start: usize,
    /// Where the last thing in it ends.
    end: usize,
    is_block: bool,
    content: Content,
}

enum Content {
    List(Vec<Positioned>),
    Map {
        map: MapBuilder,
        /// The key that waits for its value.
        key: Option<Key>,
        /// The values of `<<`.
        merged: Vec<Positioned>,
    },
}

enum Key {
    Field(String, Position),
    Merge,
}

struct Builder<'t> {
    text: &'t str,
    schema: Option<Schema>,
    /// The byte offset of each character; `None` if the text is ASCII.
    offsets: Option<Vec<usize>>,
    open: Vec<Open>,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str, schema: Option<Schema>) -> Self {
        Self {
            text,
            schema,
            offsets: (!text.is_ascii()).then(|| text.char_indices().map(|(offset, _)| offset).collect()),
            open: Vec::new(),
        }
    }

    /// The parser counts characters; it may stand behind the last one.
    fn offset(&self, mark: Marker) -> usize {
        let end = self.text.len();
        match &self.offsets {
            None => mark.index().min(end),
            Some(offsets) => offsets.get(mark.index()).copied().unwrap_or(end),
        }
    }

    /// A whole document, when this event ends one.
    fn take(
        &mut self,
        event: Event<'_>,
        span: Span,
        flaws: &mut Vec<Flaw>,
    ) -> Result<Option<Positioned>, Flaw> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let position = position(span.start);
                let scalar = self.scalar(&text, style, tag.as_ref(), position)?;
                let text = text.into_owned();
                let span = self.span_of_scalar(span);
                if let Some(open) = self.open.last_mut() {
                    open.end = open.end.max(span.end);
                }
                if let Some(key) = self.missing_key() {
                    // A key is the text that is written, whatever it would be as a value.
                    *key = Some(match scalar {
                        Scalar::Null => return Err(key_not_text(position)),
                        Scalar::Merge => Key::Merge,
                        Scalar::Bool(_) | Scalar::Number(..) | Scalar::String => Key::Field(text, position),
                    });
                    return Ok(None);
                }
                let value = match scalar {
                    Scalar::Null => Value::Null,
                    Scalar::Bool(value) => Value::Bool(value, text),
                    Scalar::Number(number, text) => Value::Number(number, text),
                    Scalar::String | Scalar::Merge => Value::String(text),
                };
                let value = Positioned {
                    position,
                    span,
                    value,
                };
                self.put(value, flaws)
            }
            Event::SequenceStart(_, tag) => self.start(span, tag.as_ref(), Content::List(Vec::new())),
            Event::MappingStart(_, tag) => {
                let content = Content::Map {
                    map: MapBuilder::default(),
                    key: None,
                    merged: Vec::new(),
                };
                self.start(span, tag.as_ref(), content)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                None => Ok(None),
                Some(open) => {
                    let end = if open.is_block {
                        open.end
                    } else {
                        // Its bracket; the parser adds what stands between it and the next thing.
                        self.offset(span.start) + 1
                    };
                    let value = match open.content {
                        Content::List(entries) => Value::List(entries),
                        Content::Map { mut map, merged, .. } => {
                            for value in merged {
                                merge(&mut map, value, true)?;
                            }
                            map.finish()
                        }
                    };
                    let value = Positioned {
                        position: open.position,
                        span: open.start..end,
                        value,
                    };
                    self.put(value, flaws)
                }
            },
            // Aliases have been replaced.
            Event::Alias(_)
            | Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(None),
        }
    }

    fn span_of_scalar(&self, span: Span) -> Range<usize> {
        let start = self.offset(span.start);
        let end = self.offset(span.end).max(start);
        let written = self.text.get(start..end).unwrap_or_default().trim_end();
        start..start + written.len()
    }

    fn start(
        &mut self,
        span: Span,
        tag: Option<&Cow<'_, Tag>>,
        content: Content,
    ) -> Result<Option<Positioned>, Flaw> {
        let position = position(span.start);
        if let Some(tag) = tag {
            let usual = match content {
                Content::List(_) => "seq",
                Content::Map { .. } => "map",
            };
            if !tag.is_yaml_core_schema() || tag.suffix != usual {
                return Err(unknown_tag(tag, position));
            }
        }
        if self.open.len() >= DEEPEST {
            return Err(Flaw::too_deep(position));
        }
        if self.missing_key().is_some() {
            return Err(key_not_text(position));
        }
        let [start, end] = [span.start, span.end].map(|mark| self.offset(mark));
        // The span holds the tag, if there is one, and the bracket, with the space after it.
        let written = self.text.get(start..end).unwrap_or_default().trim_end();
        let is_block = !written.ends_with(['{', '[']);
        self.open.push(Open {
            position,
            start,
            end,
            is_block,
            content,
        });
        Ok(None)
    }

    fn put(&mut self, value: Positioned, flaws: &mut Vec<Flaw>) -> Result<Option<Positioned>, Flaw> {
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(value));
        };
        open.end = open.end.max(value.span.end);
        match &mut open.content {
            Content::List(entries) => entries.push(value),
            Content::Map { map, key, merged } => match key.take() {
                None => return Err(key_not_text(value.position)),
                Some(Key::Merge) => merged.push(value),
                Some(Key::Field(key, key_position)) => {
                    let entry = Entry {
                        key,
                        key_position,
                        value,
                    };
                    map.insert(entry, flaws);
                }
            },
        }
        Ok(None)
    }

    /// The place of the key that comes next, in a map.
    fn missing_key(&mut self) -> Option<&mut Option<Key>> {
        match &mut self.open.last_mut()?.content {
            Content::Map { key, .. } if key.is_none() => Some(key),
            Content::Map { .. } | Content::List(_) => None,
        }
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Cow<'_, Tag>>,
        position: Position,
    ) -> Result<Scalar, Flaw> {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            return Err(unknown_tag(tag, position));
        }
        let tag_name = tag.map(|tag| tag.suffix.as_str());
        let scalar = match self.schema {
            None => core_scalar(text, style, tag),
            Some(schema) => (schema.scalar)(text, style == ScalarStyle::Plain, tag_name),
        };
        scalar.map_err(|error| match error {
            InvalidScalar::Tag => Flaw::new(
                position,
                format!(
                    "`{text}` does not fit its tag `!!{}`",
                    tag_name.unwrap_or_default()
                ),
                "remove the tag",
            ),
            InvalidScalar::Number => Flaw::new(
                position,
                format!("`{text}` is a number that JSON cannot hold"),
                "put it in quotes if it is a text",
            ),
        })
    }
}

/// A scalar of YAML 1.2's core schema.
fn core_scalar(text: &str, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Result<Scalar, InvalidScalar> {
    let scalar = CoreScalar::parse_from_cow_and_metadata(text.into(), style, tag);
    let number = match scalar.ok_or(InvalidScalar::Tag)? {
        CoreScalar::Null => return Ok(Scalar::Null),
        CoreScalar::Boolean(value) => return Ok(Scalar::Bool(value)),
        CoreScalar::String(_) => return Ok(Scalar::String),
        CoreScalar::Integer(value) => Some(value.into()),
        // An integer beyond the signed range is still exact.
        CoreScalar::FloatingPoint(value) => match text.parse::<u64>() {
            Ok(value) => Some(value.into()),
            Err(_) => Number::from_f64(value.into_inner()),
        },
    };
    let number = number.ok_or(InvalidScalar::Number)?;
    Ok(Scalar::Number(number, text.to_owned()))
}

/// Adds the fields of a map, or of a list of maps, that are not there yet.
fn merge(map: &mut MapBuilder, value: Positioned, may_be_list: bool) -> Result<(), Flaw> {
    match value.value {
        Value::Map(entries) => map.merge(entries),
        Value::List(maps) if may_be_list => {
            for entries in maps {
                merge(map, entries, false)?;
            }
        }
        _ => {
            return Err(Flaw::new(
                value.position,
                "`<<` must be a map or a list of maps",
                "write an alias of one",
            ));
        }
    }
    Ok(())
}

fn unknown_tag(tag: &Tag, position: Position) -> Flaw {
    Flaw::new(
        position,
        format!("the tag `{tag}` is not supported"),
        "remove the tag",
    )
}

fn key_not_text(position: Position) -> Flaw {
    Flaw::new(
        position,
        "the name of a field must be a text",
        "write `name: value`",
    )
}
