//! Stages in mode `Audit`.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stage_in_audit_mode_is_recorded_and_changes_nothing() {
    use Script::*;
    for (case, script, word) in [
        ("deny", Deny("no"), "deny"),
        ("patch", add("/metadata/labels/a", json!("x")), "patch"),
        ("failure", Fail(FailureKind::Memory), "failed"),
        ("timeout", Hang, "failed"),
        ("identity", add("/metadata/name", json!("x")), "failed"),
        ("warning", Warn("careful"), "allow"),
    ] {
        let mut audited = Stage::new("stage", script);
        audited.spec.mode = Mode::Audit;
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

#[tokio::test(start_paused = true)]
async fn a_stage_in_audit_mode_does_not_delay_other_stages() {
    use Script::*;
    let audited = |script, timeout| {
        let mut stage = Stage::new("audited", script);
        stage.spec.mode = Mode::Audit;
        stage.spec.timeout = Duration::from_millis(timeout);
        stage
    };
    let slow = |milliseconds| {
        let mut stage = Stage::new("enforced", Slow(milliseconds));
        stage.spec.timeout = Duration::from_secs(1);
        stage
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
            vec![audited(Hang, 5_000), slow(400), audited(Deny("no"), 300), slow(900)],
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
        let start_time = tokio::time::Instant::now();
        let mut chain = chain(stages);
        chain.phase = phase;
        let mut evaluation = Evaluation::new(
            request(Operation::Create),
            Deadline::after(Duration::from_millis(1_000)),
        );
        evaluation.run(&[&chain], sources(&StaticNamespaces::default())).await;
        let outcome = evaluation.outcome();
        let (actual, refusal, _) = summary(&outcome);
        assert_eq!(actual, words, "{case}: {refusal}");
        assert_eq!(
            outcome.is_allowed(),
            !words.contains(&"not-reached"),
            "{case}: {refusal}"
        );
        let took = start_time.elapsed().as_millis();
        assert!((milliseconds..milliseconds + 20).contains(&took), "{case}: {took} ms");
    }
}

#[tokio::test]
async fn a_stage_in_audit_mode_sees_the_object_as_of_its_turn() {
    let denies = |key: &str| {
        let mut stage = Stage::new(key, Script::Deny("would deny"));
        stage.spec.mode = Mode::Audit;
        stage.spec.reinvocation = Reinvocation::IfNeeded;
        stage.spec.object_selector = LabelSelector::new(vec![LabelRequirement::equals(key, "x").unwrap()]);
        stage
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
            // The object changed after the first round of the audit `a`, so this audit is called again. There are two
            // audits named `b`, and neither is called again: the first one was skipped in its first round, and the
            // object did not change after the second one.
            ("a", 2, "deny"),
        ]
    );
    assert!(outcome.is_allowed());
}
