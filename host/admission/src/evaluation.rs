use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use futures_util::{FutureExt, future::join_all};
use tokio::time::{Instant, timeout_at};

use crate::{
    AuditAnnotation, Authorizer, Chain, Deadline, Decision, Denial, Failure, FailureKind, FailurePolicy,
    Mode, NamespaceSource, Object, Outcome, Patch, Phase, Refusal, Reinvocation, Request, Response,
    SkipReason, Stage, StageResult, TraceRow, Verdict,
};

/// What stages may ask of the control plane before they are called. Lives as long as one request.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Where the labels of namespaces come from.
    pub namespaces: &'a dyn NamespaceSource,
    /// Who answers what a user may do, for match conditions that ask.
    pub authorizer: &'a dyn Authorizer,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// One request on its way through chains. Lives as long as the request.
#[derive(Debug)]
pub struct Evaluation {
    request: Request,
    /// The object before any stage.
    original: Option<Object>,
    deadline: Deadline,
    /// How often the object was changed.
    revision: u64,
    patch: Patch,
    warnings: Vec<String>,
    audit_annotations: Vec<AuditAnnotation>,
    trace: Vec<TraceRow>,
    refusal: Option<Refusal>,
}

/// A stage of the first round that wants to see what changed after its call.
struct Visit<'a> {
    chain: &'a Chain,
    stage: &'a Stage,
    /// The object's revision when the stage had been called.
    revision: u64,
}

impl Evaluation {
    /// A request that no stage has seen, and the time by which the whole answer must be there.
    pub fn new(request: Request, deadline: Deadline) -> Self {
        Self {
            original: request.object.clone(),
            request,
            deadline,
            revision: 0,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            trace: Vec::new(),
            refusal: None,
        }
    }

    /// Pass the request through every stage of these chains, whatever the rules of the chains say:
    /// the mutating chains in this order, once more through those of their stages that ask for it,
    /// and then through the stages of the validating chains, all at once. After a refusal the stages
    /// only leave a row in the trace.
    ///
    /// A mutating stage is called a second time if it asks for reinvocation, was called in the first
    /// round, and the object changed after that call. There is no third round (as kube-apiserver has
    /// it).
    pub async fn run(&mut self, chains: &[&Chain], surroundings: Surroundings<'_>) {
        let mut visits = Vec::new();
        for (chain, stage) in stages(chains, Phase::Mutating) {
            let was_called = self.step(chain, stage, 1, surroundings).await;
            if was_called && stage.reinvocation == Reinvocation::IfNeeded {
                visits.push(Visit {
                    chain,
                    stage,
                    revision: self.revision,
                });
            }
        }
        for visit in visits {
            if self.refusal.is_none() && self.revision > visit.revision {
                self.step(visit.chain, visit.stage, 2, surroundings).await;
            }
        }
        let validating = stages(chains, Phase::Validating);
        if self.refusal.is_some() {
            for (chain, stage) in validating {
                self.row(chain, stage, 1, StageResult::NotReached, Duration::ZERO);
            }
            return;
        }
        let considered = {
            let request = &*self;
            let mut calls = Vec::with_capacity(validating.len());
            for (chain, stage) in &validating {
                calls.push(async move {
                    let started = Instant::now();
                    let step = request.consider(chain, stage, surroundings).await;
                    (step, started.elapsed())
                });
            }
            join_all(calls).await
        };
        for ((chain, stage), (step, duration)) in validating.into_iter().zip(considered) {
            let result = self.settle(chain, stage, step);
            self.row(chain, stage, 1, result, duration);
        }
    }

    /// What the chains so far say of the request.
    pub fn outcome(self) -> Outcome {
        // Changes may undo one another, and then nothing changed.
        let is_undone = self.revision > 1 && self.original == self.request.object;
        Outcome {
            uid: self.request.uid,
            decision: self.refusal.map_or(Decision::Allowed, Decision::Refused),
            object: self.request.object,
            patch: if is_undone { Patch::default() } else { self.patch },
            warnings: self.warnings,
            audit_annotations: self.audit_annotations,
            trace: self.trace,
        }
    }

    /// One mutating stage, and what it does. Returns whether the hook was called.
    async fn step(
        &mut self,
        chain: &Chain,
        stage: &Stage,
        round: u8,
        surroundings: Surroundings<'_>,
    ) -> bool {
        if self.refusal.is_some() {
            self.row(chain, stage, round, StageResult::NotReached, Duration::ZERO);
            return false;
        }
        let started = Instant::now();
        let step = self.consider(chain, stage, surroundings).await;
        let was_called = matches!(step, Step::Answered(_));
        let result = self.settle(chain, stage, step);
        self.row(chain, stage, round, result, started.elapsed());
        was_called
    }

    fn row(&mut self, chain: &Chain, stage: &Stage, round: u8, result: StageResult, duration: Duration) {
        self.trace.push(TraceRow {
            chain: chain.name.clone(),
            phase: chain.phase,
            stage: stage.name.clone(),
            mode: stage.mode,
            round,
            result,
            duration,
        });
    }

    /// What a stage says of the request as it is now.
    async fn consider(&self, chain: &Chain, stage: &Stage, surroundings: Surroundings<'_>) -> Step {
        if self.deadline.has_passed() {
            return Step::DeadlinePassed;
        }
        let deadline = self.deadline.within(stage.timeout);
        match self.select(stage, deadline, surroundings).await {
            Ok(Some(reason)) => return Step::Skipped(reason),
            Err(failure) => return Step::Unselected(failure),
            Ok(None) => {}
        }
        if self.request.dry_run && !stage.side_effects.allow_dry_run() {
            return Step::Skipped(SkipReason::DryRun);
        }
        let answer = self.call(stage, deadline).await;
        Step::Answered(answer.and_then(|response| self.judge(chain.phase, response)))
    }

    /// What that does to the request.
    fn settle(&mut self, chain: &Chain, stage: &Stage, step: Step) -> StageResult {
        let effect = match step {
            Step::DeadlinePassed => {
                self.refuse(Refusal::DeadlinePassed {
                    chain: chain.name.clone(),
                    stage: stage.name.clone(),
                });
                return StageResult::NotReached;
            }
            Step::Skipped(reason) => {
                if reason == SkipReason::DryRun && stage.mode == Mode::Enforce {
                    self.refuse(Refusal::DryRunUnsupported {
                        chain: chain.name.clone(),
                        stage: stage.name.clone(),
                    });
                }
                return StageResult::Skipped(reason);
            }
            Step::Unselected(failure) => Err(failure),
            Step::Answered(effect) => effect,
        };
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

    /// The first refusal is the one that is told.
    fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// Why the stage is not for this request, if it is not.
    async fn select(
        &self,
        stage: &Stage,
        deadline: Deadline,
        surroundings: Surroundings<'_>,
    ) -> Result<Option<SkipReason>, Failure> {
        if !stage.rules.is_empty() && !stage.rules.iter().any(|rule| rule.matches(&self.request)) {
            return Ok(Some(SkipReason::Rules));
        }
        if let Some(selector) = &stage.namespace_selector {
            let matches = selector.matches(&self.request, surroundings.namespaces);
            let matches = timeout_at(deadline.instant(), matches)
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
        let conditions = &stage.match_conditions;
        if !conditions.is_empty() {
            let unmet = conditions
                .evaluate(&self.request, surroundings.authorizer, deadline)
                .await;
            let unmet = unmet.map_err(|error| Failure::new(FailureKind::Condition, error.to_string()))?;
            if unmet.is_some() {
                return Ok(Some(SkipReason::MatchCondition));
            }
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
    fn judge(&self, phase: Phase, response: Response) -> Result<(Effect, Notes), Failure> {
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
        if phase == Phase::Validating && matches!(effect, Effect::Change(..)) {
            return Err(Failure::new(
                FailureKind::InvalidResponse,
                "the verdict changes the object, and a stage of a validating chain may only allow or deny",
            ));
        }
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
                    self.refuse(Refusal::Failed {
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
                self.refuse(Refusal::Denied {
                    chain: chain.name.clone(),
                    stage: stage.name.clone(),
                    denial: denial.clone(),
                });
            }
            Effect::Change(object, patch) => {
                self.request.object = Some(object.clone());
                self.patch.append(patch);
                self.revision += 1;
            }
        }
        effect.into_result()
    }
}

/// The stages of these chains that belong to a phase, in order.
fn stages<'a>(chains: &[&'a Chain], phase: Phase) -> Vec<(&'a Chain, &'a Stage)> {
    let mut stages = Vec::new();
    for chain in chains {
        if chain.phase == phase {
            stages.extend(chain.stages.iter().map(|stage| (*chain, stage)));
        }
    }
    stages
}

/// How far a stage came with a request.
enum Step {
    /// The request's own deadline had passed before.
    DeadlinePassed,
    /// The stage is not for the request.
    Skipped(SkipReason),
    /// It cannot be told whether it is.
    Unselected(Failure),
    /// The hook was called.
    Answered(Result<(Effect, Notes), Failure>),
}

/// What a verdict does.
enum Effect {
    None,
    Change(Object, Patch),
    Deny(Denial),
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
