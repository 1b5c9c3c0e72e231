//! Where the parts of a document are in its text, to change the text there and nowhere else.

use std::ops::Range;

use super::{
    Node,
    tree::{Entry, Place, Value},
};

/// A field of a map, and where it is in the text.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) key: &'a str,
    /// The bytes of the key.
    pub(crate) key_span: Range<usize>,
    pub(crate) value: Node<'a>,
}

impl<'a> Node<'a> {
    /// Where it is in the text.
    pub(crate) fn place(&self) -> &'a Place {
        &self.value.place
    }

    /// The fields of the map that it is, in the order they are written.
    pub(crate) fn parts(&self) -> Vec<Part<'a>> {
        let Value::Map(entries) = &self.value.value else {
            return Vec::new();
        };
        let part = |entry: &'a Entry| Part {
            key: &entry.key,
            key_span: entry.key_span.clone(),
            value: self.field(&entry.key, &entry.value),
        };
        entries.iter().map(part).collect()
    }

    /// The first map in it, itself included, that `is` takes.
    pub(crate) fn find_map(&self, is: &impl Fn(&Node<'a>) -> bool) -> Option<Node<'a>> {
        match &self.value.value {
            Value::Map(_) if is(self) => Some(self.clone()),
            Value::Map(_) => self.parts().iter().find_map(|part| part.value.find_map(is)),
            Value::List(entries) => entries
                .iter()
                .find_map(|entry| self.field("", entry).find_map(is)),
            Value::Null | Value::Bool(..) | Value::Number(..) | Value::String(_) => None,
        }
    }
}

impl Part<'_> {
    /// The bytes from the key to the end of the value.
    pub(crate) fn span(&self, text: &str) -> Range<usize> {
        let key = &self.key_span;
        let value = &self.value.place().span;
        let end = if value.is_empty() {
            // Nothing is written after the colon.
            let rest = text.get(key.end..).unwrap_or_default();
            rest.find(':').map_or(key.end, |colon| key.end + colon + 1)
        } else {
            value.end
        };
        key.start..end
    }
}
