mod values;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;

use super::{
    Document, Fields, Location, Mistake, Mistakes, ValueLocation, text_of,
    tree::{Position, Positioned, Value, join},
};

/// A value in a document. Methods that read it return `None` after they have added a mistake.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    document: &'a Document,
    path: String,
    pub(super) value: &'a Positioned,
}

impl<'a> Node<'a> {
    pub(super) fn root(document: &'a Document) -> Self {
        Self {
            document,
            path: String::new(),
            value: &document.root,
        }
    }

    pub(super) fn field(&self, key: &str, value: &'a Positioned) -> Self {
        Self {
            document: self.document,
            path: self.path_of(key),
            value,
        }
    }

    /// Returns the position of the value in its file.
    pub fn location(&self) -> Location {
        self.document.at(self.value.position)
    }

    /// Returns the path of the value in its document: `spec.stages[0].name`; empty for the document as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn value_location(&self) -> ValueLocation {
        ValueLocation {
            location: self.location(),
            path: self.path.clone(),
        }
    }

    /// Creates a mistake about this value: the message, and what to do (may be empty).
    pub(crate) fn mistake(&self, message: impl Into<String>, fix: impl Into<String>) -> Mistake {
        self.mistake_at(self.position(), self.path.clone(), message, fix)
    }

    /// Adds a mistake about this value: the message, and what to do (may be empty).
    pub fn wrong(&self, message: impl Into<String>, fix: impl Into<String>, mistakes: &mut Mistakes) {
        mistakes.push(self.mistake(message, fix));
    }

    /// Returns whether the value is `null` or omitted.
    pub fn is_null(&self) -> bool {
        matches!(self.value.value, Value::Null)
    }

    /// Reads an object, whose field names are case-sensitive.
    pub fn object(&self, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        self.fields(false, mistakes)
    }

    /// Reads an object, whose field names may be written in any case, as Go's JSON decoder accepts them.
    pub fn object_of_any_case(&self, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        self.fields(true, mistakes)
    }

    fn fields(&self, any_case: bool, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        match &self.value.value {
            Value::Map(entries) => Some(Fields::new(self.clone(), entries, any_case)),
            _ => self.expected("an object", "write `field: value`", mistakes),
        }
    }

    fn entries(&self, entries: &'a [Positioned]) -> impl Iterator<Item = Self> {
        entries.iter().enumerate().map(|(index, value)| Self {
            document: self.document,
            path: format!("{}[{index}]", self.path),
            value,
        })
    }

    /// Reads a path. A relative one starts in the directory of the document's file.
    pub fn file(&self, mistakes: &mut Mistakes) -> Option<PathBuf> {
        self.text(mistakes).map(|path| self.beside(path))
    }

    /// Resolves a path. A relative one starts in the directory of the document's file.
    pub fn beside(&self, path: impl AsRef<Path>) -> PathBuf {
        match &self.document.directory {
            Some(directory) => directory.join(path),
            None => path.as_ref().to_owned(),
        }
    }

    /// Returns the text of a file that the document names. All documents that are read together see the same version of it,
    /// even if it changes meanwhile.
    pub(crate) fn text_of(&self, path: &Path) -> Result<String, Mistake> {
        let mut texts = self.document.texts.lock();
        let text = texts
            .entry(path.to_owned())
            .or_insert_with(|| text_of(path).map(|(text, _)| text));
        text.clone()
    }

    /// Returns whether the document may contain relative paths.
    pub(crate) fn is_in_directory(&self) -> bool {
        self.document.directory.is_some()
    }

    /// Returns the parts of a value of any type: the values of an object with their keys, or the items of a list.
    pub fn children(&self) -> Vec<(Option<&'a str>, Node<'a>)> {
        match &self.value.value {
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (Some(entry.key.as_str()), self.field(&entry.key, &entry.value)))
                .collect(),
            Value::List(entries) => self.entries(entries).map(|entry| (None, entry)).collect(),
            Value::Null | Value::Bool(..) | Value::Number(..) | Value::String(_) => Vec::new(),
        }
    }

    /// Returns the object that begins at this location: the value itself, or an object in it.
    pub fn object_at(&self, location: &Location) -> Option<Self> {
        if matches!(self.value.value, Value::Map(_)) && self.location() == *location {
            return Some(self.clone());
        }
        let mut children = self.children().into_iter();
        children.find_map(|(_, child)| child.object_at(location))
    }

    /// Returns the byte range of the value in its text, counted after a byte order mark.
    pub fn span(&self) -> Range<usize> {
        self.value.span.clone()
    }

    /// Returns the value as JSON.
    pub fn json(&self) -> Json {
        // Serializing a tree to memory does not fail.
        serde_json::to_value(self.value).unwrap_or_default()
    }

    pub(super) fn position(&self) -> Position {
        self.value.position
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Returns a warning for each scalar in the value that YAML 1.2 reads differently, with both readings.
    pub fn ambiguities(&self) -> Vec<Mistake> {
        let is_here = |path: &str| {
            let rest = path.strip_prefix(&*self.path);
            rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let ambiguities = self.document.ambiguities.iter();
        ambiguities
            .filter(|found| is_here(&found.path))
            .map(|found| self.mistake_at(found.position, found.path.clone(), &found.message, &found.fix))
            .collect()
    }

    pub(super) fn mistake_at(
        &self,
        position: Position,
        path: String,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Mistake {
        Mistake::new(&self.document.at(position), path, message, fix)
    }
}
