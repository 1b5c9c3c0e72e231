//! Call statistics of stages, kept in memory for `status`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use admittance_admission::{Failure, FailurePolicy, StageResult};
use hdrhistogram::Histogram;

use crate::{
    Moment,
    status::{CallStatus, FailureStatus, StageState},
};

/// Lives as long as a table has the stage with the same hook.
#[derive(Debug)]
pub(crate) struct StageStatistics(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    since: Moment,
    allowed: u64,
    changed: u64,
    denied: u64,
    failed: u64,
    state: StageState,
    last_failure: Option<FailureStatus>,
    durations: Recent,
    /// The policy for which its failure metrics were made.
    metrics: Option<FailurePolicy>,
}

/// The statistics of the stages of live tables. Lives as long as the host.
#[derive(Debug, Default)]
pub(crate) struct Statistics(Mutex<HashMap<(String, String), Weak<StageStatistics>>>);

impl Statistics {
    /// The statistics of this stage with this hook, which continue while a table has it.
    pub(crate) fn of(&self, stage: &str, hook: &str) -> Arc<StageStatistics> {
        let mut statistics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        statistics.retain(|_, statistics| statistics.strong_count() > 0);
        let key = (stage.to_owned(), hook.to_owned());
        if let Some(known) = statistics.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::default();
        statistics.insert(key, Arc::downgrade(&new));
        new
    }
}

impl Default for StageStatistics {
    fn default() -> Self {
        Self(Mutex::new(Counts {
            since: Moment::now(),
            allowed: 0,
            changed: 0,
            denied: 0,
            failed: 0,
            state: StageState::Idle,
            last_failure: None,
            durations: Recent::new(Instant::now()),
            metrics: None,
        }))
    }
}

impl StageStatistics {
    /// Whether its failure metrics must be initialized for this policy: true the first time that a live table
    /// has the stage with it.
    pub(crate) fn lacks_metrics(&self, policy: FailurePolicy) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.metrics.replace(policy) != Some(policy)
    }

    /// Counts one result, unless the stage was not called.
    pub(crate) fn record(&self, result: &StageResult, duration: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match result {
            StageResult::Allowed => &mut counts.allowed,
            StageResult::Changed(_) => &mut counts.changed,
            StageResult::Denied(_) => &mut counts.denied,
            StageResult::Failed { .. } => &mut counts.failed,
            // It was not called.
            _ => return,
        };
        *count += 1;
        match result {
            StageResult::Failed { failure, .. } => {
                counts.state = StageState::Failing;
                counts.last_failure = Some(failed(failure));
            }
            _ => counts.state = StageState::Healthy,
        }
        counts.durations.record(duration, Instant::now());
    }

    /// The statistics so far.
    pub(crate) fn status(&self) -> (StageState, CallStatus, Option<FailureStatus>) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [p50, p99] = counts.durations.quantiles([0.5, 0.99]);
        let calls = CallStatus {
            since: counts.since,
            total: counts.allowed + counts.changed + counts.denied + counts.failed,
            allowed: counts.allowed,
            changed: counts.changed,
            denied: counts.denied,
            failed: counts.failed,
            p50_microseconds: p50,
            p99_microseconds: p99,
        };
        (counts.state, calls, counts.last_failure.clone())
    }
}

fn failed(failure: &Failure) -> FailureStatus {
    FailureStatus {
        at: Moment::now(),
        kind: failure.kind.as_str().to_owned(),
        message: failure.message.clone(),
    }
}

/// The durations of the last one to two periods.
#[derive(Debug)]
struct Recent {
    current: Histogram<u32>,
    previous: Histogram<u32>,
    begun: Instant,
}

/// Long enough to include rare requests, short enough to forget the last hour.
const PERIOD: Duration = Duration::from_secs(300);

impl Recent {
    fn new(now: Instant) -> Self {
        Self {
            current: histogram(),
            previous: histogram(),
            begun: now,
        }
    }

    fn record(&mut self, duration: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.begun);
        if age >= PERIOD {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.reset();
            if age >= 2 * PERIOD {
                self.previous.reset();
            }
            self.begun = now;
        }
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.current.saturating_record(microseconds.max(1));
    }

    /// `None` without durations.
    fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [Option<u64>; N] {
        let mut both = self.current.clone();
        // Both have the same bounds.
        if both.add(&self.previous).is_err() || both.is_empty() {
            return [None; N];
        }
        quantiles.map(|quantile| Some(both.value_at_quantile(quantile)))
    }
}

/// 1 µs to a minute, which is beyond every timeout, with a precision of a hundredth.
fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, 60_000_000, 2).unwrap_or_else(|_| {
        // These bounds are valid; the fallback is never used.
        #[expect(clippy::expect_used, reason = "one significant digit is always possible")]
        Histogram::new(1).expect("a histogram of one digit")
    })
}

#[cfg(test)]
mod tests;
