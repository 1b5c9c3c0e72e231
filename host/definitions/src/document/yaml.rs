//! YAML 1.2 with positions, from the parser's events.

use std::{borrow::Cow, ops::Range};

use saphyr::Scalar;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use serde_json::Number;

use super::{
    MOST_DOCUMENTS,
    tree::{DEEPEST, Entry, Flaw, MapBuilder, Position, Positioned, Value},
};

/// The trees of the documents in a YAML text. Empty documents are left out. A flaw that leaves no
/// tree ends the reading; the documents before it are there.
pub(super) fn read(text: &str, flaws: &mut Vec<Flaw>) -> Vec<Positioned> {
    let mut documents = Vec::new();
    let mut begun = 0_usize;
    let mut builder = Builder::new(text);
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
        if matches!(event, Event::DocumentStart(_)) {
            begun += 1;
            if begun > MOST_DOCUMENTS {
                flaws.push(Flaw::new(
                    position(span.start),
                    format!("the file has more than {MOST_DOCUMENTS} documents"),
                    "split it",
                ));
                break;
            }
        }
        match builder.take(event, span, flaws) {
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
        key: Option<(String, Position)>,
    },
}

struct Builder<'t> {
    text: &'t str,
    /// The byte offset of each character; `None` if the text is ASCII.
    offsets: Option<Vec<usize>>,
    open: Vec<Open>,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
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
        let position = position(span.start);
        match event {
            Event::Scalar(text, style, _, tag) => {
                let value = scalar(text, style, tag.as_ref(), position)?;
                let span = self.span_of_scalar(span);
                self.put(
                    Positioned {
                        position,
                        span,
                        value,
                    },
                    flaws,
                )
            }
            Event::SequenceStart(_, tag) => self.start(span, tag.as_ref(), Content::List(Vec::new())),
            Event::MappingStart(_, tag) => {
                let content = Content::Map {
                    map: MapBuilder::default(),
                    key: None,
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
                        Content::Map { map, .. } => map.finish(),
                    };
                    let value = Positioned {
                        position: open.position,
                        span: open.start..end,
                        value,
                    };
                    self.put(value, flaws)
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
        if let Some(Open {
            content: Content::Map { key: None, .. },
            ..
        }) = self.open.last()
        {
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
