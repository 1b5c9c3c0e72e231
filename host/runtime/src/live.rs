//! Builds the live table and its parts, and holds their state.

pub(crate) mod assembly;
pub(crate) mod disabled;
pub(crate) mod exceptions;
pub(crate) mod hash;
pub(crate) mod namespaced;
pub(crate) mod plugins;
pub(crate) mod prepared;
pub(crate) mod source;
pub(crate) mod stage;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod version_state;

use std::{sync::Arc, time::Duration};

use admittance_definitions::BadDefinition;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    Error, Moment,
    status::{BadDefinitionStatus, Problem, metrics},
};

/// The maximum number of tables in memory. If there are this many, the next one waits until requests on old ones end.
pub(crate) const MAX_TABLES: usize = 8;

/// The reason why the newest definitions are not live, with the number of attempts so far and the time of the next one.
#[derive(Clone, Debug)]
pub(crate) struct TableProblem {
    pub(crate) error: Arc<Error>,
    since: Moment,
    attempts: u64,
    /// The time of the next attempt to build a table; `None` if only a change of the definitions can help.
    pub(crate) next: Option<(Instant, Moment)>,
}

/// The pause before the first retry after a temporary failure. Before each further retry, it doubles.
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two retries.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);

impl TableProblem {
    pub(crate) fn of_bad_definitions(bad: &[BadDefinition], before: Option<&Self>) -> Option<Self> {
        if bad.is_empty() {
            return None;
        }
        Some(Self::after_attempt(
            before,
            Arc::new(Error::BadDefinitions(bad.to_vec())),
        ))
    }

    /// Returns the newest definitions that are not served as they are written.
    pub(crate) fn bad_definitions(&self) -> &[BadDefinition] {
        match &*self.error {
            Error::BadDefinitions(bad) => bad,
            _ => &[],
        }
    }

    /// Returns the problem after a failed attempt. `before` is the problem after the previous attempt.
    pub(crate) fn after_attempt(before: Option<&Self>, error: Arc<Error>) -> Self {
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let next = error.is_transient().then(|| {
            let doublings = u32::try_from(attempts - 1).unwrap_or(u32::MAX).min(16);
            let pause = (MIN_RETRY_PAUSE * 2_u32.pow(doublings)).min(MAX_RETRY_PAUSE);
            (Instant::now() + pause, Moment(Moment::now().0 + pause))
        });
        Self {
            error,
            since: before.map_or_else(Moment::now, |before| before.since),
            attempts,
            next,
        }
    }

    /// Returns this problem if a retry cannot solve it, such as a mistake in a definition. Returns `None` for a
    /// temporary problem, such as an unreachable server.
    pub(crate) fn if_permanent(&self) -> Option<Self> {
        (!self.error.is_transient()).then(|| self.clone())
    }

    pub(crate) fn to_status(&self) -> Problem {
        Problem {
            since: self.since,
            attempts: self.attempts,
            next_attempt: self.next.map(|(_, moment)| moment),
            mistakes: self.error.to_string().lines().map(str::to_owned).collect(),
            bad_definitions: self.bad_definitions().iter().map(BadDefinitionStatus::new).collect(),
        }
    }
}

pub(crate) fn log_bad_definitions(before: Option<&TableProblem>, now: Option<&TableProblem>) {
    let [before, now] = [before, now].map(|problem| problem.map_or(&[][..], TableProblem::bad_definitions));
    for bad in now.iter().filter(|bad| !before.contains(bad)) {
        tracing::error!(definition = %bad.path.display(), "{bad}");
    }
    for previous in before {
        if !now.iter().any(|bad| bad.path == previous.path) {
            tracing::info!(definition = %previous.path.display(), "the definition in {} is valid again", previous.path.display());
            metrics::record_bad_definition(&previous.path, false);
        }
    }
    for bad in now {
        metrics::record_bad_definition(&bad.path, true);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TableSlots(Arc<Semaphore>);

impl Default for TableSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TABLES)))
    }
}

impl TableSlots {
    pub(crate) async fn take(&self, patience: Duration) -> Result<tokio::sync::OwnedSemaphorePermit, Error> {
        match tokio::time::timeout(patience, self.0.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(Error::TooManyTables(MAX_TABLES)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        MAX_TABLES.saturating_sub(self.0.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_between_retries_double_up_to_a_minute() {
        let mut problem = None;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let next = TableProblem::after_attempt(problem.as_ref(), Arc::new(Error::TooManyTables(8)));
            pauses.push((next.next.unwrap().0 - Instant::now()).as_secs());
            problem = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let problem = problem.unwrap().to_status();
        assert_eq!((problem.attempts, problem.mistakes.len()), (9, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_with_a_mistake_are_not_read_again_until_they_change() {
        let error = Error::Definitions(admittance_definitions::Mistakes::new());
        assert!(TableProblem::after_attempt(None, Arc::new(error)).next.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ninth_table_in_memory_waits_for_a_slot() {
        let slots = TableSlots::default();
        let mut held_slots = Vec::new();
        for count in 0..MAX_TABLES {
            assert_eq!(slots.count(), count);
            held_slots.push(slots.take(Duration::ZERO).await.unwrap());
        }
        assert!(slots.take(Duration::from_secs(5)).await.is_err());
        held_slots.pop();
        assert!(slots.take(Duration::ZERO).await.is_ok());
    }
}
