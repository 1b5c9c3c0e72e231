use std::{io, rc::Rc};

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The maximum nesting of lists and maps: writing and dropping a tree recurses as deep.
pub(super) const DEEPEST: usize = 64;

/// A value. Aliases share the value of their anchor.
#[derive(Debug)]
pub(super) enum Node {
    Scalar(Box<RawValue>),
    List(Vec<Shared>),
    Map(Vec<Entry>),
}

/// A value with its depth: 0 for a scalar.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) node: Rc<Node>,
    pub(super) depth: usize,
}

/// A field of a map. No two have the same key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Rc<str>,
    pub(super) value: Shared,
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.node {
            Node::Scalar(json) => json.serialize(serializer),
            Node::List(entries) => serializer.collect_seq(entries),
            Node::Map(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&*entry.key, &entry.value)))
            }
        }
    }
}

/// Text of at most `limit` bytes.
pub(super) struct LimitedText {
    pub(super) text: Vec<u8>,
    pub(super) limit: usize,
}

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
