//! Applies a mutator to an object.

use admittance_admission::{Deadline, Failure, FailureKind, Patch, PatchError};
use serde_json::{Map, Value};

use crate::{Mutation, Mutator, Step, location::LocationSteps, mutator::AssignableMetadata};

/// Limits the growth and the duration of a mutation.
pub(crate) struct Growth {
    /// The largest size of the object during the mutation, in bytes.
    limit: usize,
    bytes_left: usize,
    deadline: Deadline,
    /// The number of values that the mutation visits until it next checks whether its deadline has passed.
    visits_until_check: usize,
}

impl Growth {
    const CHECK_INTERVAL: usize = 1024;

    pub(crate) fn for_size(size: usize, deadline: Deadline) -> Self {
        let limit = Patch::result_limit(size);
        Self {
            limit,
            bytes_left: limit - size,
            deadline,
            visits_until_check: Self::CHECK_INTERVAL,
        }
    }

    pub(crate) fn check_deadline(&self) -> Result<(), Failure> {
        if self.deadline.has_passed() {
            let message = "the mutators did not come to an end in time";
            return Err(Failure::new(FailureKind::Timeout, message));
        }
        Ok(())
    }

    fn count_visit(&mut self) -> Result<(), Failure> {
        self.visits_until_check -= 1;
        if self.visits_until_check == 0 {
            self.visits_until_check = Self::CHECK_INTERVAL;
            self.check_deadline()?;
        }
        Ok(())
    }

    /// Updates the size of the object, of which a mutator replaces `before` bytes by `after` bytes. Fails if the object
    /// becomes too large.
    fn account_for_replacement(&mut self, after: usize, before: usize) -> Result<(), Failure> {
        let remaining = (self.bytes_left + before).checked_sub(after);
        self.bytes_left = remaining.ok_or(PatchError::ResultTooLarge(self.limit))?;
        Ok(())
    }
}

/// Returns a lower bound of the length of a value as JSON text, in bytes.
fn json_length(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_length(item) + 1).sum::<usize>() + 1,
        Value::Object(members) => members.iter().map(member_length).sum::<usize>() + 1,
    }
}

fn member_length((name, value): (&String, &Value)) -> usize {
    name.len() + json_length(value) + 4
}

impl Mutator {
    /// Applies the mutator to an object. Returns whether the object was changed.
    ///
    /// Creates missing objects and lists along the location, unless a path test forbids that.
    pub(crate) fn apply(
        &self,
        object: &mut Value,
        metadata: &AssignableMetadata,
        growth: &mut Growth,
    ) -> Result<bool, Failure> {
        let mut walk = MutationWalk {
            mutator: self,
            steps: self.location.steps(),
            metadata,
            growth,
        };
        walk.apply_from(object, 0)
    }
}

struct MutationWalk<'a> {
    mutator: &'a Mutator,
    steps: &'a [Step],
    metadata: &'a AssignableMetadata,
    growth: &'a mut Growth,
}

impl MutationWalk<'_> {
    /// Applies the rest of the location, from the step `step_index` on, to a value. Returns whether the value was
    /// changed.
    fn apply_from(&mut self, value: &mut Value, index: usize) -> Result<bool, Failure> {
        self.growth.count_visit()?;
        match (self.steps.get(index), value) {
            (Some(Step::Field(name)), Value::Object(object)) => self.apply_to_field(object, name, index),
            (Some(Step::Items { value: None, .. }), Value::Array(list)) => self.apply_to_items(list, index),
            (
                Some(Step::Items {
                    key,
                    value: Some(key_value),
                }),
                Value::Array(list),
            ) => self.apply_to_item(list, key, key_value, index),
            (Some(Step::Field(_)), other) => Err(self.type_failure(other, "an object", index)),
            (Some(Step::Items { .. }), other) => Err(self.type_failure(other, "a list", index)),
            (None, _) => Ok(false),
        }
    }

    fn apply_to_field(&mut self, object: &mut Map<String, Value>, name: &str, index: usize) -> Result<bool, Failure> {
        if !self.tests_permit(object.contains_key(name), index) {
            return Ok(false);
        }
        if self.is_last(index) {
            return self.set_field(object, name);
        }
        if let Some(next) = object.get_mut(name) {
            return self.apply_from(next, index + 1);
        }
        let mut next = self.empty_value(index + 1);
        let is_changed = self.apply_from(&mut next, index + 1)?;
        if is_changed {
            self.growth.account_for_replacement(name.len() + 4, 0)?;
            object.insert(name.to_owned(), next);
        }
        Ok(is_changed)
    }

    fn apply_to_items(&mut self, list: &mut [Value], index: usize) -> Result<bool, Failure> {
        let mut is_changed = false;
        if self.tests_permit(true, index) {
            for item in list {
                is_changed |= self.apply_from(item, index + 1)?;
            }
        }
        Ok(is_changed)
    }

    /// Looks in a list for the items whose field `key` has the value `key_value`, and applies the rest of the location
    /// to each of them. If the list has no such item, a new one is appended, unless a path test forbids that.
    fn apply_to_item(
        &mut self,
        list: &mut Vec<Value>,
        key: &str,
        key_value: &Value,
        step_index: usize,
    ) -> Result<bool, Failure> {
        let mutator = self.mutator;
        let assigned_item = match &mutator.mutation {
            Mutation::Assign(value) if self.is_last(step_index) => Some(value),
            _ => None,
        };
        let (mut is_there, mut is_changed) = (false, false);
        for item in list.iter_mut().filter(|item| item.get(key) == Some(key_value)) {
            is_there = true;
            if !self.tests_permit(true, step_index) {
                return Ok(false);
            }
            if let Some(value) = assigned_item {
                // Several items may have the same key. Like Gatekeeper, this program replaces only the first such item.
                return self.replace_value(item, value.clone());
            }
            is_changed |= self.apply_from(item, step_index + 1)?;
        }
        if is_there || !self.tests_permit(false, step_index) {
            return Ok(is_changed);
        }
        let mut new = Value::Object(Map::from_iter([(key.to_owned(), key_value.clone())]));
        let new_length = json_length(&new);
        let (is_added, added_length) = match assigned_item {
            Some(value) => {
                new.clone_from(value);
                (true, json_length(value))
            }
            None => (self.apply_from(&mut new, step_index + 1)?, new_length),
        };
        if is_added {
            self.growth.account_for_replacement(added_length + 1, 0)?;
            list.push(new);
        }
        Ok(is_added)
    }

    /// Checks the path tests for the step `step_index` of the location. `has_value` says whether the object has a value
    /// at this step. Returns whether all of these tests permit the mutation.
    fn tests_permit(&self, has_value: bool, index: usize) -> bool {
        let mut tests = self.mutator.path_tests.iter();
        tests.all(|(step, must_exist)| *step != index || *must_exist == has_value)
    }

    fn is_last(&self, index: usize) -> bool {
        index + 1 == self.steps.len()
    }

    /// Returns an empty value to which the step `step_index` of the location can be applied: a list if the step leads
    /// to items of a list, or else an object.
    fn empty_value(&self, index: usize) -> Value {
        match self.steps.get(index) {
            Some(Step::Items { .. }) => Value::Array(Vec::new()),
            _ => Value::Object(Map::new()),
        }
    }

    fn set_field(&mut self, object: &mut Map<String, Value>, name: &str) -> Result<bool, Failure> {
        let reject = |expected, existing: &Value| Err(self.type_failure(existing, expected, self.steps.len()));
        let new: Value = match (&self.mutator.mutation, object.get(name)) {
            (Mutation::Assign(value), _) => value.clone(),
            (Mutation::AssignNamespace, _) => self.metadata.namespace.as_str().into(),
            (Mutation::AssignName, _) => self.metadata.name.as_str().into(),
            (Mutation::Merge(values), None) => Value::Array(values.clone()),
            (Mutation::Merge(values), Some(Value::Array(list))) => {
                let missing = values.iter().filter(|value| !list.contains(value));
                list.iter().chain(missing).cloned().collect()
            }
            (Mutation::Prune(_), None) => return Ok(false),
            (Mutation::Prune(values), Some(Value::Array(list))) => {
                list.iter().filter(|item| !values.contains(item)).cloned().collect()
            }
            (Mutation::Merge(_) | Mutation::Prune(_), Some(other)) => return reject("a list", other),
            (Mutation::Image(parts), None) => parts.replace_in("").into(),
            (Mutation::Image(parts), Some(Value::String(image))) => parts.replace_in(image).into(),
            (Mutation::Image(_), Some(other)) => return reject("a string", other),
        };
        match object.get_mut(name) {
            Some(value) => self.replace_value(value, new),
            None => {
                self.growth
                    .account_for_replacement(name.len() + 4 + json_length(&new), 0)?;
                object.insert(name.to_owned(), new);
                Ok(true)
            }
        }
    }

    fn replace_value(&mut self, value: &mut Value, new: Value) -> Result<bool, Failure> {
        let is_changed = *value != new;
        if is_changed {
            self.growth
                .account_for_replacement(json_length(&new), json_length(value))?;
            *value = new;
        }
        Ok(is_changed)
    }

    fn type_failure(&self, value: &Value, expected: &'static str, index: usize) -> Failure {
        let location = match index {
            0 => "the object".to_owned(),
            _ => LocationSteps(self.steps.get(..index).unwrap_or_default()).to_string(),
        };
        let value_type = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        let message = format!("{location} is {value_type}, where its location expects {expected}");
        Failure::new(FailureKind::PatchFailed, message)
    }
}

#[cfg(test)]
mod tests;
