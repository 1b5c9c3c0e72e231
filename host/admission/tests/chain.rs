//! Evaluation of chains, one row per case.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_admission::{
    Chain, Deadline, Decision, Denial, Evaluation, Failure, FailureKind, FailurePolicy, GroupVersionKind,
    GroupVersionResource, Hook, IdentityFields, LabelSelector, Labels, Mode, NamespaceLookupError,
    NamespaceSelector, NamespaceSource, NoAuthorizer, Object, Operation, Outcome, Patch, Phase, Refusal,
    Reinvocation, Request, Requirement, Response, Rule, Stage, StageResult, StageSpec, StaticNamespaces,
    Surroundings, Verdict, async_trait,
};
use serde_json::{Value, json};

/// What a stage's hook does when it is called.
#[derive(Clone)]
enum Script {
    Allow,
    Warn(&'static str),
    Patch(Value),
    /// The text of a patch.
    Raw(String),
    Replace(Value),
    Deny(&'static str),
    Fail(FailureKind),
    Panic,
    Hang,
    /// Take this long, in virtual time, and allow.
    Slow(u64),
}

#[async_trait]
impl Hook for Script {
    async fn admit(&self, request: &Request, deadline: Deadline) -> Result<Response, Failure> {
        assert!(!deadline.has_passed(), "no stage is called after its deadline");
        Ok(match self {
            Self::Allow => Response::allow(),
            Self::Warn(warning) => {
                let mut response = Response::allow();
                response.warnings.push((*warning).to_owned());
                response
                    .audit_annotations
                    .push(("key".into(), request.uid.to_string()));
                response
            }
            Self::Patch(patch) => Response::new(Verdict::Patch(Patch::parse(patch.to_string()).unwrap())),
            Self::Raw(patch) => match Patch::parse(patch) {
                Ok(patch) => Response::new(Verdict::Patch(patch)),
                Err(error) => return Err(Failure::new(error.kind(), error.to_string())),
            },
            Self::Replace(object) => {
                Response::new(Verdict::Replace(Object::parse(object.to_string()).unwrap()))
            }
            Self::Deny(message) => Response::deny(Denial::forbidden(*message)),
            Self::Fail(kind) => return Err(Failure::new(*kind, "scripted")),
            Self::Panic => panic!("scripted"),
            Self::Hang => std::future::pending().await,
            Self::Slow(milliseconds) => {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
                Response::allow()
            }
        })
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "prod", "uid": "1", "labels": {"inject": "yes"}},
        "spec": {"list": [1]},
    })
}

fn request(operation: Operation) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = GroupVersionResource {
        group: String::new(),
        version: "v1".into(),
        resource: "pods".into(),
    };
    Request::new(operation, kind, resource).with_object(Object::parse(pod().to_string()).unwrap())
}

fn add(path: &str, value: Value) -> Script {
    Script::Patch(json!([{"op": "add", "path": path, "value": value}]))
}

fn enforced(script: Script, failure_policy: FailurePolicy) -> Stage {
    StageSpec {
        failure_policy,
        ..StageSpec::new("stage")
    }
    .with(script)
}

fn chain(stages: Vec<Stage>) -> Chain {
    Chain::new("chain", vec![Rule::for_operations(Operation::ALL)], stages)
}

fn surroundings(namespaces: &dyn NamespaceSource) -> Surroundings<'_> {
    Surroundings {
        namespaces,
        authorizer: &NoAuthorizer,
    }
}

async fn run(stages: Vec<Stage>, request: Request, budget: Duration) -> Outcome {
    let mut evaluation = Evaluation::new(request, Deadline::after(budget));
    evaluation
        .run(&[&chain(stages)], surroundings(&StaticNamespaces::default()))
        .await;
    evaluation.outcome()
}

/// The words of the trace, the refusal's sentence, and what changed against the original object.
fn summary(outcome: &Outcome) -> (Vec<&'static str>, String, Value) {
    let words = outcome.trace.iter().map(|row| row.result.as_str()).collect();
    let refusal = match &outcome.decision {
        Decision::Allowed => String::new(),
        Decision::Refused(refusal) => refusal.to_string(),
    };
    let object = outcome.object.as_ref().unwrap();
    let before = Object::from_value(pod()).unwrap();
    assert_eq!(
        &outcome.patch.apply(&before).unwrap(),
        object,
        "the patch leads from the original to the object"
    );
    (
        words,
        refusal,
        serde_json::to_value(Patch::between(&before, object)).unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn answers_and_failures_under_both_policies() {
    use FailurePolicy::{Fail, Ignore};
    use Script::*;
    let label = |name: &str| add(&format!("/metadata/labels/{name}"), json!("x"));
    let labelled =
        |name: &str| json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": "x"}]);
    let none = || json!([]);
    let failed = |text: &str| format!("stage stage of chain chain failed {text}");
    // (case, stages with their policies, words of the trace, the refusal, the change)
    let table: Vec<(&str, Vec<(Script, FailurePolicy)>, &[&str], String, Value)> = vec![
        ("allow", vec![(Allow, Fail)], &["allow"], String::new(), none()),
        ("no stages", vec![], &[], String::new(), none()),
        (
            "patch",
            vec![(label("a"), Fail)],
            &["patch"],
            String::new(),
            labelled("a"),
        ),
        (
            "an empty patch changes nothing",
            vec![(Patch(json!([])), Fail)],
            &["allow"],
            String::new(),
            none(),
        ),
        (
            "a patch that writes what is there changes nothing",
            vec![(add("/metadata/labels/inject", json!("yes")), Fail)],
            &["allow"],
            String::new(),
            none(),
        ),
        (
            "the second stage sees what the first did",
            vec![
                (label("a"), Fail),
                (
                    Patch(
                        json!([{"op": "test", "path": "/metadata/labels/a", "value": "x"}, {"op": "remove", "path": "/metadata/labels/a"}]),
                    ),
                    Fail,
                ),
            ],
            &["patch", "patch"],
            String::new(),
            none(),
        ),
        (
            "replace",
            vec![(
                Replace({
                    let mut pod = pod();
                    pod["metadata"]["labels"]["a"] = json!("x");
                    pod
                }),
                Fail,
            )],
            &["patch"],
            String::new(),
            labelled("a"),
        ),
        (
            "replace with the same",
            vec![(Replace(pod()), Fail)],
            &["allow"],
            String::new(),
            none(),
        ),
        (
            "deny stops the rest",
            vec![
                (label("a"), Fail),
                (Deny("not on a Friday"), Fail),
                (label("b"), Fail),
            ],
            &["patch", "deny", "not-reached"],
            "stage stage of chain chain denied the request: not on a Friday".into(),
            labelled("a"),
        ),
        (
            "deny under Ignore is still a denial (kube-apiserver: denials ignore the policy)",
            vec![(Deny("no"), Ignore)],
            &["deny"],
            "stage stage of chain chain denied the request: no".into(),
            none(),
        ),
        (
            "failure under Fail",
            vec![(Script::Fail(FailureKind::Trap), Fail), (label("a"), Fail)],
            &["failed", "not-reached"],
            failed("(trap): scripted"),
            none(),
        ),
        (
            "failure under Ignore goes on with the last good object",
            vec![
                (label("a"), Fail),
                (Script::Fail(FailureKind::Trap), Ignore),
                (label("b"), Fail),
            ],
            &["patch", "failed", "patch"],
            String::new(),
            json!([labelled("a")[0], labelled("b")[0]]),
        ),
        (
            "panic under Fail",
            vec![(Panic, Fail)],
            &["failed"],
            failed("(trap): the hook panicked: scripted"),
            none(),
        ),
        (
            "panic under Ignore",
            vec![(Panic, Ignore), (Allow, Fail)],
            &["failed", "allow"],
            String::new(),
            none(),
        ),
        (
            "timeout under Fail",
            vec![(Hang, Fail)],
            &["failed"],
            failed("(timeout): no verdict within the stage's timeout of 1s"),
            none(),
        ),
        (
            "timeout under Ignore",
            vec![(Hang, Ignore), (label("a"), Fail)],
            &["failed", "patch"],
            String::new(),
            labelled("a"),
        ),
        (
            "a patch that does not apply, under Fail",
            vec![(
                Patch(
                    json!([{"op": "add", "path": "/metadata/labels/a", "value": "x"}, {"op": "remove", "path": "/nothing"}]),
                ),
                Fail,
            )],
            &["failed"],
            failed("(patch-failed): operation 1 does not apply (remove /nothing): the path does not exist"),
            none(),
        ),
        (
            "a patch that does not apply, under Ignore: nothing of it stays (kube-apiserver answers 500 here)",
            vec![(
                Patch(
                    json!([{"op": "add", "path": "/metadata/labels/a", "value": "x"}, {"op": "test", "path": "/kind", "value": "Job"}]),
                ),
                Ignore,
            )],
            &["failed"],
            String::new(),
            none(),
        ),
        (
            "a patch that leaves no object",
            vec![(Patch(json!([{"op": "replace", "path": "", "value": []}])), Fail)],
            &["failed"],
            failed("(patch-failed): its result is not a JSON object"),
            none(),
        ),
        (
            "changed name",
            vec![(add("/metadata/name", json!("other")), Fail)],
            &["failed"],
            failed(r#"(identity-changed): /metadata/name changed from "web" to "other""#),
            none(),
        ),
        (
            "changed kind under Ignore",
            vec![(add("/kind", json!("Job")), Ignore)],
            &["failed"],
            String::new(),
            none(),
        ),
        (
            "removed namespace",
            vec![(
                Patch(json!([{"op": "remove", "path": "/metadata/namespace"}])),
                Fail,
            )],
            &["failed"],
            failed(r#"(identity-changed): /metadata/namespace changed from "prod" to absent"#),
            none(),
        ),
        (
            "removed metadata",
            vec![(Patch(json!([{"op": "remove", "path": "/metadata"}])), Ignore)],
            &["failed"],
            String::new(),
            none(),
        ),
        (
            "changed uid",
            vec![(add("/metadata/uid", json!("2")), Ignore)],
            &["failed"],
            String::new(),
            none(),
        ),
        (
            "changed apiVersion",
            vec![(add("/apiVersion", json!("v2")), Ignore)],
            &["failed"],
            String::new(),
            none(),
        ),
        (
            "a replacement by another object",
            vec![(Replace(json!({})), Fail)],
            &["failed"],
            failed(r#"(identity-changed): /apiVersion changed from "v1" to absent"#),
            none(),
        ),
    ];
    for (case, stages, words, refusal, change) in table {
        let stages = stages
            .into_iter()
            .map(|(script, policy)| enforced(script, policy))
            .collect();
        let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
        assert_eq!(summary(&outcome), (words.to_vec(), refusal, change), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_failure_kind_under_both_policies() {
    for &kind in FailureKind::ALL {
        for policy in FailurePolicy::ALL {
            let stages = vec![
                enforced(Script::Fail(kind), policy),
                enforced(Script::Allow, policy),
            ];
            let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
            assert_eq!(
                outcome.is_allowed(),
                policy == FailurePolicy::Ignore,
                "{kind} {policy}"
            );
            let StageResult::Failed {
                failure,
                policy: held,
            } = &outcome.trace[0].result
            else {
                panic!("{kind} {policy}")
            };
            assert_eq!((failure.kind, *held), (kind, policy));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn audit_records_and_changes_nothing() {
    use Script::*;
    for (case, script, word) in [
        ("deny", Deny("no"), "deny"),
        ("patch", add("/metadata/labels/a", json!("x")), "patch"),
        ("failure", Fail(FailureKind::Memory), "failed"),
        ("timeout", Hang, "failed"),
        ("identity", add("/metadata/name", json!("x")), "failed"),
        ("warning", Warn("careful"), "allow"),
    ] {
        let audited = StageSpec {
            mode: Mode::Audit,
            ..StageSpec::new("stage")
        }
        .with(script);
        let stages = vec![audited, Stage::new("after", Allow)];
        let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
        assert_eq!(
            summary(&outcome),
            (vec![word, "allow"], String::new(), json!([])),
            "{case}"
        );
        assert!(
            outcome.warnings.is_empty() && outcome.audit_annotations.is_empty(),
            "{case}"
        );
    }
}

/// However slow an audited stage is, it takes no time from the others, and it is still in the trace.
#[tokio::test(start_paused = true)]
async fn an_audited_stage_takes_no_time_that_others_need() {
    use Script::*;
    let audited = |script, timeout| {
        StageSpec {
            mode: Mode::Audit,
            timeout: Duration::from_millis(timeout),
            ..StageSpec::new("audited")
        }
        .with(script)
    };
    let slow = |milliseconds| {
        StageSpec {
            timeout: Duration::from_secs(1),
            ..StageSpec::new("enforced")
        }
        .with(Slow(milliseconds))
    };
    for (case, stages, phase, words, milliseconds) in [
        (
            "it hangs as long as the request may take",
            vec![audited(Hang, 5_000), slow(400), audited(Hang, 5_000), slow(400)],
            Phase::Mutating,
            ["failed", "allow", "failed", "allow"],
            1_000,
        ),
        (
            "all audited stages at once, in what is left",
            vec![audited(Hang, 300), slow(200), audited(Slow(100), 300), slow(200)],
            Phase::Mutating,
            ["failed", "allow", "allow", "allow"],
            700,
        ),
        (
            "validating",
            vec![
                audited(Hang, 5_000),
                slow(400),
                audited(Deny("no"), 300),
                slow(900),
            ],
            Phase::Validating,
            ["failed", "allow", "deny", "allow"],
            1_000,
        ),
        (
            "no time is left",
            vec![audited(Hang, 5_000), slow(500), audited(Allow, 300), slow(600)],
            Phase::Mutating,
            ["not-reached", "allow", "not-reached", "failed"],
            1_000,
        ),
    ] {
        let started = tokio::time::Instant::now();
        let chain = Chain {
            phase,
            ..chain(stages)
        };
        let mut evaluation = Evaluation::new(
            request(Operation::Create),
            Deadline::after(Duration::from_millis(1_000)),
        );
        evaluation
            .run(&[&chain], surroundings(&StaticNamespaces::default()))
            .await;
        let outcome = evaluation.outcome();
        let (got, refusal, _) = summary(&outcome);
        assert_eq!(got, words, "{case}: {refusal}");
        assert_eq!(
            outcome.is_allowed(),
            !words.contains(&"not-reached"),
            "{case}: {refusal}"
        );
        let took = started.elapsed().as_millis();
        assert!(
            (milliseconds..milliseconds + 20).contains(&took),
            "{case}: {took} ms"
        );
    }
}

/// An audited stage sees the object as it was at its place, and is called again if it asks for reinvocation.
#[tokio::test]
async fn an_audited_stage_sees_the_object_of_its_place() {
    let denies = |key: &str| {
        StageSpec {
            mode: Mode::Audit,
            reinvocation: Reinvocation::IfNeeded,
            object_selector: LabelSelector::new(vec![Requirement::equals(key, "x").unwrap()]),
            ..StageSpec::new(key)
        }
        .with(Script::Deny("would deny"))
    };
    let label = |key: &str| Stage::new("label", add(&format!("/metadata/labels/{key}"), json!("x")));
    let stages = vec![label("a"), denies("a"), denies("b"), label("b"), denies("b")];
    let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
    let rows: Vec<_> = outcome
        .trace
        .iter()
        .map(|row| (&*row.stage, row.round, row.result.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            ("label", 1, "patch"),
            ("a", 1, "deny"),
            ("b", 1, "skipped"),
            ("label", 1, "patch"),
            ("b", 1, "deny"),
            // Not the one that was not called in the first round, nor the one after which nothing changed.
            ("a", 2, "deny"),
        ]
    );
    assert!(outcome.is_allowed());
}

/// The result of a verdict must satisfy the rules for incoming objects: one spelling, no duplicate keys, the
/// same identity.
#[tokio::test]
async fn what_goes_out_is_held_to_the_rules_for_what_comes_in() {
    use Script::{Patch, Replace};
    let with = |change: fn(&mut Value)| {
        let mut pod = pod();
        change(&mut pod);
        Replace(pod)
    };
    let raw = |text: &str| Script::Raw(text.to_owned());
    let cases: Vec<(&str, Script, Option<FailureKind>)> = vec![
        (
            "another metadata",
            add("/Metadata", json!({"name": "x"})),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another kind",
            add("/KIND", json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another name",
            add("/metadata/Name", json!("x")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "Kelvin sign",
            add("/\u{212a}ind", json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "inside a value",
            add(
                "/metadata",
                json!({"name": "web", "NAME": "x", "namespace": "prod", "uid": "1"}),
            ),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "a key twice in a value",
            raw(r#"[{"op":"add","path":"/spec","value":{"a":1,"a":2}}]"#),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "moved to where it counts",
            Patch(json!([
                {"op": "add", "path": "/spec/m", "value": {"Name": "x", "name": "web", "namespace": "prod", "uid": "1"}},
                {"op": "move", "from": "/spec/m", "path": "/metadata"},
            ])),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "copied to where it counts",
            Patch(json!([
                {"op": "add", "path": "/spec/m", "value": {"NAME": "x"}},
                {"op": "copy", "from": "/spec/m", "path": "/Metadata"},
            ])),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another spelling alone is another name",
            with(|pod| {
                let name = json!("other");
                let metadata = pod["metadata"].as_object_mut().unwrap();
                metadata.remove("name");
                metadata.insert("Name".to_owned(), name);
            }),
            Some(FailureKind::IdentityChanged),
        ),
        (
            "two spellings in a replacement",
            with(|pod| pod["Kind"] = json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "elsewhere keys are the object's own",
            add("/spec/Name", json!("x")),
            None,
        ),
        (
            "labels are the user's",
            add("/metadata/labels/Inject", json!("x")),
            None,
        ),
        (
            "respelled throughout, the same object",
            with(|pod| {
                let kind = pod.as_object_mut().unwrap().remove("kind").unwrap();
                pod["Kind"] = kind;
                pod["spec"]["b"] = json!(1);
            }),
            None,
        ),
    ];
    for (case, script, expected) in cases {
        for mode in Mode::ALL {
            let stage = StageSpec {
                mode,
                ..StageSpec::new("stage")
            }
            .with(script.clone());
            let outcome = run(vec![stage], request(Operation::Create), Duration::from_secs(10)).await;
            let kind = match &outcome.trace[0].result {
                StageResult::Failed { failure, .. } => Some(failure.kind),
                _ => None,
            };
            assert_eq!(kind, expected, "{case}: {outcome:?}");
            // The patch produces the object, in the canonical spelling.
            summary(&outcome);
            let object = outcome.object.unwrap();
            assert_eq!(
                (&object.value()["kind"], object.value().get("Kind")),
                (&json!("Pod"), None),
                "{case}"
            );
        }
    }
}

/// kube-apiserver makes a name of `generateName` only when no webhook gave one.
#[tokio::test]
async fn a_name_may_be_given_where_one_is_to_be_generated() {
    for (metadata, script, is_allowed) in [
        (
            json!({"generateName": "web-"}),
            add("/metadata/name", json!("web-1")),
            true,
        ),
        (
            json!({"generateName": "web-", "name": ""}),
            add("/metadata/name", json!("web-1")),
            true,
        ),
        (
            json!({"generateName": "web-"}),
            add("/metadata/name", json!(1)),
            false,
        ),
        (
            json!({"generateName": "web-"}),
            add("/metadata/namespace", json!("x")),
            false,
        ),
        (
            json!({"generateName": "web-", "name": "a"}),
            add("/metadata/name", json!("b")),
            false,
        ),
        (
            json!({"generateName": ""}),
            add("/metadata/name", json!("b")),
            false,
        ),
        (json!({}), add("/metadata/name", json!("b")), false),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        let mut request = request(Operation::Create);
        request.object = Object::from_value(object.clone());
        let outcome = run(vec![Stage::new("stage", script)], request, Duration::from_secs(1)).await;
        assert_eq!(outcome.is_allowed(), is_allowed, "{object}: {outcome:?}");
    }
}

/// A slow patch ends with its stage's timeout, and does not block the only worker of this runtime.
#[tokio::test]
async fn a_large_patch_holds_no_worker_and_ends_with_its_stage() {
    let copies: Vec<Value> = (0..35)
        .map(|i| json!({"op": "copy", "from": "", "path": format!("/b{i}")}))
        .collect();
    let mut request = request(Operation::Create);
    let mut value = pod();
    value["spec"]["text"] = json!("x".repeat(200 << 10));
    value["spec"]["list"] = json!(vec![1; 200_000]);
    request.object = Object::from_value(value);
    let middle = vec![json!({"op": "add", "path": "/spec/list/100000", "value": 1}); 9_999];
    for (case, patch, timeout, expected) in [
        ("copies", copies, 60_000, FailureKind::OutputTooLarge),
        ("too late", middle, 1, FailureKind::Timeout),
    ] {
        for mode in Mode::ALL {
            let stage = StageSpec {
                mode,
                timeout: Duration::from_millis(timeout),
                ..StageSpec::new("stage")
            }
            .with(Script::Patch(patch.clone().into()));
            let ticks = AtomicUsize::new(0);
            let count = async {
                loop {
                    tokio::task::yield_now().await;
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            };
            let outcome = tokio::select! {
                outcome = run(vec![stage], request.clone(), Duration::from_secs(60)) => outcome,
                () = count => unreachable!(),
            };
            let StageResult::Failed { failure, .. } = &outcome.trace[0].result else {
                panic!("{case}: {outcome:?}")
            };
            assert_eq!(failure.kind, expected, "{case} {mode}: {failure}");
            // The hook itself may take all of a millisecond.
            let went_on = ticks.load(Ordering::Relaxed) > 0;
            assert!(went_on || timeout == 1, "{case}: the worker was held");
            assert_eq!(outcome.is_allowed(), mode == Mode::Audit);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines() {
    use FailurePolicy::{Fail, Ignore};
    use Script::*;
    let second = 1000;
    // (case, the request's budget in ms, stages: script, timeout in ms, policy; words, refusal).
    // kube-apiserver: each call gets the smaller of its own timeout and what is left of the request;
    // a request out of time fails whatever the policy, and later hooks are not called.
    let table: Vec<(&str, u64, Vec<(Script, u64, FailurePolicy)>, &[&str], &str)> = vec![
        (
            "within both",
            10 * second,
            vec![(Slow(400), 500, Fail)],
            &["allow"],
            "",
        ),
        (
            "over its own",
            10 * second,
            vec![(Slow(600), 500, Fail)],
            &["failed"],
            "stage stage of chain chain failed (timeout): no verdict within the stage's timeout of 500ms",
        ),
        (
            "over the request's",
            300,
            vec![(Slow(400), 500, Fail)],
            &["failed"],
            "stage stage of chain chain failed (timeout): no verdict before the request's deadline",
        ),
        (
            "stages eat the request's time",
            1000,
            vec![
                (Slow(400), 500, Fail),
                (Slow(400), 500, Fail),
                (Slow(400), 500, Fail),
            ],
            &["allow", "allow", "failed"],
            "stage stage of chain chain failed (timeout): no verdict before the request's deadline",
        ),
        (
            "nothing left for the next, whatever its policy",
            300,
            vec![(Hang, 500, Ignore), (Allow, 500, Ignore)],
            &["failed", "not-reached"],
            "the request's deadline passed before stage stage of chain chain could be called",
        ),
    ];
    for (case, budget, stages, words, refusal) in table {
        let stages = stages
            .into_iter()
            .map(|(script, timeout, policy)| {
                let mut stage = enforced(script, policy);
                stage.spec.timeout = Duration::from_millis(timeout);
                stage
            })
            .collect();
        let outcome = run(stages, request(Operation::Create), Duration::from_millis(budget)).await;
        assert_eq!(
            summary(&outcome),
            (words.to_vec(), refusal.to_owned(), json!([])),
            "{case}"
        );
    }
}

#[tokio::test]
async fn selectors_choose_the_stages() {
    let on_label = |key: &str| LabelSelector::new(vec![Requirement::equals(key, "yes").unwrap()]);
    let not_in = LabelSelector::new(vec![
        Requirement::new(
            "inject",
            admittance_admission::LabelOperator::DoesNotExist,
            vec![],
        )
        .unwrap(),
    ]);
    let object = |text: &str| Object::parse(text).unwrap();
    let labelled = || Some(object(r#"{"metadata":{"labels":{"inject":"yes"}}}"#));
    let bare = || Some(object(r#"{"metadata":{}}"#));
    // (case, selector, object, old object, called); source: kube-apiserver's object predicate.
    let table = [
        (
            "empty selector, no object",
            LabelSelector::default(),
            None,
            None,
            true,
        ),
        (
            "empty selector, no metadata",
            LabelSelector::default(),
            Some(object("{}")),
            None,
            true,
        ),
        ("the new object", on_label("inject"), labelled(), None, true),
        ("the old object", on_label("inject"), bare(), labelled(), true),
        ("the old object alone", on_label("inject"), None, labelled(), true),
        ("neither", on_label("inject"), bare(), bare(), false),
        ("no object", on_label("inject"), None, None, false),
        (
            "DoesNotExist, without the label",
            not_in.clone(),
            bare(),
            None,
            true,
        ),
        ("DoesNotExist, with it", not_in.clone(), labelled(), None, false),
        (
            "DoesNotExist, without metadata",
            not_in.clone(),
            Some(object("{}")),
            None,
            false,
        ),
        ("DoesNotExist, no object", not_in, None, None, false),
    ];
    for (case, selector, new, old, called) in table {
        let stage = StageSpec {
            object_selector: selector,
            ..StageSpec::new("stage")
        }
        .with(Script::Allow);
        let mut request = request(Operation::Update);
        (request.object, request.old_object) = (new, old);
        let outcome = run(vec![stage], request, Duration::from_secs(1)).await;
        let word = if called { "allow" } else { "skipped" };
        assert_eq!(outcome.trace[0].result.as_str(), word, "{case}");
    }
    // A label that the first stage removes no longer selects the second (kube-apiserver does the same).
    let removes = Script::Patch(json!([{"op": "remove", "path": "/metadata/labels/inject"}]));
    let second = StageSpec {
        object_selector: on_label("inject"),
        ..StageSpec::new("second")
    }
    .with(Script::Deny("no"));
    let outcome = run(
        vec![Stage::new("first", removes), second],
        request(Operation::Create),
        Duration::from_secs(1),
    )
    .await;
    assert_eq!(outcome.trace[1].result.as_str(), "skipped");
    assert!(outcome.is_allowed());
}

struct NoNamespaces;

#[async_trait]
impl NamespaceSource for NoNamespaces {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        Err(NamespaceLookupError(format!("namespace {namespace} not found")))
    }
}

#[tokio::test]
async fn labels_that_cannot_be_read_are_a_failure() {
    let by_label =
        NamespaceSelector::Labels(LabelSelector::new(vec![Requirement::equals("a", "b").unwrap()]));
    for policy in FailurePolicy::ALL {
        let mut stage = enforced(Script::Allow, policy);
        stage.spec.namespace_selector = Some(by_label.clone());
        let mut evaluation = Evaluation::new(
            request(Operation::Create),
            Deadline::after(Duration::from_secs(1)),
        );
        evaluation
            .run(&[&chain(vec![stage])], surroundings(&NoNamespaces))
            .await;
        let outcome = evaluation.outcome();
        let StageResult::Failed { failure, .. } = &outcome.trace[0].result else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            failure,
            &Failure::new(FailureKind::NamespaceUnknown, "namespace prod not found")
        );
        assert_eq!(outcome.is_allowed(), policy == FailurePolicy::Ignore);
    }
}

#[tokio::test]
async fn a_verdict_cannot_change_what_is_not_there() {
    let mut deletion = request(Operation::Delete);
    deletion.old_object = deletion.object.take();
    let outcome = run(
        vec![Stage::new("stage", add("/metadata/labels/a", json!("x")))],
        deletion,
        Duration::from_secs(1),
    )
    .await;
    let Decision::Refused(refusal) = outcome.decision else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        refusal.to_string(),
        "stage stage of chain chain failed (patch-failed): the verdict changes the object, but a DELETE \
         request has none"
    );
    assert_eq!(refusal.code(), 500);
}

#[tokio::test]
async fn identity_is_what_the_front_door_says() {
    let mut request = request(Operation::Create);
    request.identity = IdentityFields::new(["/spec/list/0".parse().unwrap()]);
    let renamed = enforced(add("/metadata/name", json!("other")), FailurePolicy::Fail);
    let moved = enforced(
        Script::Patch(json!([{"op": "replace", "path": "/spec/list/0", "value": 2}])),
        FailurePolicy::Fail,
    );
    let outcome = run(vec![renamed, moved], request, Duration::from_secs(1)).await;
    assert_eq!(outcome.trace[0].result.as_str(), "patch");
    assert!(
        matches!(outcome.decision, Decision::Refused(Refusal::Failed { ref failure, .. }) if failure.kind == FailureKind::IdentityChanged)
    );
}

#[tokio::test]
async fn warnings_and_annotations_come_in_order_with_their_stage() {
    let stages = vec![
        Stage::new("first", Script::Warn("one")),
        Stage::new("second", Script::Warn("two")),
        Stage::new("third", Script::Deny("no")),
    ];
    let outcome = run(stages, request(Operation::Create), Duration::from_secs(1)).await;
    assert_eq!(outcome.warnings, ["one", "two"]);
    let stages: Vec<&str> = outcome
        .audit_annotations
        .iter()
        .map(|annotation| &*annotation.stage)
        .collect();
    assert_eq!(stages, ["first", "second"]);
}

#[tokio::test]
async fn a_dropped_request_drops_the_call() {
    struct Guarded(Arc<AtomicUsize>);
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    #[async_trait]
    impl Hook for Guarded {
        async fn admit(&self, _: &Request, _: Deadline) -> Result<Response, Failure> {
            let _guard = OnDrop(self.0.clone());
            std::future::pending().await
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let stage = StageSpec {
        timeout: Duration::from_millis(1),
        ..StageSpec::new("stage")
    }
    .with(Guarded(dropped.clone()));
    let outcome = run(vec![stage], request(Operation::Create), Duration::from_secs(1)).await;
    assert!(!outcome.is_allowed());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}
