//! A JSON tree that is parsed only where a patch needs it.
//!
//! A patch changes a few parts of an object, and parsing the rest would be most of the cost. So the rest stays text,
//! which is skipped when reading and copied verbatim when writing. Numbers keep all their digits.
//!
//! A [`PatchBudget`] is charged for the bytes that each operation reads and the elements it moves, so that the time of
//! a patch is linear in the sizes of object and patch.

mod budget;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fmt,
};

use jsonptr::{Pointer, Token};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

pub(crate) use self::budget::{PatchBudget, PatchProblem};

/// A value in a JSON document. It begins as unparsed text without white space around it. When a patch needs a part of
/// the value, the value is opened: it then consists of its members or elements.
#[derive(Clone, Debug)]
pub(crate) enum TreeNode<'a> {
    Text(&'a str),
    Object(Box<TreeMembers<'a>>),
    Array(Box<Elements<'a>>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TreeMembers<'a> {
    entries: Vec<(Cow<'a, str>, Option<TreeNode<'a>>)>,
    /// The positions of the members after the first [`TreeMembers::MAX_UNINDEXED`], by key. Without this index, finding
    /// one of many members would be slow.
    index: HashMap<Cow<'a, str>, usize>,
    height: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Elements<'a> {
    items: VecDeque<TreeNode<'a>>,
    height: usize,
}

/// The maximum number of nested objects and arrays that are parsed into a tree. With more levels, recursive functions
/// could overflow the stack.
const MAX_HEIGHT: usize = 256;

impl<'a> TreeNode<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::Text(text.trim_ascii())
    }

    /// Returns the maximum number of nested objects and arrays in the parsed part of this value. The real number may be
    /// smaller, but not larger. Text that has not been parsed counts as 0.
    fn height(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Object(members) => members.height,
            Self::Array(elements) => elements.height,
        }
    }

    fn raise_height(&mut self, height: usize) {
        match self {
            Self::Text(_) => {}
            Self::Object(members) => members.height = members.height.max(height),
            Self::Array(elements) => elements.height = elements.height.max(height),
        }
    }

    fn open(&mut self, budget: &mut PatchBudget) -> Result<(), PatchProblem> {
        let Self::Text(text) = *self else { return Ok(()) };
        budget.charge(text.len())?;
        *self = match text.as_bytes().first() {
            Some(b'{') => {
                let members = serde_json::from_str(text).map_err(|_| PatchProblem::NotAContainer)?;
                Self::Object(Box::new(members))
            }
            Some(b'[') => {
                let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| PatchProblem::NotAContainer)?;
                Self::Array(Box::new(Elements {
                    items: elements.into_iter().map(|item| Self::Text(item.get())).collect(),
                    height: 1,
                }))
            }
            _ => return Err(PatchProblem::NotAContainer),
        };
        Ok(())
    }

    fn child(&mut self, token: &Token<'_>, budget: &mut PatchBudget) -> Result<&mut Self, PatchProblem> {
        self.open(budget)?;
        match self {
            Self::Object(members) => members.get_mut(&token.decoded()).ok_or(PatchProblem::Nothing),
            Self::Array(elements) => {
                let index = parse_index(token, elements.items.len(), ValueEnd::Excluded)?;
                elements.items.get_mut(index).ok_or(PatchProblem::NoIndex)
            }
            Self::Text(_) => Err(PatchProblem::NotAContainer),
        }
    }

    pub(crate) fn get(&mut self, path: &Pointer, budget: &mut PatchBudget) -> Result<&mut Self, PatchProblem> {
        self.reach(path, 0, budget)
    }

    /// Returns the value at a path, so that the caller can put a new value into it. `levels` is the number of nested
    /// levels of the new value. Fails if the new value would make the document nest too deeply.
    fn reach(&mut self, path: &Pointer, levels: usize, budget: &mut PatchBudget) -> Result<&mut Self, PatchProblem> {
        let mut levels_below = path.count().saturating_add(levels);
        if levels_below > MAX_HEIGHT {
            return Err(PatchProblem::TooDeep);
        }
        let mut node = self;
        let mut tokens = path.tokens().peekable();
        while let Some(token) = tokens.next() {
            node.open(budget)?;
            node.raise_height(levels_below);
            levels_below -= 1;
            node = node.child(&token, budget).map_err(|problem| match problem {
                PatchProblem::Nothing if tokens.peek().is_some() => PatchProblem::NoParent,
                problem => problem,
            })?;
        }
        Ok(node)
    }

    fn open_container(
        &mut self,
        path: &Pointer,
        height: usize,
        budget: &mut PatchBudget,
    ) -> Result<&mut Self, PatchProblem> {
        let container = self.reach(path, height + 1, budget).map_err(|problem| match problem {
            PatchProblem::Nothing => PatchProblem::NoParent,
            problem => problem,
        })?;
        container.open(budget)?;
        container.raise_height(height + 1);
        Ok(container)
    }

    pub(crate) fn add(
        &mut self,
        path: &Pointer,
        value: Self,
        budget: &mut PatchBudget,
    ) -> Result<Option<Self>, PatchProblem> {
        let Some((parent, last)) = path.split_back() else {
            return Ok(Some(std::mem::replace(self, value)));
        };
        match self.open_container(parent, value.height(), budget)? {
            Self::Object(members) => Ok(members.insert(last.decoded(), value)),
            Self::Array(elements) => {
                let length = elements.items.len();
                let index = parse_index(&last, length, ValueEnd::Included)?;
                budget.charge(index.min(length - index))?;
                elements.items.insert(index, value);
                Ok(None)
            }
            Self::Text(_) => Err(PatchProblem::NotAContainer),
        }
    }

    pub(crate) fn remove(&mut self, path: &Pointer, budget: &mut PatchBudget) -> Result<Self, PatchProblem> {
        let (parent, last) = path.split_back().ok_or(PatchProblem::NoParent)?;
        match self.open_container(parent, 0, budget)? {
            Self::Object(members) => members.remove(&last.decoded()).ok_or(PatchProblem::Nothing),
            Self::Array(elements) => {
                let length = elements.items.len();
                let index = parse_index(&last, length, ValueEnd::Excluded)?;
                budget.charge(index.min(length - index))?;
                elements.items.remove(index).ok_or(PatchProblem::NoIndex)
            }
            Self::Text(_) => Err(PatchProblem::NotAContainer),
        }
    }

    pub(crate) fn equals(&self, other: &Self, budget: &mut PatchBudget) -> Result<bool, PatchProblem> {
        if let (Self::Text(a), Self::Text(b)) = (self, other)
            && a.len() == b.len()
        {
            budget.charge(a.len())?;
            if a == b {
                return Ok(true);
            }
        }
        for node in [self, other] {
            let size = node
                .size(budget.work / PatchBudget::TREE_COST_PER_BYTE)
                .ok_or(PatchProblem::Work)?;
            budget.charge(size.saturating_mul(PatchBudget::TREE_COST_PER_BYTE))?;
        }
        // A value that cannot be parsed is not equal to any other value.
        Ok(self.value().is_some_and(|value| Some(value) == other.value()))
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

    /// Returns the length of the value's text in bytes; `None` if it is more than `limit`. Escapes in the names of
    /// members are not counted, so the text may be longer than this number.
    pub(crate) fn size(&self, limit: usize) -> Option<usize> {
        let mut remaining = limit;
        self.deduct_size(&mut remaining)?;
        Some(limit - remaining)
    }

    fn deduct_size(&self, remaining: &mut usize) -> Option<()> {
        let mut deduct_bytes = |bytes: usize| {
            *remaining = remaining.checked_sub(bytes)?;
            Some(())
        };
        match self {
            Self::Text(text) => deduct_bytes(text.len()),
            Self::Object(members) => {
                deduct_bytes(2)?;
                for (key, value) in &members.entries {
                    *remaining = remaining.checked_sub(key.len() + 4)?;
                    if let Some(value) = value {
                        value.deduct_size(remaining)?;
                    }
                }
                Some(())
            }
            Self::Array(elements) => {
                deduct_bytes(2)?;
                for item in &elements.items {
                    *remaining = remaining.checked_sub(1)?;
                    item.deduct_size(remaining)?;
                }
                Some(())
            }
        }
    }

    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Object(members) => {
                out.push('{');
                let mut is_first = true;
                for (key, value) in &members.entries {
                    let Some(value) = value else { continue };
                    if !is_first {
                        out.push(',');
                    }
                    is_first = false;
                    write_key(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::Array(elements) => {
                out.push('[');
                for (index, item) in elements.items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
        }
    }

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

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueEnd {
    Included,
    Excluded,
}

fn parse_index(token: &Token<'_>, length: usize, end: ValueEnd) -> Result<usize, PatchProblem> {
    let index = token.to_index().map_err(|_| PatchProblem::NoIndex)?;
    match end {
        ValueEnd::Included => index.for_len_incl(length),
        ValueEnd::Excluded => index.for_len(length),
    }
    .map_err(|_| PatchProblem::NoIndex)
}

impl<'a> TreeMembers<'a> {
    /// Up to this many members of an object, a linear search is used, because it is faster than hashing.
    const MAX_UNINDEXED: usize = 32;

    fn position(&self, name: &str) -> Option<usize> {
        self.entries
            .iter()
            .take(Self::MAX_UNINDEXED)
            .position(|(key, _)| key == name)
            .or_else(|| self.index.get(name).copied())
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut TreeNode<'a>> {
        let position = self.position(name)?;
        self.entries.get_mut(position)?.1.as_mut()
    }

    fn insert(&mut self, name: Cow<'_, str>, value: TreeNode<'a>) -> Option<TreeNode<'a>> {
        match self.position(&name) {
            Some(position) => self.entries.get_mut(position)?.1.replace(value),
            None => {
                self.push(Cow::Owned(name.into_owned()), value);
                None
            }
        }
    }

    fn push(&mut self, name: Cow<'a, str>, value: TreeNode<'a>) {
        if self.entries.len() >= Self::MAX_UNINDEXED {
            self.index.insert(name.clone(), self.entries.len());
        }
        self.entries.push((name, Some(value)));
    }

    fn remove(&mut self, name: &str) -> Option<TreeNode<'a>> {
        let position = self.position(name)?;
        self.entries.get_mut(position)?.1.take()
    }
}

impl<'de> Deserialize<'de> for TreeMembers<'de> {
    /// Parses an object, but leaves the values as text. Of members with the same name, the last one counts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TreeMembersVisitor;

        impl<'de> Visitor<'de> for TreeMembersVisitor {
            type Value = TreeMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TreeMembers<'de>, A::Error> {
                let mut members = TreeMembers {
                    height: 1,
                    ..TreeMembers::default()
                };
                while let Some((MemberKey(key), value)) = map.next_entry::<MemberKey<'de>, &'de RawValue>()? {
                    let value = TreeNode::Text(value.get());
                    match members.position(&key) {
                        Some(position) => {
                            if let Some((_, member)) = members.entries.get_mut(position) {
                                *member = Some(value);
                            }
                        }
                        None => members.push(key, value),
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(TreeMembersVisitor)
    }
}

pub(crate) struct MemberKey<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = MemberKey<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<MemberKey<'de>, E> {
                Ok(MemberKey(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<MemberKey<'de>, E> {
                Ok(MemberKey(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}
