mod audit;

use std::{borrow::Borrow, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::{
    AuditAnnotation, Authorizer, Chain, Deadline, Decision, Denial, Effect, Failure, FailurePolicy, LogLine,
    NamespaceSource, Object, Outcome, Patch, Phase, RefusalCause, Reinvocation, Request, RequestRefusal, SkipReason,
    Stage, StageResult, TraceRow,
    capabilities::log::run_with_notes,
    chain::expansion::GeneratedObjects,
    chain::spans::ChainSpan,
    chain::stage_turn::{ResponseNotes, StageTurn, TurnResult},
    scheduling::offload::offload,
};

use self::audit::Audit;

/// Provides the labels and permissions that decide whether a stage is called. Lives as long as the request.
#[derive(Clone, Copy, derive_more::Debug)]
#[debug("EvaluationSources {{ .. }}")]
pub struct EvaluationSources<'a> {
    /// The source of the namespace labels that selectors compare.
    pub namespaces: &'a dyn NamespaceSource,
    /// The authorizer that match conditions call.
    pub authorizer: &'a dyn Authorizer,
}

/// The evaluation of one request by the chains. Lives as long as the request.
#[derive(Debug)]
pub struct Evaluation {
    /// The request as the next stage gets it. A hook or an audit may still be reading it when a stage changes the
    /// object. The change is then made to a copy of the request, so that the hook or audit does not see it.
    request: Arc<Request>,
    original_object: Option<Object>,
    start_time: Instant,
    deadline: Deadline,
    revision: u64,
    patch: Patch,
    warnings: Vec<String>,
    audit_annotations: Vec<AuditAnnotation>,
    trace: Vec<TraceRow>,
    refusal: Option<RequestRefusal>,
    /// Whether the request was denied by a policy whose message names the policy. If so, the denials of further such
    /// policies are added to the message, so that the client sees all of them.
    joins_denials: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct StageInChain<'a> {
    pub(crate) chain: &'a Arc<str>,
    pub(crate) phase: Phase,
    stage: &'a Stage,
}

struct ReinvokedStage<'a> {
    entry: StageInChain<'a>,
    /// The stage is called again if the revision of the object is no longer this one. Usually this is the revision
    /// after the stage's first call, so that only changes by other stages count. If a change by the stage itself
    /// counts, too, it is the revision before the first call.
    revision: u64,
    /// The stage's index in the list of audits; `None` unless the stage has the mode `Audit`.
    audit_index: Option<usize>,
}

struct FinishedTurn {
    result: StageResult,
    exception: Option<Arc<str>>,
    timing: TurnTiming,
}

impl Evaluation {
    /// Starts an evaluation. The deadline applies to all chains together.
    pub fn new(request: Request, deadline: Deadline) -> Self {
        Self {
            original_object: request.object.clone(),
            request: Arc::new(request),
            start_time: Instant::now(),
            deadline,
            revision: 0,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            trace: Vec::new(),
            refusal: None,
            joins_denials: false,
        }
    }

    /// Passes the request through all stages of these chains, without checking the chains' rules. The mutating chains
    /// are called first, in this order. Next, mutating stages are reinvoked, and then all validating stages are called
    /// concurrently. After a refusal, the remaining stages only get a row in the trace.
    ///
    /// A mutating stage is called a second time if it asks for reinvocation, was called in the first round, and the
    /// object changed afterwards. A stage that is reinvoked by itself is called again after its own change, too. As in
    /// kube-apiserver, no stage is called a third time.
    ///
    /// Stages in mode `Audit` are called last, concurrently. They neither delay other stages nor affect the decision.
    pub async fn run<S: Borrow<Stage>>(&mut self, chains: &[&Chain<S>], sources: EvaluationSources<'_>) {
        let mut audits = Vec::new();
        self.mutate(stages_in(chains, Phase::Mutating), sources, &mut audits)
            .await;
        self.validate(stages_in(chains, Phase::Validating), sources, &mut audits)
            .await;
        self.shorten_patch().await;
        self.call_audited_stages(&audits, sources).await;
    }

    async fn mutate<'a>(
        &mut self,
        stages: Vec<StageInChain<'a>>,
        sources: EvaluationSources<'_>,
        audits: &mut Vec<Audit<'a>>,
    ) {
        let mut reinvocations = Vec::new();
        let mut spans = ChainSpan::default();
        for entry in stages {
            let spec = &entry.stage.spec;
            let audit_index = self.queue_audit(entry, audits);
            let revision_before = self.revision;
            let had_turn = audit_index.is_some() || {
                let span = match self.refusal {
                    None => spans.stage_span(entry),
                    Some(_) => Span::none(),
                };
                self.call_mutating_stage(entry, 1, sources).instrument(span).await
            };
            if had_turn && spec.reinvocation == Reinvocation::IfNeeded {
                reinvocations.push(ReinvokedStage {
                    entry,
                    revision: if spec.reinvoked_by_itself {
                        revision_before
                    } else {
                        self.revision
                    },
                    audit_index,
                });
            }
        }
        for ReinvokedStage {
            entry,
            revision,
            audit_index: audit,
        } in reinvocations
        {
            if self.refusal.is_some() || self.revision == revision {
                continue;
            }
            match audit {
                None => {
                    let step = self.call_mutating_stage(entry, 2, sources);
                    step.instrument(spans.stage_span(entry)).await;
                }
                Some(audit) => {
                    let row_index = self.reserve_row(entry, 2);
                    if let Some(audit) = audits.get_mut(audit) {
                        audit.rounds.push((Arc::clone(&self.request), row_index));
                    }
                }
            }
        }
    }

    async fn validate<'a>(
        &mut self,
        stages: Vec<StageInChain<'a>>,
        sources: EvaluationSources<'_>,
        audits: &mut Vec<Audit<'a>>,
    ) {
        let is_refused = self.refusal.is_some();
        let mut enforced_stages = Vec::new();
        for entry in stages {
            if is_refused || self.queue_audit(entry, audits).is_none() {
                enforced_stages.push((entry, self.reserve_row(entry, 1)));
            }
        }
        if is_refused {
            return;
        }
        let timed_results = {
            let generated_objects = GeneratedObjects::default();
            let turn = self.new_turn(sources, &generated_objects);
            let mut spans = ChainSpan::default();
            let turns = enforced_stages
                .iter()
                .map(|(entry, _)| take_timed_turn(turn, *entry).instrument(spans.stage_span(*entry)));
            join_all(turns).await
        };
        for ((entry, row), (turn_result, timing)) in enforced_stages.into_iter().zip(timed_results) {
            let finished_turn = self.apply_turn_result(entry, turn_result, timing);
            self.fill_row(row, finished_turn);
        }
    }

    /// Replaces the patch with a shorter one. If the stages have undone each other's changes, so that the object is as
    /// before, the new patch is empty. If the patch has too many operations, it is computed again from the two objects.
    async fn shorten_patch(&mut self) {
        if self.revision < 2 {
            return;
        }
        let (Some(before), Some(after)) = (self.original_object.clone(), self.request.object.clone()) else {
            return;
        };
        let bytes = before.text().len() + after.text().len();
        let is_long = self.patch.len() > Patch::MAX_OPERATIONS;
        let compute_shorter_patch = move || {
            if before == after {
                Some(Patch::default())
            } else {
                is_long.then(|| Patch::between(&before, &after))
            }
        };
        // If the shorter patch cannot be computed, the long patch is kept, because its result is the same.
        if let Ok(Some(patch)) = offload(bytes, self.deadline, compute_shorter_patch).await {
            self.patch = patch;
        }
    }

    /// Returns the outcome of the chains that have run so far.
    pub fn outcome(self) -> Outcome {
        self.finish().1
    }

    /// Returns the request as it was before all chains, and the outcome of the chains that have run so far.
    pub fn finish(self) -> (Request, Outcome) {
        let mut request = Arc::unwrap_or_clone(self.request);
        let object = std::mem::replace(&mut request.object, self.original_object);
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
    async fn call_mutating_stage(
        &mut self,
        entry: StageInChain<'_>,
        round: u8,
        sources: EvaluationSources<'_>,
    ) -> bool {
        if self.refusal.is_some() {
            self.reserve_row(entry, round);
            return false;
        }
        let row_index = self.reserve_row(entry, round);
        let generated_objects = GeneratedObjects::default();
        let turn = self.new_turn(sources, &generated_objects);
        let (turn_result, timing) = take_timed_turn(turn, entry).await;
        let was_called = matches!(turn_result, TurnResult::Answered(_));
        let finished_turn = self.apply_turn_result(entry, turn_result, timing);
        self.fill_row(row_index, finished_turn);
        was_called
    }

    fn new_turn<'a>(
        &'a self,
        sources: EvaluationSources<'a>,
        generated_objects: &'a GeneratedObjects,
    ) -> StageTurn<'a> {
        StageTurn {
            request: &self.request,
            start_time: self.start_time,
            deadline: self.deadline,
            sources,
            generated_objects,
        }
    }

    fn reserve_row(&mut self, entry: StageInChain<'_>, round: u8) -> usize {
        let spec = &entry.stage.spec;
        self.trace.push(TraceRow {
            mode: spec.mode,
            round,
            ..TraceRow::new(
                entry.chain.clone(),
                entry.phase,
                spec.name.clone(),
                StageResult::NotReached,
            )
        });
        self.trace.len() - 1
    }

    fn fill_row(&mut self, row: usize, finished_turn: FinishedTurn) {
        if let Some(row) = self.trace.get_mut(row) {
            row.result = finished_turn.result;
            row.exception = finished_turn.exception;
            row.start = finished_turn.timing.start;
            row.duration = finished_turn.timing.duration;
            row.log = finished_turn.timing.log;
            row.by_candidate = finished_turn.timing.by_candidate;
        }
    }

    fn apply_turn_result(
        &mut self,
        entry: StageInChain<'_>,
        turn_result: TurnResult,
        timing: TurnTiming,
    ) -> FinishedTurn {
        let mut exception = None;
        let result = match turn_result {
            TurnResult::DeadlinePassed => {
                self.refuse(entry, RefusalCause::DeadlinePassed);
                StageResult::NotReached
            }
            TurnResult::Skipped {
                reason,
                exception: matching_exception,
            } => {
                exception = matching_exception;
                if reason == SkipReason::DryRun {
                    self.refuse(entry, RefusalCause::DryRunUnsupported);
                }
                StageResult::Skipped(reason)
            }
            TurnResult::Unselected(failure) => self.enforce(entry, Err(failure)),
            TurnResult::Answered(effect) => self.enforce(entry, effect),
        };
        FinishedTurn {
            result,
            exception,
            timing,
        }
    }

    /// Refuses the request with this denial. If another denial has refused it already, and the messages of both denials
    /// name their policies, this denial is added to the first one.
    fn deny(&mut self, entry: StageInChain<'_>, denial: &Denial) {
        match &mut self.refusal {
            Some(RequestRefusal {
                cause: RefusalCause::Denied(first_denial),
                ..
            }) if self.joins_denials && entry.stage.spec.denials_name_policy => first_denial.join(denial),
            Some(_) => {}
            None => {
                self.joins_denials = entry.stage.spec.denials_name_policy;
                self.refuse(entry, RefusalCause::Denied(denial.clone()));
            }
        }
    }

    fn refuse(&mut self, entry: StageInChain<'_>, cause: RefusalCause) {
        self.refusal.get_or_insert_with(|| RequestRefusal {
            chain: entry.chain.clone(),
            stage: entry.stage.spec.name.clone(),
            cause,
        });
    }

    fn enforce(
        &mut self,
        entry: StageInChain<'_>,
        effect_result: Result<(Effect, ResponseNotes), Failure>,
    ) -> StageResult {
        let (effect, notes) = match effect_result {
            Ok(effect) => effect,
            Err(failure) => {
                if entry.stage.spec.failure_policy == FailurePolicy::Fail {
                    self.refuse(entry, RefusalCause::Failed(failure.clone()));
                }
                return StageResult::Failed {
                    failure,
                    policy: entry.stage.spec.failure_policy,
                };
            }
        };
        self.warnings.extend(notes.warnings);
        self.audit_annotations
            .extend(notes.audit_annotations.into_iter().map(|(key, value)| AuditAnnotation {
                stage: entry.stage.spec.name.clone(),
                key,
                value,
            }));
        match &effect {
            Effect::None => {}
            Effect::Deny(denial) => self.deny(entry, denial),
            Effect::Change(object, patch) => {
                Arc::make_mut(&mut self.request).object = Some(object.clone());
                self.patch.append(patch);
                self.revision += 1;
            }
        }
        effect.into_result()
    }
}

fn stages_in<'a, S: Borrow<Stage>>(chains: &[&'a Chain<S>], phase: Phase) -> Vec<StageInChain<'a>> {
    let mut stages = Vec::new();
    for chain in chains {
        if chain.phase == phase {
            stages.extend(chain.stages.iter().map(|stage| StageInChain {
                chain: &chain.name,
                phase,
                stage: stage.borrow(),
            }));
        }
    }
    stages
}

struct TurnTiming {
    start: Duration,
    duration: Duration,
    log: Vec<LogLine>,
    by_candidate: bool,
}

async fn take_timed_turn(turn: StageTurn<'_>, entry: StageInChain<'_>) -> (TurnResult, TurnTiming) {
    let start_time = Instant::now();
    let (turn_result, log, by_candidate) =
        run_with_notes(entry.stage.spec.mode, turn.take(entry.phase, entry.stage)).await;
    let timing = TurnTiming {
        start: start_time - turn.start_time,
        duration: start_time.elapsed(),
        log,
        by_candidate,
    };
    (turn_result, timing)
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
