//! Reads YAML and JSON files, and reports all mistakes at once, each with its file, line and field path.
//!
//! A [`Document`] is a tree of values with positions. The methods of a [`Node`], which is one of these values, read it
//! as an expected type and report mistakes. [`Fields`] reads an object field by field, with these methods or with
//! [`readers`], and reports unknown fields.
//!
//! YAML is read as in kubectl: with the syntax and the scalars of go-yaml v2 (YAML 1.1: `on` and `yes` are true, `0644`
//! is 420), converted to JSON as sigs.k8s.io/yaml does. A duplicate key is a mistake. A file may have at most
//! [`LARGEST_FILE`] bytes, [`MAX_DOCUMENT_COUNT`] documents, [`MAX_VALUE_COUNT`] values and 64 levels of nesting, even
//! after aliases were expanded. Aliases may repeat each value at most 99 times on average.

mod emit;
mod events;
mod fields;
mod json;
mod mistake;
mod node;
pub mod readers;
mod scalar;
mod tabs;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::HashMap,
    fs::Metadata,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_watch::file;
use parking_lot::Mutex;
use serde_json::Value as Json;

pub(crate) use self::mistake::ValueLocation;
use self::tree::{Ambiguity, DocumentValue, Position, PositionedValue, SyntaxMistake, end_position};
pub use self::{
    emit::to_yaml,
    fields::Fields,
    mistake::{Location, Mistake, Mistakes, quoted},
    node::Node,
};

/// The maximum size of a file in bytes, 4 MiB. A definition has a few kilobytes.
pub const LARGEST_FILE: usize = 4 * 1024 * 1024;

/// The number of documents after which the reader pauses, so that other threads can run.
pub(crate) const PAUSE_INTERVAL: usize = 256;

/// The maximum number of documents in a file. Empty documents count as well.
pub const MAX_DOCUMENT_COUNT: usize = 16 * 1024;

/// The maximum number of values in a file, including keys and repetitions by aliases. A large definition has thousands.
pub const MAX_VALUE_COUNT: usize = 500_000;

/// The mark that some editors put at the beginning of a file.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// One of the documents in a YAML or JSON file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    /// The directory where relative paths in the document start; `None` if it must not contain relative paths.
    directory: Option<PathBuf>,
    syntax: DocumentSyntax,
    root: PositionedValue,
    ambiguities: Vec<Ambiguity>,
    text_cache: TextCache,
}

/// A cache of the files that documents refer to: the text of each, or why it cannot be read.
pub(crate) type TextCache = Arc<Mutex<HashMap<PathBuf, Result<String, Mistake>>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentSyntax {
    Yaml,
    Json,
}

impl Document {
    /// Returns the value of the whole document. Readers add the mistakes in it to `mistakes`.
    pub fn root<'m>(&'m self, mistakes: &'m mut Mistakes) -> Node<'m> {
        Node::root(self).reporting_to(mistakes)
    }

    /// Returns the value of the whole document. Mistakes that are found while it is read are not reported. For example,
    /// a document that was already checked is read in this way.
    pub fn root_ignoring_mistakes(&self) -> Node<'_> {
        Node::root(self)
    }

    /// Returns the location at which the document begins.
    pub fn location(&self) -> Location {
        self.location_at(self.root.position)
    }

    pub(crate) fn syntax(&self) -> DocumentSyntax {
        self.syntax
    }

    pub(crate) fn own_text<'t>(&self, text: &'t str, is_only: bool) -> &'t str {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        if is_only {
            return text;
        }
        let start = self.root.span.start;
        let parts = document_ranges(text);
        let own_part = parts.into_iter().rfind(|part| part.start <= start);
        own_part.and_then(|range| text.get(range)).unwrap_or(text)
    }

    /// Returns a copy of the document in which relative paths start in `directory`. If `directory` is `None`, a
    /// relative path in the document is a mistake.
    pub(crate) fn with_directory(&self, directory: Option<&Path>) -> Self {
        Self {
            directory: directory.map(Path::to_owned),
            ..self.clone()
        }
    }

    pub(crate) fn with_text_cache(self, texts: &TextCache) -> Self {
        Self {
            text_cache: texts.clone(),
            ..self
        }
    }

    fn location_at(&self, position: Position) -> Location {
        Location {
            file: self.file.clone(),
            line: position.line,
            column: position.column,
        }
    }
}

/// Replaces ranges of the text. If one range contains another because of aliases, only the larger range is replaced.
pub fn replace_ranges(text: &str, mut parts: Vec<(Range<usize>, String)>) -> String {
    parts.sort_by_key(|(part, _)| (part.start, Reverse(part.end)));
    let mut end = 0;
    parts.retain(|(part, _)| {
        let is_apart = part.start >= end;
        end = end.max(part.end);
        is_apart
    });
    // The ranges are replaced from the last to the first, so that the offsets of the earlier ranges stay valid.
    let mut replaced = text.to_owned();
    for (part, new) in parts.into_iter().rev() {
        replaced.replace_range(part, &new);
    }
    replaced
}

/// Splits a YAML text at the lines that begin with `---` or `...`.
fn document_ranges(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for line in text.split_inclusive('\n') {
        let end = offset + line.len();
        let marker = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        if let Some(rest) = marker.filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            parts.push(start..offset);
            let content = rest.trim_start();
            let is_blank = content.is_empty() || content.starts_with('#');
            start = if is_blank { end } else { end - content.len() };
        }
        offset = end;
    }
    parts.push(start..text.len());
    parts
}

/// Reads the documents in a file, except empty ones. `*.json` must be JSON; other files may be YAML or JSON. Relative
/// paths start in the file's directory.
///
/// If the file has a syntax error, only the documents before it are returned.
pub fn read_file(path: &Path, mistakes: &mut Mistakes) -> Vec<Document> {
    match read_file_text(path) {
        Ok((text, _)) => read_text_of(path, &text, mistakes),
        Err(mistake) => {
            mistakes.push(mistake);
            Vec::new()
        }
    }
}

pub(crate) fn read_file_text(path: &Path) -> Result<(String, Metadata), Mistake> {
    let name = path.display().to_string();
    let result = file::read_with_metadata(path, LARGEST_FILE as u64);
    let (bytes, metadata) = result.map_err(|error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            let message = format!("the file has more than {LARGEST_FILE} bytes");
            Mistake::of_file(&name, message, "split it")
        } else {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => "let this user read it",
                _ => "",
            };
            Mistake::of_file(&name, format!("the file cannot be read: {error}"), fix)
        }
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..end).unwrap_or_default();
        let before = String::from_utf8_lossy(before);
        let last = before.rsplit('\n').next().unwrap_or_default();
        Mistake {
            location: Location {
                file: name,
                line: saturating_u32(before.matches('\n').count() + 1),
                column: saturating_u32(last.chars().count() + 1),
            },
            path: String::new(),
            message: "the file is not UTF-8 from here on".to_owned(),
            fix: "save it as UTF-8".to_owned(),
        }
    })?;
    Ok((text, metadata))
}

/// Reads the documents in a text like [`read_file`] does in a file. Mistakes give `name` as the name of the file.
pub fn read_text(name: &str, text: &str, mistakes: &mut Mistakes) -> Vec<Document> {
    if text.len() > LARGEST_FILE {
        let message = format!("the text has more than {LARGEST_FILE} bytes");
        mistakes.push(Mistake::of_file(name, message, "split it"));
        return Vec::new();
    }
    read_text_of(Path::new(name), text, mistakes)
}

pub(crate) fn read_text_of(path: &Path, text: &str, mistakes: &mut Mistakes) -> Vec<Document> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let file = path.display().to_string();
    read_documents(Some(directory), file, is_named_json(path), text, mistakes)
}

/// Reads the only document of a file. It is a mistake if there is none, or more than one.
pub fn read_one(path: &Path, mistakes: &mut Mistakes) -> Option<Document> {
    let mistakes_before = mistakes.len();
    let documents = read_file(path, mistakes);
    if mistakes.len() > mistakes_before && documents.is_empty() {
        return None;
    }
    single_document(&path.display().to_string(), documents, mistakes)
}

/// Reads a value from the only document of a file. `read` must report a mistake before it returns `None`.
///
/// # Errors
///
/// Returns the mistakes in the file.
pub fn read_value<T>(path: &Path, read: impl FnOnce(&Node<'_>) -> Option<T>) -> Result<T, Mistakes> {
    let mut mistakes = Mistakes::new();
    let document = read_one(path, &mut mistakes);
    let value = document.and_then(|document| read(&document.root(&mut mistakes)));
    mistakes.into_result(value)?.ok_or_else(Mistakes::new)
}

/// Reads the value of a YAML or JSON text with a single document. Mistakes name the file `name`.
///
/// # Errors
///
/// Fails if the text has syntax errors, or does not contain exactly one document.
pub fn to_json(name: &str, text: &str) -> Result<Json, Mistakes> {
    let mut mistakes = Mistakes::new();
    let documents = read_text(name, text, &mut mistakes);
    let value = if mistakes.is_empty() {
        single_document(name, documents, &mut mistakes).map(|document| document.root_ignoring_mistakes().json())
    } else {
        None
    };
    mistakes.into_result(value.unwrap_or_default())
}

/// Converts a YAML text with a single document to JSON of at most `limit` bytes; returns `None` for an empty text. The
/// mistake names the file `name`.
///
/// # Errors
///
/// Fails if the text has syntax errors, contains several documents, or exceeds the limit as JSON.
pub fn yaml_to_json(name: &str, text: &str, limit: usize) -> Result<Option<Vec<u8>>, Mistake> {
    let mut flaws = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let trees = yaml::read(text, limit, &mut flaws);
    if let [_, (second, _), ..] = &*trees {
        flaws.push(SyntaxMistake::second_document(second.position));
    }
    // Serialising a tree to memory cannot fail.
    let json = trees.first().and_then(|(root, _)| serde_json::to_vec(root).ok());
    if json.as_ref().is_some_and(|json| json.len() > limit) {
        flaws.push(SyntaxMistake::too_large(Position { line: 1, column: 1 }, limit));
    }
    match flaws.into_iter().next() {
        Some(flaw) => Err(flaw.clamp_to(end_position(text)).into_mistake(name)),
        None => Ok(json),
    }
}

fn single_document(name: &str, documents: Vec<Document>, mistakes: &mut Mistakes) -> Option<Document> {
    let mut documents = documents.into_iter();
    let first = documents.next();
    match (&first, documents.next()) {
        (None, _) => mistakes.push(Mistake::of_file(name, "there is no document in it", "")),
        (Some(_), Some(second)) => {
            mistakes.push(SyntaxMistake::second_document(second.root.position).into_mistake(&second.file));
        }
        (Some(_), None) => {}
    }
    first
}

pub(crate) fn read_stored(path: &Path, text: &str, mistakes: &mut Mistakes) -> Vec<Document> {
    read_documents(None, path.display().to_string(), true, text, mistakes)
}

fn read_documents(
    directory: Option<&Path>,
    file: String,
    is_json: bool,
    text: &str,
    mistakes: &mut Mistakes,
) -> Vec<Document> {
    let mut flaws = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let (syntax, trees) = parse_trees(is_json, text, &mut flaws);
    let end = end_position(text);
    mistakes.extend(flaws.into_iter().map(|flaw| flaw.clamp_to(end).into_mistake(&file)));
    trees
        .into_iter()
        .map(|(root, ambiguities)| Document {
            file: file.clone(),
            directory: directory.map(Path::to_owned),
            syntax,
            root,
            ambiguities,
            text_cache: TextCache::default(),
        })
        .collect()
}

fn parse_trees(is_json: bool, text: &str, flaws: &mut Vec<SyntaxMistake>) -> (DocumentSyntax, Vec<yaml::YamlTree>) {
    // YAML lacks some of JSON's syntax, such as surrogate pairs of `\u` escapes, so JSON is not read as YAML.
    if is_json || text.trim_start().starts_with(['{', '[']) {
        let mut json_flaws = Vec::new();
        match json::read(text, &mut json_flaws) {
            Ok(root) => {
                flaws.append(&mut json_flaws);
                return (DocumentSyntax::Json, vec![(root, Vec::new())]);
            }
            Err(_) if is_json && text.trim().is_empty() => return (DocumentSyntax::Json, Vec::new()),
            Err(flaw) if is_json => {
                flaws.append(&mut json_flaws);
                flaws.push(flaw);
                return (DocumentSyntax::Json, Vec::new());
            }
            Err(_) => {}
        }
    }
    let mut trees = yaml::read(text, LARGEST_FILE, flaws);
    trees.retain(|(root, _)| !matches!(root.value, DocumentValue::Null));
    (DocumentSyntax::Yaml, trees)
}

pub(crate) fn is_named_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

fn saturating_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
