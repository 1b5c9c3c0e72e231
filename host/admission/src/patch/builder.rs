use serde::Serialize;
use serde_json::value::RawValue;

use super::{OperationAction, Patch, PatchError, PatchOperation, malformed_operation, parse_pointer};
use crate::object::head::check_unique_keys;

/// Builds a [`Patch`], one operation after another.
///
/// Each method fails when the pointer is invalid, the value cannot be serialized, or the patch has too many operations.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PatchBuilder(Vec<PatchOperation>);

impl PatchBuilder {
    /// Adds an operation that sets a member of an object, or inserts an element into an array; `/-` appends an element.
    ///
    /// # Errors
    ///
    /// See [`PatchBuilder`].
    pub fn add(self, pointer: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, PatchError> {
        self.push(pointer, OperationAction::Add(serialize_value(value)?))
    }

    /// Adds an operation that replaces an existing value.
    ///
    /// # Errors
    ///
    /// See [`PatchBuilder`].
    pub fn replace(self, pointer: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, PatchError> {
        self.push(pointer, OperationAction::Replace(serialize_value(value)?))
    }

    /// Adds an operation that removes an existing value.
    ///
    /// # Errors
    ///
    /// See [`PatchBuilder`].
    pub fn remove(self, pointer: &str) -> Result<Self, PatchError> {
        self.push(pointer, OperationAction::Remove)
    }

    /// Adds an operation that makes the whole patch fail unless the value at this path is equal to `value`.
    ///
    /// # Errors
    ///
    /// See [`PatchBuilder`].
    pub fn test(self, pointer: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, PatchError> {
        self.push(pointer, OperationAction::Test(serialize_value(value)?))
    }

    /// Returns the finished patch.
    pub fn build(self) -> Patch {
        Patch::from_operations(self.0)
    }

    fn push(mut self, pointer: &str, action: OperationAction) -> Result<Self, PatchError> {
        if self.0.len() == Patch::MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations(Patch::MAX_OPERATIONS + 1));
        }
        let path = parse_pointer(pointer).map_err(|reason| malformed_operation(self.0.len(), reason))?;
        self.0.push(PatchOperation { path, action });
        Ok(self)
    }
}

fn serialize_value(value: &(impl Serialize + ?Sized)) -> Result<Box<RawValue>, serde_json::Error> {
    let value = serde_json::value::to_raw_value(value)?;
    check_unique_keys(value.get())?;
    Ok(value)
}
