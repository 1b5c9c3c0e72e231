mod builder;
pub(crate) mod difference;
pub(crate) mod merge_patch;
mod operation;
pub(crate) mod pointer;
mod text;

use std::{borrow::Cow, fmt, sync::Arc};

use jsonptr::PointerBuf;

use crate::{
    Deadline, FailureKind, Object,
    object::head::can_build_tree,
    object::tree::{PatchBudget, PatchProblem, TreeNode},
    scheduling::offload::{drop_on_long_work_thread, pause_between_items},
    shortened,
};

pub use self::builder::PatchBuilder;
pub(crate) use self::operation::{OperationAction, PatchOperation};
use self::{operation::is_same_or_below, text::Drafts};

/// The number of patch operations after which the thread lets other threads run.
const OPERATIONS_BEFORE_PAUSE: usize = 2048;

/// A JSON Patch (RFC 6902). Clones share the operations.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Patch({})", self)]
pub struct Patch(Vec<Arc<PatchPart>>);

struct PatchPart {
    operations: Vec<PatchOperation>,
    size: usize,
}

impl Drop for PatchPart {
    /// Drops many operations on a thread for long work, because freeing each of them takes time.
    fn drop(&mut self) {
        drop_on_long_work_thread(std::mem::take(&mut self.operations), self.size);
    }
}

/// The reason why a patch is invalid or cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The text is not an array of operations.
    #[error("not a JSON Patch (RFC 6902): {0}")]
    Malformed(#[from] serde_json::Error),
    /// An operation cannot be applied.
    #[error("operation {index} does not apply ({operation} {path}): {reason}")]
    DoesNotApply {
        /// The index of the operation that failed, from 0.
        index: usize,
        /// The name of the operation that failed, such as `add`.
        operation: &'static str,
        /// The path of the operation that failed.
        path: String,
        /// The reason why the operation failed, as a sentence.
        reason: String,
    },
    /// The patched object would not be an object, or could not be parsed again.
    #[error("its result is not a JSON object")]
    NotAnObject,
    /// The patch has more operations than [`Patch::MAX_OPERATIONS`].
    #[error("a JSON Patch of {0} operations; the limit is {max}", max = Patch::MAX_OPERATIONS)]
    TooManyOperations(usize),
    /// An operation exceeds a limit on the data that a patch may copy, read or move.
    #[error("operation {index} exceeds the limits of a patch ({operation} {path}): {reason}")]
    TooMuchWork {
        /// The index of the operation that exceeds the limit, from 0.
        index: usize,
        /// The name of the operation that exceeds the limit, such as `copy`.
        operation: &'static str,
        /// The path of the operation that exceeds the limit.
        path: String,
        /// The limit that is exceeded, as a sentence.
        reason: String,
    },
    /// The patched object would exceed this size limit, in bytes.
    #[error("its result has more than {0} bytes")]
    ResultTooLarge(usize),
    /// The deadline passed while the operation with this index was applied.
    #[error("the deadline passed after {0} operations")]
    DeadlinePassed(usize),
}

impl PatchError {
    /// Returns the kind of failure that this error causes in a stage.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Malformed(_) => FailureKind::InvalidResponse,
            Self::DoesNotApply { .. } | Self::NotAnObject => FailureKind::PatchFailed,
            Self::TooManyOperations(_) | Self::TooMuchWork { .. } | Self::ResultTooLarge(_) => {
                FailureKind::OutputTooLarge
            }
            Self::DeadlinePassed(_) => FailureKind::Timeout,
        }
    }

    fn new(problem: PatchProblem, reason: String, index: usize, operation: &PatchOperation) -> Self {
        let (path, operation) = (beginning(operation.path.as_str()).into_owned(), operation.action.name());
        match problem {
            PatchProblem::Deadline => Self::DeadlinePassed(index),
            PatchProblem::Copies | PatchProblem::Work => Self::TooMuchWork {
                index,
                operation,
                path,
                reason,
            },
            _ => Self::DoesNotApply {
                index,
                operation,
                path,
                reason,
            },
        }
    }
}

impl Patch {
    /// The maximum number of operations in a patch, as in kube-apiserver.
    pub const MAX_OPERATIONS: usize = 10_000;

    /// The maximum number of bytes that all `copy` operations of a patch may copy, as in kube-apiserver.
    pub const MAX_COPIED_BYTES: usize = 3 << 20;

    /// A patch may let a small object grow to this size in bytes. A larger object may grow by [`Patch::MAX_GROWTH`].
    pub const MAX_RESULT_BYTES: usize = 16 << 20;

    /// A patch may let an object of any size grow by this many bytes.
    pub const MAX_GROWTH: usize = 1 << 20;

    /// The work that every patch may do, in units. A unit is a byte that is read, or an element that is moved.
    const BASE_WORK: usize = 1 << 20;

    /// The units of work that a patch may do for each byte of the patch and of the object. They are added to
    /// `BASE_WORK`, which does not depend on the size.
    const WORK_PER_BYTE: usize = 64;

    /// Parses a JSON Patch document. `null` is an empty patch, as in kube-apiserver.
    ///
    /// # Errors
    ///
    /// Returns [`PatchError::Malformed`] when the text is invalid or has duplicate keys, and
    /// [`PatchError::TooManyOperations`].
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, PatchError> {
        let Drafts { drafts, count } = serde_json::from_slice::<Option<Drafts<'_>>>(text.as_ref())?.unwrap_or_default();
        if count > Self::MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations(count));
        }
        let operations = drafts.into_iter().enumerate().map(|(index, draft)| {
            pause_between_items(index, OPERATIONS_BEFORE_PAUSE);
            draft
                .into_operation()
                .map_err(|reason| malformed_operation(index, reason))
        });
        Ok(Self::from_operations(operations.collect::<Result<_, _>>()?))
    }

    /// Starts building a patch.
    ///
    /// ```
    /// use admittance_admission::Patch;
    ///
    /// let patch = Patch::builder()
    ///     .add("/metadata/labels/team", &"storage")?
    ///     .remove("/spec/nodeName")?
    ///     .build();
    /// assert_eq!(patch.len(), 2);
    /// # Ok::<(), admittance_admission::PatchError>(())
    /// ```
    pub fn builder() -> PatchBuilder {
        PatchBuilder::default()
    }

    pub(crate) fn from_operations(operations: Vec<PatchOperation>) -> Self {
        if operations.is_empty() {
            return Self::default();
        }
        let size = operations.iter().map(PatchOperation::size).sum();
        Self(vec![Arc::new(PatchPart { operations, size })])
    }

    /// Returns whether the patch has no operations, so that it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of operations in the patch.
    pub fn len(&self) -> usize {
        self.0.iter().map(|part| part.operations.len()).sum()
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = &PatchOperation> {
        self.0.iter().flat_map(|part| &part.operations)
    }

    /// Returns the maximum size of an object after it has been patched, in bytes. `size` is its size before the patch.
    pub fn result_limit(size: usize) -> usize {
        Self::MAX_RESULT_BYTES.max(size.saturating_add(Self::MAX_GROWTH))
    }

    pub(crate) fn size(&self) -> usize {
        self.0.iter().map(|part| part.size).sum()
    }

    /// Estimates, without the object, how many bytes are read and written to apply the patch to an object of this size.
    pub fn work(&self, object_size: usize) -> usize {
        let is_copy = |operation: &&PatchOperation| matches!(operation.action, OperationAction::Copy(_));
        // A `copy` operation may copy the whole object to a place inside it, which doubles the object's size. So the
        // estimated size doubles with each `copy` operation.
        let copied_bytes = match self.operations().filter(is_copy).count() {
            0 => 0,
            copies => object_size
                .saturating_mul(1 << copies.min(30))
                .min(Self::MAX_COPIED_BYTES),
        };
        self.size() + self.len() * PatchBudget::OPERATION_COST + copied_bytes
    }

    /// Estimates the memory that the patch occupies, in bytes.
    pub fn memory_size(&self) -> usize {
        // Each operation has two heap allocations. The allocator rounds them up by about 32 bytes in total.
        let bytes_per_operation = size_of::<PatchOperation>() + 32;
        size_of::<PatchPart>() * self.0.len() + self.len() * bytes_per_operation + self.size()
    }

    /// Applies the patch to an object, and returns the same object if nothing changes. Unchanged parts keep their text.
    /// The time is linear in the sizes of object and patch.
    ///
    /// # Errors
    ///
    /// Fails when an operation does not apply, the result is not an object, or a limit is exceeded.
    pub fn apply(&self, object: &Object) -> Result<Object, PatchError> {
        self.apply_with_deadline(object, None)
    }

    /// Applies the patch as [`apply`](Self::apply) does, but fails when the deadline passes.
    ///
    /// # Errors
    ///
    /// Fails as [`apply`](Self::apply) does, and with [`PatchError::DeadlinePassed`].
    pub fn apply_with_deadline(&self, object: &Object, deadline: Option<Deadline>) -> Result<Object, PatchError> {
        let size = object.text().len();
        let mut budget = Self::budget(size + self.size(), deadline);
        let mut root = TreeNode::new(object.text());
        let mut has_changed = false;
        let mut may_be_deep = false;
        for (index, operation) in self.operations().enumerate() {
            pause_between_items(index, OPERATIONS_BEFORE_PAUSE);
            has_changed |= operation
                .apply(&mut root, has_changed, &mut budget)
                .map_err(|(problem, reason)| PatchError::new(problem, reason, index, operation))?;
            may_be_deep |= operation.may_nest_deeply();
        }
        if !root.is_object() {
            return Err(PatchError::NotAnObject);
        }
        if !has_changed {
            return Ok(object.clone());
        }
        let limit = Self::result_limit(size);
        let size = root.size(limit).ok_or(PatchError::ResultTooLarge(limit))?;
        let mut text = String::with_capacity(size);
        root.write(&mut text);
        if may_be_deep && !can_build_tree(&text) {
            return Err(PatchError::NotAnObject);
        }
        Ok(Object::from_checked(text))
    }

    /// Returns the work budget of a patch. `bytes` is the total size of patch and object.
    pub(crate) fn budget(bytes: usize, deadline: Option<Deadline>) -> PatchBudget {
        let work = bytes.saturating_mul(Self::WORK_PER_BYTE);
        PatchBudget::new(work.saturating_add(Self::BASE_WORK), Self::MAX_COPIED_BYTES, deadline)
    }

    /// Returns a patch with the operations of this patch, followed by those of `other`. The paths in `other` are
    /// relative to the value at `prefix`, so `prefix` is put before each of them.
    #[must_use]
    pub fn followed_by(&self, other: &Self, prefix: &crate::Pointer) -> Self {
        let prefix_segments = prefix.segments();
        let add_prefix = |pointer: &PointerBuf| {
            let mut prefixed_path = PointerBuf::from_tokens(prefix_segments);
            prefixed_path.append(pointer);
            prefixed_path
        };
        let operations = other.operations().map(|operation| PatchOperation {
            path: add_prefix(&operation.path),
            action: match &operation.action {
                OperationAction::Move(from) => OperationAction::Move(add_prefix(from)),
                OperationAction::Copy(from) => OperationAction::Copy(add_prefix(from)),
                action => action.clone(),
            },
        });
        let mut combined = self.clone();
        combined.append(&Self::from_operations(operations.collect()));
        combined
    }

    pub(crate) fn may_reach(&self, target: &str) -> bool {
        self.operations().any(|operation| {
            let source = match &operation.action {
                OperationAction::Move(from) => Some(from.as_str()),
                _ => None,
            };
            std::iter::once(operation.path.as_str())
                .chain(source)
                .any(|path| reaches(path, target))
        })
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }
}

fn parse_pointer(text: impl Into<String>) -> Result<PointerBuf, String> {
    PointerBuf::parse(text.into()).map_err(|error| format!("`{}` is not a JSON Pointer", beginning(error.subject())))
}

fn malformed_operation(index: usize, reason: String) -> PatchError {
    PatchError::Malformed(serde::de::Error::custom(format!("operation {index}: {reason}")))
}

/// Returns whether a change at `path` may affect the value at `target`, for example by moving an array's elements.
fn reaches(path: &str, target: &str) -> bool {
    let (parent, last_segment) = path.rsplit_once('/').unwrap_or(("", path));
    let may_be_in_array = last_segment == "-" || last_segment.bytes().all(|byte| byte.is_ascii_digit());
    is_same_or_below(path, target)
        || is_same_or_below(target, path)
        || (may_be_in_array && is_same_or_below(parent, target))
}

fn beginning(text: &str) -> Cow<'_, str> {
    shortened(text, 80)
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl PartialEq for Patch {
    /// Compares the JSON texts of two patches.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_may_change_values_at_above_and_below_their_paths() {
        for (path, target, expected) in [
            ("/metadata/name", "/metadata/name", true),
            ("/metadata", "/metadata/name", true),
            ("", "/metadata/name", true),
            ("/metadata/name/deeper", "/metadata/name", true),
            ("/metadata/labels/a", "/metadata/name", false),
            ("/metadata/names", "/metadata/name", false),
            ("/metadata/nam", "/metadata/name", false),
            ("/spec", "/metadata/name", false),
            // An operation at `/items/0` may insert or remove an element, and so move all later elements, such as
            // the one that contains `/items/2/name`.
            ("/items/0", "/items/2/name", true),
            ("/items/-", "/items/2/name", true),
            ("/other/0", "/items/2/name", false),
            // The function `reaches` sees only paths, and not the object. So it assumes that `/metadata` is an array,
            // in which an operation at `/metadata/0` moves the elements. If `/metadata` is an object, this only causes
            // a needless comparison.
            ("/metadata/0", "/metadata/name", true),
        ] {
            assert_eq!(reaches(path, target), expected, "{path} {target}");
        }
        let patch = |text: &str| Patch::parse(text).unwrap();
        let moving_patch = patch(r#"[{"op": "move", "from": "/metadata/name", "path": "/spec/name"}]"#);
        assert!(moving_patch.may_reach("/metadata/name"), "a move takes it away");
        let copying_patch = patch(r#"[{"op": "copy", "from": "/metadata/name", "path": "/spec/name"}]"#);
        assert!(!copying_patch.may_reach("/metadata/name"), "a copy leaves it");
    }
}
