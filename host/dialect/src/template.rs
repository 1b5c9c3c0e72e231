//! Fills the templates of paths, and creates JSON documents that have a value at a given path.

use admittance_admission::Pointer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathTemplate<P> {
    /// Each placeholder with the text before it. In `/v1/job/{id}/plan`, `{id}` has the text `/v1/job/`.
    parts: Vec<(String, P)>,
    end: String,
}

impl<P> PathTemplate<P> {
    /// Returns `None` if the template does not begin with a slash, or if a placeholder is invalid.
    pub(crate) fn parse(text: &str, placeholder: impl Fn(&str) -> Option<P>) -> Option<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}')?;
            parts.push((before.to_owned(), placeholder(name)?));
            rest = after;
        }
        let is_path = text.starts_with('/') && !rest.contains('}');
        let end = rest.to_owned();
        is_path.then_some(Self { parts, end })
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &P> {
        self.parts.iter().map(|(_, placeholder)| placeholder)
    }

    pub(crate) fn fill<E>(&self, mut value: impl FnMut(&P) -> Result<String, E>) -> Result<String, E> {
        let mut text = String::new();
        for (before, placeholder) in &self.parts {
            text += before;
            text += &value(placeholder)?;
        }
        Ok(text + &self.end)
    }
}

/// Encodes everything but the unreserved characters of RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(crate) fn encode_segment(value: &str) -> String {
    utf8_percent_encode(value, UNRESERVED).to_string()
}

/// Servers remove empty and dot segments.
pub(crate) fn is_segment(value: &str) -> bool {
    !["", ".", ".."].contains(&value)
}

/// Returns a JSON document that contains this value at this path, and nothing else.
pub(crate) fn wrap_at(value: &str, pointer: &Pointer) -> String {
    let segments = pointer.segments().iter().rev();
    segments.fold(value.to_owned(), |value, key| {
        format!("{{{}:{value}}}", serde_json::Value::from(key.as_str()))
    })
}
