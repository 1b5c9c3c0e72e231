use std::rc::Rc;

/// How deep lists and maps may be in one another: writing and dropping a tree goes down as deep.
pub(super) const DEEPEST: usize = 64;

/// A value. What an anchor names is shared by its aliases.
#[derive(Debug)]
pub(super) enum Node {
    /// As JSON.
    Scalar(String),
    List(Vec<Shared>),
    Map(Vec<Entry>),
}

/// A value, with how deep it is: 0 for a scalar.
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

/// Whether all of a tree was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Whole,
    TooLarge,
}

/// Writes JSON up to a limit. Lives until it was written.
#[derive(Debug)]
pub(super) struct Writer {
    json: Vec<u8>,
    limit: usize,
}

impl Writer {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            json: Vec::new(),
            limit,
        }
    }

    pub(super) fn into_json(self) -> Vec<u8> {
        self.json
    }

    pub(super) fn write(&mut self, value: &Shared) -> Written {
        match &*value.node {
            Node::Scalar(json) => self.put(json),
            Node::List(entries) => self.between("[", "]", entries, Self::write),
            Node::Map(entries) => self.between("{", "}", entries, |writer, entry| {
                match writer.put(&string(&entry.key)) {
                    Written::Whole => {}
                    too_large => return too_large,
                }
                match writer.put(":") {
                    Written::Whole => writer.write(&entry.value),
                    too_large => too_large,
                }
            }),
        }
    }

    fn between<T>(
        &mut self,
        open: &str,
        close: &str,
        entries: &[T],
        write: impl Fn(&mut Self, &T) -> Written,
    ) -> Written {
        for (index, entry) in entries.iter().enumerate() {
            let before = if index == 0 { open } else { "," };
            if self.put(before) == Written::TooLarge || write(self, entry) == Written::TooLarge {
                return Written::TooLarge;
            }
        }
        if entries.is_empty() && self.put(open) == Written::TooLarge {
            return Written::TooLarge;
        }
        self.put(close)
    }

    fn put(&mut self, text: &str) -> Written {
        if self.json.len() + text.len() > self.limit {
            return Written::TooLarge;
        }
        self.json.extend_from_slice(text.as_bytes());
        Written::Whole
    }
}

/// A text as JSON.
pub(super) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
