use admittance::{Served, admission::Unreached, definitions::BadDefinition};

use super::*;
use crate::chains::CHAIN;

fn status_pass(stages: &Value) -> StatusPass {
    let status = serde_json::from_value(json!({
        "version": "0.1.0", "revision": 7, "hash": admittance::Digest::of_bytes("a"),
        "liveSince": "2026-01-01T00:00:00Z", "origin": {"type": "files"},
        "building": false, "tables": 1, "plugins": 0, "history": {"revisions": 1},
        "chains": [
            {"name": "pods", "phase": "Validating", "stages": []},
            {"name": "pods", "phase": "Mutating", "stages": stages},
        ],
    }))
    .unwrap();
    StatusPass {
        status,
        writes_counts: false,
        rollouts: Vec::new(),
    }
}

fn stage_json(name: &str, hook: &Value) -> Value {
    json!({
        "name": name, "hook": hook, "mode": "Enforce", "failurePolicy": "Fail", "state": "Idle",
        "calls": {"since": "2026-01-01T00:00:00Z", "total": 0, "allowed": 0, "changed": 0, "denied": 0, "failed": 0},
    })
}

fn plugin_json() -> Value {
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

fn bad_state(served: Served, is_transient: bool) -> VersionState {
    let mut bad = BadDefinition::new("kubernetes:AdmissionChain/pods", served, is_transient);
    bad.reasons = vec!["first".to_owned(), "second".to_owned()];
    VersionState::Bad(bad)
}

fn rows_of_conditions(status: &Value) -> Vec<(&str, &str, &str)> {
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
fn the_conditions_of_a_chain_follow_from_its_state() {
    let native = json!({"type": "native"});
    let unavailable = json!({"type": "unavailable", "source": "oci://r/p:1", "reason": "away"});
    let group = json!({"type": "group", "expression": "a", "plugins": {"a": plugin_json()}});
    let mut audited_stage = stage_json("a", &native);
    audited_stage["mode"] = json!("Audit");
    let mut disabled = stage_json("a", &native);
    disabled["disabled"] = json!({
        "stage": "Mutating:pods/a", "audit": false, "reason": "r",
        "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z",
    });
    // (state, stages, expected conditions, number of modules, number of mistakes)
    // A condition is (status, reason). The conditions are Accepted, ModulesResolved, Live and Enforced, in this order.
    let unknown = ("Unknown", "NoTable");
    for (state, stages, expected, modules, mistakes) in [
        (
            VersionState::Live,
            json!([stage_json("a", &plugin_json()), stage_json("b", &group)]),
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
            VersionState::Live,
            json!([audited_stage]),
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
            VersionState::Live,
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
            VersionState::Live,
            json!([stage_json("a", &unavailable)]),
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
            bad_state(Served::LastModules, true),
            json!([stage_json("a", &plugin_json())]),
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
            bad_state(Served::LastVersion, true),
            json!([stage_json("a", &plugin_json())]),
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
            bad_state(Served::Nothing, false),
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
            VersionState::Blocked(vec!["a mistake in a file".to_owned()]),
            json!([]),
            [unknown, unknown, ("False", "NoTable"), ("False", "NotLive")],
            0,
            1,
        ),
        (
            VersionState::RolledBack,
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
        let host = status_pass(&stages);
        let status = new_status(&CHAIN, &resource(None), &state, &host, Moment::now()).unwrap();
        let names = ["Accepted", "ModulesResolved", "Live", "Enforced"];
        let expected: Vec<_> = names
            .into_iter()
            .zip(expected)
            .map(|(name, (status, reason))| (name, status, reason))
            .collect();
        assert_eq!(rows_of_conditions(&status), expected, "{state:?}");
        let count = |field: &str| status.get(field).and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!((count("modules"), count("mistakes")), (modules, mistakes), "{state:?}");
        let is_live = expected[2].1 == "True";
        assert_eq!(status.get("revision").is_some(), is_live, "{state:?}");
        let reason = status_event(&CHAIN, &resource(None), &status).map(|event| event.reason);
        let expected = match (is_live, expected[0].1) {
            (true, _) => Some("Live"),
            (false, "False") => Some("Refused"),
            (false, _) => None,
        };
        assert_eq!(reason, expected, "{state:?}");
        assert_eq!(
            status_event(&CHAIN, &resource(Some(status.clone())), &status),
            None,
            "{state:?}"
        );
        let stored_resource = resource(Some(status));
        assert_eq!(
            new_status(&CHAIN, &stored_resource, &state, &host, Moment::now()),
            None,
            "{state:?}"
        );
    }
}

#[test]
fn a_chain_that_no_request_reaches_is_not_live() {
    let mut host = status_pass(&json!([stage_json("a", &json!({"type": "native"}))]));
    for (is_whole, live, enforced) in [
        (true, ("False", "NeverCalled"), ("False", "NeverCalled")),
        (false, ("True", "Live"), ("False", "PartlyCalled")),
    ] {
        host.status.chains[1].unreached = Some(Unreached {
            is_whole,
            reasons: vec!["spec.rules[0] has only `kinds`".to_owned()],
        });
        let status = new_status(&CHAIN, &resource(None), &VersionState::Live, &host, Moment::now()).unwrap();
        let condition_rows = rows_of_conditions(&status);
        assert_eq!(condition_rows[2], ("Live", live.0, live.1));
        assert_eq!(condition_rows[3], ("Enforced", enforced.0, enforced.1));
        assert_eq!(status["conditions"][3]["message"], "spec.rules[0] has only `kinds`");
        assert_eq!(status["revision"], 7);
        let stored_resource = resource(Some(status));
        assert_eq!(
            new_status(&CHAIN, &stored_resource, &VersionState::Live, &host, Moment::now()),
            None
        );
    }
}

#[test]
fn only_conditions_that_change_get_a_new_time() {
    let epoch = Moment(std::time::SystemTime::UNIX_EPOCH);
    let mut host = status_pass(&json!([]));
    let first = new_status(&CHAIN, &resource(None), &VersionState::Live, &host, epoch).unwrap();
    assert_eq!(
        (&first["observedGeneration"], &first["revision"]),
        (&json!(3), &json!(7))
    );
    host.status.revision = 8;
    let stored_resource = resource(Some(first.clone()));
    assert_eq!(
        new_status(&CHAIN, &stored_resource, &VersionState::Live, &host, Moment::now()),
        None
    );
    let now = Moment::now();
    let state = bad_state(Served::LastModules, true);
    let second = new_status(&CHAIN, &stored_resource, &state, &host, now).unwrap();
    assert_eq!(second["revision"], 7);
    let new_conditions: Vec<_> = second["conditions"].as_array().unwrap().iter().collect();
    let expected = [epoch, now, epoch, epoch].map(|moment| moment.to_string());
    for (condition, expected) in new_conditions.iter().zip(expected) {
        assert_eq!(condition["lastTransitionTime"], expected, "{condition}");
    }
    let mut changed = stored_resource;
    changed.object["metadata"]["generation"] = json!(4);
    let third = new_status(&CHAIN, &changed, &VersionState::Live, &host, now).unwrap();
    assert_eq!(
        (&third["observedGeneration"], &third["revision"]),
        (&json!(4), &json!(8))
    );
}

#[test]
fn the_conditions_of_an_exception_follow_from_its_state() {
    // (whether the exception has expired, messages about unknown stages, expected status and reason of the condition
    // Live)
    for (expired, unknown, expected) in [
        (false, json!([]), ("True", "Live")),
        (false, json!(["there is no stage pods/x"]), ("True", "Live")),
        (true, json!([]), ("False", "Expired")),
    ] {
        let mut host = serde_json::to_value(status_pass(&json!([])).status).unwrap();
        host["exceptions"] = json!([{
            "name": "pods", "owner": "o", "reason": "r", "expires": "2026-01-01T00:00:00Z", "expired": expired,
            "stages": [], "unknown": unknown,
        }]);
        let host = StatusPass {
            status: serde_json::from_value(host).unwrap(),
            writes_counts: false,
            rollouts: Vec::new(),
        };
        let status = new_status(&EXCEPTION, &resource(None), &VersionState::Live, &host, Moment::now()).unwrap();
        let expected = [("Accepted", "True", "Valid"), ("Live", expected.0, expected.1)];
        assert_eq!(rows_of_conditions(&status), expected);
        assert_eq!(status.get("modules"), None);
        assert_eq!(
            status.get("mistakes"),
            Some(&unknown).filter(|unknown| *unknown != &json!([]))
        );
    }
}

#[test]
fn a_status_that_differs_only_in_call_counts_is_written_at_an_interval() {
    let called = |allowed: u64| {
        let mut stages = [
            stage_json("a", &json!({"type": "native"})),
            stage_json("b", &json!({"type": "native"})),
        ];
        stages[0]["calls"]["recent"] =
            json!({"seconds": 300, "allowed": allowed, "changed": 1, "denied": 2, "failed": 0});
        stages[1]["calls"]["recent"] = json!({"seconds": 290, "allowed": 0, "changed": 0, "denied": 0, "failed": 4});
        json!(stages)
    };
    let write = |stages: &Value, counts: bool, before: Option<Value>| {
        let mut pass = status_pass(stages);
        pass.writes_counts = counts;
        new_status(&CHAIN, &resource(before), &VersionState::Live, &pass, Moment::now())
    };
    assert_eq!(write(&json!([]), true, None).unwrap().get(RECENT), None);
    let first = write(&called(10), false, None).unwrap();
    let recent_counts = |status: &Value| {
        let mut recent = status[RECENT].clone();
        recent.as_object_mut().unwrap().shift_remove("at").unwrap();
        recent
    };
    assert_eq!(
        recent_counts(&first),
        json!({"seconds": 300, "calls": 17, "denied": 2, "failed": 4})
    );
    assert_eq!(write(&called(11), false, Some(first.clone())), None);
    assert_eq!(write(&called(10), true, Some(first.clone())), None);
    let second = write(&called(11), true, Some(first)).unwrap();
    assert_eq!(recent_counts(&second)["calls"], 18);
}

#[test]
fn long_messages_in_a_status_are_truncated() {
    let mut bad = BadDefinition::new("p", Served::Nothing, false);
    bad.reasons = vec!["ä".repeat(5000); 100];
    let status = new_status(
        &CHAIN,
        &resource(None),
        &VersionState::Bad(bad),
        &status_pass(&json!([])),
        Moment::now(),
    )
    .unwrap();
    let mistakes = status["mistakes"].as_array().unwrap();
    assert_eq!(mistakes.len(), MAX_MISTAKES);
    for text in mistakes.iter().chain([&status["conditions"][0]["message"]]) {
        // The maximum length would end the message in the middle of a character of two bytes. The whole character is
        // left out, so the message is a byte shorter.
        assert_eq!(text.as_str().unwrap().len(), MAX_MESSAGE_LENGTH - 1);
    }
}

#[test]
fn the_status_of_a_chain_contains_its_rollouts() {
    let rollout = |stage: &str, state: &str| -> RolloutProgress {
        let subject = format!("sha256:{}", "0".repeat(64));
        serde_json::from_value(json!({
            "stage": stage, "subject": subject, "step": 1, "state": state, "since": "2026-01-01T00:00:00Z",
            "reason": "it failed",
        }))
        .unwrap()
    };
    let pass = |state: &str| StatusPass {
        rollouts: vec![
            rollout("Mutating:pods/a", state),
            rollout("Mutating:shop/pods/a", state),
            rollout("Mutating:pod/a", state),
        ],
        ..status_pass(&json!([stage_json("a", &plugin_json())]))
    };
    let status_of = |before: Option<Value>, state: &VersionState, pass: &StatusPass| {
        new_status(&CHAIN, &resource(before), state, pass, Moment::now())
    };
    let first = status_of(None, &VersionState::Live, &pass("progressing")).unwrap();
    let stored_resource = resource(Some(first.clone()));
    assert_eq!(
        read_rollouts(&stored_resource),
        [rollout("Mutating:pods/a", "progressing")]
    );
    assert_eq!(
        status_of(Some(first.clone()), &VersionState::Live, &pass("progressing")),
        None
    );
    let bad = bad_state(Served::LastVersion, false);
    let blocked_status = status_of(Some(first.clone()), &bad, &status_pass(&json!([]))).unwrap();
    assert_eq!(blocked_status[ROLLOUTS], first[ROLLOUTS]);
    for (state, expected) in [
        ("paused", None),
        ("aborted", Some((true, "RolloutAborted"))),
        ("completed", Some((false, "RolloutCompleted"))),
    ] {
        let next = status_of(Some(first.clone()), &VersionState::Live, &pass(state)).unwrap();
        let event = status_event(&CHAIN, &stored_resource, &next).map(|event| (event.is_warning, event.reason));
        assert_eq!(event, expected, "{state}");
    }
    let none = status_of(
        Some(first),
        &VersionState::Live,
        &status_pass(&json!([stage_json("a", &plugin_json())])),
    )
    .unwrap();
    assert_eq!(none.get(ROLLOUTS), None);
}
