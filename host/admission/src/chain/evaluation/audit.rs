//! Calls stages in mode `Audit` after all other stages.

use std::sync::Arc;

use futures_util::future::join_all;
use tracing::Instrument;

use super::{Evaluation, EvaluationSources, FinishedTurn, StageInChain, take_timed_turn};
use crate::{
    FailurePolicy, Mode, Request, StageResult,
    chain::{
        expansion::GeneratedObjects,
        spans::ChainSpan,
        stage_turn::{StageTurn, TurnResult},
    },
};

/// A stage in mode `Audit`. It is called after all other stages, but its hook gets the request as it was when the
/// stage's position in the chain was reached.
pub(super) struct Audit<'a> {
    pub(super) entry: StageInChain<'a>,
    /// One entry for each round in which the stage is called: the request that the hook gets, and the index of the row
    /// that describes this call in the trace.
    pub(super) rounds: Vec<(Arc<Request>, usize)>,
}

impl Evaluation {
    pub(super) fn queue_audit<'a>(&mut self, entry: StageInChain<'a>, audits: &mut Vec<Audit<'a>>) -> Option<usize> {
        if entry.stage.spec.mode != Mode::Audit || self.refusal.is_some() {
            return None;
        }
        let row = self.reserve_row(entry, 1);
        audits.push(Audit {
            entry,
            rounds: vec![(Arc::clone(&self.request), row)],
        });
        Some(audits.len() - 1)
    }

    pub(super) async fn call_audited_stages(&mut self, audits: &[Audit<'_>], sources: EvaluationSources<'_>) {
        let (start_time, deadline, generated_objects) = (self.start_time, self.deadline, &GeneratedObjects::default());
        let mut spans = ChainSpan::default();
        let runs = audits.iter().map(|audit| {
            let turn = move |request| StageTurn {
                request,
                start_time,
                deadline,
                sources,
                generated_objects,
            };
            audit.run(turn).instrument(spans.stage_span(audit.entry))
        });
        let mut superfluous_rows = Vec::new();
        for (row, optional_turn) in join_all(runs).await.into_iter().flatten() {
            match optional_turn {
                Some(finished_turn) => self.fill_row(row, finished_turn),
                None => superfluous_rows.push(row),
            }
        }
        superfluous_rows.sort_unstable();
        for row in superfluous_rows.into_iter().rev() {
            self.trace.remove(row);
        }
    }
}

impl Audit<'_> {
    /// Takes the stage's turn in each round. After a round without a call of the hook, the stage has no turn in later
    /// rounds, whose results are `None`. The number before each result is the index of the round's row in the trace.
    async fn run<'t>(&'t self, turn: impl Fn(&'t Arc<Request>) -> StageTurn<'t>) -> Vec<(usize, Option<FinishedTurn>)> {
        let mut was_called = true;
        let mut rows = Vec::with_capacity(self.rounds.len());
        for (request, row) in &self.rounds {
            if !was_called {
                rows.push((*row, None));
                continue;
            }
            let (turn_result, timing) = take_timed_turn(turn(request), self.entry).await;
            was_called = matches!(turn_result, TurnResult::Answered(_));
            let failed = |failure| StageResult::Failed {
                failure,
                policy: FailurePolicy::Ignore,
            };
            let mut exception = None;
            let result = match turn_result {
                TurnResult::DeadlinePassed => StageResult::NotReached,
                TurnResult::Skipped {
                    reason,
                    exception: matching,
                } => {
                    exception = matching;
                    StageResult::Skipped(reason)
                }
                TurnResult::Unselected(failure) | TurnResult::Answered(Err(failure)) => failed(failure),
                TurnResult::Answered(Ok((effect, _))) => effect.into_result(),
            };
            let finished_turn = FinishedTurn {
                result,
                exception,
                timing,
            };
            rows.push((*row, Some(finished_turn)));
        }
        rows
    }
}
