//! Reads nodes as the types that definitions and configuration files use.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr, time::Duration};

use admittance_admission::{Keyword, enumerated, find_similar};

use super::Node;
use crate::document::{mistake::quoted, tree::DocumentValue};

impl<'a> Node<'a> {
    /// Reads a list of any values.
    pub fn list(&self) -> Option<Vec<Node<'a>>> {
        let DocumentValue::List(entries) = &self.value.value else {
            let fix = match self.written_text() {
                Some(text) => format!("write [{text}]"),
                None => String::new(),
            };
            return self.reject_type("a list", fix);
        };
        Some(self.entries(entries).collect())
    }

    /// Reads a list of any values. An empty list is a mistake with this `fix`.
    pub fn filled_list(&self, fix: &str) -> Option<Vec<Node<'a>>> {
        let entries = self.list()?;
        if entries.is_empty() {
            return self.reject("the list is empty", fix);
        }
        Some(entries)
    }

    /// Reads a list, and each item with `read`. Returns `None` if any item is invalid.
    pub fn list_of<T>(&self, read: impl FnMut(&Node<'a>) -> Option<T>) -> Option<Vec<T>> {
        read_each(&self.list()?, read)
    }

    /// Reads a list like [`list_of`](Self::list_of). But an empty list is a mistake; `fix` tells what to write instead.
    pub fn filled_list_of<T>(&self, fix: &str, read: impl FnMut(&Node<'a>) -> Option<T>) -> Option<Vec<T>> {
        read_each(&self.filled_list(fix)?, read)
    }

    /// Reads a list of words. An empty list is a mistake, and `fix` is the advice for it. A repeated word is a mistake
    /// too, and `duplicate_message` is the message for it.
    pub fn different_words<W: Keyword>(&self, fix: &str, duplicate_message: &str) -> Option<Vec<W>> {
        let mut words = Vec::new();
        for entry in self.filled_list(fix)? {
            let Some(word) = entry.word() else {
                continue;
            };
            if words.contains(&word) {
                entry.add_mistake(duplicate_message, "remove one of them");
            } else {
                words.push(word);
            }
        }
        Some(words)
    }

    /// Reads a list of strings. Items that are not strings are reported and left out.
    pub fn strings(&self) -> Option<Vec<String>> {
        let entries = self.list()?;
        let strings = entries.iter().filter_map(|entry| entry.string());
        Some(strings.map(str::to_owned).collect())
    }

    /// Reads a string, which may be empty.
    pub fn string(&self) -> Option<&'a str> {
        match &self.value.value {
            DocumentValue::String(text) => Some(text),
            DocumentValue::Bool(_, written) | DocumentValue::Number(_, written) => {
                self.reject_type("a string", format!("put it in quotes: \"{written}\""))
            }
            _ => self.reject_type("a string", ""),
        }
    }

    /// Reads a string that is not empty.
    pub fn text(&self) -> Option<&'a str> {
        let text = self.string()?;
        if text.is_empty() {
            return self.reject("empty", "write a value or remove the field");
        }
        Some(text)
    }

    /// Reads a boolean.
    pub fn boolean(&self) -> Option<bool> {
        match &self.value.value {
            DocumentValue::Bool(value, _) => Some(*value),
            _ => self.reject_type("true or false", ""),
        }
    }

    /// Reads a whole number in this range.
    pub fn integer<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let fix = || format!("write {} to {}", range.start(), range.end());
        let DocumentValue::Number(number, written) = &self.value.value else {
            return self.reject_type("a whole number", fix());
        };
        let value = number.as_i64().and_then(|number| T::try_from(number).ok());
        match value.filter(|value| range.contains(value)) {
            Some(value) => Some(value),
            None if number.is_f64() => self.reject(format!("{written} is not a whole number"), fix()),
            None => self.reject(format!("{written} is out of range"), fix()),
        }
    }

    /// Reads a duration in this range, with a unit: `250ms`, `1s`, `1m 30s`.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let fix = || {
            let [least, most] = [*range.start(), *range.end()].map(humantime::format_duration);
            format!("write {least} to {most}")
        };
        let text = match &self.value.value {
            DocumentValue::String(text) => text,
            DocumentValue::Number(number, written) if number.is_u64() => {
                let message = format!("{written} has no unit");
                return self.reject(message, format!("write {number}ms or {number}s"));
            }
            _ => return self.reject_type("a duration", "write one with its unit, `250ms` or `1s`"),
        };
        match humantime::parse_duration(text) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => self.reject(format!("{text} is out of range"), fix()),
            Err(_) => {
                let message = format!("{text} is not a valid duration", text = quoted(text));
                self.reject(message, "write a number and its unit, `250ms` or `1s`")
            }
        }
    }

    /// Reads a number of bytes in this range, such as `64MiB`, `1GB` or `4096`.
    pub fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let size_text = match &self.value.value {
            DocumentValue::String(text) => text,
            DocumentValue::Number(number, number_text) => {
                &number.as_u64().map_or(number_text.clone(), |size| size.to_string())
            }
            _ => return self.reject_type("a size", "write one with its unit, `64MiB`"),
        };
        let Ok(size) = size_text.parse::<bytesize::ByteSize>() else {
            let message = format!("{text} is not a valid size", text = quoted(size_text));
            return self.reject(message, "write a number and its unit, `64MiB`");
        };
        if range.contains(&size.as_u64()) {
            return Some(size.as_u64());
        }
        let [least, most] = [*range.start(), *range.end()].map(|size| {
            // `bytesize` puts a space before the unit, as in `64.0 MiB`. Documents write no space.
            let text = bytesize::ByteSize(size).display().iec().to_string();
            text.replace(".0 ", "").replace(' ', "")
        });
        self.reject(
            format!("{size_text} is out of range"),
            format!("write {least} to {most}"),
        )
    }

    /// Reads one of the words of the type `W`. Case matters.
    pub fn word<W: Keyword>(&self) -> Option<W> {
        self.one_of(W::ENUM_NAME, W::KEYWORDS)
    }

    /// Reads one of these words, in exactly this case. `noun` names such words in messages, such as `failure policy`.
    pub fn one_of<T: Copy>(&self, noun: &str, words: &[(&str, T)]) -> Option<T> {
        self.matching_word(noun, words, |text, word| text == word)
    }

    /// Reads one of these words, in any case. Messages call such a word `noun`.
    pub fn one_of_any_case<T: Copy>(&self, noun: &str, words: &[(&str, T)]) -> Option<T> {
        self.matching_word(noun, words, str::eq_ignore_ascii_case)
    }

    fn matching_word<T: Copy>(
        &self,
        noun: &str,
        words: &[(&str, T)],
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let DocumentValue::String(text) = &self.value.value else {
            let fix = format!("write {}", enumerated(names(), "or"));
            return self.reject_type(&format!("a {noun}"), fix);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| is_same(text, word)) {
            return Some(*value);
        }
        let fix = match names().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => format!("case matters: write {word}"),
            None => match find_similar(text, names()).first() {
                Some(word) if words.len() > 4 => format!("did you mean {word}?"),
                _ => format!("write {}", enumerated(names(), "or")),
            },
        };
        self.reject(format!("{text} is not a valid {noun}", text = quoted(text)), fix)
    }

    /// Reads a string and parses it as `T`. An error of the parser becomes a mistake.
    pub fn parse<T>(&self) -> Option<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.parse_with(T::from_str)
    }

    /// Reads a string and parses it with `parse`. An error of `parse` becomes a mistake.
    pub fn parse_with<T, E: fmt::Display>(&self, parse: impl FnOnce(&'a str) -> Result<T, E>) -> Option<T> {
        self.accept(parse(self.text()?))
    }

    /// Returns the value if the result is `Ok`. An error becomes a mistake about this node.
    pub fn accept<T, E: fmt::Display>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add_mistake(error.to_string(), "")).ok()
    }

    /// Reads an object with any keys.
    pub fn map(&self) -> Option<Vec<(&'a str, Node<'a>)>> {
        let DocumentValue::Map(entries) = &self.value.value else {
            return self.reject_type("an object", "write `key: value`");
        };
        let fields = entries
            .iter()
            .map(|entry| (entry.key.as_str(), self.field(&entry.key, &entry.value)));
        Some(fields.collect())
    }

    /// Reads an object with any keys, whose values are strings. Values that are not strings are reported and left out.
    pub fn string_map(&self) -> Option<BTreeMap<String, String>> {
        let mut map = BTreeMap::new();
        for (key, value) in self.map()? {
            if let Some(value) = value.string() {
                map.insert(key.to_owned(), value.to_owned());
            }
        }
        Some(map)
    }

    pub(super) fn reject_type<T>(&self, expected_type: &str, fix: impl Into<String>) -> Option<T> {
        let actual_type = match &self.value.value {
            DocumentValue::Null => "nothing",
            DocumentValue::Bool(..) => "true or false",
            DocumentValue::Number(..) => "a number",
            DocumentValue::String(_) => "a string",
            DocumentValue::List(_) => "a list",
            DocumentValue::Map(_) => "an object",
        };
        self.reject(format!("{actual_type} where {expected_type} is expected"), fix)
    }

    fn written_text(&self) -> Option<&'a str> {
        match &self.value.value {
            DocumentValue::String(text) | DocumentValue::Bool(_, text) | DocumentValue::Number(_, text) => Some(text),
            DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Map(_) => None,
        }
    }
}

fn read_each<'a, T>(entries: &[Node<'a>], read: impl FnMut(&Node<'a>) -> Option<T>) -> Option<Vec<T>> {
    let values: Vec<Option<T>> = entries.iter().map(read).collect();
    values.into_iter().collect()
}
