//! Passes the outcome of each request to metrics, statistics, the log, the decisions and the recordings.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{Outcome, Request, ResponseRecorder, Selection};

use crate::{
    Moment,
    changes::journal,
    decisions::recording::{Recorder, Recorders},
    decisions::{DecidedRequest, DecisionLog, DecisionVerdict, ObjectTexts},
    live::table::Table,
    status::{metrics::RequestMetrics, traffic::Traffic},
};

#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) recorders: Arc<Recorders>,
    pub(crate) decisions: DecisionLog,
    pub(crate) traffic: Traffic,
    pub(crate) metrics: RequestMetrics,
}

pub(crate) struct ObservedDecision<'a> {
    /// The request as it was before the chains changed it.
    pub(crate) request: Request,
    pub(crate) selection: &'a Selection,
    pub(crate) outcome: &'a Outcome,
    pub(crate) duration: Duration,
    pub(crate) time: Moment,
    pub(crate) revision: u64,
}

impl Observer {
    pub(crate) fn observe(&self, table: &Table, observed: ObservedDecision<'_>, recorders: Vec<Arc<Recorder>>) {
        let outcome = observed.outcome;
        let verdict = DecisionVerdict::from_outcome(outcome);
        self.metrics.record(verdict, outcome, observed.duration);
        table.count_outcome(outcome);
        self.traffic.record(verdict, observed.duration, Instant::now());
        journal::log_outcome(outcome);
        if self.decisions.is_on() {
            self.decisions.add(&observed);
        }
        if recorders.is_empty() {
            return;
        }
        let decided = Arc::new(observed.into_decided_request());
        for recorder in recorders {
            recorder.deliver(decided.clone());
        }
    }
}

impl ObservedDecision<'_> {
    pub(crate) fn into_decided_request(self) -> DecidedRequest {
        let mut request = self.request;
        let recorded_responses = request
            .recorder
            .take()
            .as_ref()
            .map(ResponseRecorder::take)
            .unwrap_or_default();
        let texts = ObjectTexts::take(&mut request);
        let mut outcome = self.outcome.clone();
        outcome.object = None;
        DecidedRequest {
            texts: Some(texts),
            recorded_responses,
            request,
            selection: self.selection.clone(),
            verdict: DecisionVerdict::from_outcome(self.outcome),
            outcome,
            time: self.time,
            revision: self.revision,
            duration: self.duration,
        }
    }
}
