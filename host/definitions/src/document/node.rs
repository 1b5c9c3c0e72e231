mod values;

use std::{
    cell::Cell,
    ops::Range,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;

use super::{
    Document, Fields, Location, Mistake, Mistakes, ValueLocation, read_file_text, read_value,
    tree::{DocumentValue, Position, PositionedValue, join_path},
};

/// A value in a document. The methods that read it return `None` if it is wrong, after reporting a mistake.
///
/// Mistakes are added to the list that was passed to [`Document::root`], or later to
/// [`reporting_to`](Self::reporting_to). Without such a list, mistakes are ignored.
#[derive(Clone, derive_more::Debug)]
#[debug("Node {{ path: {path:?}, value: {value:?}, .. }}")]
pub struct Node<'a> {
    document: &'a Document,
    mistakes: Option<&'a Cell<Mistakes>>,
    path: String,
    pub(super) value: &'a PositionedValue,
}

impl<'a> Node<'a> {
    pub(super) fn root(document: &'a Document) -> Self {
        Self {
            document,
            mistakes: None,
            path: String::new(),
            value: &document.root,
        }
    }

    /// Returns a copy of the node that reports mistakes: every mistake that is found when the copy or a part of it is
    /// read is added to `mistakes`.
    #[must_use]
    pub fn reporting_to<'m>(&self, mistakes: &'m mut Mistakes) -> Node<'m>
    where
        'a: 'm,
    {
        Node {
            mistakes: Some(Cell::from_mut(mistakes)),
            ..self.clone()
        }
    }

    /// Returns the node without a list of mistakes: reading it or its parts reports nothing.
    #[must_use]
    pub(crate) fn ignoring_mistakes(&self) -> Self {
        Self {
            mistakes: None,
            ..self.clone()
        }
    }

    pub(super) fn field(&self, key: &str, value: &'a PositionedValue) -> Self {
        Self {
            path: self.path_of(key),
            value,
            ..*self
        }
    }

    /// Returns the position of the value in its file.
    pub fn location(&self) -> Location {
        self.document.location_at(self.value.position)
    }

    /// Returns the path of the value in its document, such as `spec.stages[0].name`; empty for the whole document.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn value_location(&self) -> ValueLocation {
        ValueLocation {
            location: self.location(),
            path: self.path.clone(),
        }
    }

    pub(crate) fn mistake(&self, message: impl Into<String>, fix: impl Into<String>) -> Mistake {
        self.mistake_at(self.position(), self.path.clone(), message, fix)
    }

    /// Reports a mistake about this value. `fix` tells what to do, and may be empty.
    pub fn add_mistake(&self, message: impl Into<String>, fix: impl Into<String>) {
        self.report(self.mistake(message, fix));
    }

    /// Reports a mistake like [`add_mistake`](Self::add_mistake), and returns `None` as the result of a reader.
    pub fn reject<T>(&self, message: impl Into<String>, fix: impl Into<String>) -> Option<T> {
        self.add_mistake(message, fix);
        None
    }

    /// Adds this mistake to the node's list.
    pub fn report(&self, mistake: Mistake) {
        if let Some(cell) = self.mistakes {
            let mut mistakes = cell.take();
            mistakes.push(mistake);
            cell.set(mistakes);
        }
    }

    /// Returns the number of mistakes in the node's list. Nodes that share the list add their mistakes to it too.
    pub fn mistake_count(&self) -> usize {
        self.mistakes.map_or(0, |cell| {
            let mistakes = cell.take();
            let count = mistakes.len();
            cell.set(mistakes);
            count
        })
    }

    /// Returns whether the value is `null`, or omitted as in `key:`.
    pub fn is_null(&self) -> bool {
        matches!(self.value.value, DocumentValue::Null)
    }

    /// Reads an object with case-sensitive field names.
    pub fn object(&self) -> Option<Fields<'a>> {
        self.fields(false)
    }

    /// Reads an object, and matches the names of fields without regard to case, as Go's JSON decoder does.
    pub fn object_of_any_case(&self) -> Option<Fields<'a>> {
        self.fields(true)
    }

    fn fields(&self, any_case: bool) -> Option<Fields<'a>> {
        match &self.value.value {
            DocumentValue::Map(entries) => Some(Fields::new(self.clone(), entries, any_case)),
            _ => self.reject_type("an object", "write `field: value`"),
        }
    }

    fn entries(&self, entries: &'a [PositionedValue]) -> impl Iterator<Item = Self> {
        entries.iter().enumerate().map(|(index, value)| Self {
            path: format!("{}[{index}]", self.path),
            value,
            ..*self
        })
    }

    /// Reads a string as a path. A relative path starts in the directory of the document's file.
    pub fn file_path(&self) -> Option<PathBuf> {
        self.text().map(|path| self.resolve_path(path))
    }

    /// Reads a value from the file at `path`, which must have a single document. Reports the mistakes in that file.
    pub fn read_in_file<T>(&self, path: &Path, read: impl FnOnce(&Node<'_>) -> Option<T>) -> Option<T> {
        self.accept_read(read_value(path, read))
    }

    /// Returns the value that was read from another file. If the file has mistakes, reports them and returns `None`.
    pub fn accept_read<T>(&self, result: Result<T, Mistakes>) -> Option<T> {
        result
            .map_err(|mistakes| mistakes.into_iter().for_each(|mistake| self.report(mistake)))
            .ok()
    }

    /// Resolves a path. Relative paths start in the directory of the document's file.
    pub fn resolve_path(&self, path: impl AsRef<Path>) -> PathBuf {
        match &self.document.directory {
            Some(directory) => directory.join(path),
            None => path.as_ref().to_owned(),
        }
    }

    /// Returns the text of the file at `path`. Documents that are read together get the same version of the file.
    pub(crate) fn file_text(&self, path: &Path) -> Result<String, Mistake> {
        let mut texts = self.document.text_cache.lock();
        let text = texts
            .entry(path.to_owned())
            .or_insert_with(|| read_file_text(path).map(|(text, _)| text));
        text.clone()
    }

    pub(crate) fn is_in_directory(&self) -> bool {
        self.document.directory.is_some()
    }

    /// Returns the values directly inside this value: the fields of an object with their keys, or the items of a list.
    pub fn children(&self) -> Vec<(Option<&'a str>, Node<'a>)> {
        match &self.value.value {
            DocumentValue::Map(entries) => entries
                .iter()
                .map(|entry| (Some(entry.key.as_str()), self.field(&entry.key, &entry.value)))
                .collect(),
            DocumentValue::List(entries) => self.entries(entries).map(|entry| (None, entry)).collect(),
            DocumentValue::Null | DocumentValue::Bool(..) | DocumentValue::Number(..) | DocumentValue::String(_) => {
                Vec::new()
            }
        }
    }

    /// Returns the field with this key, or the item with this index if the value is a list. Case is ignored if no key
    /// matches exactly, because BCS documents may spell keys in any case.
    pub fn child(&self, key: &str) -> Option<Self> {
        let children = self.children();
        let exact = children.iter().find(|(name, _)| *name == Some(key));
        let any_case = || {
            let is_key = |name: &str| name.eq_ignore_ascii_case(key);
            children.iter().find(|(name, _)| name.is_some_and(is_key))
        };
        let index = || {
            let entry = children.get(key.parse::<usize>().ok()?)?;
            entry.0.is_none().then_some(entry)
        };
        let child = exact.or_else(any_case).or_else(index);
        child.map(|(_, node)| node.clone())
    }

    /// Returns the object that begins at this location: the value itself, or an object inside it.
    pub fn object_at(&self, location: &Location) -> Option<Self> {
        if matches!(self.value.value, DocumentValue::Map(_)) && self.location() == *location {
            return Some(self.clone());
        }
        let mut children = self.children().into_iter();
        children.find_map(|(_, child)| child.object_at(location))
    }

    /// Returns the byte range of the value in the text of its file, counted without a byte order mark.
    pub fn span(&self) -> Range<usize> {
        self.value.span.clone()
    }

    /// Returns the value as JSON.
    pub fn json(&self) -> Json {
        // Serialising a tree to memory cannot fail.
        serde_json::to_value(self.value).unwrap_or_default()
    }

    pub(super) fn position(&self) -> Position {
        self.value.position
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        join_path(&self.path, key)
    }

    /// Returns a warning, with both values, for each scalar that has different values in YAML 1.1 and YAML 1.2.
    pub fn ambiguities(&self) -> Vec<Mistake> {
        let is_here = |path: &str| {
            let rest = path.strip_prefix(&*self.path);
            rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let ambiguities = self.document.ambiguities.iter();
        ambiguities
            .filter(|ambiguity| is_here(&ambiguity.path))
            .map(|ambiguity| {
                self.mistake_at(
                    ambiguity.position,
                    ambiguity.path.clone(),
                    &ambiguity.message,
                    &ambiguity.fix,
                )
            })
            .collect()
    }

    pub(super) fn mistake_at(
        &self,
        position: Position,
        path: String,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Mistake {
        Mistake::new(&self.document.location_at(position), path, message, fix)
    }
}
