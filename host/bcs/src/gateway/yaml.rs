//! YAML bodies as JSON.
//!
//! Scalars are read as YAML 1.1 has it, as the original's reader does: `yes` and `on` are true, `0777` is 511. A
//! key is the text that is written: `on: 1` has the key `on`.
//! Anchors, aliases and merge keys (`<<`) are there. What the original drops or changes without a word is
//! refused here: a key that is written twice, a second document, a number that JSON cannot hold.

mod read;
mod scalar;
mod tree;

use saphyr_parser::Marker;

use self::tree::LimitedText;

/// Why a body cannot be turned into JSON. As text: a sentence, with the line and column where it is.
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

/// The one document in this text as JSON; an empty text stays one. The JSON has at most `limit` bytes, however
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
        // Nothing else can be wrong with it.
        Err(_) => Err(InvalidYaml::new(format!(
            "as JSON it is larger than the {limit} bytes that are allowed here"
        ))),
    }
}

#[cfg(test)]
mod tests;
