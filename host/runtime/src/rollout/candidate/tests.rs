use admittance_admission::{Denial, GroupVersionKind, Object, Operation, Patch, Verdict};

use super::{
    comparison::{MAX_KINDS, MAX_SAMPLES},
    *,
};
use crate::status::candidate::AnswerSample;

type AnswerFn = fn() -> Result<Response, Failure>;

struct FixedAnswer(AnswerFn);

#[async_trait]
impl Hook for FixedAnswer {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        (self.0)()
    }
}

struct WaitingHook(Arc<Semaphore>);

#[async_trait]
impl Hook for WaitingHook {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        self.0.acquire().await.unwrap().forget();
        Ok(Response::allow())
    }
}

fn request() -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    let object = Object::parse(r#"{"metadata":{"name":"web"},"spec":{"a":1}}"#).unwrap();
    Request::new(Operation::Create, kind, resource).with_object(object)
}

fn patch_response(text: &str) -> Result<Response, Failure> {
    Ok(Response::new(Verdict::Patch(Patch::parse(text).unwrap())))
}

fn plugin_status(name: &str) -> PluginStatus {
    PluginStatus {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        source: format!("file:{name}.wasm"),
        digest: name.to_owned(),
        signature: String::new(),
        configured_per_call: None,
        cluster: Vec::new(),
        from_store: false,
    }
}

fn trial_identity(candidate: &str, share: &str) -> TrialIdentity {
    TrialIdentity {
        stage: "Mutating:a/b".to_owned(),
        plugin: "plugin".to_owned(),
        candidate: candidate.to_owned(),
        share: share.parse().unwrap(),
        rollout: None,
    }
}

fn hook_with_candidate(plugin: impl Hook, candidate: impl Hook, share: &str) -> HookWithCandidate {
    let trial = Trials::default().get_or_create(
        trial_identity("candidate", share),
        plugin_status("plugin"),
        plugin_status("candidate"),
    );
    HookWithCandidate {
        plugin: Arc::new(plugin),
        candidate: Arc::new(candidate),
        timeout: Duration::from_secs(1),
        trial,
        decides: None,
    }
}

/// Waits until all comparisons in the background have ended, and returns the status of the candidate.
async fn wait_until_settled(shadowed: &HookWithCandidate) -> CandidateStatus {
    let slot_count = u32::try_from(BACKGROUND_CALLS).unwrap();
    drop(shadowed.trial.slots.acquire_many(slot_count).await.unwrap());
    shadowed.trial.status(None)
}

#[tokio::test]
async fn answers_are_compared_by_their_effects_and_warnings() {
    let add: AnswerFn = || patch_response(r#"[{"op":"add","path":"/spec/b","value":1}]"#);
    let replace: AnswerFn = || {
        let text = r#"{"spec":{"b":1,"a":1},"metadata":{"name":"web"}}"#;
        Ok(Response::new(Verdict::Replace(Object::parse(text).unwrap())))
    };
    let other_patch: AnswerFn = || patch_response(r#"[{"op":"add","path":"/spec/b","value":2}]"#);
    let empty_patch: AnswerFn = || patch_response(r#"[{"op":"replace","path":"/spec/a","value":1}]"#);
    let doubling_patch: AnswerFn = || {
        let copy = |i| format!(r#"{{"op":"copy","from":"","path":"/b{i}"}}"#);
        patch_response(&format!("[{}]", (0..35).map(copy).collect::<Vec<_>>().join(",")))
    };
    let respelling_patch: AnswerFn = || patch_response(r#"[{"op":"add","path":"/metadata/Name","value":"x"}]"#);
    let broken_patch: AnswerFn = || patch_response(r#"[{"op":"remove","path":"/none"}]"#);
    let allow: AnswerFn = || Ok(Response::allow());
    let warn: AnswerFn = || {
        let mut response = Response::allow();
        response.warnings = vec!["careful".to_owned()];
        Ok(response)
    };
    let deny: AnswerFn = || Ok(Response::deny(Denial::forbidden("no")));
    let deny_otherwise: AnswerFn = || Ok(Response::deny(Denial::forbidden("never")));
    let fail: AnswerFn = || Err(Failure::new(FailureKind::Trap, "unreachable"));
    let panicking_hook: AnswerFn = || panic!("the test wants it");
    for (row, (plugin, candidate, expected)) in [
        (allow, allow, ["allow", "allow", "same"]),
        (allow, empty_patch, ["allow", "allow", "same"]),
        (add, replace, ["patch", "patch", "same"]),
        (fail, fail, ["failed", "failed", "same"]),
        (add, other_patch, ["patch", "patch", "different"]),
        (allow, add, ["allow", "patch", "different"]),
        (allow, deny, ["allow", "deny", "different"]),
        (deny, deny_otherwise, ["deny", "deny", "different"]),
        (allow, warn, ["allow", "allow", "different"]),
        (fail, allow, ["failed", "allow", "different"]),
        (allow, fail, ["allow", "failed", "failed"]),
        (allow, broken_patch, ["allow", "failed", "failed"]),
        (allow, doubling_patch, ["allow", "failed", "failed"]),
        (doubling_patch, doubling_patch, ["failed", "failed", "same"]),
        (allow, respelling_patch, ["allow", "failed", "failed"]),
        (deny, panicking_hook, ["deny", "failed", "failed"]),
    ]
    .into_iter()
    .enumerate()
    {
        let shadowed = hook_with_candidate(FixedAnswer(plugin), FixedAnswer(candidate), "100%");
        let answer = shadowed
            .admit(&Arc::new(request()), Deadline::after(Duration::from_secs(1)))
            .await;
        let deadline = Deadline::after(Duration::from_secs(1));
        let (answer, plugin) = (
            ComparedAnswer::evaluate(&request(), answer, deadline).await,
            ComparedAnswer::evaluate(&request(), plugin(), deadline).await,
        );
        assert!(answer.is_same(&plugin), "{row}");
        let status = wait_until_settled(&shadowed).await;
        let result = match (status.same, status.different, status.failed) {
            (1, 0, 0) => "same",
            (0, 1, 0) => "different",
            (0, 1, 1) => "failed",
            other => panic!("{row}: {other:?}"),
        };
        assert_eq!(result, expected[2], "{row}");
        let samples = shadowed.trial.report(None).samples;
        assert_eq!(samples.len(), usize::from(result != "same"), "{row}");
        for sample in samples {
            assert_eq!(
                [sample.plugin.verdict, sample.candidate.verdict],
                expected[..2],
                "{row}"
            );
            assert_eq!((sample.name.as_str(), sample.kind.as_str()), ("web", "v1/Pod"));
        }
    }
}

#[tokio::test]
async fn only_the_configured_share_of_requests_is_compared_and_the_newest_samples_are_kept() {
    let shadowed = hook_with_candidate(
        FixedAnswer(|| Ok(Response::allow())),
        FixedAnswer(|| Ok(Response::deny(Denial::forbidden("no")))),
        "50%",
    );
    for _ in 0..2 * MAX_SAMPLES + 4 {
        shadowed
            .admit(&Arc::new(request()), Deadline::after(Duration::from_secs(1)))
            .await
            .unwrap();
        wait_until_settled(&shadowed).await;
    }
    let report = shadowed.trial.report(None);
    assert_eq!(report.candidate.different, MAX_SAMPLES as u64 + 2);
    assert_eq!(report.samples.len(), MAX_SAMPLES);
    assert!(report.samples.is_sorted_by(|a, b| a.at >= b.at));
}

#[test]
fn differences_are_counted_by_kind_and_each_kind_keeps_a_sample() {
    let mut comparisons = Comparisons::default();
    let sample = |kind: &str, effect| DifferenceSample {
        at: Moment::now(),
        uid: String::new(),
        operation: "CREATE".to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: String::new(),
        effect,
        plugin: AnswerSample::default(),
        candidate: AnswerSample::default(),
    };
    comparisons.add(sample("v1/Service", DifferenceEffect::Deny));
    for _ in 0..2 * MAX_SAMPLES {
        comparisons.add(sample("v1/Pod", DifferenceEffect::Change));
    }
    comparisons.add(sample("v1/Pod", DifferenceEffect::Fail));
    assert_eq!(comparisons.samples.len(), MAX_SAMPLES);
    let oldest = comparisons.samples.back().unwrap();
    assert_eq!(oldest.kind, "v1/Service");
    let pods = comparisons.kind("v1/Pod");
    assert_eq!((pods.would_change, pods.would_fail), (2 * MAX_SAMPLES as u64, 1));
    assert_eq!(pods.different_count(), 2 * MAX_SAMPLES as u64 + 1);
    for number in 0..2 * MAX_KINDS {
        comparisons.kind(&format!("v1/Kind{number}")).same += 1;
    }
    assert_eq!(comparisons.kinds.len(), MAX_KINDS + 1);
    assert_eq!(comparisons.kind(ComparedKind::OTHER_KINDS).same, MAX_KINDS as u64 + 2);
}

#[tokio::test]
async fn a_slow_candidate_is_skipped_and_does_not_delay_requests() {
    let gate = Arc::new(Semaphore::new(0));
    let shadowed = hook_with_candidate(FixedAnswer(|| Ok(Response::allow())), WaitingHook(gate.clone()), "100%");
    for _ in 0..BACKGROUND_CALLS + 3 {
        shadowed
            .admit(&Arc::new(request()), Deadline::after(Duration::from_secs(1)))
            .await
            .unwrap();
    }
    gate.add_permits(BACKGROUND_CALLS);
    let status = wait_until_settled(&shadowed).await;
    assert_eq!((status.same, status.passed_over), (BACKGROUND_CALLS as u64, 3));
}

#[test]
fn comparisons_continue_in_tables_with_the_same_candidate_and_plugin() {
    let trials = Trials::default();
    let trial_of = |candidate: &str, share: &str| {
        trials.get_or_create(
            trial_identity(candidate, share),
            plugin_status("plugin"),
            plugin_status(candidate),
        )
    };
    let first_trial = trial_of("one", "10%");
    assert!(Arc::ptr_eq(&first_trial, &trial_of("one", "10%")));
    assert!(!Arc::ptr_eq(&first_trial, &trial_of("two", "10%")));
    assert!(!Arc::ptr_eq(&first_trial, &trial_of("one", "20%")));
    first_trial.comparisons.lock().kind("v1/Pod").same += 1;
    drop(first_trial);
    assert_eq!(trial_of("one", "10%").status(None).same, 0);
}

#[tokio::test]
async fn samples_contain_no_secrets_and_no_redacted_values() {
    let patch: AnswerFn = || patch_response(r#"[{"op":"add","path":"/spec/token","value":"s3cret"}]"#);
    let allow: AnswerFn = || Ok(Response::allow());
    for (kind, redact) in [("Secret", &[][..]), ("Pod", &["/spec/token"])] {
        let redact: Vec<_> = redact.iter().map(|text| text.parse().unwrap()).collect();
        let trials = Trials::with_redactions(&redact);
        let mut shadowed = hook_with_candidate(FixedAnswer(patch), FixedAnswer(allow), "100%");
        shadowed.trial = trials.get_or_create(
            trial_identity("candidate", "100%"),
            plugin_status("plugin"),
            plugin_status("candidate"),
        );
        let mut request = request();
        request.kind = GroupVersionKind::from_api_version("v1", kind);
        let admission_result = shadowed
            .admit(&Arc::new(request), Deadline::after(Duration::from_secs(1)))
            .await;
        assert!(admission_result.is_ok());
        wait_until_settled(&shadowed).await;
        let mut report = shadowed.trial.report(None);
        let text = serde_json::to_string(&report).unwrap();
        assert!(
            text.contains("/spec/token") && !text.contains("s3cret"),
            "{kind}: {text}"
        );
        report.remove_values();
        let patch = report.samples[0].plugin.patch.as_ref().unwrap();
        assert_eq!(
            **patch,
            serde_json::json!([{"op": "add", "path": "/spec/token"}]),
            "{kind}"
        );
    }
}

fn hook_with_rollout(plugin: AnswerFn, candidate: AnswerFn, share: &str) -> (HookWithCandidate, Arc<Trials>) {
    let text = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\nspec:\n  rules: [ { \
                operations: ['*'], resources: [pods] } ]\n  stages:\n  - name: b\n    plugin: { source: file:a.wasm }\n    \
                candidate: { source: file:b.wasm, rollout: { percent: 50, by: user, abortOn: { refusals: 1 } } }\n";
    let mut chains = admittance_definitions::load_text("f", text).unwrap();
    let definition = chains.remove(0).stages.remove(0).candidate.unwrap().rollout;
    let identity = TrialIdentity {
        rollout: definition.map(|definition| (definition, Digest::of_bytes("candidate"))),
        ..trial_identity("candidate", "100%")
    };
    let trials = Arc::new(Trials::default());
    let shadowed = HookWithCandidate {
        plugin: Arc::new(FixedAnswer(plugin)),
        candidate: Arc::new(FixedAnswer(candidate)),
        timeout: Duration::from_secs(1),
        trial: trials.get_or_create(identity, plugin_status("plugin"), plugin_status("candidate")),
        decides: None,
    };
    (shadowed.with_decided_share(share.parse().unwrap()), trials)
}

#[tokio::test]
async fn a_candidate_decides_its_share_and_is_compared_with_its_plugin() {
    let (allow, deny): (AnswerFn, AnswerFn) =
        (|| Ok(Response::allow()), || Ok(Response::deny(Denial::forbidden("no"))));
    let (shadowed, trials) = hook_with_rollout(deny, allow, "50%");
    let rollout = shadowed.trial.rollout.clone().unwrap();
    let mut candidate_decision_count = 0;
    for number in 0..100 {
        let mut request = request();
        request.user.username = format!("user-{number}");
        let is_included = rollout.includes(&request, "50%".parse().unwrap());
        let answer = shadowed
            .admit(&Arc::new(request), Deadline::after(Duration::from_secs(1)))
            .await;
        let is_denied = matches!(answer.unwrap().verdict, Verdict::Deny(_));
        assert_eq!(is_denied, !is_included, "{number}");
        candidate_decision_count += u64::from(is_included);
        wait_until_settled(&shadowed).await;
    }
    assert!(
        (30..=70).contains(&candidate_decision_count),
        "{candidate_decision_count}"
    );
    let report = shadowed.trial.report(None);
    assert_eq!(report.candidate.different, 100);
    for sample in report.samples {
        assert_eq!([sample.plugin.verdict, sample.candidate.verdict], ["deny", "allow"]);
    }
    let limit = tokio::time::timeout(Duration::ZERO, trials.limits.notified());
    assert!(limit.await.is_err());
}

#[tokio::test]
async fn refusals_count_only_if_the_candidate_decided_the_request() {
    let (allow, deny): (AnswerFn, AnswerFn) =
        (|| Ok(Response::allow()), || Ok(Response::deny(Denial::forbidden("no"))));
    let (shadowed, trials) = hook_with_rollout(allow, deny, "0.01%");
    let limit_reached = || tokio::time::timeout(Duration::ZERO, trials.limits.notified());
    let admit = async |shadowed: &HookWithCandidate| {
        let answer = shadowed
            .admit(&Arc::new(request()), Deadline::after(Duration::from_secs(1)))
            .await;
        wait_until_settled(shadowed).await;
        matches!(answer.unwrap().verdict, Verdict::Deny(_))
    };
    assert!(!admit(&shadowed).await);
    assert!(limit_reached().await.is_err());
    assert!(admit(&shadowed.with_decided_share(Share::WHOLE)).await);
    assert!(limit_reached().await.is_ok());
}
