//! Candidates: a candidate is a new version of a plugin. It is called in the background with the same requests, without
//! any effect on them; or it decides a share of them, while the plugin is called in the background.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::metrics::{Counter, counter};
use admittance_admission::{
    Deadline, Digest, Effect, Failure, FailureKind, Hook, Patch, Request, Response, apart, async_trait,
    decided_by_candidate,
};
use admittance_definitions::{RolloutDefinition, Share};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tracing::{Instrument, Span};

use crate::{
    Moment, Redaction,
    decisions::recording::redact_patch,
    requests::trace::request_span,
    rollout::{Rollout, RolloutProgress},
    status::metrics,
    status::{
        AnswerSample, CandidateReport, CandidateStatus, ComparedKind, DifferenceEffect, DifferenceSample,
        PluginStatus,
    },
};

/// The number of samples that are kept for one candidate.
const SAMPLES: usize = 20;

/// The number of kinds whose comparisons are counted. Clients choose the kinds, so others are counted together.
const KINDS: usize = 50;

/// The size in bytes to which patches in samples are shortened.
const MOST_PATCH: usize = 16 << 10;

/// The limit of concurrent background calls of a candidate, so that a slow one does not take the slots of serving
/// plugins.
const BACKGROUND_CALLS: usize = 8;

/// A plugin and its candidate as one hook: one of them answers, then the other one is called in the background.
#[derive(Clone)]
pub(crate) struct Shadowed {
    pub(crate) plugin: Arc<dyn Hook>,
    pub(crate) candidate: Arc<dyn Hook>,
    /// The timeout of one call in the background.
    pub(crate) timeout: Duration,
    pub(crate) trial: Arc<Trial>,
    /// The share of the requests that the candidate answers.
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
    /// The rollout of the candidate, if it has one.
    pub(crate) rollout: Option<Arc<Rollout>>,
    slots: Arc<Semaphore>,
    calls: AtomicU64,
    passed_over: AtomicU64,
    comparisons: Mutex<Comparisons>,
}

/// The results of a trial.
#[derive(Debug, Default)]
struct Comparisons {
    kinds: BTreeMap<String, ComparedKind>,
    /// The differences, the newest first.
    samples: VecDeque<DifferenceSample>,
}

/// The identity of a trial: a table with another plugin, candidate, share or rollout begins a new trial.
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
    /// Notified when a rollout reaches a limit.
    pub(crate) limits: Arc<Notify>,
}

impl Trials {
    pub(crate) fn redacting(redact: &[Redaction]) -> Self {
        Self {
            redact: redact.into(),
            ..Self::default()
        }
    }

    pub(crate) fn of(
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
        let rollout = identity.rollout.clone().map(|(definition, digest)| {
            let limits = self.limits.clone();
            Arc::new(Rollout::new(&identity.stage, digest, definition, limits))
        });
        let trial = Arc::new(Trial {
            share: identity.share,
            identity: identity.clone(),
            plugin,
            candidate,
            since: Moment::now(),
            redact: self.redact.clone(),
            rollout,
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
impl Hook for Shadowed {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        let by_candidate = self.is_for_candidate(request);
        let hook = if by_candidate {
            decided_by_candidate();
            &self.candidate
        } else {
            &self.plugin
        };
        let answer = hook.admit(request, deadline).await;
        let turn = self.trial.calls.fetch_add(1, Ordering::Relaxed);
        if self.trial.share.is_due(turn) {
            self.compare(request, &answer, by_candidate);
        }
        answer
    }
}

impl Shadowed {
    /// Returns this hook with a candidate that answers this share of the requests.
    pub(crate) fn deciding(&self, share: Share) -> Self {
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

    /// Calls the other one of plugin and candidate with the same request, in the background.
    fn compare(&self, request: &Arc<Request>, answer: &Result<Response, Failure>, by_candidate: bool) {
        let Ok(slot) = self.trial.slots.clone().try_acquire_owned() else {
            self.trial.passed_over.fetch_add(1, Ordering::Relaxed);
            self.trial.counter("passed-over").increment(1);
            return;
        };
        let (request, answer) = (request.clone(), answer.clone());
        let (uid, trace) = (request.uid.clone(), request.trace.clone());
        let other = if by_candidate {
            &self.plugin
        } else {
            &self.candidate
        };
        let (other, trial, timeout) = (other.clone(), self.trial.clone(), self.timeout);
        let work = async move {
            let deadline = Deadline::after(timeout);
            let call = AssertUnwindSafe(other.admit(&request, deadline)).catch_unwind();
            let other = match tokio::time::timeout_at(deadline.instant(), call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Failure::new(FailureKind::Trap, "it panicked")),
                Err(_) => Err(Failure::new(
                    FailureKind::Timeout,
                    format!("no verdict within the stage's timeout of {timeout:?}"),
                )),
            };
            let (ours, theirs) = if by_candidate {
                (other, answer)
            } else {
                (answer, other)
            };
            let deadline = Deadline::after(timeout);
            trial.record(request, ours, theirs, by_candidate, deadline).await;
            drop(slot);
        };
        // The call has its own span, because the span of the request ends before.
        tokio::spawn(async move {
            let span = request_span(&uid, trace.as_ref());
            work.instrument(span).await;
        });
    }
}

/// An answer, with its effect on the request and its notes.
struct Answer {
    effect: Result<Effect, Failure>,
    warnings: Vec<String>,
    audit_annotations: Vec<(String, String)>,
}

impl Answer {
    /// Evaluates an answer with the rules and limits of stages.
    async fn of(request: &Request, answer: Result<Response, Failure>, deadline: Deadline) -> Self {
        match answer.map(Response::bounded) {
            Ok(response) => Self {
                effect: response.verdict.effect(request, deadline).await,
                warnings: response.warnings,
                audit_annotations: response.audit_annotations,
            },
            Err(failure) => Self {
                effect: Err(failure),
                warnings: Vec::new(),
                audit_annotations: Vec::new(),
            },
        }
    }

    /// Returns the effect of the candidate's answer in place of this one; `None` if both are the same.
    fn difference(&self, candidate: &Self) -> Option<DifferenceEffect> {
        if self.is_same(candidate) {
            return None;
        }
        let denies = |answer: &Self| matches!(answer.effect, Ok(Effect::Deny(_)));
        Some(match (&self.effect, &candidate.effect) {
            (Ok(_), Err(_)) => DifferenceEffect::Fail,
            _ if denies(candidate) && !denies(self) => DifferenceEffect::Deny,
            _ if denies(self) && !denies(candidate) => DifferenceEffect::Allow,
            _ => DifferenceEffect::Change,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        let effects = match (&self.effect, &other.effect) {
            (Ok(Effect::Change(own, _)), Ok(Effect::Change(other, _))) => own == other,
            (Ok(own), Ok(other)) => own == other,
            (Err(own), Err(other)) => own.kind == other.kind,
            _ => false,
        };
        effects && self.warnings == other.warnings && self.audit_annotations == other.audit_annotations
    }

    fn size(&self) -> usize {
        match &self.effect {
            Ok(Effect::Change(after, _)) => after.text().len(),
            _ => 0,
        }
    }

    fn sample(&self, request: &Request, redact: &[Redaction]) -> AnswerSample {
        let (verdict, message) = match &self.effect {
            Err(failure) => ("failed", Some(failure.to_string())),
            Ok(Effect::Deny(denial)) => ("deny", Some(denial.to_string())),
            Ok(Effect::Change(..)) => ("patch", None),
            Ok(Effect::None) => ("allow", None),
        };
        let mut patch = match (&self.effect, &request.object) {
            (Ok(Effect::Change(after, _)), Some(before)) => {
                redact_patch(request, redact, &Patch::between(before, after))
            }
            _ => None,
        };
        let operations_left_out = patch.as_mut().map_or(0, |patch| patch.shorten_patch(MOST_PATCH));
        let annotations = self.audit_annotations.iter();
        AnswerSample {
            verdict: verdict.to_owned(),
            message,
            patch,
            operations_left_out,
            warnings: self.warnings.clone(),
            audit_annotations: annotations.map(|(key, value)| format!("{key}={value}")).collect(),
        }
    }
}

impl Comparisons {
    /// Returns the counts of a kind.
    fn kind(&mut self, kind: &str) -> &mut ComparedKind {
        let is_counted = self.kinds.contains_key(kind) || self.kinds.len() < KINDS;
        let kind = if is_counted { kind } else { ComparedKind::OTHERS };
        self.kinds.entry(kind.to_owned()).or_insert_with(|| ComparedKind {
            kind: kind.to_owned(),
            ..ComparedKind::default()
        })
    }

    /// Counts a difference and keeps its sample. Beyond the limit, old samples whose kind and effect have a newer
    /// sample are dropped first.
    fn add(&mut self, sample: DifferenceSample) {
        *self.kind(&sample.kind).with_effect_mut(sample.effect) += 1;
        self.samples.push_front(sample);
        if self.samples.len() > SAMPLES {
            let subject = |sample: &DifferenceSample| (sample.kind.clone(), sample.effect);
            let subjects: Vec<_> = self.samples.iter().map(subject).collect();
            let has_newer = |index: &usize| {
                subjects
                    .iter()
                    .position(|other| Some(other) == subjects.get(*index))
                    < Some(*index)
            };
            let oldest = (0..subjects.len()).rev().find(has_newer).unwrap_or(SAMPLES);
            self.samples.remove(oldest);
        }
    }
}

impl Trial {
    /// Compares both answers, on a thread for long work if they are large.
    async fn record(
        self: Arc<Self>,
        request: Arc<Request>,
        ours: Result<Response, Failure>,
        theirs: Result<Response, Failure>,
        by_candidate: bool,
        deadline: Deadline,
    ) {
        let ours = Answer::of(&request, ours, deadline).await;
        let theirs = Answer::of(&request, theirs, deadline).await;
        if let Some(rollout) = self.rollout.as_ref().filter(|_| by_candidate)
            && let Ok(effect) = &ours.effect
        {
            let denies = |effect: &Effect| matches!(effect, Effect::Deny(_));
            rollout.count_compared(theirs.effect.as_ref().is_ok_and(denies) && !denies(effect));
        }
        let before = request.object.as_ref().map_or(0, |object| object.text().len());
        let bytes = before + ours.size() + theirs.size();
        let span = Span::current();
        apart(bytes, move || {
            span.in_scope(|| self.compare(&request, &ours, &theirs))
        })
        .await;
    }

    fn compare(&self, request: &Request, ours: &Answer, theirs: &Answer) {
        let kind = request.kind.to_string();
        let Some(effect) = ours.difference(theirs) else {
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
            plugin: ours.sample(request, &self.redact),
            candidate: theirs.sample(request, &self.redact),
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
            different: sum(ComparedKind::different),
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

impl std::fmt::Debug for Shadowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadowed")
            .field("trial", &self.trial)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
