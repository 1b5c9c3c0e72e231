//! A mutator applied to a tree.

use serde_json::{Map, Value};

use super::{Mutation, Mutator, Step, Subject, location::Steps};

/// Why a mutator cannot be applied to an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} is {found}, where its location expects {expected}")]
pub(super) struct OtherType {
    at: String,
    found: &'static str,
    expected: &'static str,
}

impl Mutator {
    /// Applies the mutator to an object. Returns whether that changed it.
    ///
    /// What is missing on the way is created, unless a test of a path says otherwise.
    pub(super) fn apply(&self, object: &mut Value, subject: &Subject) -> Result<bool, OtherType> {
        let walk = Walk {
            mutator: self,
            steps: self.location.steps(),
            subject,
        };
        walk.at(object, 0)
    }
}

struct Walk<'a> {
    mutator: &'a Mutator,
    steps: &'a [Step],
    subject: &'a Subject,
}

impl Walk<'_> {
    /// Takes the step of this index from a value.
    fn at(&self, value: &mut Value, index: usize) -> Result<bool, OtherType> {
        match (self.steps.get(index), value) {
            (Some(Step::Field(name)), Value::Object(object)) => self.field(object, name, index),
            (Some(Step::Items { value: None, .. }), Value::Array(list)) => self.each(list, index),
            (Some(Step::Items { key, value: Some(of) }), Value::Array(list)) => {
                self.item(list, key, of, index)
            }
            (Some(Step::Field(_)), other) => Err(self.other_type(other, "an object", index)),
            (Some(Step::Items { .. }), other) => Err(self.other_type(other, "a list", index)),
            (None, _) => Ok(false),
        }
    }

    fn field(&self, object: &mut Map<String, Value>, name: &str, index: usize) -> Result<bool, OtherType> {
        if !self.may_be(object.contains_key(name), index) {
            return Ok(false);
        }
        if self.is_last(index) {
            return self.set(object, name);
        }
        if let Some(next) = object.get_mut(name) {
            return self.at(next, index + 1);
        }
        let mut next = self.missing(index + 1);
        let is_changed = self.at(&mut next, index + 1)?;
        if is_changed {
            object.insert(name.to_owned(), next);
        }
        Ok(is_changed)
    }

    /// Every item of a list.
    fn each(&self, list: &mut [Value], index: usize) -> Result<bool, OtherType> {
        let mut is_changed = false;
        if self.may_be(true, index) {
            for item in list {
                is_changed |= self.at(item, index + 1)?;
            }
        }
        Ok(is_changed)
    }

    /// The items of which the key has this value, or a new one.
    fn item(&self, list: &mut Vec<Value>, key: &str, of: &Value, index: usize) -> Result<bool, OtherType> {
        // A whole item can only be assigned.
        let whole = match &self.mutator.mutation {
            Mutation::Assign(value) if self.is_last(index) => Some(value),
            _ => None,
        };
        let (mut is_there, mut is_changed) = (false, false);
        for item in list.iter_mut().filter(|item| item.get(key) == Some(of)) {
            is_there = true;
            if !self.may_be(true, index) {
                return Ok(false);
            }
            if let Some(value) = whole {
                // Gatekeeper replaces the first one.
                return Ok(replace(item, value.clone()));
            }
            is_changed |= self.at(item, index + 1)?;
        }
        if is_there || !self.may_be(false, index) {
            return Ok(is_changed);
        }
        let mut new = Value::Object(Map::from_iter([(key.to_owned(), of.clone())]));
        let is_added = match whole {
            Some(value) => {
                new.clone_from(value);
                true
            }
            None => self.at(&mut new, index + 1)?,
        };
        if is_added {
            list.push(new);
        }
        Ok(is_added)
    }

    /// Whether a test of the path allows that what this step leads to is there, or is missing.
    fn may_be(&self, there: bool, index: usize) -> bool {
        let mut tests = self.mutator.tests.iter();
        tests.all(|(step, must_exist)| *step != index || *must_exist == there)
    }

    fn is_last(&self, index: usize) -> bool {
        index + 1 == self.steps.len()
    }

    /// A new value for what the step of this index is taken from.
    fn missing(&self, index: usize) -> Value {
        match self.steps.get(index) {
            Some(Step::Items { .. }) => Value::Array(Vec::new()),
            _ => Value::Object(Map::new()),
        }
    }

    /// Sets the field to which the location leads. Returns whether that changed it.
    fn set(&self, object: &mut Map<String, Value>, name: &str) -> Result<bool, OtherType> {
        let expected = |expected, found: &Value| Err(self.other_type(found, expected, self.steps.len()));
        let new = match (&self.mutator.mutation, object.get(name)) {
            (Mutation::Assign(value), _) => value.clone(),
            (Mutation::AssignNamespace, _) => self.subject.namespace.as_str().into(),
            (Mutation::AssignName, _) => self.subject.name.as_str().into(),
            (Mutation::Merge(values), None) => Value::Array(values.clone()),
            (Mutation::Merge(values), Some(Value::Array(list))) => {
                let missing = values.iter().filter(|value| !list.contains(value));
                list.iter().chain(missing).cloned().collect()
            }
            (Mutation::Prune(_), None) => return Ok(false),
            (Mutation::Prune(values), Some(Value::Array(list))) => list
                .iter()
                .filter(|item| !values.contains(item))
                .cloned()
                .collect(),
            (Mutation::Merge(_) | Mutation::Prune(_), Some(other)) => return expected("a list", other),
            (Mutation::Image(parts), None) => parts.set_in("").into(),
            (Mutation::Image(parts), Some(Value::String(image))) => parts.set_in(image).into(),
            (Mutation::Image(_), Some(other)) => return expected("a string", other),
        };
        match object.get_mut(name) {
            Some(value) => Ok(replace(value, new)),
            None => {
                object.insert(name.to_owned(), new);
                Ok(true)
            }
        }
    }

    /// The value to which the steps before this index lead is not what is expected.
    fn other_type(&self, found: &Value, expected: &'static str, index: usize) -> OtherType {
        OtherType {
            at: match index {
                0 => "the object".to_owned(),
                _ => Steps(self.steps.get(..index).unwrap_or_default()).to_string(),
            },
            found: match found {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                Value::Array(_) => "a list",
                Value::Object(_) => "an object",
            },
            expected,
        }
    }
}

/// Returns whether the new value is another.
fn replace(value: &mut Value, new: Value) -> bool {
    let is_other = *value != new;
    *value = new;
    is_other
}

#[cfg(test)]
mod tests;
