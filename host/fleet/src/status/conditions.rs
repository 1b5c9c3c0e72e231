//! The conditions of a definition in the status of its resource.

use admittance::{ChainStatus, ExceptionStatus, Moment, Served, StageStatus, VersionState, admission::Mode};
use admittance_admission::shortened;
use admittance_cluster::ResourceKind;
use serde_json::{Value, json};

use super::{LAST_TRANSITION, MAX_MESSAGE_LENGTH};
use crate::chains::EXCEPTION;

/// The reason in the conditions Live and Enforced if a chain is served, but no request can ever reach it.
const NEVER_CALLED: &str = "NeverCalled";

struct StatusCondition {
    /// The status of the condition: true, false, or `None` for `Unknown`.
    is_true: Option<bool>,
    reason: &'static str,
    message: String,
}

impl StatusCondition {
    fn new(is_true: impl Into<Option<bool>>, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_true: is_true.into(),
            reason,
            message: message.into(),
        }
    }
}

/// The conditions in a definition's status. For an exception, only `accepted` and `live` are set.
pub(super) struct DefinitionConditions {
    accepted: StatusCondition,
    modules_resolved: StatusCondition,
    live: StatusCondition,
    enforced: StatusCondition,
}

#[derive(Clone, Copy)]
pub(super) enum StatusDefinition<'a> {
    Chain(&'a ChainStatus),
    Exception(&'a ExceptionStatus),
}

impl DefinitionConditions {
    /// Returns the conditions for this state of a definition's version; `None` if the state is not known yet.
    pub(super) fn new(state: &VersionState, live: Option<StatusDefinition<'_>>) -> Option<Self> {
        Some(match state {
            VersionState::Live => conditions_of_live(live?),
            VersionState::Bad(bad) if matches!(bad.served, Served::LastModules | Served::FailingStages) => {
                DefinitionConditions {
                    modules_resolved: StatusCondition::new(false, "NotFetched", bad.reasons.join("\n")),
                    ..conditions_of_live(live?)
                }
            }
            VersionState::Bad(bad) => {
                let (reason, message) = match bad.served {
                    Served::LastVersion => ("LastVersion", "The last valid version is live."),
                    _ => ("NotServed", "Nothing of this chain is live."),
                };
                let reasons = bad.reasons.join("\n");
                let (accepted, modules_resolved) = if bad.is_transient {
                    (valid_condition(), StatusCondition::new(false, "NotFetched", reasons))
                } else {
                    (
                        StatusCondition::new(false, "Invalid", reasons),
                        StatusCondition::new(None, "Invalid", "The modules of an invalid chain are not fetched."),
                    )
                };
                conditions_of_not_live(accepted, modules_resolved, reason, message)
            }
            VersionState::Blocked(mistakes) => {
                let unknown = || StatusCondition::new(None, "NoTable", mistakes.join("\n"));
                let message = "No table can be built from all definitions; the previous one is live.";
                conditions_of_not_live(unknown(), unknown(), "NoTable", message)
            }
            VersionState::RolledBack => {
                let message = "A user rolled back to an earlier revision, which is live.";
                let unknown = || StatusCondition::new(None, "RolledBack", message);
                conditions_of_not_live(unknown(), unknown(), "RolledBack", message)
            }
            _ => return None,
        })
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.is_true == Some(true) || self.live.reason == NEVER_CALLED
    }

    pub(super) fn to_json(&self, kind: &ResourceKind, before: &Value, generation: &Value, now: Moment) -> Value {
        let before = before.get("conditions").and_then(Value::as_array);
        let condition = |name: &str, condition: &StatusCondition| {
            let status_text = match condition.is_true {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let is_same = |old_condition: &&Value| {
                let has_text = |field: &str, text: &str| old_condition.get(field).and_then(Value::as_str) == Some(text);
                has_text("type", name) && has_text("status", status_text)
            };
            let previous_condition = before.and_then(|before| before.iter().find(is_same));
            let since = previous_condition
                .and_then(|fields| fields.get(LAST_TRANSITION))
                .cloned();
            json!({
                "type": name,
                "status": status_text,
                "reason": condition.reason,
                "message": shortened(&condition.message, MAX_MESSAGE_LENGTH),
                "observedGeneration": generation,
                LAST_TRANSITION: since.unwrap_or_else(|| now.to_string().into()),
            })
        };
        let accepted = condition("Accepted", &self.accepted);
        let live = condition("Live", &self.live);
        if *kind == EXCEPTION {
            return json!([accepted, live]);
        }
        let modules_resolved = condition("ModulesResolved", &self.modules_resolved);
        let enforced = condition("Enforced", &self.enforced);
        json!([accepted, modules_resolved, live, enforced])
    }
}

fn valid_condition() -> StatusCondition {
    StatusCondition::new(true, "Valid", "The definition is valid.")
}

fn conditions_of_live(definition: StatusDefinition<'_>) -> DefinitionConditions {
    let live = StatusCondition::new(true, "Live", "The live table has this version.");
    let (stages, unreached) = match definition {
        StatusDefinition::Chain(chain) => (chain.stages.as_slice(), chain.unreached.as_ref()),
        StatusDefinition::Exception(_) => (&[][..], None),
    };
    let not_called = |reason| {
        let reasons = unreached.map(|unreached| unreached.reasons.join("\n"));
        StatusCondition::new(false, reason, reasons.unwrap_or_default())
    };
    let is_whole = unreached.map(|unreached| unreached.is_whole);
    let unavailable: Vec<_> = stages.iter().flat_map(unavailable_modules).collect();
    DefinitionConditions {
        accepted: valid_condition(),
        live: match definition {
            StatusDefinition::Exception(exception) if exception.expired => {
                let message = format!("It expired at {}, so it excepts nothing.", exception.expires);
                StatusCondition::new(false, "Expired", message)
            }
            _ if is_whole == Some(true) => not_called(NEVER_CALLED),
            _ => live,
        },
        modules_resolved: if unavailable.is_empty() {
            StatusCondition::new(true, "Resolved", "Every module is verified and compiled.")
        } else {
            StatusCondition::new(false, "NotFetched", unavailable.join("\n"))
        },
        enforced: match is_whole {
            Some(true) => not_called(NEVER_CALLED),
            Some(false) => not_called("PartlyCalled"),
            None => enforced_condition(stages),
        },
    }
}

fn conditions_of_not_live(
    accepted: StatusCondition,
    modules_resolved: StatusCondition,
    reason: &'static str,
    message: &str,
) -> DefinitionConditions {
    DefinitionConditions {
        accepted,
        modules_resolved,
        live: StatusCondition::new(false, reason, message),
        enforced: StatusCondition::new(false, "NotLive", "This version is not live."),
    }
}

fn enforced_condition(stages: &[StageStatus]) -> StatusCondition {
    let stages = || stages.iter();
    let disabled: Vec<_> = stages()
        .filter_map(|stage| {
            let disabled = stage.disabled.as_ref()?;
            let effect = if disabled.audit { "only audited" } else { "not called" };
            Some(format!(
                "stage {} is {effect} until {}: {}",
                stage.name, disabled.until, disabled.reason
            ))
        })
        .collect();
    let audited_stages: Vec<_> = stages()
        .filter(|stage| stage.mode == Mode::Audit)
        .map(|stage| stage.name.as_str())
        .collect();
    if !disabled.is_empty() {
        return StatusCondition::new(false, "Disabled", disabled.join("\n"));
    }
    if audited_stages.is_empty() {
        StatusCondition::new(true, "Enforced", "The answers of all stages are enforced.")
    } else {
        StatusCondition::new(false, "Audit", format!("in mode Audit: {}", audited_stages.join(", ")))
    }
}

fn unavailable_modules(stage: &StageStatus) -> impl Iterator<Item = String> {
    stage.hook.parts().filter_map(|hook| {
        let (source, reason) = (hook.fact_text("source")?, hook.fact_text("reason")?);
        Some(format!("stage {}: {source}: {reason}", stage.name))
    })
}
