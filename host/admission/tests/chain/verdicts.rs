//! Verdicts and failures under both failure policies.

use super::*;

#[tokio::test(start_paused = true)]
async fn verdicts_and_failures_take_effect_under_both_failure_policies() {
    use FailurePolicy::{Fail, Ignore};
    use Script::*;
    let label = |name: &str| add(&format!("/metadata/labels/{name}"), json!("x"));
    let labelled = |name: &str| json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": "x"}]);
    let none = || json!([]);
    let failed = |text: &str| format!("stage stage of chain chain failed {text}");
    // (case, scripts and failure policies of the stages, results in the trace, refusal, changes of the object)
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
            vec![(label("a"), Fail), (Deny("not on a Friday"), Fail), (label("b"), Fail)],
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
            vec![(Patch(json!([{"op": "remove", "path": "/metadata/namespace"}])), Fail)],
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
            .map(|(script, policy)| enforced_stage(script, policy))
            .collect();
        let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
        assert_eq!(summary(&outcome), (words.to_vec(), refusal, change), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_failure_follows_the_failure_policy() {
    for kind in FailureKind::ALL {
        for policy in FailurePolicy::ALL {
            let stages = vec![
                enforced_stage(Script::Fail(kind), policy),
                enforced_stage(Script::Allow, policy),
            ];
            let outcome = run(stages, request(Operation::Create), Duration::from_secs(10)).await;
            assert_eq!(outcome.is_allowed(), policy == FailurePolicy::Ignore, "{kind} {policy}");
            let StageResult::Failed { failure, policy: held } = &outcome.trace[0].result else {
                panic!("{kind} {policy}")
            };
            assert_eq!((failure.kind, *held), (kind, policy));
        }
    }
}

#[tokio::test]
async fn warnings_and_annotations_are_kept_in_the_order_of_their_stages() {
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

/// The message has a line for each policy that denies the request, as in Gatekeeper 3.x (pkg/webhook/policy.go).
#[tokio::test(start_paused = true)]
async fn denials_that_name_their_policies_are_joined() {
    let named_stage = |name: &str, script: Script| {
        let mut stage = Stage::new(name, script);
        stage.spec.denials_name_policy = true;
        stage
    };
    let validating_chain = |name: &str, stages: Vec<Stage>| {
        let mut chain = Chain::new(name, vec![Rule::for_operations(Operation::ALL)], stages);
        chain.phase = Phase::Validating;
        chain
    };
    let first = "[a] no\n[c] nor this";
    let constraints = || {
        vec![
            validating_chain(
                "limits",
                vec![
                    named_stage("a", Script::Deny("[a] no")),
                    named_stage("b", Script::Allow),
                ],
            ),
            validating_chain("owners", vec![named_stage("c", Script::Deny("[c] nor this"))]),
        ]
    };
    let other = || validating_chain("other", vec![Stage::new("s", Script::Deny("never"))]);
    let before = || validating_chain("a", vec![Stage::new("s", Script::Deny("never"))]);
    for (case, chains, expected) in [
        ("constraints", constraints(), first),
        ("a stage after them", [constraints(), vec![other()]].concat(), first),
        (
            "a stage before them",
            [vec![before()], constraints()].concat(),
            "stage s of chain a denied the request: never",
        ),
    ] {
        let mut evaluation = Evaluation::new(request(Operation::Create), Deadline::after(Duration::from_secs(9)));
        let chains: Vec<&Chain> = chains.iter().collect();
        evaluation.run(&chains, sources(&StaticNamespaces::default())).await;
        let outcome = evaluation.outcome();
        let Decision::Refused(refusal) = &outcome.decision else {
            panic!("{case}: {outcome:?}")
        };
        assert_eq!(
            (refusal.to_string().as_str(), refusal.code()),
            (expected, 403),
            "{case}"
        );
    }
}
