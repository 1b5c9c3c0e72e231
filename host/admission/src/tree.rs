//! A JSON text that is opened only where a patch reaches.
//!
//! A patch touches a few places of an object, and most of what a tree of the whole would cost is spent
//! on the rest. Here the rest stays text: it is skipped once on the way in and copied once on the way
//! out, so it also comes out as it came in, to the digit of every number.

use std::{borrow::Cow, fmt};

use jsonptr::{Pointer, Token};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// A value: still text, or opened. The text is JSON without white space around it.
#[derive(Clone, Debug)]
pub(crate) enum Node<'a> {
    Text(&'a str),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
    Array(Vec<Node<'a>>),
}

/// Why a place cannot be reached or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Something on the way is not there.
    NoParent,
    /// The place itself is not there.
    Nothing,
    /// The way leads through something that is neither object nor array.
    NotAContainer,
    /// A place in an array that is none, or is beyond its end.
    NoIndex,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoParent => "the parent of the place is not there",
            Self::Nothing => "nothing is at the place",
            Self::NotAContainer => "the way leads through something that is neither object nor array",
            Self::NoIndex => "that is no index of the array",
        })
    }
}

impl<'a> Node<'a> {
    /// The value in a text that has been checked to be JSON.
    pub(crate) fn new(text: &'a str) -> Self {
        Self::Text(text.trim_ascii())
    }

    /// Make members or elements of the text, one level deep.
    fn open(&mut self) -> Result<(), Problem> {
        let Self::Text(text) = *self else { return Ok(()) };
        *self = match text.as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(text).map_err(|_| Problem::NotAContainer)?;
                Self::Object(members)
            }
            Some(b'[') => {
                let elements: Vec<&RawValue> =
                    serde_json::from_str(text).map_err(|_| Problem::NotAContainer)?;
                Self::Array(
                    elements
                        .into_iter()
                        .map(|element| Self::Text(element.get()))
                        .collect(),
                )
            }
            _ => return Err(Problem::NotAContainer),
        };
        Ok(())
    }

    /// The member or element of this name.
    fn child(&mut self, token: &Token<'_>) -> Result<&mut Self, Problem> {
        self.open()?;
        match self {
            Self::Object(members) => {
                let name = token.decoded();
                members
                    .iter_mut()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value)
                    .ok_or(Problem::Nothing)
            }
            Self::Array(elements) => {
                let index = index(token, elements.len(), End::Excluded)?;
                elements.get_mut(index).ok_or(Problem::NoIndex)
            }
            Self::Text(_) => Err(Problem::NotAContainer),
        }
    }

    /// The value at a place.
    pub(crate) fn get(&mut self, place: &Pointer) -> Result<&mut Self, Problem> {
        let mut node = self;
        let mut tokens = place.tokens().peekable();
        while let Some(token) = tokens.next() {
            node = node.child(&token).map_err(|problem| match problem {
                Problem::Nothing if tokens.peek().is_some() => Problem::NoParent,
                problem => problem,
            })?;
        }
        Ok(node)
    }

    /// The opened object or array at a place, for a change of what is in it.
    fn container(&mut self, place: &Pointer) -> Result<&mut Self, Problem> {
        let container = self.get(place).map_err(|problem| match problem {
            Problem::Nothing => Problem::NoParent,
            problem => problem,
        })?;
        container.open()?;
        Ok(container)
    }

    /// Put a value at a place: a member is set, an element is inserted. Whether that changed anything.
    pub(crate) fn add(&mut self, place: &Pointer, value: Self) -> Result<bool, Problem> {
        let Some((parent, last)) = place.split_back() else {
            return Ok(self.set(value));
        };
        match self.container(parent)? {
            Self::Object(members) => {
                let name = last.decoded();
                if let Some((_, member)) = members.iter_mut().find(|(key, _)| *key == name) {
                    return Ok(member.set(value));
                }
                members.push((Cow::Owned(name.into_owned()), value));
            }
            Self::Array(elements) => {
                let index = index(&last, elements.len(), End::Included)?;
                elements.insert(index, value);
            }
            Self::Text(_) => return Err(Problem::NotAContainer),
        }
        Ok(true)
    }

    /// Put a value in place of this one. Whether they differ.
    pub(crate) fn set(&mut self, value: Self) -> bool {
        let differs = !self.equals(&value);
        *self = value;
        differs
    }

    /// Take the value at a place away.
    pub(crate) fn remove(&mut self, place: &Pointer) -> Result<Self, Problem> {
        let (parent, last) = place.split_back().ok_or(Problem::NoParent)?;
        match self.container(parent)? {
            Self::Object(members) => {
                let name = last.decoded();
                let index = members
                    .iter()
                    .position(|(key, _)| *key == name)
                    .ok_or(Problem::Nothing)?;
                Ok(members.remove(index).1)
            }
            Self::Array(elements) => {
                let index = index(&last, elements.len(), End::Excluded)?;
                Ok(elements.remove(index))
            }
            Self::Text(_) => Err(Problem::NotAContainer),
        }
    }

    /// Equal as JSON: order of members, white space and escapes do not matter.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        if let (Self::Text(a), Self::Text(b)) = (self, other)
            && a == b
        {
            return true;
        }
        // What cannot be read equals nothing.
        self.value().is_some_and(|value| Some(value) == other.value())
    }

    fn value(&self) -> Option<Value> {
        match self {
            Self::Text(text) => serde_json::from_str(text).ok(),
            opened => {
                let mut text = String::new();
                opened.write(&mut text);
                serde_json::from_str(&text).ok()
            }
        }
    }

    /// Write it as JSON text; what was not opened stands in it as it came.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_key(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write(out);
                }
                out.push(']');
            }
        }
    }

    /// Whether it is an object.
    pub(crate) fn is_object(&self) -> bool {
        match self {
            Self::Text(text) => text.starts_with('{'),
            Self::Object(_) => true,
            Self::Array(_) => false,
        }
    }
}

fn write_key(key: &str, out: &mut String) {
    let is_plain = !key.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    if is_plain {
        out.push('"');
        out.push_str(key);
        out.push('"');
    } else {
        out.push_str(&Value::from(key).to_string());
    }
}

/// Whether the place behind the last element counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Included,
    Excluded,
}

fn index(token: &Token<'_>, length: usize, end: End) -> Result<usize, Problem> {
    let index = token.to_index().map_err(|_| Problem::NoIndex)?;
    match end {
        End::Included => index.for_len_incl(length),
        End::Excluded => index.for_len(length),
    }
    .map_err(|_| Problem::NoIndex)
}

/// The members of an object, each value as text. Of a name that stands twice the last counts, as for
/// most readers.
struct Members<'a>(Vec<(Cow<'a, str>, Node<'a>)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(Cow<'de, str>, Node<'de>)> = Vec::new();
                let mut seen = Names::default();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    let value = Node::Text(value.get());
                    match seen.find(&members, &key) {
                        Some(index) => {
                            if let Some((_, member)) = members.get_mut(index) {
                                *member = value;
                            }
                        }
                        None => {
                            seen.note(&key, members.len());
                            members.push((key, value));
                        }
                    }
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// Finds a name that was seen before: by looking at all of them while they are few, by hash when
/// somebody sends an object of a hundred thousand members.
#[derive(Default)]
struct Names(std::collections::HashMap<String, usize>);

impl Names {
    const FEW: usize = 32;

    fn find(&self, members: &[(Cow<'_, str>, Node<'_>)], name: &str) -> Option<usize> {
        let few = members.iter().take(Self::FEW).position(|(key, _)| key == name);
        few.or_else(|| self.0.get(name).copied())
    }

    fn note(&mut self, name: &str, index: usize) {
        if index >= Self::FEW {
            self.0.insert(name.to_owned(), index);
        }
    }
}

/// A member's name: borrowed when it holds no escape.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Take;

        impl<'de> Visitor<'de> for Take {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Take)
    }
}
