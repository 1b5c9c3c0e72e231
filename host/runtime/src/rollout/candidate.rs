//! Candidates are new versions of plugins. Usually the plugin decides each request, and the candidate is only called in
//! the background, to compare the answers. In a rollout, the candidate decides a share of the requests. For these
//! requests, the plugin is called in the background.

mod comparison;

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::metrics::{Counter, counter};
use admittance_admission::{
    Deadline, Digest, Effect, Failure, FailureKind, Hook, Request, Response, async_trait, offload_without_deadline,
    record_candidate_decision,
};
use admittance_definitions::{RolloutDefinition, Share};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tracing::{Instrument, Span};

use self::comparison::{ComparedAnswer, Comparisons};
use crate::{
    Moment, Redaction,
    requests::trace::request_span,
    rollout::{Rollout, RolloutProgress},
    status::metrics,
    status::{
        PluginStatus,
        candidate::{CandidateReport, CandidateStatus, ComparedKind, DifferenceEffect, DifferenceSample},
    },
};

/// The maximum number of background calls of a candidate at a time. This limit leaves slots for calls of live plugins.
const BACKGROUND_CALLS: usize = 8;

/// Calls a plugin or its candidate, then the other one in the background, and compares their answers.
#[derive(Clone, derive_more::Debug)]
#[debug("HookWithCandidate {{ trial: {trial:?}, .. }}")]
pub(crate) struct HookWithCandidate {
    pub(crate) plugin: Arc<dyn Hook>,
    pub(crate) candidate: Arc<dyn Hook>,
    pub(crate) timeout: Duration,
    pub(crate) trial: Arc<Trial>,
    /// The share of the requests that the candidate decides; `None` if the candidate is not in a rollout.
    pub(crate) decides: Option<Share>,
}

#[derive(Debug)]
pub(crate) struct Trial {
    identity: TrialIdentity,
    plugin: PluginStatus,
    candidate: PluginStatus,
    share: Share,
    since: Moment,
    redact: Arc<[Redaction]>,
    pub(crate) rollout: Option<Arc<Rollout>>,
    slots: Arc<Semaphore>,
    calls: AtomicU64,
    passed_over: AtomicU64,
    comparisons: Mutex<Comparisons>,
}

/// The identity of the comparison of a plugin with its candidate. If any part changes, a new comparison begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TrialIdentity {
    pub(crate) stage: String,
    pub(crate) plugin: String,
    pub(crate) candidate: String,
    pub(crate) share: Share,
    pub(crate) rollout: Option<(RolloutDefinition, Digest)>,
}

#[derive(Debug, Default)]
pub(crate) struct Trials {
    trials: Mutex<HashMap<TrialIdentity, Weak<Trial>>>,
    redact: Arc<[Redaction]>,
    /// Notified when the failures or refusals of a rollout reach their limit.
    pub(crate) limits: Arc<Notify>,
}

impl Trials {
    pub(crate) fn with_redactions(redact: &[Redaction]) -> Self {
        Self {
            redact: redact.into(),
            ..Self::default()
        }
    }

    pub(crate) fn get_or_create(
        &self,
        identity: TrialIdentity,
        plugin: PluginStatus,
        candidate: PluginStatus,
    ) -> Arc<Trial> {
        let mut trials = self.trials.lock();
        trials.retain(|_, trial| trial.strong_count() > 0);
        if let Some(trial) = trials.get(&identity).and_then(Weak::upgrade) {
            return trial;
        }
        let trial = Arc::new(Trial {
            share: identity.share,
            identity: identity.clone(),
            plugin,
            candidate,
            since: Moment::now(),
            redact: self.redact.clone(),
            rollout: identity.rollout.clone().map(|(definition, digest)| {
                let limits = self.limits.clone();
                Arc::new(Rollout::new(&identity.stage, digest, definition, limits))
            }),
            slots: Arc::new(Semaphore::new(BACKGROUND_CALLS)),
            calls: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            comparisons: Mutex::default(),
        });
        trials.insert(identity, Arc::downgrade(&trial));
        trial
    }
}

#[async_trait]
impl Hook for HookWithCandidate {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        let by_candidate = self.is_for_candidate(request);
        let hook = if by_candidate {
            record_candidate_decision();
            &self.candidate
        } else {
            &self.plugin
        };
        let answer = hook.admit(request, deadline).await;
        let turn = self.trial.calls.fetch_add(1, Ordering::Relaxed);
        if self.trial.share.is_due(turn) {
            self.compare_in_background(request, &answer, by_candidate);
        }
        answer
    }
}

impl HookWithCandidate {
    pub(crate) fn with_decided_share(&self, share: Share) -> Self {
        Self {
            decides: Some(share),
            ..self.clone()
        }
    }

    fn is_for_candidate(&self, request: &Request) -> bool {
        match (self.decides, &self.trial.rollout) {
            (Some(share), Some(rollout)) => rollout.includes(request, share),
            _ => false,
        }
    }

    /// Either the plugin or the candidate has answered this request: the candidate if `by_candidate` is true. This
    /// method calls the other one of the two in the background, and compares the two answers.
    fn compare_in_background(&self, request: &Arc<Request>, answer: &Result<Response, Failure>, by_candidate: bool) {
        let Ok(slot) = self.trial.slots.clone().try_acquire_owned() else {
            self.trial.passed_over.fetch_add(1, Ordering::Relaxed);
            self.trial.counter("passed-over").increment(1);
            return;
        };
        let (request, answer) = (request.clone(), answer.clone());
        let (uid, trace) = (request.uid.clone(), request.trace.clone());
        let other = if by_candidate { &self.plugin } else { &self.candidate };
        let (other, trial, timeout) = (other.clone(), self.trial.clone(), self.timeout);
        let work = async move {
            let deadline = Deadline::after(timeout);
            let call = AssertUnwindSafe(other.admit(&request, deadline)).catch_unwind();
            let other_response = match tokio::time::timeout_at(deadline.instant(), call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Failure::new(FailureKind::Trap, "it panicked")),
                Err(_) => Err(Failure::new(
                    FailureKind::Timeout,
                    format!("no verdict within the stage's timeout of {timeout:?}"),
                )),
            };
            let (plugin_response, candidate_response) = if by_candidate {
                (other_response, answer)
            } else {
                (answer, other_response)
            };
            let deadline = Deadline::after(timeout);
            trial
                .record(request, plugin_response, candidate_response, by_candidate, deadline)
                .await;
            drop(slot);
        };
        // The background call gets a span of its own, because the span of the request ends earlier.
        tokio::spawn(async move {
            work.instrument(request_span(&uid, trace.as_ref())).await;
        });
    }
}

impl Trial {
    /// Compares the answers of plugin and candidate, and records the result. Large answers are compared on a separate
    /// thread.
    async fn record(
        self: Arc<Self>,
        request: Arc<Request>,
        plugin_response: Result<Response, Failure>,
        candidate_response: Result<Response, Failure>,
        by_candidate: bool,
        deadline: Deadline,
    ) {
        let plugin_answer = ComparedAnswer::evaluate(&request, plugin_response, deadline).await;
        let candidate_answer = ComparedAnswer::evaluate(&request, candidate_response, deadline).await;
        if let Some(rollout) = self.rollout.as_ref().filter(|_| by_candidate)
            && let Ok(effect) = &plugin_answer.effect
        {
            let denies = |effect: &Effect| matches!(effect, Effect::Deny(_));
            rollout.count_compared(candidate_answer.effect.as_ref().is_ok_and(denies) && !denies(effect));
        }
        let before = request.object.as_ref().map_or(0, |object| object.text().len());
        let bytes = before + plugin_answer.size() + candidate_answer.size();
        let span = Span::current();
        offload_without_deadline(bytes, move || {
            span.in_scope(|| self.compare(&request, &plugin_answer, &candidate_answer))
        })
        .await;
    }

    fn compare(&self, request: &Request, plugin_answer: &ComparedAnswer, candidate_answer: &ComparedAnswer) {
        let kind = request.kind.to_string();
        let Some(effect) = plugin_answer.difference(candidate_answer) else {
            self.comparisons.lock().kind(&kind).same += 1;
            self.counter("same").increment(1);
            return;
        };
        let result = match effect {
            DifferenceEffect::Fail => "failed",
            _ => "different",
        };
        self.counter(result).increment(1);
        let sample = DifferenceSample {
            at: Moment::now(),
            uid: request.uid.as_str().to_owned(),
            operation: request.operation.as_str().to_owned(),
            kind,
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            effect,
            plugin: plugin_answer.sample(request, &self.redact),
            candidate: candidate_answer.sample(request, &self.redact),
        };
        tracing::info!(
            target: "admittance::audit",
            uid = sample.uid,
            stage = self.identity.stage,
            plugin = sample.plugin.verdict,
            candidate = sample.candidate.verdict,
            message = sample.candidate.message.as_deref(),
            "the candidate differs from the plugin"
        );
        self.comparisons.lock().add(sample);
    }

    pub(crate) fn begin_metrics(&self) {
        for result in ["same", "different", "failed", "passed-over"] {
            self.counter(result).absolute(0);
        }
    }

    fn counter(&self, result: &'static str) -> Counter {
        counter!(metrics::CANDIDATES, "stage" => self.identity.stage.clone(), "result" => result)
    }

    pub(crate) fn status(&self, progress: Option<&RolloutProgress>) -> CandidateStatus {
        let comparisons = self.comparisons.lock();
        let sum = |count: fn(&ComparedKind) -> u64| comparisons.kinds.values().map(count).sum();
        CandidateStatus {
            plugin: self.candidate.clone(),
            share: self.share.to_string(),
            since: self.since,
            same: sum(|kind| kind.same),
            different: sum(ComparedKind::different_count),
            failed: sum(|kind| kind.would_fail),
            passed_over: self.passed_over.load(Ordering::Relaxed),
            rollout: self
                .rollout
                .as_ref()
                .zip(progress)
                .map(|(rollout, progress)| progress.status(rollout)),
        }
    }

    pub(crate) fn report(&self, progress: Option<&RolloutProgress>) -> CandidateReport {
        let candidate = self.status(progress);
        let comparisons = self.comparisons.lock();
        CandidateReport {
            stage: self.identity.stage.clone(),
            plugin: self.plugin.clone(),
            candidate,
            kinds: comparisons.kinds.values().cloned().collect(),
            samples: comparisons.samples.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
