//! Computes the patch between two objects.

use jsonptr::PointerBuf;
use serde_json::{Map, Value, value::to_raw_value};

use crate::{
    Object, Patch,
    patch::{OperationAction, PatchOperation},
};

/// The maximum total length of the paths in a computed patch, in bytes. Each operation repeats the keys on its path.
pub(crate) const MAX_PATHS_SIZE: usize = 1 << 20;

impl Patch {
    /// Computes the patch that turns `before` into `after`. It has one operation for each changed value. If it would
    /// exceed the limits of a patch, a single operation replaces the whole object instead.
    pub fn between(before: &Object, after: &Object) -> Self {
        let mut difference = PatchDifference::default();
        match difference.compare_values(before.value(), after.value()) {
            Some(()) => Self::from_operations(difference.operations),
            None => {
                let mut replacement = PatchDifference::default();
                // Serializing the value cannot fail, because it was parsed from JSON.
                let _ = replacement.push(OperationAction::Replace, Some(after.value()));
                Self::from_operations(replacement.operations)
            }
        }
    }
}

#[derive(Default)]
struct PatchDifference {
    operations: Vec<PatchOperation>,
    path: PointerBuf,
    paths_size: usize,
}

impl PatchDifference {
    fn compare_values(&mut self, before: &Value, after: &Value) -> Option<()> {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => self.compare_members(before, after),
            (Value::Array(before), Value::Array(after)) => self.compare_elements(before, after),
            _ if before == after => Some(()),
            _ => self.push(OperationAction::Replace, Some(after)),
        }
    }

    fn compare_members(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) -> Option<()> {
        for (key, after) in after {
            self.path.push_back(key);
            match before.get(key) {
                Some(before) => self.compare_values(before, after)?,
                None => self.push(OperationAction::Add, Some(after))?,
            }
            self.path.pop_back();
        }
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            self.path.push_back(key);
            self.push(|_| OperationAction::Remove, None)?;
            self.path.pop_back();
        }
        Some(())
    }

    fn compare_elements(&mut self, before: &[Value], after: &[Value]) -> Option<()> {
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            self.path.push_back(index);
            self.compare_values(before, after)?;
            self.path.pop_back();
        }
        for (index, added) in after.iter().enumerate().skip(before.len()) {
            self.path.push_back(index);
            self.push(OperationAction::Add, Some(added))?;
            self.path.pop_back();
        }
        self.path.push_back(after.len());
        for _ in after.len()..before.len() {
            self.push(|_| OperationAction::Remove, None)?;
        }
        self.path.pop_back();
        Some(())
    }

    fn push(
        &mut self,
        action: impl FnOnce(Box<serde_json::value::RawValue>) -> OperationAction,
        value: Option<&Value>,
    ) -> Option<()> {
        self.paths_size += self.path.len();
        if self.operations.len() >= Patch::MAX_OPERATIONS || self.paths_size > MAX_PATHS_SIZE {
            return None;
        }
        let value = to_raw_value(value.unwrap_or(&Value::Null)).ok()?;
        self.operations.push(PatchOperation {
            path: self.path.clone(),
            action: action(value),
        });
        Some(())
    }
}
