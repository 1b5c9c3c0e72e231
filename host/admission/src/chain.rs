use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    AuditAnnotation, Deadline, Decision, Failure, FailureKind, FailurePolicy, Mode, NamespaceSource, Object,
    Outcome, Outline, Patch, Refusal, Request, Response, Rule, SkipReason, Stage, StageResult, TraceRow,
    Verdict,
};

/// An ordered list of stages, and the rules that say which requests it is for.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Names the chain in traces, metrics and refusals.
    pub name: Arc<str>,
    /// The chain is for a request that any of these matches; without rules it is for none.
    pub rules: Vec<Rule>,
    /// Called in this order.
    pub stages: Vec<Stage>,
}

impl Chain {
    /// Whether the chain is for this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Whether it may be for a request of which only this is known.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_match(outline))
    }
}

/// One request on its way through chains. Lives as long as the request.
#[derive(Debug)]
pub struct Evaluation {
    request: Request,
    deadline: Deadline,
    patch: Patch,
    warnings: Vec<String>,
    audit_annotations: Vec<AuditAnnotation>,
    trace: Vec<TraceRow>,
    refusal: Option<Refusal>,
}

impl Evaluation {
    /// A request that no stage has seen, and the time by which the whole answer must be there.
    pub fn new(request: Request, deadline: Deadline) -> Self {
        Self {
            request,
            deadline,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            trace: Vec::new(),
            refusal: None,
        }
    }

    /// Pass the request through every stage of the chain, whatever its rules say. After a refusal
    /// the stages only leave a row in the trace.
    pub async fn run(&mut self, chain: &Chain, namespaces: &dyn NamespaceSource) {
        for stage in &chain.stages {
            let started = Instant::now();
            let (result, duration) = if self.refusal.is_some() {
                (StageResult::NotReached, std::time::Duration::ZERO)
            } else {
                let result = self.pass(chain, stage, namespaces).await;
                (result, started.elapsed())
            };
            self.trace.push(TraceRow {
                chain: chain.name.clone(),
                stage: stage.name.clone(),
                mode: stage.mode,
                result,
                duration,
            });
        }
    }

    /// What the chains so far say of the request.
    pub fn outcome(self) -> Outcome {
        Outcome {
            uid: self.request.uid,
            decision: self.refusal.map_or(Decision::Allowed, Decision::Refused),
            object: self.request.object,
            patch: self.patch,
            warnings: self.warnings,
            audit_annotations: self.audit_annotations,
            trace: self.trace,
        }
    }

    async fn pass(&mut self, chain: &Chain, stage: &Stage, namespaces: &dyn NamespaceSource) -> StageResult {
        if self.deadline.has_passed() {
            self.refusal = Some(Refusal::DeadlinePassed {
                chain: chain.name.clone(),
                stage: stage.name.clone(),
            });
            return StageResult::NotReached;
        }
        let deadline = self.deadline.within(stage.timeout);
        let answer = match self.select(stage, deadline, namespaces).await {
            Ok(None) => self.call(stage, deadline).await,
            Ok(Some(reason)) => return StageResult::Skipped(reason),
            Err(failure) => Err(failure),
        };
        let effect = answer.and_then(|response| self.judge(response));
        match stage.mode {
            Mode::Enforce => self.enforce(chain, stage, effect),
            Mode::Audit => match effect {
                Ok((effect, _)) => effect.into_result(),
                Err(failure) => StageResult::Failed {
                    failure,
                    policy: FailurePolicy::Ignore,
                },
            },
        }
    }

    /// Why the stage is not for this request, if it is not.
    async fn select(
        &self,
        stage: &Stage,
        deadline: Deadline,
        namespaces: &dyn NamespaceSource,
    ) -> Result<Option<SkipReason>, Failure> {
        if let Some(selector) = &stage.namespace_selector {
            let matches = timeout_at(deadline.instant(), selector.matches(&self.request, namespaces))
                .await
                .map_err(|_| timed_out("the labels of the namespace were not there in time"))?
                .map_err(|error| Failure::new(FailureKind::NamespaceUnknown, error.to_string()))?;
            if !matches {
                return Ok(Some(SkipReason::NamespaceSelector));
            }
        }
        let selector = &stage.object_selector;
        // kube-apiserver: an object without metadata matches no selector but the empty one.
        let chosen = |object: &Option<Object>| {
            object
                .as_ref()
                .is_some_and(|object| object.head().has_metadata && selector.matches(object.labels()))
        };
        if !selector.is_empty() && !chosen(&self.request.object) && !chosen(&self.request.old_object) {
            return Ok(Some(SkipReason::ObjectSelector));
        }
        Ok(None)
    }

    async fn call(&self, stage: &Stage, deadline: Deadline) -> Result<Response, Failure> {
        // A panic in a native hook is that stage's failure and nobody else's.
        let call = AssertUnwindSafe(stage.hook.admit(&self.request, deadline)).catch_unwind();
        match timeout_at(deadline.instant(), call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(Failure::new(FailureKind::Trap, panic_message(&*panic))),
            Err(_) if deadline == self.deadline => Err(timed_out("no verdict before the request's deadline")),
            Err(_) => Err(timed_out(&format!(
                "no verdict within the stage's timeout of {:?}",
                stage.timeout
            ))),
        }
    }

    /// What the response does to the object, and what goes with it.
    fn judge(&self, response: Response) -> Result<(Effect, Notes), Failure> {
        let Response {
            verdict,
            warnings,
            audit_annotations,
        } = response;
        let effect = match verdict {
            Verdict::Allow => Effect::None,
            Verdict::Deny(denial) => Effect::Deny(denial),
            Verdict::Patch(patch) if patch.is_empty() => Effect::None,
            Verdict::Patch(patch) => {
                let before = self.object_to_change()?;
                let after = patch
                    .apply(before)
                    .map_err(|error| Failure::new(FailureKind::PatchFailed, error.to_string()))?;
                // A patch that writes what is there changes nothing.
                if before.is(&after) {
                    Effect::None
                } else {
                    self.guard_identity(before, &after, Some(&patch))?;
                    Effect::Change(after, patch)
                }
            }
            Verdict::Replace(after) => {
                let before = self.object_to_change()?;
                self.guard_identity(before, &after, None)?;
                let patch = Patch::between(before, &after);
                if patch.is_empty() {
                    Effect::None
                } else {
                    Effect::Change(after, patch)
                }
            }
        };
        Ok((
            effect,
            Notes {
                warnings,
                audit_annotations,
            },
        ))
    }

    fn object_to_change(&self) -> Result<&Object, Failure> {
        self.request.object.as_ref().ok_or_else(|| {
            Failure::new(
                FailureKind::PatchFailed,
                format!(
                    "the verdict changes the object, and a {} request has none",
                    self.request.operation
                ),
            )
        })
    }

    fn guard_identity(&self, before: &Object, after: &Object, patch: Option<&Patch>) -> Result<(), Failure> {
        match self.request.identity.change(before, after, patch) {
            None => Ok(()),
            Some(change) => Err(Failure::new(FailureKind::IdentityChanged, change)),
        }
    }

    fn enforce(
        &mut self,
        chain: &Chain,
        stage: &Stage,
        effect: Result<(Effect, Notes), Failure>,
    ) -> StageResult {
        let (effect, notes) = match effect {
            Ok(effect) => effect,
            Err(failure) => {
                if stage.failure_policy == FailurePolicy::Fail {
                    self.refusal = Some(Refusal::Failed {
                        chain: chain.name.clone(),
                        stage: stage.name.clone(),
                        failure: failure.clone(),
                    });
                }
                return StageResult::Failed {
                    failure,
                    policy: stage.failure_policy,
                };
            }
        };
        self.warnings.extend(notes.warnings);
        self.audit_annotations
            .extend(
                notes
                    .audit_annotations
                    .into_iter()
                    .map(|(key, value)| AuditAnnotation {
                        stage: stage.name.clone(),
                        key,
                        value,
                    }),
            );
        match &effect {
            Effect::None => {}
            Effect::Deny(denial) => {
                self.refusal = Some(Refusal::Denied {
                    chain: chain.name.clone(),
                    stage: stage.name.clone(),
                    denial: denial.clone(),
                });
            }
            Effect::Change(object, patch) => {
                self.request.object = Some(object.clone());
                self.patch.append(patch);
            }
        }
        effect.into_result()
    }
}

/// What a verdict does.
enum Effect {
    None,
    Change(Object, Patch),
    Deny(crate::Denial),
}

impl Effect {
    fn into_result(self) -> StageResult {
        match self {
            Self::None => StageResult::Allowed,
            Self::Change(_, patch) => StageResult::Changed(patch),
            Self::Deny(denial) => StageResult::Denied(denial),
        }
    }
}

struct Notes {
    warnings: Vec<String>,
    audit_annotations: Vec<(String, String)>,
}

fn timed_out(what: &str) -> Failure {
    Failure::new(FailureKind::Timeout, what)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the hook panicked: {}", text.unwrap_or("no message"))
}
