use std::{
    collections::BTreeMap,
    fmt,
    ops::{Range, RangeInclusive},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use admittance_admission::Word;
use serde_json::{Map, Value as Json};

use super::{
    Document, Fields, Location, Mistake, Mistakes,
    fields::closest,
    mistake::quoted,
    text_of,
    tree::{Position, Positioned, Value, join},
};

/// A value in a document. All read methods return `None` after they have pushed a mistake.
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

    /// Returns the place of the value.
    pub fn location(&self) -> Location {
        self.document.at(self.value.position)
    }

    /// The path of it: `spec.stages[0].name`; empty for the document as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Pushes a mistake at this place: the message, and what to do (may be empty).
    pub fn wrong(&self, message: impl Into<String>, fix: impl Into<String>, mistakes: &mut Mistakes) {
        mistakes.push(self.mistake_at(self.position(), self.path.clone(), message, fix));
    }

    /// Whether nothing is written there.
    pub fn is_null(&self) -> bool {
        matches!(self.value.value, Value::Null)
    }

    /// Reads an object, whose fields have exactly these names.
    pub fn object(&self, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        self.fields(false, mistakes)
    }

    /// An object, whose fields may be written in any case, as Go's JSON decoder has it.
    pub fn object_of_any_case(&self, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        self.fields(true, mistakes)
    }

    fn fields(&self, any_case: bool, mistakes: &mut Mistakes) -> Option<Fields<'a>> {
        match &self.value.value {
            Value::Map(entries) => Some(Fields::new(self.clone(), entries, any_case)),
            _ => self.expected("an object", "write `field: value`", mistakes),
        }
    }

    /// Reads a list.
    pub fn list(&self, mistakes: &mut Mistakes) -> Option<Vec<Node<'a>>> {
        let Value::List(entries) = &self.value.value else {
            let fix = match self.as_written() {
                Some(text) => format!("write [{text}]"),
                None => String::new(),
            };
            return self.expected("a list", fix, mistakes);
        };
        Some(self.entries(entries).collect())
    }

    fn entries(&self, entries: &'a [Positioned]) -> impl Iterator<Item = Self> {
        entries.iter().enumerate().map(|(index, value)| Self {
            document: self.document,
            path: format!("{}[{index}]", self.path),
            value,
        })
    }

    /// A list with at least one entry. `fix` says what to list.
    pub fn filled_list(&self, fix: &str, mistakes: &mut Mistakes) -> Option<Vec<Node<'a>>> {
        let entries = self.list(mistakes)?;
        if entries.is_empty() {
            self.wrong("the list is empty", fix, mistakes);
            return None;
        }
        Some(entries)
    }

    /// A list whose entries are read by `read`; `None` if one is invalid. All are read, so that all mistakes are
    /// reported.
    pub fn list_of<T>(
        &self,
        read: impl FnMut(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<T>> {
        read_each(&self.list(mistakes)?, read, mistakes)
    }

    /// Like [`list_of`](Self::list_of), with at least one entry. `fix` says what to list.
    pub fn filled_list_of<T>(
        &self,
        fix: &str,
        read: impl FnMut(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<T>> {
        read_each(&self.filled_list(fix, mistakes)?, read, mistakes)
    }

    /// A list of different words, with at least one. `fix` says what to list, and `twice` that a word is there twice.
    pub fn different_words<W: Word>(
        &self,
        fix: &str,
        twice: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<W>> {
        let mut words = Vec::new();
        for entry in self.filled_list(fix, mistakes)? {
            let Some(word) = entry.word(mistakes) else {
                continue;
            };
            if words.contains(&word) {
                entry.wrong(twice, "remove one of them", mistakes);
            } else {
                words.push(word);
            }
        }
        Some(words)
    }

    /// A list of strings. Other entries are reported and left out.
    pub fn strings(&self, mistakes: &mut Mistakes) -> Option<Vec<String>> {
        let entries = self.list(mistakes)?;
        Some(
            entries
                .iter()
                .filter_map(|entry| entry.string(mistakes).map(str::to_owned))
                .collect(),
        )
    }

    /// A string, perhaps empty.
    pub fn string(&self, mistakes: &mut Mistakes) -> Option<&'a str> {
        match &self.value.value {
            Value::String(text) => Some(text),
            Value::Bool(_, written) | Value::Number(_, written) => {
                self.expected("a string", format!("put it in quotes: \"{written}\""), mistakes)
            }
            _ => self.expected("a string", "", mistakes),
        }
    }

    /// A string that is not empty.
    pub fn text(&self, mistakes: &mut Mistakes) -> Option<&'a str> {
        let text = self.string(mistakes)?;
        if text.is_empty() {
            self.wrong("empty", "write a value or remove the field", mistakes);
            return None;
        }
        Some(text)
    }

    /// `true` or `false`.
    pub fn boolean(&self, mistakes: &mut Mistakes) -> Option<bool> {
        match &self.value.value {
            Value::Bool(value, _) => Some(*value),
            _ => self.expected("true or false", "", mistakes),
        }
    }

    /// A whole number in this range.
    pub fn integer<T>(&self, range: RangeInclusive<T>, mistakes: &mut Mistakes) -> Option<T>
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let fix = || format!("write {} to {}", range.start(), range.end());
        let Value::Number(number, written) = &self.value.value else {
            return self.expected("a whole number", fix(), mistakes);
        };
        let value = number.as_i64().and_then(|number| T::try_from(number).ok());
        match value.filter(|value| range.contains(value)) {
            Some(value) => Some(value),
            None if number.is_f64() => {
                self.wrong(format!("{written} is not a whole number"), fix(), mistakes);
                None
            }
            None => {
                self.wrong(format!("{written} is out of range"), fix(), mistakes);
                None
            }
        }
    }

    /// A duration with its unit in this range: `250ms`, `1s`, `1m 30s`.
    pub fn duration(&self, range: RangeInclusive<Duration>, mistakes: &mut Mistakes) -> Option<Duration> {
        let fix = || {
            let [least, most] = [*range.start(), *range.end()].map(humantime::format_duration);
            format!("write {least} to {most}")
        };
        let text = match &self.value.value {
            Value::String(text) => text,
            Value::Number(number, written) if number.is_u64() => {
                let message = format!("{written} has no unit");
                self.wrong(message, format!("write {number}ms or {number}s"), mistakes);
                return None;
            }
            _ => return self.expected("a duration", "write one with its unit, `250ms` or `1s`", mistakes),
        };
        match humantime::parse_duration(text) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => {
                self.wrong(format!("{text} is out of range"), fix(), mistakes);
                None
            }
            Err(_) => {
                let message = format!("{text} is not a valid duration", text = quoted(text));
                self.wrong(message, "write a number and its unit, `250ms` or `1s`", mistakes);
                None
            }
        }
    }

    /// A count of bytes in this range: `64MiB`, `1GB`, `4096`.
    pub fn size(&self, range: RangeInclusive<u64>, mistakes: &mut Mistakes) -> Option<u64> {
        let written = match &self.value.value {
            Value::String(text) => text,
            Value::Number(number, written) => {
                &number.as_u64().map_or(written.clone(), |size| size.to_string())
            }
            _ => return self.expected("a size", "write one with its unit, `64MiB`", mistakes),
        };
        let Ok(size) = written.parse::<bytesize::ByteSize>() else {
            let message = format!("{written} is not a valid size", written = quoted(written));
            self.wrong(message, "write a number and its unit, `64MiB`", mistakes);
            return None;
        };
        if range.contains(&size.as_u64()) {
            return Some(size.as_u64());
        }
        let [least, most] = [*range.start(), *range.end()].map(|size| {
            // The library writes `64.0 MiB`, and a whole number reads better.
            let text = bytesize::ByteSize(size).display().iec().to_string();
            text.replace(".0 ", "").replace(' ', "")
        });
        self.wrong(
            format!("{written} is out of range"),
            format!("write {least} to {most}"),
            mistakes,
        );
        None
    }

    /// One of the words of this set, case-sensitive.
    pub fn word<W: Word>(&self, mistakes: &mut Mistakes) -> Option<W> {
        self.one_of(W::WHAT, W::WORDS, mistakes)
    }

    /// One of these words, case-sensitive. `what` describes them in messages: `failure policy`.
    pub fn one_of<T: Copy>(&self, what: &str, words: &[(&str, T)], mistakes: &mut Mistakes) -> Option<T> {
        self.one_that(what, words, |text, word| text == word, mistakes)
    }

    /// One of these words, in any case.
    pub fn one_of_any_case<T: Copy>(
        &self,
        what: &str,
        words: &[(&str, T)],
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        self.one_that(what, words, str::eq_ignore_ascii_case, mistakes)
    }

    fn one_that<T: Copy>(
        &self,
        what: &str,
        words: &[(&str, T)],
        is: impl Fn(&str, &str) -> bool,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let Value::String(text) = &self.value.value else {
            let fix = format!("write {}", either(names()));
            return self.expected(&format!("a {what}"), fix, mistakes);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| is(text, word)) {
            return Some(*value);
        }
        let fix = match names().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => format!("case matters: write {word}"),
            None => match closest(text, names()) {
                Some(word) if words.len() > 4 => format!("did you mean {word}?"),
                _ => format!("write {}", either(names())),
            },
        };
        self.wrong(
            format!("{text} is not a valid {what}", text = quoted(text)),
            fix,
            mistakes,
        );
        None
    }

    /// A string that is parsed as this type; its error is the message.
    pub fn parse<T>(&self, mistakes: &mut Mistakes) -> Option<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.parse_with(T::from_str, mistakes)
    }

    /// A string that is parsed by this function; its error is the message.
    pub fn parse_with<T, E: fmt::Display>(
        &self,
        read: impl FnOnce(&'a str) -> Result<T, E>,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        let result = read(self.text(mistakes)?);
        self.accept(result, mistakes)
    }

    /// The value of a result; an error is a mistake at this place.
    pub fn accept<T, E: fmt::Display>(&self, result: Result<T, E>, mistakes: &mut Mistakes) -> Option<T> {
        result
            .map_err(|error| self.wrong(error.to_string(), "", mistakes))
            .ok()
    }

    /// A path; a relative one is taken from the directory of the document's file.
    pub fn file(&self, mistakes: &mut Mistakes) -> Option<PathBuf> {
        self.text(mistakes).map(|path| self.beside(path))
    }

    /// This path, taken from the directory of the document's file if it is relative.
    pub fn beside(&self, path: impl AsRef<Path>) -> PathBuf {
        match &self.document.directory {
            Some(directory) => directory.join(path),
            None => path.as_ref().to_owned(),
        }
    }

    /// The text of a file that the document names. It is read once for all documents that are read together, however
    /// often they name it, and whether or not it changes meanwhile.
    pub(crate) fn text_of(&self, path: &Path) -> Result<String, Mistake> {
        let mut texts = self.document.texts.lock();
        let text = texts
            .entry(path.to_owned())
            .or_insert_with(|| text_of(path).map(|(text, _)| text));
        text.clone()
    }

    /// Whether there is a directory that relative paths are taken from.
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

    /// The first object in it, itself included, that begins here.
    pub fn object_at(&self, location: &Location) -> Option<Self> {
        if matches!(self.value.value, Value::Map(_)) && self.location() == *location {
            return Some(self.clone());
        }
        let mut children = self.children().into_iter();
        children.find_map(|(_, child)| child.object_at(location))
    }

    /// The bytes that it takes up in the text that it was read from, after a byte order mark.
    pub fn span(&self) -> Range<usize> {
        self.value.span.clone()
    }

    /// An object whose keys are free.
    pub fn map(&self, mistakes: &mut Mistakes) -> Option<Vec<(&'a str, Node<'a>)>> {
        match &self.value.value {
            Value::Map(entries) => Some(
                entries
                    .iter()
                    .map(|entry| (entry.key.as_str(), self.field(&entry.key, &entry.value)))
                    .collect(),
            ),
            _ => self.expected("an object", "write `key: value`", mistakes),
        }
    }

    /// An object whose keys are free and whose values are strings. Values that are none are reported,
    /// each, and left out.
    pub fn string_map(&self, mistakes: &mut Mistakes) -> Option<BTreeMap<String, String>> {
        let mut map = BTreeMap::new();
        for (key, value) in self.map(mistakes)? {
            if let Some(value) = value.string(mistakes) {
                map.insert(key.to_owned(), value.to_owned());
            }
        }
        Some(map)
    }

    /// Whatever it is, as JSON.
    pub fn json(&self) -> Json {
        to_json(self.value)
    }

    pub(super) fn position(&self) -> Position {
        self.value.position
    }

    /// The path of a field of it.
    pub(super) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// A warning for each scalar in it that YAML 1.2 reads differently, with both readings.
    pub fn ambiguities(&self) -> Vec<Mistake> {
        let ambiguities = self.document.ambiguities.iter();
        let is_here = |path: &str| {
            let rest = path.strip_prefix(&*self.path);
            rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
        };
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
        Mistake {
            location: self.document.at(position),
            path,
            message: message.into(),
            fix: fix.into(),
        }
    }

    fn expected<T>(&self, what: &str, fix: impl Into<String>, mistakes: &mut Mistakes) -> Option<T> {
        let found = match &self.value.value {
            Value::Null => "nothing",
            Value::Bool(..) => "true or false",
            Value::Number(..) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        };
        self.wrong(format!("{found} where {what} is expected"), fix, mistakes);
        None
    }

    fn as_written(&self) -> Option<&'a str> {
        match &self.value.value {
            Value::String(text) | Value::Bool(_, text) | Value::Number(_, text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}

fn read_each<'a, T>(
    entries: &[Node<'a>],
    mut read: impl FnMut(&Node<'a>, &mut Mistakes) -> Option<T>,
    mistakes: &mut Mistakes,
) -> Option<Vec<T>> {
    let values: Vec<Option<T>> = entries.iter().map(|entry| read(entry, mistakes)).collect();
    values.into_iter().collect()
}

fn to_json(value: &Positioned) -> Json {
    match &value.value {
        Value::Null => Json::Null,
        Value::Bool(value, _) => Json::Bool(*value),
        Value::Number(number, _) => Json::Number(number.clone()),
        Value::String(text) => Json::String(text.clone()),
        Value::List(entries) => entries.iter().map(to_json).collect(),
        Value::Map(entries) => {
            let fields = entries
                .iter()
                .map(|entry| (entry.key.clone(), to_json(&entry.value)));
            Json::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// `Fail or Ignore`, `a, b or c`.
fn either<'n>(words: impl Iterator<Item = &'n str>) -> String {
    let mut words: Vec<_> = words.collect();
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        last => last.unwrap_or_default().to_owned(),
    }
}
