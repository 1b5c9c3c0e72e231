//! A new version of a plugin in the shadow of the one that serves: it is asked what it would have said,
//! and nothing that it says has an effect.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admittance_admission::{
    Deadline, Denial, Failure, FailureKind, Hook, Object, Patch, Request, Response, Verdict, async_trait,
};
use admittance_definitions::Share;
use futures_util::FutureExt;
use metrics::counter;
use tokio::sync::Semaphore;

use crate::{
    Moment, measure,
    status::{AnswerSample, CandidateReport, CandidateStatus, DifferenceSample, PluginStatus},
};

/// Samples that are kept of one candidate.
const SAMPLES: usize = 20;

/// The longest patch in a sample, in bytes.
const PATCH_SIZE: usize = 16 << 10;

/// Calls of one candidate at a time: a slow one must not take the slots of plugins that serve.
const AT_ONCE: usize = 8;

/// A plugin and its candidate as one hook: the plugin answers, and the candidate is asked afterwards.
pub(crate) struct Shadowed {
    pub(crate) plugin: Arc<dyn Hook>,
    pub(crate) candidate: Arc<dyn Hook>,
    /// For one call of the candidate.
    pub(crate) timeout: Duration,
    pub(crate) trial: Arc<Trial>,
}

/// What came of a candidate so far. Lives as long as a table has the candidate beside the same plugin.
#[derive(Debug)]
pub(crate) struct Trial {
    subject: Subject,
    plugin: PluginStatus,
    candidate: PluginStatus,
    share: Share,
    since: Moment,
    slots: Arc<Semaphore>,
    calls: AtomicU64,
    same: AtomicU64,
    different: AtomicU64,
    failed: AtomicU64,
    passed_over: AtomicU64,
    /// The newest first.
    samples: Mutex<VecDeque<DifferenceSample>>,
}

/// Which trial it is: another plugin, candidate or share is another trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// As `promote` takes it.
    pub(crate) stage: String,
    /// The plugin's module, settings and grants, as text.
    pub(crate) plugin: String,
    /// Those of the candidate.
    pub(crate) candidate: String,
    pub(crate) share: Share,
}

/// The trials of the live tables. Lives as long as the host.
#[derive(Debug, Default)]
pub(crate) struct Trials(Mutex<HashMap<Subject, Weak<Trial>>>);

impl Trials {
    /// The trial of this subject: the one that goes on, or a new one.
    pub(crate) fn of(&self, subject: Subject, plugin: PluginStatus, candidate: PluginStatus) -> Arc<Trial> {
        let mut trials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        trials.retain(|_, trial| trial.strong_count() > 0);
        if let Some(trial) = trials.get(&subject).and_then(Weak::upgrade) {
            return trial;
        }
        let trial = Arc::new(Trial {
            share: subject.share,
            subject: subject.clone(),
            plugin,
            candidate,
            since: Moment::now(),
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            calls: AtomicU64::new(0),
            same: AtomicU64::new(0),
            different: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            samples: Mutex::new(VecDeque::new()),
        });
        trials.insert(subject, Arc::downgrade(&trial));
        trial
    }
}

#[async_trait]
impl Hook for Shadowed {
    async fn admit(&self, request: &Request, deadline: Deadline) -> Result<Response, Failure> {
        let answer = self.plugin.admit(request, deadline).await;
        let turn = self.trial.calls.fetch_add(1, Ordering::Relaxed);
        if self.trial.share.is_due(turn) {
            self.compare(request, &answer);
        }
        answer
    }
}

impl Shadowed {
    /// Ask the candidate the same, beside the request.
    fn compare(&self, request: &Request, answer: &Result<Response, Failure>) {
        let Ok(slot) = self.trial.slots.clone().try_acquire_owned() else {
            self.trial.passed_over.fetch_add(1, Ordering::Relaxed);
            self.trial.measure("passed-over");
            return;
        };
        let (request, answer) = (request.clone(), answer.clone());
        let (candidate, trial, timeout) = (self.candidate.clone(), self.trial.clone(), self.timeout);
        tokio::spawn(async move {
            let deadline = Deadline::after(timeout);
            let call = AssertUnwindSafe(candidate.admit(&request, deadline)).catch_unwind();
            let theirs = match tokio::time::timeout_at(deadline.instant(), call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Failure::new(FailureKind::Trap, "it panicked")),
                Err(_) => Err(Failure::new(
                    FailureKind::Timeout,
                    format!("no verdict within the stage's timeout of {timeout:?}"),
                )),
            };
            trial.record(&request, &answer, &theirs);
            drop(slot);
        });
    }
}

/// What an answer comes to, whatever words it is given in.
#[derive(Debug, PartialEq)]
enum Effect {
    Allow,
    Change(Object),
    Deny(Denial),
    Fail(FailureKind),
}

impl Effect {
    fn of(request: &Request, answer: &Result<Response, Failure>) -> Self {
        let changed = |after: Object| match &request.object {
            Some(before) if *before == after => Self::Allow,
            _ => Self::Change(after),
        };
        match answer {
            Err(failure) => Self::Fail(failure.kind),
            Ok(response) => match &response.verdict {
                Verdict::Allow => Self::Allow,
                Verdict::Deny(denial) => Self::Deny(denial.clone()),
                Verdict::Replace(object) => changed(object.clone()),
                Verdict::Patch(patch) if patch.is_empty() => Self::Allow,
                Verdict::Patch(patch) => match request.object.as_ref().map(|object| patch.apply(object)) {
                    Some(Ok(after)) => changed(after),
                    Some(Err(_)) | None => Self::Fail(FailureKind::PatchFailed),
                },
            },
        }
    }
}

impl Trial {
    fn record(
        &self,
        request: &Request,
        ours: &Result<Response, Failure>,
        theirs: &Result<Response, Failure>,
    ) {
        let notes = |answer: &Result<Response, Failure>| {
            let response = answer.as_ref().ok();
            response.map(|response| (response.warnings.clone(), response.audit_annotations.clone()))
        };
        let (our_effect, their_effect) = (Effect::of(request, ours), Effect::of(request, theirs));
        let has_failed = |effect: &Effect| matches!(effect, Effect::Fail(_));
        if our_effect == their_effect && notes(ours) == notes(theirs) {
            self.same.fetch_add(1, Ordering::Relaxed);
            self.measure("same");
            return;
        }
        self.different.fetch_add(1, Ordering::Relaxed);
        if has_failed(&their_effect) && !has_failed(&our_effect) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.measure("failed");
        } else {
            self.measure("different");
        }
        let sample = DifferenceSample {
            at: Moment::now(),
            uid: request.uid.as_str().to_owned(),
            operation: request.operation.as_str().to_owned(),
            kind: request.kind.to_string(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            plugin: sample(request, ours, &our_effect),
            candidate: sample(request, theirs, &their_effect),
        };
        tracing::info!(
            target: "admittance::audit",
            uid = sample.uid,
            stage = self.subject.stage,
            plugin = sample.plugin.verdict,
            candidate = sample.candidate.verdict,
            message = sample.candidate.message.as_deref(),
            "the candidate differs from the plugin"
        );
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_front(sample);
        samples.truncate(SAMPLES);
    }

    fn measure(&self, result: &'static str) {
        counter!(measure::CANDIDATES, "stage" => self.subject.stage.clone(), "result" => result).increment(1);
    }

    pub(crate) fn status(&self) -> CandidateStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CandidateStatus {
            plugin: self.candidate.clone(),
            share: self.share.to_string(),
            since: self.since,
            same: count(&self.same),
            different: count(&self.different),
            failed: count(&self.failed),
            passed_over: count(&self.passed_over),
        }
    }

    pub(crate) fn report(&self) -> CandidateReport {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        CandidateReport {
            stage: self.subject.stage.clone(),
            plugin: self.plugin.clone(),
            candidate: self.status(),
            samples: samples.iter().cloned().collect(),
        }
    }
}

fn sample(request: &Request, answer: &Result<Response, Failure>, effect: &Effect) -> AnswerSample {
    let (verdict, message) = match (effect, answer) {
        (Effect::Fail(kind), Err(failure)) => ("failed", Some(format!("{kind}: {}", failure.message))),
        (Effect::Fail(kind), Ok(_)) => ("failed", Some(format!("{kind}: its patch does not apply"))),
        (Effect::Deny(denial), _) => ("deny", Some(denial.to_string())),
        (Effect::Change(_), _) => ("patch", None),
        (Effect::Allow, _) => ("allow", None),
    };
    let patch = match (effect, &request.object) {
        (Effect::Change(after), Some(before)) => Some(cut(Patch::between(before, after).to_string())),
        _ => None,
    };
    let (warnings, audit_annotations) = match answer {
        Ok(response) => (
            response.warnings.clone(),
            response
                .audit_annotations
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
        ),
        Err(_) => (Vec::new(), Vec::new()),
    };
    AnswerSample {
        verdict: verdict.to_owned(),
        message,
        patch,
        warnings,
        audit_annotations,
    }
}

fn cut(mut text: String) -> String {
    if let Some(beyond) = text.len().checked_sub(PATCH_SIZE).filter(|beyond| *beyond > 0) {
        text.truncate(text.floor_char_boundary(PATCH_SIZE));
        let _ = write!(text, "... ({beyond} bytes more)");
    }
    text
}

impl std::fmt::Debug for Shadowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadowed")
            .field("trial", &self.trial)
            .finish_non_exhaustive()
    }
}
