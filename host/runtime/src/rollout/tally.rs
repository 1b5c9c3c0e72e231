//! Counts the results of the requests that a candidate decided during its rollout.

use std::sync::Arc;

use admittance_admission::{Digest, Request};
use admittance_definitions::{RolloutDefinition, Share};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::status::metrics;

/// The rollout of a candidate. Tables in which the candidate has the same plugin and rollout settings share this value.
#[derive(Debug)]
pub(crate) struct Rollout {
    pub(crate) stage: String,
    pub(crate) subject: Digest,
    pub(crate) definition: RolloutDefinition,
    counts: Mutex<StepCounts>,
    limit_reached: Arc<Notify>,
}

#[derive(Clone, Debug)]
pub(super) struct StepCounts {
    start: Instant,
    pub(super) decided_count: u64,
    pub(super) failed_count: u64,
    pub(super) compared_count: u64,
    pub(super) refused_count: u64,
    /// The reason for aborting the rollout, once a limit was reached.
    problem: Option<String>,
}

impl StepCounts {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            decided_count: 0,
            failed_count: 0,
            compared_count: 0,
            refused_count: 0,
            problem: None,
        }
    }
}

impl Rollout {
    pub(crate) fn new(stage: &str, subject: Digest, definition: RolloutDefinition, limit_reached: Arc<Notify>) -> Self {
        Self {
            stage: stage.to_owned(),
            subject,
            definition,
            counts: Mutex::new(StepCounts::new()),
            limit_reached,
        }
    }

    pub(crate) fn includes(&self, request: &Request, share: Share) -> bool {
        self.definition.includes(&self.stage, request, share)
    }

    pub(crate) fn count_decided(&self, is_failure: bool) {
        metrics::count_rollout_request(&self.stage, if is_failure { "failed" } else { "decided" });
        self.change_counts(|counts| {
            counts.decided_count += 1;
            counts.failed_count += u64::from(is_failure);
        });
    }

    /// Counts a request for which the verdicts of the plugin and of the candidate were compared. `is_refusal` says
    /// whether only the candidate denied the request.
    pub(crate) fn count_compared(&self, is_refusal: bool) {
        if is_refusal {
            metrics::count_rollout_request(&self.stage, "refused");
        }
        self.change_counts(|counts| {
            counts.compared_count += 1;
            counts.refused_count += u64::from(is_refusal);
        });
    }

    pub(super) fn restart(&self) {
        *self.counts.lock() = StepCounts::new();
    }

    pub(super) fn counts(&self) -> StepCounts {
        self.counts.lock().clone()
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.counts.lock().problem.clone()
    }

    fn change_counts(&self, change: impl FnOnce(&mut StepCounts)) {
        let mut counts = self.counts.lock();
        // The counts start again from 0 when they are as old as a step is long. Otherwise, a candidate with many old
        // successes would need very many new failures before it reaches a limit that is a share.
        if counts.problem.is_none() && counts.start.elapsed() >= self.definition.pause {
            *counts = StepCounts::new();
        }
        change(&mut counts);
        if counts.problem.is_none() {
            counts.problem = self.find_problem(&counts);
            if counts.problem.is_some() {
                self.limit_reached.notify_one();
            }
        }
    }

    fn find_problem(&self, counts: &StepCounts) -> Option<String> {
        let StepCounts {
            decided_count,
            failed_count,
            compared_count,
            refused_count,
            ..
        } = counts;
        let (failures, refusals) = (self.definition.failure_limit, self.definition.refusal_limit);
        if *failed_count >= failures.allowed_count(*decided_count) {
            return Some(format!(
                "the candidate failed for {failed_count} of {decided_count} requests; the limit is {failures}"
            ));
        }
        (*refused_count >= refusals.allowed_count(*compared_count)).then(|| {
            format!(
                "the candidate denied {refused_count} of {compared_count} compared requests that the plugin does not deny; the limit \
                 is {refusals}"
            )
        })
    }
}
