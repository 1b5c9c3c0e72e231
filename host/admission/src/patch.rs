use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::Object;

/// A JSON Patch (RFC 6902).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch(json_patch::Patch);

/// Why a patch is none, or does not apply.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// Not a JSON Patch: not an array of operations.
    #[error("not a JSON Patch (RFC 6902): {0}")]
    Malformed(#[from] serde_json::Error),
    /// An operation does not apply; names the operation by its index and its path.
    #[error("{0}")]
    DoesNotApply(#[from] json_patch::PatchError),
    /// The patch leaves something that is no object.
    #[error("it leaves something that is not a JSON object")]
    NotAnObject,
}

impl Patch {
    /// Read a JSON Patch document. `null` is an empty patch, as for kube-apiserver.
    ///
    /// # Errors
    ///
    /// [`PatchError::Malformed`] when it is not one.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, PatchError> {
        Ok(Self(
            serde_json::from_slice::<Option<json_patch::Patch>>(text.as_ref())?.unwrap_or_default(),
        ))
    }

    /// The patch that makes `after` of `before`.
    pub fn between(before: &Object, after: &Object) -> Self {
        Self(json_patch::diff(before.value(), after.value()))
    }

    /// Whether it holds no operation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The object that it makes of this one.
    ///
    /// # Errors
    ///
    /// When an operation does not apply, or the result is not an object.
    pub fn apply(&self, object: &Object) -> Result<Object, PatchError> {
        let mut value: Value = object.value().clone();
        // The copy is ours alone, so a half-applied one is thrown away instead of undone.
        json_patch::patch_unsafe(&mut value, &self.0)?;
        Object::from_value(value).ok_or(PatchError::NotAnObject)
    }

    /// Add the operations of `other` behind these.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.0.extend(other.0.0);
    }
}

impl Serialize for Patch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
