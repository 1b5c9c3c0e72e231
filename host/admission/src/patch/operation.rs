//! Applies the operations of a JSON Patch.

use jsonptr::{Pointer, PointerBuf};
use serde_json::value::RawValue;

use super::beginning;
use crate::object::tree::{PatchBudget, PatchProblem, TreeNode};

#[derive(Clone, Debug)]
pub(crate) struct PatchOperation {
    pub(crate) path: PointerBuf,
    pub(crate) action: OperationAction,
}

#[derive(Clone, Debug)]
pub(crate) enum OperationAction {
    Add(Box<RawValue>),
    Replace(Box<RawValue>),
    Test(Box<RawValue>),
    Remove,
    Move(PointerBuf),
    Copy(PointerBuf),
}

impl OperationAction {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Replace(_) => "replace",
            Self::Test(_) => "test",
            Self::Remove => "remove",
            Self::Move(_) => "move",
            Self::Copy(_) => "copy",
        }
    }

    pub(crate) fn value(&self) -> Option<&RawValue> {
        match self {
            Self::Add(value) | Self::Replace(value) | Self::Test(value) => Some(value),
            Self::Remove | Self::Move(_) | Self::Copy(_) => None,
        }
    }

    pub(super) fn source_path(&self) -> Option<&Pointer> {
        match self {
            Self::Move(from) | Self::Copy(from) => Some(from),
            Self::Add(_) | Self::Replace(_) | Self::Test(_) | Self::Remove => None,
        }
    }
}

pub(super) fn is_same_or_below(ancestor: &str, path: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl PatchOperation {
    pub(super) fn size(&self) -> usize {
        let from = self.action.source_path().map_or(0, Pointer::len);
        self.path.len() + from + self.action.value().map_or(0, |value| value.get().len())
    }

    /// Applies the operation, and returns whether it changed the object.
    pub(super) fn apply<'a>(
        &'a self,
        root: &mut TreeNode<'a>,
        has_changed: bool,
        budget: &mut PatchBudget,
    ) -> Result<bool, (PatchProblem, String)> {
        let reason = |problem: PatchProblem| (problem, problem.to_string());
        let source_reason =
            |from: &Pointer, problem: PatchProblem| (problem, format!("from {}: {problem}", beginning(from.as_str())));
        budget.charge_operation().map_err(reason)?;
        let path = &*self.path;
        let replaced_node = match &self.action {
            OperationAction::Add(value) => root.add(path, TreeNode::new(value.get()), budget).map_err(reason)?,
            OperationAction::Replace(value) => {
                let node = root.get(path, budget).map_err(reason)?;
                Some(std::mem::replace(node, TreeNode::new(value.get())))
            }
            OperationAction::Test(value) => {
                let node = root.get(path, budget).map_err(reason)?;
                return if node.equals(&TreeNode::new(value.get()), budget).map_err(reason)? {
                    Ok(false)
                } else {
                    let reason = format!("the value there is not {}", beginning(value.get()));
                    Err((PatchProblem::Nothing, reason))
                };
            }
            OperationAction::Remove => {
                root.remove(path, budget).map_err(reason)?;
                None
            }
            OperationAction::Move(from) if from == path => {
                root.get(path, budget).map_err(reason)?;
                return Ok(false);
            }
            OperationAction::Move(from) if is_same_or_below(from.as_str(), path.as_str()) => {
                return Err((PatchProblem::Nothing, "a value cannot be moved into itself".to_owned()));
            }
            OperationAction::Move(from) => {
                let value = root
                    .remove(from, budget)
                    .map_err(|problem| source_reason(from, problem))?;
                root.add(path, value, budget).map_err(reason)?;
                None
            }
            OperationAction::Copy(from) => {
                let original = root.get(from, budget);
                let copy = original
                    .and_then(|original| budget.copy(original))
                    .map_err(|problem| source_reason(from, problem))?;
                root.add(path, copy, budget).map_err(reason)?
            }
        };
        match replaced_node {
            // If the new value is equal to the replaced one, this operation does not change the object. This matters
            // only if no earlier operation of the patch has changed the object. Otherwise the values are not compared.
            Some(replaced) if !has_changed => {
                let value = root.get(path, budget).map_err(reason)?;
                value.equals(&replaced, budget).map(|same| !same).map_err(reason)
            }
            _ => Ok(true),
        }
    }

    pub(super) fn may_nest_deeply(&self) -> bool {
        const HARMLESS_DEPTH: usize = 64;
        let brackets = |text: &str| text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
        match &self.action {
            OperationAction::Add(value) | OperationAction::Replace(value) => {
                self.path.tokens().count() + brackets(value.get()) > HARMLESS_DEPTH
            }
            OperationAction::Move(_) | OperationAction::Copy(_) => true,
            OperationAction::Remove | OperationAction::Test(_) => false,
        }
    }
}
