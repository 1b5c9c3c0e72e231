//! Parses the location of the value that a mutator changes.

use std::{fmt, iter::Peekable, str::Chars};

use serde_json::Value;

/// The location of a value in an object, such as `spec.containers[name: *].image`. In a list, the location selects
/// items by the value of one field, here `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLocation(Vec<Step>);

/// One step on the way to the location of a mutator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leads to a field of an object.
    Field(String),
    /// Leads to items of a list of objects.
    Items {
        /// The field that identifies an item of the list.
        key: String,
        /// The value of the field `key` in the selected items, a string or a whole number; `None` selects all items.
        value: Option<Value>,
    },
}

/// The reason why a text is not a valid location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a location: {found}, where {expected} is expected")]
pub struct LocationError {
    text: String,
    found: String,
    expected: &'static str,
}

impl FieldLocation {
    /// Parses a location, which begins with a field. A list can only follow a field. A name is written in single or
    /// double quotes if it begins with a digit, or has characters other than letters, digits, `-` and `_`. In quotes,
    /// `\` escapes a quote or another `\`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a location.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let mut tokens = LocationTokens {
            text,
            characters: text.chars().peekable(),
        };
        let mut steps = Vec::new();
        loop {
            steps.push(Step::Field(tokens.read_word("the name of a field")?));
            let mut next = tokens.next_token();
            if next == LocationToken::Sign('[') {
                steps.push(tokens.read_items()?);
                next = tokens.next_token();
            }
            match next {
                LocationToken::End => return Ok(Self(steps)),
                LocationToken::Sign('.') => {}
                other => return Err(tokens.unexpected_token(&other, "`.` or the end")),
            }
        }
    }

    /// Returns the steps of the location. The first one leads to a field.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns whether two locations contradict each other, so that no object can have values at both. For example,
    /// `spec.a.b` needs an object at `spec.a`, but `spec.a[name: x]` needs a list. Two locations that identify the
    /// items of the same list by different fields contradict each other as well. `one_type` is the type of the value at
    /// `self`, and `other_type` is the type of the value at `other`.
    pub fn contradicts(&self, one_type: LocationType, other: &Self, other_type: LocationType) -> bool {
        for (index, (one, two)) in self.0.iter().zip(&other.0).enumerate() {
            match (one, two) {
                (Step::Field(one), Step::Field(two)) if one != two => return false,
                (Step::Items { key: one, .. }, Step::Items { key: two, .. }) if one != two => return true,
                _ => {}
            }
            match (
                self.location_type(index, one_type),
                other.location_type(index, other_type),
            ) {
                (LocationType::Any, _) | (_, LocationType::Any) => return false,
                (one, two) if one != two => return true,
                _ => {}
            }
        }
        false
    }

    fn location_type(&self, index: usize, end_type: LocationType) -> LocationType {
        match self.0.get(index + 1) {
            Some(Step::Field(_)) => LocationType::Object,
            Some(Step::Items { .. }) => LocationType::List,
            None => end_type,
        }
    }
}

/// The type of a value at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationType {
    /// The value at the location is an object.
    Object,
    /// The value at the location is a list of objects that are identified by a field.
    List,
    /// The value at the location is a list whose order does not matter.
    Set,
    /// The value at the location is a string.
    Text,
    /// The value at the location can have any type, because the mutator sets the whole value.
    Any,
}

/// Writes a location in the form that [`FieldLocation::parse`] reads.
impl fmt::Display for FieldLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(&self.0, f)
    }
}

pub(crate) struct LocationSteps<'a>(pub(crate) &'a [Step]);

impl fmt::Display for LocationSteps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(self.0, f)
    }
}

fn write_steps(steps: &[Step], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Field(name) => {
                f.write_str(if index == 0 { "" } else { "." })?;
                write_word(name, f)?;
            }
            Step::Items { key, value } => {
                f.write_str("[")?;
                write_word(key, f)?;
                f.write_str(": ")?;
                match value {
                    None => f.write_str("*")?,
                    Some(Value::String(value)) => write_word(value, f)?,
                    Some(value) => write!(f, "{value}")?,
                }
                f.write_str("]")?;
            }
        }
    }
    Ok(())
}

fn write_word(word: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let begins_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
    if !word.is_empty() && !begins_with_digit && word.chars().all(is_plain) {
        return f.write_str(word);
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
    write!(f, "\"{escaped}\"")
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LocationToken {
    Word(String),
    Number(String),
    Sign(char),
    Unclosed,
    End,
}

struct LocationTokens<'a> {
    text: &'a str,
    characters: Peekable<Chars<'a>>,
}

impl LocationTokens<'_> {
    fn next_token(&mut self) -> LocationToken {
        while self
            .characters
            .next_if(|c| matches!(c, ' ' | '\t' | '\r' | '\n'))
            .is_some()
        {}
        match self.characters.peek().copied() {
            None => LocationToken::End,
            Some(quote @ ('"' | '\'')) => {
                self.characters.next();
                self.read_quoted(quote)
                    .map_or(LocationToken::Unclosed, LocationToken::Word)
            }
            Some(c) if c.is_ascii_digit() => LocationToken::Number(self.take_run(|c| c.is_ascii_digit())),
            Some(c) if is_plain(c) => LocationToken::Word(self.take_run(is_plain)),
            Some(c) => {
                self.characters.next();
                LocationToken::Sign(c)
            }
        }
    }

    fn take_run(&mut self, belongs: impl Fn(char) -> bool) -> String {
        std::iter::from_fn(|| self.characters.next_if(|c| belongs(*c))).collect()
    }

    /// Reads the text up to the closing `quote`; returns `None` if the closing quote is missing.
    fn read_quoted(&mut self, quote: char) -> Option<String> {
        let mut word = String::new();
        loop {
            match self.characters.next()? {
                c if c == quote => return Some(word),
                '\\' => word.push(self.characters.next()?),
                c => word.push(c),
            }
        }
    }

    fn read_word(&mut self, expected: &'static str) -> Result<String, LocationError> {
        match self.next_token() {
            LocationToken::Word(word) => Ok(word),
            other => Err(self.unexpected_token(&other, expected)),
        }
    }

    fn expect_sign(&mut self, sign: char, expected: &'static str) -> Result<(), LocationError> {
        match self.next_token() {
            LocationToken::Sign(found) if found == sign => Ok(()),
            other => Err(self.unexpected_token(&other, expected)),
        }
    }

    fn read_items(&mut self) -> Result<Step, LocationError> {
        let key = self.read_word("the field that tells the items apart, as in `[name: web]`,")?;
        self.expect_sign(':', "`:`")?;
        let expected = "`*`, a word or a whole number";
        let value = match self.next_token() {
            LocationToken::Sign('*') => None,
            LocationToken::Word(value) => Some(value.into()),
            LocationToken::Number(digits) => match digits.parse::<i64>() {
                Ok(number) => Some(number.into()),
                Err(_) => return Err(self.unexpected_token(&LocationToken::Number(digits), expected)),
            },
            other => return Err(self.unexpected_token(&other, expected)),
        };
        self.expect_sign(']', "`]`")?;
        Ok(Step::Items { key, value })
    }

    fn unexpected_token(&self, token: &LocationToken, expected: &'static str) -> LocationError {
        LocationError {
            text: self.text.to_owned(),
            found: match token {
                LocationToken::Word(word) => format!("there is `{word}`"),
                LocationToken::Number(digits) => format!("there is the number {digits}"),
                LocationToken::Sign(sign) => format!("there is `{sign}`"),
                LocationToken::Unclosed => "there is a quote without its end".to_owned(),
                LocationToken::End => "it ends".to_owned(),
            },
            expected,
        }
    }
}

#[cfg(test)]
mod tests;
