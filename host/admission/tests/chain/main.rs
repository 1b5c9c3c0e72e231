//! Evaluations of requests by chains. Most tests are tables with one row for each case.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod audit;
mod deadlines;
mod effects;
mod exceptions;
mod groups;
mod selection;
mod verdicts;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_admission::{
    Chain, Deadline, Decision, Denial, Evaluation, EvaluationSources, Failure, FailureKind, FailurePolicy,
    GroupVersionKind, GroupVersionResource, Hook, IdentityFields, LabelRequirement, LabelSelector, Labels, Mode,
    NamespaceLookupError, NamespaceSelector, NamespaceSource, NoAuthorizer, Object, Operation, Outcome, Patch, Phase,
    RefusalCause, Reinvocation, Request, RequestRefusal, Response, Rule, Stage, StageResult, StaticNamespaces, Verdict,
    async_trait,
};
use serde_json::{Value, json};

#[derive(Clone)]
enum Script {
    Allow,
    Warn(&'static str),
    Patch(Value),
    /// Changes the object with this patch, whose text may be invalid.
    Raw(String),
    Replace(Value),
    Deny(&'static str),
    Fail(FailureKind),
    Panic,
    Hang,
    /// Allows the request after this many milliseconds of virtual time.
    Slow(u64),
}

#[async_trait]
impl Hook for Script {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        assert!(!deadline.has_passed(), "no stage is called after its deadline");
        Ok(match self {
            Self::Allow => Response::allow(),
            Self::Warn(warning) => {
                let mut response = Response::allow();
                response.warnings.push((*warning).to_owned());
                response.audit_annotations.push(("key".into(), request.uid.to_string()));
                response
            }
            Self::Patch(patch) => Response::new(Verdict::Patch(Patch::parse(patch.to_string()).unwrap())),
            Self::Raw(patch) => Response::new(Verdict::Patch(Patch::parse(patch)?)),
            Self::Replace(object) => Response::new(Verdict::Replace(Object::parse(object.to_string()).unwrap())),
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

fn enforced_stage(script: Script, failure_policy: FailurePolicy) -> Stage {
    let mut stage = Stage::new("stage", script);
    stage.spec.failure_policy = failure_policy;
    stage
}

fn chain(stages: Vec<Stage>) -> Chain {
    Chain::new("chain", vec![Rule::for_operations(Operation::ALL)], stages)
}

fn sources(namespaces: &dyn NamespaceSource) -> EvaluationSources<'_> {
    EvaluationSources {
        namespaces,
        authorizer: &NoAuthorizer,
    }
}

async fn run(stages: Vec<Stage>, request: Request, budget: Duration) -> Outcome {
    let mut evaluation = Evaluation::new(request, Deadline::after(budget));
    evaluation
        .run(&[&chain(stages)], sources(&StaticNamespaces::default()))
        .await;
    evaluation.outcome()
}

/// Returns the results in the trace, the message of the refusal, and the changes of the object.
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
