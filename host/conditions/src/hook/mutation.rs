//! Applies the mutations of a policy.

use admittance_admission::{
    Deadline, Failure, FailureKind, GroupVersionKind, Object, Patch, PatchError, is_call_movable,
    move_to_long_work_thread, offload,
};
use serde_json::Value as Json;

use super::{
    Inputs, POLICY_COST_LIMIT, PolicyHook, describe_fault,
    findings::{Findings, Objection},
};
use crate::{Structure, apply, machine::Machine, value::Value};

const BRIEF_SIZE: usize = 16 << 10;

impl PolicyHook {
    /// Applies the policy's mutations in order, each to the result of the previous one, and skips those that fail.
    pub(super) async fn mutate(
        &self,
        inputs: Inputs<'_>,
        object: &mut Option<Object>,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let policy = &*self.policy;
        let (Some(mut current), Some(original)) = (object.clone(), &inputs.request.object) else {
            return Ok(());
        };
        let structure = self.find_structure(&inputs.request.kind);
        // The size limit for the object after all mutations depends on the size of the original object.
        let limit = Patch::result_limit(original.text().len());
        for mutation in &policy.mutations {
            let mutation_value = {
                let variables = self.variables(inputs).with_object(Some(&current));
                let mut machine = Machine::new(&variables, &policy.definitions, POLICY_COST_LIMIT, inputs.deadline);
                let sources = self.value_sources(inputs.request);
                match machine.settle(mutation.expression(), sources).await {
                    Ok(value) => MutationValue::convert(&value, limit, inputs.deadline).await,
                    Err(fault) => {
                        findings
                            .refusals
                            .push(Objection::for_error(describe_fault(mutation, &fault)?));
                        continue;
                    }
                }
            };
            let changed = match mutation_value {
                Ok(change) => {
                    change
                        .apply_to(&current, structure.clone(), limit, inputs.deadline)
                        .await
                }
                Err(failure) => Err(failure),
            };
            match changed {
                Ok(AppliedMutation::Changed(next)) => current = next,
                Ok(AppliedMutation::Unreadable(why)) => {
                    findings.refusals.push(Objection::for_unreadable_object(why));
                    break;
                }
                // If the result is too large, or the deadline has passed, the stage fails. Any other failure of a
                // mutation becomes an objection of the policy.
                Err(failure) if matches!(failure.kind, FailureKind::OutputTooLarge | FailureKind::Timeout) => {
                    return Err(failure);
                }
                Err(failure) => findings.refusals.push(Objection::for_error(failure.message)),
            }
        }
        *object = Some(current);
        Ok(())
    }

    fn find_structure(&self, kind: &GroupVersionKind) -> Structure {
        let entry = self
            .binding
            .structures
            .iter()
            .find(|(entry_kind, _)| entry_kind == kind);
        entry
            .map(|(_, structure)| structure.clone())
            .or_else(|| Structure::builtin(kind))
            .unwrap_or_else(Structure::unknown)
    }
}

enum MutationValue {
    Patch { operations: String, count: usize },
    Apply(String),
}

enum AppliedMutation {
    Changed(Object),
    /// The API server could not read the changed object, for this reason.
    Unreadable(String),
}

impl MutationValue {
    /// Writes the result of a mutation's expression as JSON. If the JSON is long, the hook call first moves to a thread
    /// for long work, and the JSON is written there.
    async fn convert(value: &Value<'_>, limit: usize, deadline: Deadline) -> Result<Self, Failure> {
        if is_call_movable() {
            match Self::from_value(value, limit.min(BRIEF_SIZE), deadline) {
                Err(failure) if failure.kind == FailureKind::OutputTooLarge => move_to_long_work_thread().await,
                outcome => return outcome,
            }
        }
        Self::from_value(value, limit, deadline)
    }

    fn from_value(value: &Value<'_>, limit: usize, deadline: Deadline) -> Result<Self, Failure> {
        let writer = apply::JsonWriter::new(limit, deadline);
        match value {
            Value::List(operations) => Ok(Self::Patch {
                count: operations.len(),
                operations: writer.write_patch(operations)?,
            }),
            change => writer.write_change(change).map(Self::Apply),
        }
    }

    async fn apply_to(
        self,
        object: &Object,
        structure: Structure,
        limit: usize,
        deadline: Deadline,
    ) -> Result<AppliedMutation, Failure> {
        let object = object.clone();
        let size = object.text().len();
        match self {
            Self::Patch { operations, count } => {
                // An operation at the beginning of a list moves all items of the list. So the estimated work depends on
                // the number of operations, and not only on the size of the object.
                let bytes = operations.len() + size.saturating_mul(1 + count / 256);
                let apply = move || {
                    let Some(patched) = apply::apply_json_patch(object.value(), &operations, limit, deadline)? else {
                        return Ok(AppliedMutation::Changed(object));
                    };
                    if let Err(why) = structure.check_patched(object.value(), &patched) {
                        return Ok(AppliedMutation::Unreadable(why));
                    }
                    changed_object(object, patched, limit)
                };
                offload(bytes, deadline, apply).await?
            }
            Self::Apply(text) => {
                let bytes = size + text.len();
                let apply = move || {
                    let merged = apply::merge_change(object.value(), &text, &structure)?;
                    changed_object(object, merged, limit)
                };
                offload(bytes, deadline, apply).await?
            }
        }
    }
}

fn changed_object(object: Object, value: Json, limit: usize) -> Result<AppliedMutation, Failure> {
    let changed = if value == *object.value() {
        object
    } else {
        check_size(limit, Object::from_value(value).ok_or(PatchError::NotAnObject)?)?
    };
    Ok(AppliedMutation::Changed(changed))
}

fn check_size(limit: usize, object: Object) -> Result<Object, Failure> {
    if object.text().len() > limit {
        return Err(PatchError::ResultTooLarge(limit).into());
    }
    Ok(object)
}
