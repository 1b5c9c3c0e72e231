use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use serde_json::value::RawValue;

use super::{
    InvalidYaml,
    scalar::{self, NoJson, Scalar},
    tree::{DEEPEST, Entry, Node, Shared},
};

/// The one document of a text; none if it is empty. Merged maps have at most `most` fields in total.
pub(super) fn document(text: &str, most: usize) -> Result<Option<Shared>, InvalidYaml> {
    let mut builder = Builder {
        open: Vec::new(),
        anchors: HashMap::new(),
        merged: 0,
        most,
    };
    let mut found = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            InvalidYaml::at(*error.marker(), format!("this is not YAML: {}", error.info()))
        })?;
        // Skip a document without content, such as after a last `---`.
        let is_nothing = builder.open.is_empty() && is_nothing(&event);
        let Some(root) = builder.take(event, span)? else {
            continue;
        };
        if is_nothing {
            continue;
        }
        if found.replace(root).is_some() {
            return Err(InvalidYaml::at(
                span.start,
                "a second document ends here, and a request has one: send them one by one",
            ));
        }
    }
    Ok(found)
}

fn is_nothing(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, 0, None) if text.is_empty())
}

/// A list or map that is still open.
struct Open {
    start: Marker,
    anchor: usize,
    depth: usize,
    content: Content,
}

enum Content {
    List(Vec<Shared>),
    Map {
        entries: Vec<Entry>,
        keys: HashSet<Rc<str>>,
        /// The fields merged by `<<`, in order.
        merged: Vec<(Marker, Shared)>,
        next: Next,
    },
}

enum Next {
    Key,
    Value(Rc<str>),
    /// The value of `<<`.
    Merged,
}

struct Builder {
    open: Vec<Open>,
    /// The anchored values, by the parser's number.
    anchors: HashMap<usize, Shared>,
    /// The number of fields merged into maps.
    merged: usize,
    most: usize,
}

impl Builder {
    /// The whole document, when this event ends one.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<Option<Shared>, InvalidYaml> {
        let mark = span.start;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(&text, style, tag.as_deref(), mark)?;
                self.put_scalar(&text, scalar, anchor, mark)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(mark, anchor, tag.as_deref(), "seq", Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    keys: HashSet::new(),
                    merged: Vec::new(),
                    next: Next::Key,
                };
                self.open(mark, anchor, tag.as_deref(), "map", content)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                None => Ok(None),
                Some(open) => {
                    let (anchor, start) = (open.anchor, open.start);
                    let value = self.close(open)?;
                    self.put(value, anchor, start)
                }
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(value) => self.put(value.clone(), 0, mark),
                None => Err(InvalidYaml::at(
                    mark,
                    "this alias refers to a node that contains the alias",
                )),
            },
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(None)
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => Ok(None),
        }
    }

    fn open(
        &mut self,
        start: Marker,
        anchor: usize,
        tag: Option<&Tag>,
        usual: &str,
        content: Content,
    ) -> Result<Option<Shared>, InvalidYaml> {
        if let Some(tag) = tag
            && !(tag.is_yaml_core_schema() && tag.suffix == usual)
        {
            return Err(unknown_tag(tag, start));
        }
        if self.open.len() >= DEEPEST {
            return Err(too_deep(start));
        }
        if let Some(Open {
            content: Content::Map { next: Next::Key, .. },
            ..
        }) = self.open.last()
        {
            return Err(no_key(start));
        }
        self.open.push(Open {
            start,
            anchor,
            depth: 0,
            content,
        });
        Ok(None)
    }

    /// A scalar, possibly in the place of a key. A key is a string as written, whatever its type would be as a value.
    fn put_scalar(
        &mut self,
        text: &str,
        scalar: Scalar,
        anchor: usize,
        mark: Marker,
    ) -> Result<Option<Shared>, InvalidYaml> {
        if let Some(Open {
            content: Content::Map { keys, next, .. },
            ..
        }) = self.open.last_mut()
            && matches!(next, Next::Key)
        {
            let key: Rc<str> = match &scalar {
                Scalar::Merge => {
                    *next = Next::Merged;
                    return Ok(None);
                }
                Scalar::Null => return Err(no_key(mark)),
                Scalar::String(_) | Scalar::Number(_) | Scalar::Bool(_) => text.into(),
            };
            if !keys.insert(key.clone()) {
                return Err(InvalidYaml::at(
                    mark,
                    format!("duplicate key {key:?} in a map: remove one"),
                ));
            }
            if anchor != 0 {
                self.anchors.insert(anchor, leaf(&scalar, mark)?);
            }
            *next = Next::Value(key);
            return Ok(None);
        }
        self.put(leaf(&scalar, mark)?, anchor, mark)
    }

    fn put(&mut self, value: Shared, anchor: usize, mark: Marker) -> Result<Option<Shared>, InvalidYaml> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(value));
        };
        open.depth = open.depth.max(value.depth);
        match &mut open.content {
            Content::List(entries) => entries.push(value),
            Content::Map {
                entries,
                keys,
                merged,
                next,
            } => match std::mem::replace(next, Next::Key) {
                // An alias as a key.
                Next::Key => match &*value.node {
                    Node::Scalar(json) => {
                        let key: Rc<str> = text_of(json.get()).ok_or_else(|| no_key(mark))?.into();
                        if !keys.insert(key.clone()) {
                            return Err(no_key(mark));
                        }
                        *next = Next::Value(key);
                    }
                    Node::List(_) | Node::Map(_) => return Err(no_key(mark)),
                },
                Next::Value(key) => entries.push(Entry { key, value }),
                Next::Merged => merged.push((mark, value)),
            },
        }
        Ok(None)
    }

    fn close(&mut self, open: Open) -> Result<Shared, InvalidYaml> {
        let depth = open.depth + 1;
        // Aliases may nest deeper than the open lists and maps.
        if depth > DEEPEST {
            return Err(too_deep(open.start));
        }
        let node = match open.content {
            Content::List(entries) => Node::List(entries),
            Content::Map {
                mut entries,
                mut keys,
                merged,
                ..
            } => {
                for (mark, value) in merged {
                    self.merge(&mut entries, &mut keys, &value, mark, true)?;
                }
                Node::Map(entries)
            }
        };
        Ok(Shared {
            node: Rc::new(node),
            depth,
        })
    }

    /// The fields of a map, or of a list of maps, that are not there yet.
    fn merge(
        &mut self,
        entries: &mut Vec<Entry>,
        keys: &mut HashSet<Rc<str>>,
        value: &Shared,
        mark: Marker,
        may_be_list: bool,
    ) -> Result<(), InvalidYaml> {
        match &*value.node {
            Node::Map(fields) => {
                self.merged = self.merged.saturating_add(fields.len());
                if self.merged > self.most {
                    return Err(InvalidYaml::at(mark, "the maps that are merged are too large"));
                }
                for field in fields {
                    if keys.insert(field.key.clone()) {
                        entries.push(field.clone());
                    }
                }
                Ok(())
            }
            Node::List(maps) if may_be_list => {
                for map in maps {
                    self.merge(entries, keys, map, mark, false)?;
                }
                Ok(())
            }
            Node::List(_) | Node::Scalar(_) => Err(InvalidYaml::at(
                mark,
                "`<<` must be a map or a list of maps: write an alias of one",
            )),
        }
    }
}

fn leaf(scalar: &Scalar, mark: Marker) -> Result<Shared, InvalidYaml> {
    let json =
        RawValue::from_string(scalar.json()).map_err(|error| InvalidYaml::at(mark, error.to_string()))?;
    Ok(Shared {
        node: Rc::new(Node::Scalar(json)),
        depth: 0,
    })
}

/// The text of a scalar as a key.
fn text_of(json: &str) -> Option<String> {
    match serde_json::from_str(json) {
        Ok(serde_json::Value::String(text)) => Some(text),
        Ok(serde_json::Value::Null) | Err(_) => None,
        Ok(_) => Some(json.to_owned()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, mark: Marker) -> Result<Scalar, InvalidYaml> {
    let no_json = |NoJson| {
        InvalidYaml::at(
            mark,
            format!("`{text}` is a number that JSON cannot hold: put it in quotes if it is a string"),
        )
    };
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => scalar::plain(text).map_err(no_json),
            _ => Ok(Scalar::String(text.to_owned())),
        };
    };
    let misfit = || {
        InvalidYaml::at(
            mark,
            format!("`{text}` does not fit its tag `{tag}`: remove the tag"),
        )
    };
    if !tag.is_yaml_core_schema() {
        return Err(unknown_tag(tag, mark));
    }
    match tag.suffix.as_str() {
        "str" => Ok(Scalar::String(text.to_owned())),
        "null" => match scalar::plain(text) {
            Ok(Scalar::Null) => Ok(Scalar::Null),
            _ => Err(misfit()),
        },
        "bool" => scalar::boolean(text).map(Scalar::Bool).ok_or_else(misfit),
        "int" | "float" => match scalar::number(text).map_err(no_json)? {
            Some(json) if tag.suffix == "float" || !json.contains(['.', 'e']) => Ok(Scalar::Number(json)),
            _ => Err(misfit()),
        },
        _ => Err(unknown_tag(tag, mark)),
    }
}

fn unknown_tag(tag: &Tag, mark: Marker) -> InvalidYaml {
    InvalidYaml::at(mark, format!("JSON cannot represent the tag `{tag}`: remove it"))
}

fn no_key(mark: Marker) -> InvalidYaml {
    InvalidYaml::at(
        mark,
        "a key must be a string, a number, true or false, and unique in its map",
    )
}

fn too_deep(mark: Marker) -> InvalidYaml {
    InvalidYaml::at(
        mark,
        format!("it is nested deeper than {DEEPEST} levels: write it flatter"),
    )
}
