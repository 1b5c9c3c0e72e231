//! The status of a resource that holds a definition: whether the definition is valid, live and enforced, and why not.

use admittance::{
    ChainStatus, ExceptionStatus, Moment, RolloutProgress, RolloutState, Served, StageStatus, Standing,
    Status, admission::Mode,
};
use admittance_admission::shortened;
use admittance_cluster::{Event, EventObject, Resource, ResourceKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    chains::{EXCEPTION, definition_name},
    leader::StatusPass,
};

/// The most mistakes that a status lists.
const MOST_MISTAKES: usize = 20;
/// The longest text of a message in a status, in bytes.
const LONGEST_MESSAGE: usize = 1024;

// The fields of a status that tell when something happened, and how often. A status that differs in nothing else is not
// written again.
const REVISION: &str = "revision";
const RECENT: &str = "recent";
const LAST_TRANSITION: &str = "lastTransitionTime";

/// The reason of the conditions of a chain that is in the live table but gets no request.
const NEVER_CALLED: &str = "NeverCalled";

/// The field with the progress of rollouts. A replica that starts without a history continues from there.
const ROLLOUTS: &str = "rollouts";

/// A condition of a resource, without its type.
struct Condition {
    /// Whether the condition holds; `None` if that is unknown.
    holds: Option<bool>,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(holds: impl Into<Option<bool>>, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: holds.into(),
            reason,
            message: message.into(),
        }
    }
}

/// The conditions of a definition. An exception has only `accepted` and `live`.
struct Conditions {
    accepted: Condition,
    modules_resolved: Condition,
    live: Condition,
    enforced: Condition,
}

#[derive(Clone, Copy)]
enum Definition<'a> {
    Chain(&'a ChainStatus),
    Exception(&'a ExceptionStatus),
}

/// Returns the status that the resource should have; `None` if it already has it.
pub(crate) fn new_status(
    kind: &ResourceKind,
    resource: &Resource,
    standing: &Standing,
    pass: &StatusPass,
    now: Moment,
) -> Option<Value> {
    let host = &pass.status;
    let before = resource.object.get("status").unwrap_or(&Value::Null);
    let generation = resource.object.get("metadata")?.get("generation").cloned()?;
    let live = live(kind, resource, host);
    let conditions = match standing {
        Standing::Live => conditions_of_live(live?),
        Standing::Bad(bad) if matches!(bad.served, Served::LastModules | Served::FailingStages) => {
            Conditions {
                modules_resolved: Condition::new(false, "NotFetched", bad.reasons.join("\n")),
                ..conditions_of_live(live?)
            }
        }
        Standing::Bad(bad) => {
            let (reason, message) = match bad.served {
                Served::LastVersion => ("LastVersion", "The last valid version is live."),
                _ => ("NotServed", "Nothing of this chain is live."),
            };
            let reasons = bad.reasons.join("\n");
            let (accepted, modules_resolved) = if bad.is_transient {
                (valid(), Condition::new(false, "NotFetched", reasons))
            } else {
                (
                    Condition::new(false, "Invalid", reasons),
                    Condition::new(
                        None,
                        "Invalid",
                        "The modules of an invalid chain are not fetched.",
                    ),
                )
            };
            not_live(accepted, modules_resolved, reason, message)
        }
        Standing::Blocked(mistakes) => {
            let unknown = || Condition::new(None, "NoTable", mistakes.join("\n"));
            let message = "No table can be built from all definitions; the previous one is live.";
            not_live(unknown(), unknown(), "NoTable", message)
        }
        Standing::RolledBack => {
            let message = "A user rolled back to an earlier revision, which is live.";
            let unknown = || Condition::new(None, "RolledBack", message);
            not_live(unknown(), unknown(), "RolledBack", message)
        }
        _ => return None,
    };
    let is_live = conditions.live.holds == Some(true) || conditions.live.reason == NEVER_CALLED;
    let mistakes = match (standing, live) {
        (Standing::Bad(bad), _) => bad.reasons.as_slice(),
        (Standing::Blocked(mistakes), _) => mistakes,
        (Standing::Live, Some(Definition::Exception(exception))) => &exception.unknown,
        _ => &[],
    };
    let mut status = json!({
        "observedGeneration": generation,
        "conditions": conditions.to_json(kind, before, &generation, now),
    });
    if let Some(fields) = status.as_object_mut() {
        if is_live {
            fields.insert(REVISION.to_owned(), revision(before, &generation, host));
        }
        if let Some(Definition::Chain(chain)) = live.filter(|_| is_live) {
            let modules = chain.stages.iter().flat_map(modules);
            fields.insert("modules".to_owned(), modules.collect());
            fields.extend(recent(chain, now).map(|recent| (RECENT.to_owned(), recent)));
        }
        let known = before.get(ROLLOUTS).filter(|_| !is_live).cloned();
        let now = || rollouts_of(resource, &pass.rollouts);
        fields.extend(known.or_else(now).map(|rollouts| (ROLLOUTS.to_owned(), rollouts)));
        if !mistakes.is_empty() {
            let mistakes = mistakes.iter().take(MOST_MISTAKES);
            fields.insert(
                "mistakes".to_owned(),
                mistakes
                    .map(|mistake| shortened(mistake, LONGEST_MESSAGE))
                    .collect(),
            );
        }
    }
    let differs = comparable(&status) != comparable(before);
    let has_news = pass.writes_counts && counts(&status) != counts(before);
    (differs || has_news).then_some(status)
}

/// Returns the progress of rollouts in the status of a chain.
pub(crate) fn rollouts(resource: &Resource) -> Vec<RolloutProgress> {
    let rollouts = resource
        .object
        .get("status")
        .and_then(|status| status.get(ROLLOUTS));
    let mut rollouts = rollouts
        .and_then(|rollouts| Vec::<RolloutProgress>::deserialize(rollouts).ok())
        .unwrap_or_default();
    rollouts.retain(|rollout| is_of(resource, rollout));
    rollouts
}

/// Returns the rollouts of a chain as they are in its status; `None` without any.
fn rollouts_of(resource: &Resource, rollouts: &[RolloutProgress]) -> Option<Value> {
    let own: Vec<_> = rollouts
        .iter()
        .filter(|rollout| is_of(resource, rollout))
        .collect();
    serde_json::to_value(&own).ok().filter(|_| !own.is_empty())
}

/// Returns whether this is the rollout of a stage of this chain.
fn is_of(resource: &Resource, rollout: &RolloutProgress) -> bool {
    let name = definition_name(&resource.namespace, &resource.name);
    let stage = rollout.stage.split_once(':').map(|(_, stage)| stage);
    let stage = stage.and_then(|stage| stage.strip_prefix(&name)?.strip_prefix('/'));
    // The names of stages have no `/`, but the names of chains in namespaces do.
    stage.is_some_and(|stage| !stage.contains('/'))
}

/// Counts the calls of a chain's stages by this replica in the last minutes; `None` without any.
fn recent(chain: &ChainStatus, now: Moment) -> Option<Value> {
    let mut sum = [0; 3];
    let mut seconds = 0;
    for stage in &chain.stages {
        let calls = &stage.calls.recent;
        let all = calls.allowed + calls.changed + calls.denied + calls.failed;
        for (sum, count) in sum.iter_mut().zip([all, calls.denied, calls.failed]) {
            *sum += count;
        }
        seconds = seconds.max(calls.seconds);
    }
    let [calls, denied, failed] = sum;
    (calls > 0).then(|| {
        json!({"at": now.to_string(), "seconds": seconds, "calls": calls, "denied": denied, "failed": failed})
    })
}

fn counts(status: &Value) -> [Option<&Value>; 3] {
    let recent = status.get(RECENT);
    ["calls", "denied", "failed"].map(|count| recent.and_then(|recent| recent.get(count)))
}

/// Returns the event for a new status, if the definition went live or was refused, or if a rollout ended.
pub(crate) fn event(kind: &ResourceKind, resource: &Resource, status: &Value) -> Option<Event> {
    let before = resource.object.get("status").unwrap_or(&Value::Null);
    let generation = |status: &Value| status.get("observedGeneration").cloned();
    let is_new = |kind: &str, holds: &str| {
        is_condition(status, kind, holds)
            && !(generation(before) == generation(status) && is_condition(before, kind, holds))
    };
    let (is_warning, reason, action, note) = if is_new("Accepted", "False") {
        let mistakes = status.get("mistakes").and_then(Value::as_array);
        let mistakes: Vec<_> = mistakes.into_iter().flatten().filter_map(Value::as_str).collect();
        (true, "Refused", "Check", mistakes.join("\n"))
    } else if is_new("Live", "True") {
        let number = |field: &str| status.get(field).map(Value::to_string).unwrap_or_default();
        let (generation, revision) = (number("observedGeneration"), number(REVISION));
        let note = format!("generation {generation} is live since revision {revision}");
        (false, "Live", "GoLive", note)
    } else {
        let (before, now) = (rollouts(resource), status.get(ROLLOUTS)?);
        let now = Vec::<RolloutProgress>::deserialize(now).ok()?;
        rolled_out(&now.into_iter().find(|rollout| !before.contains(rollout))?)?
    };
    Some(Event {
        regarding: EventObject {
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            namespace: resource.namespace.clone(),
            name: resource.name.clone(),
            uid: resource.metadata("uid").unwrap_or_default().to_owned(),
        },
        related: None,
        is_warning,
        reason,
        action,
        note,
    })
}

/// Returns whether the event for a rollout that has ended is a warning, its reason, its action and its note.
fn rolled_out(rollout: &RolloutProgress) -> Option<(bool, &'static str, &'static str, String)> {
    let RolloutProgress { stage, .. } = rollout;
    let reason = rollout.reason_and_replica().unwrap_or_default();
    match rollout.state {
        RolloutState::Aborted => {
            let note = format!("the plugin of {stage} decides all requests again: {reason}");
            Some((true, "RolloutAborted", "Abort", note))
        }
        RolloutState::Completed => {
            let note = format!("the rollout of the candidate of {stage} is completed: it can be promoted");
            Some((false, "RolloutCompleted", "RollOut", note))
        }
        _ => None,
    }
}

fn is_condition(status: &Value, kind: &str, holds: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let is = |field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
        is("type", kind) && is("status", holds)
    })
}

/// Returns the definition of this kind and name in the live table.
fn live<'a>(kind: &ResourceKind, resource: &Resource, host: &'a Status) -> Option<Definition<'a>> {
    if *kind == EXCEPTION {
        let mut exceptions = host.exceptions.iter();
        let found = exceptions.find(|exception| exception.name == resource.name);
        return found.map(Definition::Exception);
    }
    let phase = resource.object.get("spec").and_then(|spec| spec.get("phase"));
    let phase = phase.and_then(Value::as_str).unwrap_or("Mutating");
    let name = definition_name(&resource.namespace, &resource.name);
    let is_it = |chain: &&ChainStatus| chain.name == name && chain.phase.as_str() == phase;
    host.chains.iter().find(is_it).map(Definition::Chain)
}

fn valid() -> Condition {
    Condition::new(true, "Valid", "The definition is valid.")
}

fn conditions_of_live(definition: Definition<'_>) -> Conditions {
    let live = Condition::new(true, "Live", "The live table has this version.");
    let (stages, unreached) = match definition {
        Definition::Chain(chain) => (chain.stages.as_slice(), chain.unreached.as_ref()),
        Definition::Exception(_) => (&[][..], None),
    };
    let not_called = |reason| {
        let reasons = unreached.map(|unreached| unreached.reasons.join("\n"));
        Condition::new(false, reason, reasons.unwrap_or_default())
    };
    let is_whole = unreached.map(|unreached| unreached.is_whole);
    let unavailable: Vec<_> = stages.iter().flat_map(unavailable).collect();
    Conditions {
        accepted: valid(),
        live: match definition {
            Definition::Exception(exception) if exception.expired => {
                let message = format!("It expired at {}, so it excepts nothing.", exception.expires);
                Condition::new(false, "Expired", message)
            }
            _ if is_whole == Some(true) => not_called(NEVER_CALLED),
            _ => live,
        },
        modules_resolved: if unavailable.is_empty() {
            Condition::new(true, "Resolved", "Every module is verified and compiled.")
        } else {
            Condition::new(false, "NotFetched", unavailable.join("\n"))
        },
        enforced: match is_whole {
            Some(true) => not_called(NEVER_CALLED),
            Some(false) => not_called("PartlyCalled"),
            None => enforced(stages),
        },
    }
}

fn not_live(
    accepted: Condition,
    modules_resolved: Condition,
    reason: &'static str,
    message: &str,
) -> Conditions {
    Conditions {
        accepted,
        modules_resolved,
        live: Condition::new(false, reason, message),
        enforced: Condition::new(false, "NotLive", "This version is not live."),
    }
}

fn enforced(stages: &[StageStatus]) -> Condition {
    let stages = || stages.iter();
    let disabled: Vec<_> = stages()
        .filter_map(|stage| {
            let disabled = stage.disabled.as_ref()?;
            let how = if disabled.audit {
                "only audited"
            } else {
                "not called"
            };
            Some(format!(
                "stage {} is {how} until {}: {}",
                stage.name, disabled.until, disabled.reason
            ))
        })
        .collect();
    let audited: Vec<_> = stages()
        .filter(|stage| stage.mode == Mode::Audit)
        .map(|stage| stage.name.as_str())
        .collect();
    if !disabled.is_empty() {
        return Condition::new(false, "Disabled", disabled.join("\n"));
    }
    if audited.is_empty() {
        Condition::new(true, "Enforced", "The answers of all stages are enforced.")
    } else {
        Condition::new(false, "Audit", format!("in mode Audit: {}", audited.join(", ")))
    }
}

/// Returns a sentence for each module of a stage that could not be fetched.
fn unavailable(stage: &StageStatus) -> impl Iterator<Item = String> {
    stage.hook.parts().filter_map(|hook| {
        let (source, reason) = (hook.text("source")?, hook.text("reason")?);
        Some(format!("stage {}: {source}: {reason}", stage.name))
    })
}

fn modules(stage: &StageStatus) -> impl Iterator<Item = Value> {
    stage.hook.parts().filter_map(|hook| {
        let (source, digest) = (hook.text("source")?, hook.text("digest")?);
        Some(json!({"stage": stage.name, "source": source, "digest": digest}))
    })
}

impl Conditions {
    fn to_json(&self, kind: &ResourceKind, before: &Value, generation: &Value, now: Moment) -> Value {
        let before = before.get("conditions").and_then(Value::as_array);
        let condition = |name: &str, condition: &Condition| {
            let holds = match condition.holds {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let is_same = |before: &&Value| {
                let is = |field: &str, text: &str| before.get(field).and_then(Value::as_str) == Some(text);
                is("type", name) && is("status", holds)
            };
            let same = before.and_then(|before| before.iter().find(is_same));
            let since = same.and_then(|same| same.get(LAST_TRANSITION)).cloned();
            json!({
                "type": name,
                "status": holds,
                "reason": condition.reason,
                "message": shortened(&condition.message, LONGEST_MESSAGE),
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

/// Returns the revision with which this version went live. It stays in the status, because each replica counts revisions
/// for itself.
fn revision(before: &Value, generation: &Value, host: &Status) -> Value {
    let kept = before
        .get(REVISION)
        .filter(|_| before.get("observedGeneration") == Some(generation));
    kept.cloned().unwrap_or_else(|| host.revision.into())
}

/// Returns the status without the fields that change with the time or the replica.
fn comparable(status: &Value) -> Value {
    let mut status = status.clone();
    let without = |value: &mut Value, field: &str| {
        value
            .as_object_mut()
            .and_then(|fields: &mut Map<String, Value>| fields.shift_remove(field))
    };
    without(&mut status, REVISION);
    without(&mut status, RECENT);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions {
            without(condition, LAST_TRANSITION);
        }
    }
    status.sort_all_objects();
    status
}

#[cfg(test)]
mod tests;
