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
    reached: Arc<Notify>,
}

#[derive(Clone, Debug)]
pub(super) struct StepCounts {
    begun: Instant,
    pub(super) decided: u64,
    pub(super) failed: u64,
    pub(super) compared: u64,
    pub(super) refused: u64,
    /// The reason for aborting the rollout, once a limit was reached.
    problem: Option<String>,
}

impl StepCounts {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            decided: 0,
            failed: 0,
            compared: 0,
            refused: 0,
            problem: None,
        }
    }
}

impl Rollout {
    pub(crate) fn new(
        stage: &str,
        subject: Digest,
        definition: RolloutDefinition,
        reached: Arc<Notify>,
    ) -> Self {
        Self {
            stage: stage.to_owned(),
            subject,
            definition,
            counts: Mutex::new(StepCounts::new()),
            reached,
        }
    }

    pub(crate) fn includes(&self, request: &Request, share: Share) -> bool {
        self.definition.includes(&self.stage, request, share)
    }

    pub(crate) fn count_decided(&self, is_failure: bool) {
        metrics::rollout_request(&self.stage, if is_failure { "failed" } else { "decided" });
        self.count(|counts| {
            counts.decided += 1;
            counts.failed += u64::from(is_failure);
        });
    }

    /// Counts a request for which the verdicts of the plugin and of the candidate were compared. `is_refusal` says
    /// whether only the candidate denied the request.
    pub(crate) fn count_compared(&self, is_refusal: bool) {
        if is_refusal {
            metrics::rollout_request(&self.stage, "refused");
        }
        self.count(|counts| {
            counts.compared += 1;
            counts.refused += u64::from(is_refusal);
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

    fn count(&self, change: impl FnOnce(&mut StepCounts)) {
        let mut counts = self.counts.lock();
        // The counts start again from 0 when they are as old as a step is long. Otherwise, a candidate with many old
        // successes would need very many new failures before it reaches a limit that is a share.
        if counts.problem.is_none() && counts.begun.elapsed() >= self.definition.pause {
            *counts = StepCounts::new();
        }
        change(&mut counts);
        if counts.problem.is_none() {
            counts.problem = self.problem_in(&counts);
            if counts.problem.is_some() {
                self.reached.notify_one();
            }
        }
    }

    fn problem_in(&self, counts: &StepCounts) -> Option<String> {
        let StepCounts {
            decided,
            failed,
            compared,
            refused,
            ..
        } = counts;
        let (failures, refusals) = (self.definition.failures, self.definition.refusals);
        if *failed >= failures.out_of(*decided) {
            return Some(format!(
                "the candidate failed for {failed} of {decided} requests; the limit is {failures}"
            ));
        }
        (*refused >= refusals.out_of(*compared)).then(|| {
            format!(
                "the candidate denied {refused} of {compared} compared requests that the plugin does not deny; the limit \
                 is {refusals}"
            )
        })
    }
}
