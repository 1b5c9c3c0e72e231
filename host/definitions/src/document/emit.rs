//! Writes JSON values as YAML that every YAML reader parses to the same values.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value as Json;
use serde_saphyr::{DoubleQuoted, LitStr, ser_options, to_fmt_writer_with_options};

/// Writes a YAML document that begins with `---` and ends with a line break.
pub fn to_yaml(value: &Json) -> String {
    let options = ser_options! { compact_list_indent: false, prefer_block_scalars: false };
    let mut text = "---\n".to_owned();
    if to_fmt_writer_with_options(&mut text, &EmittedNode(value), options).is_err() {
        // Serialising to memory cannot fail. The fallback is JSON, which is valid YAML.
        text = format!("---\n{value:#}\n");
    }
    text
}

struct EmittedNode<'a>(&'a Json);

impl Serialize for EmittedNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::String(text) if is_block(text) => LitStr(text).serialize(serializer),
            Json::String(text) => EmittedText(text).serialize(serializer),
            Json::Array(values) => serializer.collect_seq(values.iter().map(EmittedNode)),
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(&EmittedText(key), &EmittedNode(value))?;
                }
                map.end()
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => self.0.serialize(serializer),
        }
    }
}

/// A string or key on one line, quoted if it looks like another type. The serializer itself quotes words like `on`.
struct EmittedText<'a>(&'a str);

impl Serialize for EmittedText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if is_word(self.0) {
            serializer.serialize_str(self.0)
        } else {
            DoubleQuoted(self.0).serialize(serializer)
        }
    }
}

/// Returns whether the text needs no quotes: it does not look like a number, and has no special character of YAML.
fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && !text.ends_with(' ')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " !$%&()*+-./;<=>?@^_|~".contains(c))
}

/// Returns whether the text can be written as a block scalar, with its own lines after a `|`.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|c| matches!(c, '\n' | '\t') || is_printable(c))
}

/// Returns whether the character is printable in YAML 1.1, and not one of its line breaks.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        c => c >= '\u{a0}',
    }
}

#[cfg(test)]
mod tests;
