//! The status of a definition's resource: whether the definition is valid, live and enforced, and if not, why.

mod conditions;

use admittance::{ChainStatus, Moment, RolloutProgress, RolloutState, StageStatus, Status, VersionState};
use admittance_admission::shortened;
use admittance_cluster::{ClusterEvent, EventObject, Resource, ResourceKind};
use admittance_definitions::definition_name;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::conditions::{DefinitionConditions, StatusDefinition};
use crate::{chains::EXCEPTION, leader::StatusPass};

const MAX_MISTAKES: usize = 20;
/// The maximum length of a message in a status, in bytes.
const MAX_MESSAGE_LENGTH: usize = 1024;

// The fields with these three names are ignored when two statuses are compared.
const REVISION: &str = "revision";
const RECENT: &str = "recent";
const LAST_TRANSITION: &str = "lastTransitionTime";

/// The field of a status with the progress of rollouts. A replica that starts without a history reads it, and continues
/// the rollouts from there.
const ROLLOUTS: &str = "rollouts";

/// Returns the status that must be written to the resource; `None` if the resource has that status already.
pub(crate) fn new_status(
    kind: &ResourceKind,
    resource: &Resource,
    state: &VersionState,
    pass: &StatusPass,
    now: Moment,
) -> Option<Value> {
    let host = &pass.status;
    let before = resource.object.get("status").unwrap_or(&Value::Null);
    let generation = resource.object.get("metadata")?.get("generation").cloned()?;
    let live = find_live_definition(kind, resource, host);
    let conditions = DefinitionConditions::new(state, live)?;
    let is_live = conditions.is_live();
    let mistakes = match (state, live) {
        (VersionState::Bad(bad), _) => bad.reasons.as_slice(),
        (VersionState::Blocked(mistakes), _) => mistakes,
        (VersionState::Live, Some(StatusDefinition::Exception(exception))) => &exception.unknown,
        _ => &[],
    };
    let mut status = json!({
        "observedGeneration": generation,
        "conditions": conditions.to_json(kind, before, &generation, now),
    });
    if let Some(fields) = status.as_object_mut() {
        if is_live {
            fields.insert(REVISION.to_owned(), status_revision(before, &generation, host));
        }
        if let Some(StatusDefinition::Chain(chain)) = live.filter(|_| is_live) {
            let modules = chain.stages.iter().flat_map(stage_modules);
            fields.insert("modules".to_owned(), modules.collect());
            fields.extend(recent_calls(chain, now).map(|recent| (RECENT.to_owned(), recent)));
        }
        let stored_rollouts = before.get(ROLLOUTS).filter(|_| !is_live).cloned();
        let current_rollouts = || rollouts_json(resource, &pass.rollouts);
        fields.extend(
            stored_rollouts
                .or_else(current_rollouts)
                .map(|rollouts| (ROLLOUTS.to_owned(), rollouts)),
        );
        if !mistakes.is_empty() {
            let texts = mistakes.iter().map(|mistake| shortened(mistake, MAX_MESSAGE_LENGTH));
            fields.insert("mistakes".to_owned(), texts.take(MAX_MISTAKES).collect());
        }
    }
    let differs = without_volatile_fields(&status) != without_volatile_fields(before);
    let has_news = pass.writes_counts && recent_counts(&status) != recent_counts(before);
    (differs || has_news).then_some(status)
}

pub(crate) fn read_rollouts(resource: &Resource) -> Vec<RolloutProgress> {
    let status = resource.object.get("status");
    let mut rollouts = status
        .and_then(|status| Vec::<RolloutProgress>::deserialize(status.get(ROLLOUTS)?).ok())
        .unwrap_or_default();
    rollouts.retain(|rollout| is_rollout_of(resource, rollout));
    rollouts
}

fn rollouts_json(resource: &Resource, rollouts: &[RolloutProgress]) -> Option<Value> {
    let own_rollouts: Vec<_> = rollouts
        .iter()
        .filter(|rollout| is_rollout_of(resource, rollout))
        .collect();
    serde_json::to_value(&own_rollouts)
        .ok()
        .filter(|_| !own_rollouts.is_empty())
}

fn is_rollout_of(resource: &Resource, rollout: &RolloutProgress) -> bool {
    let name = definition_name(&resource.namespace, &resource.name);
    let address = rollout.stage.split_once(':').map(|(_, stage)| stage);
    let stage = address.and_then(|address| address.strip_prefix(&name)?.strip_prefix('/'));
    stage.is_some_and(|stage| !stage.contains('/'))
}

/// Counts the calls of all stages of a chain by this replica in the last minutes; `None` if there were no calls.
fn recent_calls(chain: &ChainStatus, now: Moment) -> Option<Value> {
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
    (calls > 0)
        .then(|| json!({"at": now.to_string(), "seconds": seconds, "calls": calls, "denied": denied, "failed": failed}))
}

fn recent_counts(status: &Value) -> [Option<&Value>; 3] {
    let recent = status.get(RECENT);
    ["calls", "denied", "failed"].map(|count| recent.and_then(|recent| recent.get(count)))
}

/// Returns the event that reports a new status, if it is worth one.
pub(crate) fn status_event(kind: &ResourceKind, resource: &Resource, status: &Value) -> Option<ClusterEvent> {
    let before = resource.object.get("status").unwrap_or(&Value::Null);
    let generation = |status: &Value| status.get("observedGeneration").cloned();
    let is_new = |kind: &str, condition_status: &str| {
        is_condition(status, kind, condition_status)
            && !(generation(before) == generation(status) && is_condition(before, kind, condition_status))
    };
    let (is_warning, reason, action, note) = if is_new("Accepted", "False") {
        let list = status.get("mistakes").and_then(Value::as_array);
        let mistakes: Vec<_> = list.into_iter().flatten().filter_map(Value::as_str).collect();
        (true, "Refused", "Check", mistakes.join("\n"))
    } else if is_new("Live", "True") {
        let number = |field: &str| status.get(field).map(Value::to_string).unwrap_or_default();
        let (generation, revision) = (number("observedGeneration"), number(REVISION));
        let note = format!("generation {generation} is live since revision {revision}");
        (false, "Live", "GoLive", note)
    } else {
        let (before, new_rollouts) = (read_rollouts(resource), status.get(ROLLOUTS)?);
        let now = Vec::<RolloutProgress>::deserialize(new_rollouts).ok()?;
        rollout_event(&now.into_iter().find(|rollout| !before.contains(rollout))?)?
    };
    Some(ClusterEvent {
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

fn rollout_event(rollout: &RolloutProgress) -> Option<(bool, &'static str, &'static str, String)> {
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

fn is_condition(status: &Value, kind: &str, condition_status: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let has_text = |field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
        has_text("type", kind) && has_text("status", condition_status)
    })
}

fn find_live_definition<'a>(
    kind: &ResourceKind,
    resource: &Resource,
    host: &'a Status,
) -> Option<StatusDefinition<'a>> {
    if *kind == EXCEPTION {
        let mut exceptions = host.exceptions.iter();
        let live_exception = exceptions.find(|exception| exception.name == resource.name);
        return live_exception.map(StatusDefinition::Exception);
    }
    let phase_field = resource.object.get("spec").and_then(|spec| spec.get("phase"));
    let phase = phase_field.and_then(Value::as_str).unwrap_or("Mutating");
    let name = definition_name(&resource.namespace, &resource.name);
    let matches_id = |chain: &&ChainStatus| chain.name == name && chain.phase.as_str() == phase;
    host.chains.iter().find(matches_id).map(StatusDefinition::Chain)
}

fn stage_modules(stage: &StageStatus) -> impl Iterator<Item = Value> {
    stage.hook.parts().filter_map(|hook| {
        let (source, digest) = (hook.fact_text("source")?, hook.fact_text("digest")?);
        Some(json!({"stage": stage.name, "source": source, "digest": digest}))
    })
}

/// Returns the number of the revision for a status. Each replica counts revisions on its own, so a new leader may have
/// another number for the same definition. The number in the last status is thus kept until the definition changes.
fn status_revision(before: &Value, generation: &Value, host: &Status) -> Value {
    let stored_revision = before
        .get(REVISION)
        .filter(|_| before.get("observedGeneration") == Some(generation));
    stored_revision.cloned().unwrap_or_else(|| host.revision.into())
}

/// Returns the status without its revision, its counts of calls and its times. These fields differ between replicas and
/// change all the time. So two statuses that differ only in these fields count as equal.
fn without_volatile_fields(status: &Value) -> Value {
    let mut status = status.clone();
    let remove_field = |value: &mut Value, field: &str| {
        value
            .as_object_mut()
            .and_then(|fields: &mut Map<String, Value>| fields.shift_remove(field))
    };
    remove_field(&mut status, REVISION);
    remove_field(&mut status, RECENT);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions {
            remove_field(condition, LAST_TRANSITION);
        }
    }
    status.sort_all_objects();
    status
}

#[cfg(test)]
mod tests;
