//! Passes on each outcome: to the metrics, the statistics of stages, the log, the decisions and the recordings.

use std::{sync::Arc, time::Duration};

use admittance_admission::{Outcome, Request, Selection, Tape};

use crate::{
    Moment,
    changes::journal,
    decisions::recording::{Recorder, Recorders},
    decisions::{DecisionLog, DecisionVerdict, Taken, Texts},
    live::table::Table,
    status::metrics,
};

/// Where outcomes are passed on to. Lives as long as the host.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) recorders: Arc<Recorders>,
    pub(crate) decisions: DecisionLog,
}

/// The outcome of a request that matched a chain.
pub(crate) struct Observed<'a> {
    /// As it was before the chains.
    pub(crate) request: Request,
    pub(crate) selection: &'a Selection,
    pub(crate) outcome: &'a Outcome,
    pub(crate) duration: Duration,
    /// When the outcome was known.
    pub(crate) at: Moment,
    /// That of the table.
    pub(crate) revision: u64,
}

impl Observer {
    /// `recorders` are the recordings that want it.
    pub(crate) fn observe(&self, table: &Table, observed: Observed<'_>, recorders: Vec<Arc<Recorder>>) {
        let outcome = observed.outcome;
        metrics::record(outcome, observed.duration);
        table.count(outcome);
        journal::write(outcome);
        if self.decisions.is_on() {
            self.decisions.add(&observed);
        }
        if recorders.is_empty() {
            return;
        }
        let taken = Arc::new(observed.taken());
        for recorder in recorders {
            recorder.deliver(taken.clone());
        }
    }
}

impl Observed<'_> {
    pub(crate) fn taken(self) -> Taken {
        let mut request = self.request;
        let taped = request.tape.take().as_ref().map(Tape::take).unwrap_or_default();
        let texts = Texts::take(&mut request);
        let mut outcome = self.outcome.clone();
        // It is what the patch makes of the request's object.
        outcome.object = None;
        Taken {
            texts: Some(texts),
            taped,
            request,
            selection: self.selection.clone(),
            verdict: DecisionVerdict::of(self.outcome),
            outcome,
            at: self.at,
            revision: self.revision,
            duration: self.duration,
        }
    }
}
