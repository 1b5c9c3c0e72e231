//! Builds the trees of YAML documents from the events of the parser, so that values are the same as in kubectl.

use std::{borrow::Cow, ops::Range};

use admittance_admission::pause_between_items;
use granit_parser::{Event, Marker, ScalarStyle, Span, StructureStyle, Tag};

use super::{
    MAX_DOCUMENT_COUNT, PAUSE_INTERVAL,
    events::YamlEvents,
    scalar::{InvalidScalar, Scalar, differing_values, key_of_float, number_from_float, resolve},
    tabs,
    tree::{
        Ambiguity, DocumentValue, MAX_DEPTH, MapBuilder, Position, PositionedValue, SyntaxMistake, TreeEntry,
        end_position, join_path,
    },
};

/// The maximum number of reported ambiguities in one document.
const MOST_AMBIGUITIES: usize = 100;

pub(super) type YamlTree = (PositionedValue, Vec<Ambiguity>);

/// Reads the documents of a YAML text up to its first syntax error. Aliases may repeat at most `limit` bytes.
pub(super) fn read(text: &str, limit: usize, flaws: &mut Vec<SyntaxMistake>) -> Vec<YamlTree> {
    let mut documents = Vec::new();
    if let Err(flaw) = read_into(&mut documents, &tabs::as_spaces(text), limit, flaws) {
        flaws.push(flaw);
    }
    documents
}

fn read_into(
    documents: &mut Vec<YamlTree>,
    text: &str,
    limit: usize,
    flaws: &mut Vec<SyntaxMistake>,
) -> Result<(), SyntaxMistake> {
    let mut document_count = 0_usize;
    let mut events = YamlEvents::new(text, limit);
    let mut builder = Builder {
        text,
        end_of_text: end_position(text),
        open_collections: Vec::new(),
        ambiguities: Vec::new(),
    };
    while let Some((event, span)) = events.next()? {
        if matches!(event, Event::DocumentStart(..)) {
            pause_between_items(document_count, PAUSE_INTERVAL);
            document_count += 1;
            if document_count > MAX_DOCUMENT_COUNT {
                return Err(SyntaxMistake::new(
                    marker_position(span.start),
                    format!("the file has more than {MAX_DOCUMENT_COUNT} documents"),
                    "split it",
                ));
            }
        }
        if let Some(document) = builder.take_event(event, span, flaws)? {
            let ambiguities = std::mem::take(&mut builder.ambiguities);
            if !document.span.is_empty() {
                documents.push((document, ambiguities));
            }
        }
    }
    Ok(())
}

pub(super) fn marker_position(mark: Marker) -> Position {
    Position {
        line: u32::try_from(mark.line()).unwrap_or(u32::MAX),
        column: u32::try_from(mark.col() + 1).unwrap_or(u32::MAX),
    }
}

struct OpenCollection {
    position: Position,
    start: usize,
    /// The offset at which the last value that was added to the collection ends.
    end: usize,
    style: StructureStyle,
    content: NodeContent,
}

enum NodeContent {
    List(Vec<PositionedValue>),
    Map {
        map: MapBuilder,
        /// A key that has been read, while its value has not been read yet.
        key: Option<YamlKey>,
    },
}

enum YamlKey {
    Field(String, Position),
    Merge,
}

struct Builder<'t> {
    text: &'t str,
    end_of_text: Position,
    open_collections: Vec<OpenCollection>,
    ambiguities: Vec<Ambiguity>,
}

impl Builder<'_> {
    fn take_event(
        &mut self,
        event: Event<'_>,
        span: Span,
        flaws: &mut Vec<SyntaxMistake>,
    ) -> Result<Option<PositionedValue>, SyntaxMistake> {
        match event {
            Event::Scalar(text, style, _, tag) => self.scalar(text, style, tag.as_deref(), span, flaws),
            Event::SequenceStart(style, ..) => self.open_collection(span, style, NodeContent::List(Vec::new())),
            Event::MappingStart(style, ..) => {
                let (map, key) = Default::default();
                self.open_collection(span, style, NodeContent::Map { map, key })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open_collections.pop() {
                None => Ok(None),
                Some(open) => {
                    let end = match open.style {
                        StructureStyle::Block => open.end,
                        StructureStyle::Flow => byte_range(span).end,
                    };
                    let value = PositionedValue {
                        position: open.position,
                        span: open.start..end,
                        value: match open.content {
                            NodeContent::List(entries) => DocumentValue::List(entries),
                            NodeContent::Map { map, .. } => map.finish(),
                        },
                    };
                    self.put(value, flaws)
                }
            },
            // The parser's next events repeat the node to which the alias refers, with the spans that this node has in
            // the text. If the alias is the last value of a list or map, these spans do not tell where the list or map
            // ends. The span of the alias does.
            Event::Alias(_) => {
                self.extend(byte_range(span).end);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn extend(&mut self, end: usize) {
        if let Some(open) = self.open_collections.last_mut() {
            open.end = open.end.max(end);
        }
    }

    /// Removes trailing white space from a value's range. The parser includes the line breaks after a block scalar.
    fn without_space(&self, span: Range<usize>) -> Range<usize> {
        let trimmed_text = self.text.get(span.clone()).unwrap_or_default().trim_end();
        span.start..span.start + trimmed_text.len()
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: Span,
        flaws: &mut Vec<SyntaxMistake>,
    ) -> Result<Option<PositionedValue>, SyntaxMistake> {
        let position = marker_position(span.start).min(self.end_of_text);
        let span = self.without_space(byte_range(span));
        let is_plain = style == ScalarStyle::Plain;
        let scalar = resolve(&text, is_plain, tag).map_err(|error| scalar_mistake(error, &text, tag, position))?;
        self.extend(span.end);
        let is_key = self.missing_key().is_some();
        if is_plain
            && tag.is_none()
            && self.ambiguities.len() < MOST_AMBIGUITIES
            && let Some((read, other)) = differing_values(&text, &scalar)
        {
            let path = self.path(is_key.then_some(&*text));
            let ambiguity = Ambiguity::new(position, path, &text, &read, &other);
            self.ambiguities.push(ambiguity);
        }
        if let Some(key) = self.missing_key() {
            *key = Some(match scalar {
                Scalar::Null => return Err(key_type_mistake(position)),
                Scalar::Merge => YamlKey::Merge,
                Scalar::Bool(value) => YamlKey::Field(value.to_string(), position),
                Scalar::Integer(number) => YamlKey::Field(number.to_string(), position),
                Scalar::Float(number) => YamlKey::Field(key_of_float(number), position),
                Scalar::Binary(content) => YamlKey::Field(content, position),
                Scalar::String => YamlKey::Field(text.into_owned(), position),
            });
            return Ok(None);
        }
        let value = match scalar {
            Scalar::Null => DocumentValue::Null,
            Scalar::Bool(value) => DocumentValue::Bool(value, text.into_owned()),
            Scalar::Integer(number) => DocumentValue::Number(number, text.into_owned()),
            Scalar::Float(number) => {
                let number = number_from_float(number)
                    .ok_or_else(|| scalar_mistake(InvalidScalar::Number, &text, tag, position))?;
                DocumentValue::Number(number, text.into_owned())
            }
            Scalar::Binary(content) => DocumentValue::String(content),
            Scalar::String | Scalar::Merge => DocumentValue::String(text.into_owned()),
        };
        let value = PositionedValue { position, span, value };
        self.put(value, flaws)
    }

    fn open_collection(
        &mut self,
        span: Span,
        style: StructureStyle,
        content: NodeContent,
    ) -> Result<Option<PositionedValue>, SyntaxMistake> {
        let position = marker_position(span.start);
        if self.open_collections.len() >= MAX_DEPTH {
            return Err(SyntaxMistake::too_deep(position));
        }
        if self.missing_key().is_some() {
            return Err(key_type_mistake(position));
        }
        let Range { start, end } = byte_range(span);
        self.open_collections.push(OpenCollection {
            position,
            start,
            end,
            style,
            content,
        });
        Ok(None)
    }

    fn put(
        &mut self,
        value: PositionedValue,
        flaws: &mut Vec<SyntaxMistake>,
    ) -> Result<Option<PositionedValue>, SyntaxMistake> {
        let Some(open) = self.open_collections.last_mut() else {
            return Ok(Some(value));
        };
        open.end = open.end.max(value.span.end);
        match &mut open.content {
            NodeContent::List(entries) => entries.push(value),
            NodeContent::Map { map, key } => match key.take() {
                None => return Err(key_type_mistake(value.position)),
                Some(YamlKey::Merge) => merge(map, value, true)?,
                Some(YamlKey::Field(key, key_position)) => {
                    let entry = TreeEntry {
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

    /// Returns the place for the next key if the innermost open collection is a map that waits for a key. Returns
    /// `None` if it is a list, or a map that waits for the value of a key.
    fn missing_key(&mut self) -> Option<&mut Option<YamlKey>> {
        match &mut self.open_collections.last_mut()?.content {
            NodeContent::Map { key, .. } if key.is_none() => Some(key),
            NodeContent::Map { .. } | NodeContent::List(_) => None,
        }
    }

    fn path(&self, key: Option<&str>) -> String {
        let path = self
            .open_collections
            .iter()
            .fold(String::new(), |path, open| match &open.content {
                NodeContent::List(entries) => format!("{path}[{}]", entries.len()),
                NodeContent::Map {
                    key: Some(YamlKey::Field(key, _)),
                    ..
                } => join_path(&path, key),
                NodeContent::Map { .. } => path,
            });
        key.map_or_else(|| path.clone(), |key| join_path(&path, key))
    }
}

fn byte_range(span: Span) -> Range<usize> {
    span.byte_range().unwrap_or_default()
}

/// Merges `value` into `map`, as the YAML key `<<` demands. `value` is a map, or a list of maps that are all merged. As
/// in go-yaml v2, a merged field replaces an earlier field of the same name, even one that is written in `map` itself.
fn merge(map: &mut MapBuilder, value: PositionedValue, may_be_list: bool) -> Result<(), SyntaxMistake> {
    match value.value {
        DocumentValue::Map(entries) => map.merge(entries),
        DocumentValue::List(maps) if may_be_list => {
            for entries in maps.into_iter().rev() {
                merge(map, entries, false)?;
            }
        }
        _ => {
            return Err(SyntaxMistake::new(
                value.position,
                "`<<` must be a map or a list of maps",
                "write an alias of one",
            ));
        }
    }
    Ok(())
}

fn scalar_mistake(error: InvalidScalar, text: &str, tag: Option<&Tag>, position: Position) -> SyntaxMistake {
    match error {
        InvalidScalar::Tag => {
            let tag = tag.and_then(Tag::core_suffix).unwrap_or_default();
            let message = format!("`{text}` does not fit its tag `!!{tag}`");
            SyntaxMistake::new(position, message, "remove the tag")
        }
        InvalidScalar::Number => {
            let message = format!("`{text}` is a number that JSON cannot hold");
            SyntaxMistake::new(position, message, "put it in quotes if it is a text")
        }
    }
}

fn key_type_mistake(position: Position) -> SyntaxMistake {
    SyntaxMistake::new(position, "the name of a field must be a text", "write `name: value`")
}
