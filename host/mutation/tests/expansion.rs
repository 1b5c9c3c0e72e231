//! Tests stages that do not see the object of a request but the object that will be generated from it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance_admission::{
    Chain, Deadline, Denial, Evaluation, EvaluationSources, Failure, FailureKind, GroupVersionKind, Hook,
    LabelRequirement, LabelSelector, MatchPolicy, Matcher, Mode, NoAuthorizer, Object, Operation, Outcome, Phase,
    Request, Response, Rule, SkipReason, Stage, StageResult, StaticNamespaces, UserInfo, async_trait,
};
use admittance_mutation::{Expansion, FieldLocation, Generation, Mutation, Mutator};
use serde_json::{Value, json};

struct DenyWithObject;

#[async_trait]
impl Hook for DenyWithObject {
    async fn admit(&self, request: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        assert!(request.old_object.is_none() && request.user == UserInfo::default());
        let summary = json!({
            "operation": request.operation.as_str(),
            "kind": request.kind.to_string(),
            "resource": request.resource.resource,
            "name": request.name,
            "namespace": request.namespace,
            "object": request.object.as_ref().map(Object::value),
        });
        Ok(Response::deny(Denial::forbidden(summary.to_string())))
    }
}

fn generation(source: &str, api_version: &str, kind: &str) -> Generation {
    Generation {
        source: source.split('.').map(str::to_owned).collect(),
        kind: GroupVersionKind::from_api_version(api_version, kind),
    }
}

/// Returns a stage that sees the Pods generated from CronJobs.
fn cron_job_stage() -> Stage {
    let mutator = |location: &str, value: Value| {
        let location = FieldLocation::parse(location).unwrap();
        Mutator::new(location.to_string(), location, Mutation::Assign(value))
    };
    let mut job_mutator = mutator("metadata.labels.job", json!("yes"));
    job_mutator.request_filter.rules = vec![rule_of_kind("Job")];
    let mut stage = Stage::new("generated", DenyWithObject);
    stage.spec.rules = vec![rule_of_kind("Pod")];
    stage.spec.expansion = Some(Arc::new(Expansion {
        generators: vec![rule_of_kind("CronJob")],
        steps: vec![
            generation("spec.jobTemplate", "batch/v1", "Job"),
            generation("spec.template", "v1", "Pod"),
        ],
        mutators: vec![job_mutator, mutator("spec.hostNetwork", json!(false))].into(),
    }));
    stage
}

fn label_selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector::new(vec![LabelRequirement::equals(key, value).unwrap()])
}

fn rule_of_kind(kind: &str) -> Rule {
    Rule {
        kinds: Matcher::Only(vec![kind.to_owned()]),
        match_policy: MatchPolicy::Exact,
        ..Rule::for_operations([Operation::Create, Operation::Update])
    }
}

fn cron_job() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "report", "namespace": "shop"},
        "spec": {"jobTemplate": {"metadata": null, "spec": {"template": {
            "metadata": {"name": "other", "labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never"},
        }}}},
    })
}

async fn run_chain(chain: &Chain, request: Request) -> Outcome {
    let sources = EvaluationSources {
        namespaces: &StaticNamespaces::default(),
        authorizer: &NoAuthorizer,
    };
    let mut evaluation = Evaluation::new(request, Deadline::after(Duration::from_secs(1)));
    evaluation.run(&[chain], sources).await;
    evaluation.outcome()
}

fn chain(stages: Vec<Stage>) -> Chain {
    Chain::new("chain", vec![Rule::for_operations(Operation::ALL)], stages)
}

async fn stage_result(stage: Stage, object: Value) -> StageResult {
    let object = Object::from_value(object).unwrap();
    let mut request = Request::from_objects(Some(object.clone()), Some(object), None, None, None).unwrap();
    request.user.username = "alice".to_owned();
    let outcome = run_chain(&chain(vec![stage]), request).await;
    let [row] = &*outcome.trace else {
        panic!("{:?}", outcome.trace);
    };
    row.result.clone()
}

/// Source: Gatekeeper 3.20, pkg/expansion/system.go.
#[tokio::test(start_paused = true)]
async fn a_stage_for_cronjobs_sees_the_generated_pod() {
    let mut selecting = cron_job_stage();
    selecting.spec.object_selector = label_selector("a", "b");
    for stage in [cron_job_stage(), selecting] {
        let StageResult::Denied(denial) = stage_result(stage, cron_job()).await else {
            panic!("it is not called");
        };
        let expected = json!({
            "operation": "CREATE",
            "kind": "v1/Pod",
            "resource": "pods",
            "name": "report-job-pod",
            "namespace": "shop",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "report-job-pod",
                    "namespace": "shop",
                    "labels": {"a": "b"},
                    "ownerReferences": [
                        {"apiVersion": "batch/v1", "kind": "Job", "name": "report-job", "uid": ""},
                    ],
                },
                "spec": {"restartPolicy": "Never", "hostNetwork": false},
            },
        });
        let summary: Value = serde_json::from_str(&denial.message).unwrap();
        assert_eq!(summary, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_and_rules_match_generated_objects() {
    let mut other_label = cron_job_stage();
    other_label.spec.object_selector = label_selector("job", "yes");
    let mut job_stage = cron_job_stage();
    job_stage.spec.rules = vec![rule_of_kind("Job")];
    let mut pod = cron_job();
    pod["kind"] = json!("Pod");
    for (stage, object, expected) in [
        (other_label, cron_job(), SkipReason::ObjectSelector),
        (job_stage, cron_job(), SkipReason::Rules),
        (cron_job_stage(), pod, SkipReason::Rules),
    ] {
        match stage_result(stage, object).await {
            StageResult::Skipped(reason) => assert_eq!(reason, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn expansion_fails_the_stage_if_the_job_has_no_pod_template() {
    let mut object = cron_job();
    object["spec"]["jobTemplate"]["spec"] = json!({"template": []});
    let StageResult::Failed { failure, .. } = stage_result(cron_job_stage(), object).await else {
        panic!("it does not fail");
    };
    let expected = "nothing can be generated of Job \"report-job\": it has no object at spec.template";
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Error, expected));
}

/// A hook that allows every request, and records the memory address of the object's text.
struct AddressRecorder(Arc<Mutex<Vec<usize>>>);

#[async_trait]
impl Hook for AddressRecorder {
    async fn admit(&self, request: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        let text = request.object.as_ref().unwrap().text();
        self.0.lock().unwrap().push(text.as_ptr().addr());
        Ok(Response::allow())
    }
}

#[tokio::test]
async fn stages_share_the_objects_generated_for_a_request() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let shared = cron_job_stage().spec.expansion;
    let stages = [Mode::Enforce, Mode::Enforce, Mode::Audit, Mode::Audit].map(|mode| {
        let mut stage = Stage::new("generated", AddressRecorder(calls.clone()));
        stage.spec.mode = mode;
        stage.spec.expansion = shared.clone();
        stage
    });
    let mut chain = chain(stages.into());
    chain.phase = Phase::Validating;
    let request = Request::from_objects(Object::from_value(cron_job()), None, None, None, None).unwrap();
    run_chain(&chain, request).await;
    let addresses = calls.lock().unwrap();
    let [one, two, three, four] = addresses.as_slice() else {
        panic!("{addresses:?}");
    };
    assert_eq!((one, three), (two, four));
}
