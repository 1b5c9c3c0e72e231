//! YAML bodies as JSON.
//!
//! Scalars are YAML 1.1, as in the original's parser: `yes` and `on` are true, `0777` is 511. A
//! key is always a string: `on: 1` has the key `on`.
//! Anchors, aliases and merge keys (`<<`) are supported. What the original silently drops or changes is
//! refused here: a duplicate key, a second document, a number that JSON cannot represent.

mod read;
mod scalar;
mod tree;

use saphyr_parser::Marker;

use self::tree::LimitedText;

/// Why a body cannot be converted to JSON. `Display` is a sentence with the line and column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", at(.place))]
pub(super) struct InvalidYaml {
    /// Line and column, counted from 1.
    place: Option<(usize, usize)>,
    reason: String,
}

fn at(place: &Option<(usize, usize)>) -> String {
    match place {
        Some((line, column)) => format!("line {line}, column {column}: "),
        None => String::new(),
    }
}

impl InvalidYaml {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            place: None,
            reason: reason.into(),
        }
    }

    fn at(mark: Marker, reason: impl Into<String>) -> Self {
        Self {
            place: Some((mark.line(), mark.col() + 1)),
            reason: reason.into(),
        }
    }
}

/// The one document in this text as JSON; an empty text stays empty. The JSON has at most `limit` bytes, however
/// often aliases repeat something.
pub(super) fn to_json(body: &[u8], limit: usize) -> Result<Vec<u8>, InvalidYaml> {
    let text = std::str::from_utf8(body).map_err(|error| {
        InvalidYaml::new(format!(
            "the body is not UTF-8 from byte {} on",
            error.valid_up_to()
        ))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(root) = read::document(text, limit)? else {
        return Ok(Vec::new());
    };
    let mut json = LimitedText {
        text: Vec::new(),
        limit,
    };
    match serde_json::to_writer(&mut json, &root) {
        Ok(()) => Ok(json.text),
        // No other error is possible.
        Err(_) => Err(InvalidYaml::new(format!(
            "as JSON it is larger than the {limit} bytes that are allowed here"
        ))),
    }
}

#[cfg(test)]
mod tests;
