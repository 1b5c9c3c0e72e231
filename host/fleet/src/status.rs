//! The status of a definition as a resource: what became of it.

use admittance::{
    ChainStatus, ExceptionStatus, HookStatus, Moment, Served, StageStatus, Standing, Status, admission::Mode,
};
use admittance_cluster::{Event, EventObject, Resource, ResourceKind};
use serde_json::{Map, Value, json};

use crate::chains::EXCEPTION;

/// The most mistakes that a status lists, and the longest text of a message.
const MOST_MISTAKES: usize = 20;
const LONGEST_MESSAGE: usize = 1024;

/// The fields of a status that tell when something happened. What differs in nothing else is not written.
const REVISION: &str = "revision";
const LAST_TRANSITION: &str = "lastTransitionTime";

/// A condition of a resource, without its type.
struct Condition {
    /// `None`: unknown.
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

/// A definition in the live table.
#[derive(Clone, Copy)]
enum Definition<'a> {
    Chain(&'a ChainStatus),
    Exception(&'a ExceptionStatus),
}

/// The status that the resource should have, if it differs from the one that it has. `host` is the status of the replica
/// that writes it.
pub(crate) fn new_status(
    kind: &ResourceKind,
    resource: &Resource,
    standing: &Standing,
    host: &Status,
    now: Moment,
) -> Option<Value> {
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
            let (accepted, modules_resolved) = match bad.is_transient {
                true => (valid(), Condition::new(false, "NotFetched", reasons)),
                false => (
                    Condition::new(false, "Invalid", reasons),
                    Condition::new(
                        None,
                        "Invalid",
                        "The modules of an invalid chain are not fetched.",
                    ),
                ),
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
    let is_live = conditions.live.holds == Some(true);
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
        }
        if !mistakes.is_empty() {
            let mistakes = mistakes.iter().take(MOST_MISTAKES);
            fields.insert(
                "mistakes".to_owned(),
                mistakes.map(|mistake| bounded(mistake)).collect(),
            );
        }
    }
    (comparable(&status) != comparable(before)).then_some(status)
}

/// The event for a new status: the version in the resource is live, or it was refused.
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
        return None;
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

/// Whether a status has this condition.
fn is_condition(status: &Value, kind: &str, holds: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let is = |field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
        is("type", kind) && is("status", holds)
    })
}

/// The definition of this kind and name in the live table.
fn live<'a>(kind: &ResourceKind, resource: &Resource, host: &'a Status) -> Option<Definition<'a>> {
    if *kind == EXCEPTION {
        let mut exceptions = host.exceptions.iter();
        let found = exceptions.find(|exception| exception.name == resource.name);
        return found.map(Definition::Exception);
    }
    let phase = resource.object.get("spec").and_then(|spec| spec.get("phase"));
    let phase = phase.and_then(Value::as_str).unwrap_or("Mutating");
    let is_it = |chain: &&ChainStatus| chain.name == resource.name && chain.phase.as_str() == phase;
    host.chains.iter().find(is_it).map(Definition::Chain)
}

fn valid() -> Condition {
    Condition::new(true, "Valid", "The definition is valid.")
}

fn conditions_of_live(definition: Definition<'_>) -> Conditions {
    let live = Condition::new(true, "Live", "The live table has this version.");
    let stages = match definition {
        Definition::Chain(chain) => chain.stages.as_slice(),
        Definition::Exception(_) => &[],
    };
    let unavailable: Vec<_> = stages.iter().flat_map(unavailable).collect();
    Conditions {
        accepted: valid(),
        live: match definition {
            Definition::Exception(exception) if exception.expired => {
                let message = format!("It expired at {}, so it excepts nothing.", exception.expires);
                Condition::new(false, "Expired", message)
            }
            _ => live,
        },
        modules_resolved: match unavailable.is_empty() {
            true => Condition::new(true, "Resolved", "Every module is verified and compiled."),
            false => Condition::new(false, "NotFetched", unavailable.join("\n")),
        },
        enforced: enforced(stages),
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

/// Whether the answers of all stages count.
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
    match audited.is_empty() {
        true => Condition::new(true, "Enforced", "The answers of all stages are enforced."),
        false => Condition::new(false, "Audit", format!("in mode Audit: {}", audited.join(", "))),
    }
}

/// The stage and its hook, and those of a group.
fn hooks(stage: &StageStatus) -> impl Iterator<Item = &HookStatus> {
    let members = match &stage.hook {
        HookStatus::Group { plugins, .. } => Some(plugins.values()),
        _ => None,
    };
    std::iter::once(&stage.hook).chain(members.into_iter().flatten())
}

fn unavailable(stage: &StageStatus) -> impl Iterator<Item = String> {
    hooks(stage).filter_map(|hook| match hook {
        HookStatus::Unavailable { source, reason } => {
            Some(format!("stage {}: {source}: {reason}", stage.name))
        }
        _ => None,
    })
}

fn modules(stage: &StageStatus) -> impl Iterator<Item = Value> {
    hooks(stage).filter_map(|hook| match hook {
        HookStatus::Plugin(plugin) => {
            Some(json!({"stage": stage.name, "source": plugin.source, "digest": plugin.digest}))
        }
        _ => None,
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
                "message": bounded(&condition.message),
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

/// The revision with which this version went live. Replicas count for themselves, and later revisions change nothing here.
fn revision(before: &Value, generation: &Value, host: &Status) -> Value {
    let kept = before
        .get(REVISION)
        .filter(|_| before.get("observedGeneration") == Some(generation));
    kept.cloned().unwrap_or_else(|| host.revision.into())
}

/// The text, not longer than a message may be.
fn bounded(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The status without what tells when it was written.
fn comparable(status: &Value) -> Value {
    let mut status = status.clone();
    let without = |value: &mut Value, field: &str| {
        value
            .as_object_mut()
            .and_then(|fields: &mut Map<String, Value>| fields.shift_remove(field))
    };
    without(&mut status, REVISION);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions {
            without(condition, LAST_TRANSITION);
        }
    }
    status.sort_all_objects();
    status
}

#[cfg(test)]
mod tests {
    use admittance::definitions::BadDefinition;

    use super::*;
    use crate::chains::CHAIN;

    fn host(stages: &Value) -> Status {
        serde_json::from_value(json!({
            "version": "0.1.0", "revision": 7, "liveSince": "2026-01-01T00:00:00Z", "origin": {"type": "files"},
            "building": false, "tables": 1, "plugins": 0, "history": {"revisions": 1},
            "chains": [
                {"name": "pods", "phase": "Validating", "stages": []},
                {"name": "pods", "phase": "Mutating", "stages": stages},
            ],
        }))
        .unwrap()
    }

    fn stage(name: &str, hook: &Value) -> Value {
        json!({
            "name": name, "hook": hook, "mode": "Enforce", "failurePolicy": "Fail", "state": "Idle",
            "calls": {"since": "2026-01-01T00:00:00Z", "total": 0, "allowed": 0, "changed": 0, "denied": 0, "failed": 0},
        })
    }

    fn plugin() -> Value {
        json!({
            "type": "plugin", "name": "p", "version": "1", "source": "file:/p.wasm", "digest": "sha256:00",
            "signature": "not required", "fromStore": false,
        })
    }

    fn resource(status: Option<Value>) -> Resource {
        let mut object = json!({
            "metadata": {"name": "pods", "generation": 3},
            "spec": {"rules": [], "stages": []},
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        Resource {
            namespace: String::new(),
            name: "pods".to_owned(),
            object: object.as_object().unwrap().clone(),
        }
    }

    fn bad(served: Served, is_transient: bool) -> Standing {
        let mut bad = BadDefinition::new("kubernetes:AdmissionChain/pods", served, is_transient);
        bad.reasons = vec!["first".to_owned(), "second".to_owned()];
        Standing::Bad(bad)
    }

    /// The status and the reason of each condition.
    fn conditions(status: &Value) -> Vec<(&str, &str, &str)> {
        let conditions = status["conditions"].as_array().unwrap().iter();
        conditions
            .map(|condition| {
                assert_eq!(condition["observedGeneration"], 3);
                let text = |field: &str| condition[field].as_str().unwrap();
                (text("type"), text("status"), text("reason"))
            })
            .collect()
    }

    #[test]
    fn what_became_of_a_definition() {
        let native = json!({"type": "native"});
        let unavailable = json!({"type": "unavailable", "source": "oci://r/p:1", "reason": "away"});
        let group = json!({"type": "group", "expression": "a", "plugins": {"a": plugin()}});
        let mut audited = stage("a", &native);
        audited["mode"] = json!("Audit");
        let mut disabled = stage("a", &native);
        disabled["disabled"] = json!({
            "stage": "Mutating:pods/a", "audit": false, "reason": "r",
            "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z",
        });
        // (standing, stages, status and reason of Accepted, ModulesResolved, Live, Enforced, modules, mistakes)
        let unknown = ("Unknown", "NoTable");
        for (standing, stages, expected, modules, mistakes) in [
            (
                Standing::Live,
                json!([stage("a", &plugin()), stage("b", &group)]),
                [
                    ("True", "Valid"),
                    ("True", "Resolved"),
                    ("True", "Live"),
                    ("True", "Enforced"),
                ],
                2,
                0,
            ),
            (
                Standing::Live,
                json!([audited]),
                [
                    ("True", "Valid"),
                    ("True", "Resolved"),
                    ("True", "Live"),
                    ("False", "Audit"),
                ],
                0,
                0,
            ),
            (
                Standing::Live,
                json!([disabled]),
                [
                    ("True", "Valid"),
                    ("True", "Resolved"),
                    ("True", "Live"),
                    ("False", "Disabled"),
                ],
                0,
                0,
            ),
            (
                Standing::Live,
                json!([stage("a", &unavailable)]),
                [
                    ("True", "Valid"),
                    ("False", "NotFetched"),
                    ("True", "Live"),
                    ("True", "Enforced"),
                ],
                0,
                0,
            ),
            (
                bad(Served::LastModules, true),
                json!([stage("a", &plugin())]),
                [
                    ("True", "Valid"),
                    ("False", "NotFetched"),
                    ("True", "Live"),
                    ("True", "Enforced"),
                ],
                1,
                2,
            ),
            (
                bad(Served::LastVersion, true),
                json!([stage("a", &plugin())]),
                [
                    ("True", "Valid"),
                    ("False", "NotFetched"),
                    ("False", "LastVersion"),
                    ("False", "NotLive"),
                ],
                0,
                2,
            ),
            (
                bad(Served::Nothing, false),
                json!([]),
                [
                    ("False", "Invalid"),
                    ("Unknown", "Invalid"),
                    ("False", "NotServed"),
                    ("False", "NotLive"),
                ],
                0,
                2,
            ),
            (
                Standing::Blocked(vec!["a mistake in a file".to_owned()]),
                json!([]),
                [unknown, unknown, ("False", "NoTable"), ("False", "NotLive")],
                0,
                1,
            ),
            (
                Standing::RolledBack,
                json!([]),
                [
                    ("Unknown", "RolledBack"),
                    ("Unknown", "RolledBack"),
                    ("False", "RolledBack"),
                    ("False", "NotLive"),
                ],
                0,
                0,
            ),
        ] {
            let host = host(&stages);
            let status = new_status(&CHAIN, &resource(None), &standing, &host, Moment::now()).unwrap();
            let names = ["Accepted", "ModulesResolved", "Live", "Enforced"];
            let expected: Vec<_> = names
                .into_iter()
                .zip(expected)
                .map(|(name, (status, reason))| (name, status, reason))
                .collect();
            assert_eq!(conditions(&status), expected, "{standing:?}");
            let count = |field: &str| status.get(field).and_then(Value::as_array).map_or(0, Vec::len);
            assert_eq!(
                (count("modules"), count("mistakes")),
                (modules, mistakes),
                "{standing:?}"
            );
            let is_live = expected[2].1 == "True";
            assert_eq!(status.get("revision").is_some(), is_live, "{standing:?}");
            let reason = event(&CHAIN, &resource(None), &status).map(|event| event.reason);
            let expected = match (is_live, expected[0].1) {
                (true, _) => Some("Live"),
                (false, "False") => Some("Refused"),
                (false, _) => None,
            };
            assert_eq!(reason, expected, "{standing:?}");
            assert_eq!(
                event(&CHAIN, &resource(Some(status.clone())), &status),
                None,
                "{standing:?}"
            );
            // Nothing is written twice.
            let written = resource(Some(status));
            assert_eq!(
                new_status(&CHAIN, &written, &standing, &host, Moment::now()),
                None,
                "{standing:?}"
            );
        }
    }

    #[test]
    fn what_stays_as_it_was() {
        let early = Moment(std::time::SystemTime::UNIX_EPOCH);
        let mut host = host(&json!([]));
        let first = new_status(&CHAIN, &resource(None), &Standing::Live, &host, early).unwrap();
        assert_eq!(
            (&first["observedGeneration"], &first["revision"]),
            (&json!(3), &json!(7))
        );
        // Later revisions change nothing of this chain.
        host.revision = 8;
        let written = resource(Some(first.clone()));
        assert_eq!(
            new_status(&CHAIN, &written, &Standing::Live, &host, Moment::now()),
            None
        );
        // Only what changed has a new time.
        let now = Moment::now();
        let standing = bad(Served::LastModules, true);
        let second = new_status(&CHAIN, &written, &standing, &host, now).unwrap();
        assert_eq!(second["revision"], 7);
        let times: Vec<_> = second["conditions"].as_array().unwrap().iter().collect();
        let expected = [early, now, early, early].map(|moment| moment.to_string());
        for (condition, expected) in times.iter().zip(expected) {
            assert_eq!(condition["lastTransitionTime"], expected, "{condition}");
        }
        // Another version has another revision.
        let mut changed = written;
        changed.object["metadata"]["generation"] = json!(4);
        let third = new_status(&CHAIN, &changed, &Standing::Live, &host, now).unwrap();
        assert_eq!(
            (&third["observedGeneration"], &third["revision"]),
            (&json!(4), &json!(8))
        );
    }

    #[test]
    fn what_became_of_an_exception() {
        // (whether it expired, unknown stages, status and reason of Live)
        for (expired, unknown, expected) in [
            (false, json!([]), ("True", "Live")),
            (false, json!(["there is no stage pods/x"]), ("True", "Live")),
            (true, json!([]), ("False", "Expired")),
        ] {
            let mut host = serde_json::to_value(host(&json!([]))).unwrap();
            host["exceptions"] = json!([{
                "name": "pods", "owner": "o", "reason": "r", "expires": "2026-01-01T00:00:00Z", "expired": expired,
                "stages": [], "unknown": unknown,
            }]);
            let host: Status = serde_json::from_value(host).unwrap();
            let status =
                new_status(&EXCEPTION, &resource(None), &Standing::Live, &host, Moment::now()).unwrap();
            let expected = [("Accepted", "True", "Valid"), ("Live", expected.0, expected.1)];
            assert_eq!(conditions(&status), expected);
            assert_eq!(status.get("modules"), None);
            assert_eq!(
                status.get("mistakes"),
                Some(&unknown).filter(|unknown| *unknown != &json!([]))
            );
        }
    }

    #[test]
    fn messages_are_bounded() {
        let mut bad = BadDefinition::new("p", Served::Nothing, false);
        bad.reasons = vec!["ä".repeat(5000); 100];
        let status = new_status(
            &CHAIN,
            &resource(None),
            &Standing::Bad(bad),
            &host(&json!([])),
            Moment::now(),
        )
        .unwrap();
        let mistakes = status["mistakes"].as_array().unwrap();
        assert_eq!(mistakes.len(), MOST_MISTAKES);
        for text in mistakes.iter().chain([&status["conditions"][0]["message"]]) {
            assert_eq!(text.as_str().unwrap().chars().count(), LONGEST_MESSAGE + 1);
        }
    }
}
