//! YAML 1.2 with positions, from the parser's events.

use std::borrow::Cow;

use saphyr::Scalar;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use serde_json::Number;

use super::tree::{DEEPEST, Entry, Flaw, MapBuilder, Position, Positioned, Value};

/// The trees of the documents in a YAML text. Empty documents are left out. A flaw that leaves no
/// tree ends the reading; the documents before it are there.
pub(super) fn read(text: &str, flaws: &mut Vec<Flaw>) -> Vec<Positioned> {
    let mut documents = Vec::new();
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                flaws.push(Flaw::new(
                    position(*error.marker()),
                    format!("this is not YAML: {}", error.info()),
                    "",
                ));
                break;
            }
        };
        match builder.take(event, position(span.start), flaws) {
            Ok(None) => {}
            Ok(Some(document)) if matches!(document.value, Value::Null) => {}
            Ok(Some(document)) => documents.push(document),
            Err(flaw) => {
                flaws.push(flaw);
                break;
            }
        }
    }
    documents
}

fn position(mark: Marker) -> Position {
    Position {
        line: u32::try_from(mark.line()).unwrap_or(u32::MAX),
        column: u32::try_from(mark.col() + 1).unwrap_or(u32::MAX),
    }
}

/// A collection whose end has not come yet.
struct Open {
    position: Position,
    content: Content,
}

enum Content {
    List(Vec<Positioned>),
    Map {
        map: MapBuilder,
        /// The key that waits for its value.
        key: Option<(String, Position)>,
    },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
}

impl Builder {
    /// A whole document, when this event ends one.
    fn take(
        &mut self,
        event: Event<'_>,
        position: Position,
        flaws: &mut Vec<Flaw>,
    ) -> Result<Option<Positioned>, Flaw> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let value = scalar(text, style, tag.as_ref(), position)?;
                self.place(Positioned { position, value }, flaws)
            }
            Event::SequenceStart(_, tag) => self.start(position, tag.as_ref(), Content::List(Vec::new())),
            Event::MappingStart(_, tag) => {
                let content = Content::Map {
                    map: MapBuilder::default(),
                    key: None,
                };
                self.start(position, tag.as_ref(), content)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                None => Ok(None),
                Some(Open { position, content }) => {
                    let value = match content {
                        Content::List(entries) => Value::List(entries),
                        Content::Map { map, .. } => map.finish(),
                    };
                    self.place(Positioned { position, value }, flaws)
                }
            },
            // An alias can stand for any amount of text, many times over.
            Event::Alias(_) => Err(Flaw::new(
                position,
                "aliases (`*name`) are not supported here",
                "write the value out",
            )),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(None),
        }
    }

    fn start(
        &mut self,
        position: Position,
        tag: Option<&Cow<'_, Tag>>,
        content: Content,
    ) -> Result<Option<Positioned>, Flaw> {
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
        if let Some(Open {
            content: Content::Map { key: None, .. },
            ..
        }) = self.open.last()
        {
            return Err(key_not_text(position));
        }
        self.open.push(Open { position, content });
        Ok(None)
    }

    fn place(&mut self, value: Positioned, flaws: &mut Vec<Flaw>) -> Result<Option<Positioned>, Flaw> {
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(value));
        };
        match &mut open.content {
            Content::List(entries) => entries.push(value),
            Content::Map { map, key } => match key.take() {
                None => {
                    let text = match value.value {
                        Value::String(text) | Value::Bool(_, text) | Value::Number(_, text) => text,
                        Value::Null | Value::List(_) | Value::Map(_) => {
                            return Err(key_not_text(value.position));
                        }
                    };
                    *key = Some((text, value.position));
                }
                Some((key, key_position)) => {
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
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Cow<'_, Tag>>,
    position: Position,
) -> Result<Value, Flaw> {
    if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
        return Err(unknown_tag(tag, position));
    }
    let written = text.clone().into_owned();
    let Some(scalar) = Scalar::parse_from_cow_and_metadata(text, style, tag) else {
        let tag = tag.map(|tag| tag.suffix.as_str()).unwrap_or_default();
        return Err(Flaw::new(
            position,
            format!("`{written}` does not fit its tag `!!{tag}`"),
            "remove the tag",
        ));
    };
    Ok(match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => Value::Bool(value, written),
        Scalar::Integer(value) => Value::Number(value.into(), written),
        Scalar::String(value) => Value::String(value.into_owned()),
        Scalar::FloatingPoint(value) => {
            // An integer beyond the signed range is still exact.
            let number = match written.parse::<u64>() {
                Ok(value) => Some(value.into()),
                Err(_) => Number::from_f64(value.into_inner()),
            };
            match number {
                Some(number) => Value::Number(number, written),
                None => {
                    return Err(Flaw::new(
                        position,
                        format!("`{written}` is a number that JSON cannot hold"),
                        "put it in quotes if it is a text",
                    ));
                }
            }
        }
    })
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
