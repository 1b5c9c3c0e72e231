mod audit;

use std::{borrow::Borrow, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::{
    AuditAnnotation, Authorizer, Chain, Deadline, Decision, Denial, Effect, Failure, FailurePolicy, LogLine,
    NamespaceSource, Object, Outcome, Patch, Phase, Refusal, RefusalCause, Reinvocation, Request, SkipReason,
    Stage, StageResult, TraceRow,
    capabilities::log::with_notes,
    chain::expansion::Generated,
    chain::spans::ChainSpan,
    chain::turn::{ResponseNotes, Step, Turn},
    scheduling::offload::offload,
};

use self::audit::Audit;

/// Provides the data that decides whether a stage is called. Lives as long as one request.
#[derive(Clone, Copy, derive_more::Debug)]
#[debug("Surroundings {{ .. }}")]
pub struct Surroundings<'a> {
    /// The source of namespace labels.
    pub namespaces: &'a dyn NamespaceSource,
    /// The authorizer for match conditions.
    pub authorizer: &'a dyn Authorizer,
}

/// The evaluation of one request by the chains. Lives as long as the request.
#[derive(Debug)]
pub struct Evaluation {
    /// The request as the next stage sees it. It is copied before a change if hooks or audits still use it.
    request: Arc<Request>,
    original: Option<Object>,
    began: Instant,
    deadline: Deadline,
    revision: u64,
    patch: Patch,
    warnings: Vec<String>,
    audit_annotations: Vec<AuditAnnotation>,
    trace: Vec<TraceRow>,
    refusal: Option<Refusal>,
    /// Whether other stages' denials are added to the refusal.
    is_joined: bool,
}

/// A stage, and the chain through which a request reaches it.
#[derive(Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub(crate) chain: &'a Arc<str>,
    pub(crate) phase: Phase,
    stage: &'a Stage,
}

/// A stage that is called again in a second round if the object changed.
struct ReinvokedStage<'a> {
    visit: Visit<'a>,
    /// The object's revision after the stage's turn. The stage is called again if the final revision differs.
    revision: u64,
    /// The index in the list of audits; `None` unless the stage has the mode `Audit`.
    audit: Option<usize>,
}

/// The result of a stage's turn, for its row of the trace.
struct FinishedTurn {
    result: StageResult,
    exception: Option<Arc<str>>,
    timing: Timing,
}

impl Evaluation {
    /// Starts an evaluation. The deadline applies to all chains together.
    pub fn new(request: Request, deadline: Deadline) -> Self {
        Self {
            original: request.object.clone(),
            request: Arc::new(request),
            began: Instant::now(),
            deadline,
            revision: 0,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            trace: Vec::new(),
            refusal: None,
            is_joined: false,
        }
    }

    /// Passes the request through all stages of these chains, without checking the chains' rules. The mutating chains
    /// come first, in this order, then their stages that ask for reinvocation, then all validating stages concurrently.
    /// After a refusal, the remaining stages only add a row to the trace.
    ///
    /// A mutating stage is called a second time if it asks for reinvocation, was called in the first round, and the
    /// object changed afterwards. A stage that is reinvoked by itself is also called again after its own change. As in
    /// kube-apiserver, no stage is called a third time.
    ///
    /// Stages in mode `Audit` are called last, concurrently, and neither delay others nor influence the decision.
    pub async fn run<S: Borrow<Stage>>(&mut self, chains: &[&Chain<S>], surroundings: Surroundings<'_>) {
        let mut audits = Vec::new();
        self.mutate(visits(chains, Phase::Mutating), surroundings, &mut audits)
            .await;
        self.validate(visits(chains, Phase::Validating), surroundings, &mut audits)
            .await;
        self.shorten_patch().await;
        self.audit(&audits, surroundings).await;
    }

    async fn mutate<'a>(
        &mut self,
        visits: Vec<Visit<'a>>,
        surroundings: Surroundings<'_>,
        audits: &mut Vec<Audit<'a>>,
    ) {
        let mut revisits = Vec::new();
        let mut spans = ChainSpan::default();
        for visit in visits {
            let spec = &visit.stage.spec;
            let audit = self.queue_audit(visit, audits);
            let before = self.revision;
            let had_turn = audit.is_some() || {
                let span = match self.refusal {
                    None => spans.of(visit),
                    Some(_) => Span::none(),
                };
                self.step(visit, 1, surroundings).instrument(span).await
            };
            if had_turn && spec.reinvocation == Reinvocation::IfNeeded {
                revisits.push(ReinvokedStage {
                    visit,
                    revision: if spec.reinvoked_by_itself {
                        before
                    } else {
                        self.revision
                    },
                    audit,
                });
            }
        }
        for ReinvokedStage {
            visit,
            revision,
            audit,
        } in revisits
        {
            if self.refusal.is_some() || self.revision == revision {
                continue;
            }
            match audit {
                None => {
                    let step = self.step(visit, 2, surroundings);
                    step.instrument(spans.of(visit)).await;
                }
                Some(audit) => {
                    let row = self.reserve(visit, 2);
                    if let Some(audit) = audits.get_mut(audit) {
                        audit.rounds.push((Arc::clone(&self.request), row));
                    }
                }
            }
        }
    }

    async fn validate<'a>(
        &mut self,
        visits: Vec<Visit<'a>>,
        surroundings: Surroundings<'_>,
        audits: &mut Vec<Audit<'a>>,
    ) {
        let is_refused = self.refusal.is_some();
        let mut enforced = Vec::new();
        for visit in visits {
            if is_refused || self.queue_audit(visit, audits).is_none() {
                enforced.push((visit, self.reserve(visit, 1)));
            }
        }
        if is_refused {
            return;
        }
        let taken = {
            let generated = Generated::default();
            let turn = self.turn(surroundings, &generated);
            let mut spans = ChainSpan::default();
            let turns = enforced
                .iter()
                .map(|(visit, _)| timed(turn, *visit).instrument(spans.of(*visit)));
            join_all(turns).await
        };
        for ((visit, row), (step, timing)) in enforced.into_iter().zip(taken) {
            let done = self.settle(visit, step, timing);
            self.fill(row, done);
        }
    }

    /// Shortens the patch, because changes of several stages may cancel each other out or be too many.
    async fn shorten_patch(&mut self) {
        if self.revision < 2 {
            return;
        }
        let (Some(before), Some(after)) = (self.original.clone(), self.request.object.clone()) else {
            return;
        };
        let bytes = before.text().len() + after.text().len();
        let is_long = self.patch.len() > Patch::MAX_OPERATIONS;
        let shorter = move || {
            if before == after {
                Some(Patch::default())
            } else {
                is_long.then(|| Patch::between(&before, &after))
            }
        };
        // On an error, the patch stays as it is, because it is correct without being minimal.
        if let Ok(Some(patch)) = offload(bytes, self.deadline, shorter).await {
            self.patch = patch;
        }
    }

    /// Returns the outcome of the chains so far.
    pub fn outcome(self) -> Outcome {
        self.finish().1
    }

    /// Returns the request as it was before the chains, and the outcome so far.
    pub fn finish(self) -> (Request, Outcome) {
        let mut request = Arc::unwrap_or_clone(self.request);
        let object = std::mem::replace(&mut request.object, self.original);
        let outcome = Outcome {
            uid: request.uid.clone(),
            decision: self.refusal.map_or(Decision::Allowed, Decision::Refused),
            object,
            patch: self.patch,
            warnings: self.warnings,
            audit_annotations: self.audit_annotations,
            trace: self.trace,
        };
        (request, outcome)
    }

    /// Calls a mutating stage, and applies its effect. Returns whether the hook was called.
    async fn step(&mut self, visit: Visit<'_>, round: u8, surroundings: Surroundings<'_>) -> bool {
        if self.refusal.is_some() {
            self.reserve(visit, round);
            return false;
        }
        let row = self.reserve(visit, round);
        let generated = Generated::default();
        let turn = self.turn(surroundings, &generated);
        let (step, timing) = timed(turn, visit).await;
        let was_called = matches!(step, Step::Answered(_));
        let done = self.settle(visit, step, timing);
        self.fill(row, done);
        was_called
    }

    fn turn<'a>(&'a self, surroundings: Surroundings<'a>, generated: &'a Generated) -> Turn<'a> {
        Turn {
            request: &self.request,
            began: self.began,
            deadline: self.deadline,
            surroundings,
            generated,
        }
    }

    fn reserve(&mut self, visit: Visit<'_>, round: u8) -> usize {
        let spec = &visit.stage.spec;
        let row = TraceRow::new(
            visit.chain.clone(),
            visit.phase,
            spec.name.clone(),
            StageResult::NotReached,
        );
        self.trace.push(TraceRow {
            mode: spec.mode,
            round,
            ..row
        });
        self.trace.len() - 1
    }

    fn fill(&mut self, row: usize, done: FinishedTurn) {
        if let Some(row) = self.trace.get_mut(row) {
            row.result = done.result;
            row.exception = done.exception;
            row.start = done.timing.start;
            row.duration = done.timing.duration;
            row.log = done.timing.log;
            row.by_candidate = done.timing.by_candidate;
        }
    }

    /// Applies the result of an enforced stage's turn to the request.
    fn settle(&mut self, visit: Visit<'_>, step: Step, timing: Timing) -> FinishedTurn {
        let mut exception = None;
        let result = match step {
            Step::DeadlinePassed => {
                self.refuse(visit, RefusalCause::DeadlinePassed);
                StageResult::NotReached
            }
            Step::Skipped {
                reason,
                exception: matching,
            } => {
                exception = matching;
                if reason == SkipReason::DryRun {
                    self.refuse(visit, RefusalCause::DryRunUnsupported);
                }
                StageResult::Skipped(reason)
            }
            Step::Unselected(failure) => self.enforce(visit, Err(failure)),
            Step::Answered(effect) => self.enforce(visit, effect),
        };
        FinishedTurn {
            result,
            exception,
            timing,
        }
    }

    /// Refuses the request, or adds the denial to an earlier one if the messages of both name their policies.
    fn deny(&mut self, visit: Visit<'_>, denial: &Denial) {
        match &mut self.refusal {
            Some(Refusal {
                cause: RefusalCause::Denied(first),
                ..
            }) if self.is_joined && visit.stage.spec.names_itself => first.join(denial),
            Some(_) => {}
            None => {
                self.is_joined = visit.stage.spec.names_itself;
                self.refuse(visit, RefusalCause::Denied(denial.clone()));
            }
        }
    }

    fn refuse(&mut self, visit: Visit<'_>, cause: RefusalCause) {
        self.refusal.get_or_insert_with(|| Refusal {
            chain: visit.chain.clone(),
            stage: visit.stage.spec.name.clone(),
            cause,
        });
    }

    fn enforce(&mut self, visit: Visit<'_>, effect: Result<(Effect, ResponseNotes), Failure>) -> StageResult {
        let (effect, notes) = match effect {
            Ok(effect) => effect,
            Err(failure) => {
                if visit.stage.spec.failure_policy == FailurePolicy::Fail {
                    self.refuse(visit, RefusalCause::Failed(failure.clone()));
                }
                return StageResult::Failed {
                    failure,
                    policy: visit.stage.spec.failure_policy,
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
                        stage: visit.stage.spec.name.clone(),
                        key,
                        value,
                    }),
            );
        match &effect {
            Effect::None => {}
            Effect::Deny(denial) => self.deny(visit, denial),
            Effect::Change(object, patch) => {
                Arc::make_mut(&mut self.request).object = Some(object.clone());
                self.patch.append(patch);
                self.revision += 1;
            }
        }
        effect.into_result()
    }
}

fn visits<'a, S: Borrow<Stage>>(chains: &[&'a Chain<S>], phase: Phase) -> Vec<Visit<'a>> {
    let mut visits = Vec::new();
    for chain in chains {
        if chain.phase == phase {
            visits.extend(chain.stages.iter().map(|stage| Visit {
                chain: &chain.name,
                phase,
                stage: stage.borrow(),
            }));
        }
    }
    visits
}

/// The time of a stage's turn, and the notes that were taken during it.
struct Timing {
    /// The time between the request's arrival at the chains and the turn.
    start: Duration,
    duration: Duration,
    log: Vec<LogLine>,
    by_candidate: bool,
}

async fn timed(turn: Turn<'_>, visit: Visit<'_>) -> (Step, Timing) {
    let started = Instant::now();
    let (step, log, by_candidate) =
        with_notes(visit.stage.spec.mode, turn.take(visit.phase, visit.stage)).await;
    let timing = Timing {
        start: started - turn.began,
        duration: started.elapsed(),
        log,
        by_candidate,
    };
    (step, timing)
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
