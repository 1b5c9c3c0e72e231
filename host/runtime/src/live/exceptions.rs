//! The exceptions of the live table: their status, log lines and metrics.

use std::{sync::Arc, time::SystemTime};

use admittance_definitions::ExceptionDefinition;
use tokio::time::Instant;

use crate::{
    Moment,
    live::{assembly::stage_address, stage::LiveChain},
    status::ExceptionStatus,
    status::metrics,
};

/// An exception of a table. Each stage to which the exception applies has a copy of it in its specification.
#[derive(Clone, Debug)]
pub(crate) struct LiveException {
    pub(crate) definition: ExceptionDefinition,
    /// A message for each stage that the exception names, but that does not exist.
    pub(crate) unknown: Vec<String>,
}

impl LiveException {
    fn name(&self) -> &str {
        &self.definition.exception.name
    }

    fn expiry(&self) -> Moment {
        self.definition.exception.until
    }

    pub(crate) fn status(&self, chains: &[Arc<LiveChain>], now: Moment) -> ExceptionStatus {
        let ExceptionDefinition {
            exception,
            owner,
            reason,
            ..
        } = &self.definition;
        let stages = chains.iter().flat_map(|chain| {
            let stages = chain.stages.iter();
            let excepted_stages = stages.filter(|stage| stage.spec.exceptions.contains(exception));
            excepted_stages.map(|stage| stage_address(chain.phase, &chain.name, &stage.spec.name))
        });
        ExceptionStatus {
            name: exception.name.to_string(),
            owner: owner.clone(),
            reason: reason.clone(),
            expires: exception.until,
            expired: exception.has_expired(now),
            stages: stages.collect(),
            unknown: self.unknown.clone(),
        }
    }

    fn log_expired(&self) {
        let (exception, owner) = (self.name(), &self.definition.owner);
        tracing::warn!(
            exception, owner, until = %self.expiry(),
            "the exception {exception} has expired, and excepts nothing any more"
        );
    }
}

/// Logs the problems of the exceptions in `now` that the exceptions in `before` did not have. Sets a metric for the
/// expiry time of each exception.
pub(crate) fn log_new_exceptions(before: &[LiveException], now: &[LiveException], moment: Moment) {
    let expired = |live: &LiveException| (live.name().to_owned(), live.expiry());
    for live in now {
        let was_logged = before.iter().any(|other| expired(other) == expired(live));
        if live.expiry() <= moment && !was_logged {
            live.log_expired();
        }
        let is_known = |text: &String| before.iter().any(|other| other.unknown.contains(text));
        for text in live.unknown.iter().filter(|text| !is_known(text)) {
            tracing::warn!(exception = live.name(), "{text}");
        }
        let since = live.expiry().0.duration_since(SystemTime::UNIX_EPOCH);
        metrics::record_exception_end(live.name(), since.unwrap_or_default());
    }
    for live in before {
        if now.iter().all(|other| other.name() != live.name()) {
            metrics::record_exception_end(live.name(), std::time::Duration::ZERO);
        }
    }
}

pub(crate) fn log_expired_exceptions(exceptions: &[LiveException], after: Moment, until: Moment) {
    let has_expired = |live: &&LiveException| after < live.expiry() && live.expiry() <= until;
    exceptions
        .iter()
        .filter(has_expired)
        .for_each(LiveException::log_expired);
}

pub(crate) fn next_expiry(exceptions: &[LiveException], now: Moment) -> Option<Instant> {
    let ends = exceptions.iter().map(LiveException::expiry).filter(|end| *end > now);
    let remaining_time = ends.min()?.0.duration_since(now.0).unwrap_or_default();
    Instant::now().checked_add(remaining_time)
}
