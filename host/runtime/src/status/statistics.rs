//! Keeps statistics about the calls of each stage in memory. The command `status` shows these statistics.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use admittance_admission::{Failure, FailurePolicy, Mode, StageResult, TraceRow};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::{
    Moment,
    status::metrics,
    status::{CallStatus, FailureStatus, RecentCalls, StageState},
};

/// The statistics of a stage. All tables in which the stage has the same hook share them. If the stage gets another
/// hook, new statistics begin.
#[derive(Debug)]
pub(crate) struct StageStatistics(Mutex<StageCounts>);

#[derive(Debug)]
struct StageCounts {
    since: Moment,
    results: ResultCounts,
    state: StageState,
    last_failure: Option<FailureStatus>,
    /// The counts of the last minutes; `None` before the first call, to save memory for stages that are never called.
    recent: Option<CallWindow>,
    /// The failure policy of the stage at the time when its failure counters were last set to 0; `None` if that has not
    /// happened yet. The counters have the policy as a label, so a new policy needs new counters.
    metrics: Option<FailurePolicy>,
    durations: Durations,
}

/// The metrics of the duration for each result. They are kept, because looking a metric up takes time.
#[derive(Debug, Default)]
struct Durations {
    enforce: [Option<::metrics::Histogram>; 4],
    audit: [Option<::metrics::Histogram>; 4],
}

#[derive(Debug, Default)]
pub(crate) struct Statistics(Mutex<HashMap<(String, String), Weak<StageStatistics>>>);

impl Statistics {
    /// Returns the statistics of a stage with a certain hook. If several tables contain the stage with this hook, they
    /// share the statistics.
    pub(crate) fn get_or_create(&self, stage: &str, hook: &str) -> Arc<StageStatistics> {
        let mut statistics = self.0.lock();
        let key = (stage.to_owned(), hook.to_owned());
        if let Some(existing) = statistics.get(&key).and_then(Weak::upgrade) {
            return existing;
        }
        if statistics.len() == statistics.capacity() {
            statistics.retain(|_, statistics| statistics.strong_count() > 0);
        }
        let new = Arc::default();
        statistics.insert(key, Arc::downgrade(&new));
        new
    }
}

impl Default for StageStatistics {
    fn default() -> Self {
        Self(Mutex::new(StageCounts {
            since: Moment::now(),
            results: ResultCounts::default(),
            state: StageState::Idle,
            last_failure: None,
            recent: None,
            metrics: None,
            durations: Durations::default(),
        }))
    }
}

impl StageStatistics {
    /// Records the stage's failure policy. Returns `true` if the policy is new or has changed; the caller then sets the
    /// failure counters for this policy to 0.
    pub(crate) fn replace_metrics_policy(&self, policy: FailurePolicy) -> bool {
        let mut counts = self.0.lock();
        counts.metrics.replace(policy) != Some(policy)
    }

    pub(crate) fn record(&self, row: &TraceRow) {
        let Some(index) = result_index(&row.result) else { return };
        let mut counts = self.0.lock();
        if let Some(count) = counts.results.get_mut(index) {
            *count += 1;
        }
        match &row.result {
            StageResult::Failed { failure, .. } => {
                counts.state = StageState::Failing;
                counts.last_failure = Some(failure_status(failure));
            }
            _ => counts.state = StageState::Healthy,
        }
        let now = Instant::now();
        let recent = counts.recent.get_or_insert_with(|| CallWindow::new(now));
        recent.record(index, row.duration, now);
        let durations = match row.mode {
            Mode::Enforce => &mut counts.durations.enforce,
            Mode::Audit => &mut counts.durations.audit,
        };
        if let Some(durations) = durations.get_mut(index) {
            durations
                .get_or_insert_with(|| metrics::stage_duration_histogram(row))
                .record(row.duration);
        }
    }

    pub(crate) fn status(&self) -> (StageState, CallStatus, Option<FailureStatus>) {
        let counts = self.0.lock();
        let now = Instant::now();
        let recent = counts.recent.as_ref();
        let [p50, p99] = recent.map_or([None; 2], |recent| recent.quantiles([0.5, 0.99], now));
        let [allowed, changed, denied, failed] = counts.results;
        let calls = CallStatus {
            since: counts.since,
            total: counts.results.iter().sum(),
            allowed,
            changed,
            denied,
            failed,
            recent: recent.map(|recent| recent.status(now)).unwrap_or_default(),
            p50_microseconds: p50,
            p99_microseconds: p99,
        };
        (counts.state, calls, counts.last_failure.clone())
    }
}

fn failure_status(failure: &Failure) -> FailureStatus {
    FailureStatus {
        at: Moment::now(),
        kind: failure.kind.as_str().to_owned(),
        message: failure.message.clone(),
    }
}

/// The number of calls with each result: allowed, changed, denied and failed, in this order.
type ResultCounts = [u64; 4];

fn result_index(result: &StageResult) -> Option<usize> {
    match result {
        StageResult::Allowed => Some(0),
        StageResult::Changed(_) => Some(1),
        StageResult::Denied(_) => Some(2),
        StageResult::Failed { .. } => Some(3),
        _ => None,
    }
}

/// The calls of a stage in the current period of five minutes and in the period before.
#[derive(Debug)]
struct CallWindow {
    current: Period,
    previous: Period,
}

#[derive(Debug)]
struct Period {
    start: Instant,
    results: ResultCounts,
    durations: Histogram<u32>,
}

/// The statistics cover the current period and the previous one. A period of five minutes is long enough to contain
/// some rare requests, and short enough that old calls soon stop counting.
const PERIOD: Duration = Duration::from_secs(300);

/// The longest duration that is recorded, in microseconds: one minute, which is longer than any timeout.
const MAX_DURATION_MICROSECONDS: u64 = 60_000_000;

impl CallWindow {
    fn new(now: Instant) -> Self {
        Self {
            current: Period::new(now),
            previous: Period::new(now),
        }
    }

    fn record(&mut self, result: usize, duration: Duration, now: Instant) {
        if self.current.age(now) >= PERIOD {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.reset(now);
        }
        if let Some(count) = self.current.results.get_mut(result) {
            *count += 1;
        }
        record_duration(&mut self.current.durations, duration);
    }

    fn periods(&self, now: Instant) -> impl Iterator<Item = &Period> {
        let both_periods = [&self.current, &self.previous];
        both_periods
            .into_iter()
            .filter(move |period| period.age(now) < 2 * PERIOD)
    }

    fn status(&self, now: Instant) -> RecentCalls {
        let seconds = self.periods(now).map(|period| period.age(now).as_secs()).max();
        let count = |index: usize| {
            let counts = self.periods(now).filter_map(|period| period.results.get(index));
            counts.sum()
        };
        RecentCalls {
            seconds: seconds.unwrap_or_default(),
            allowed: count(0),
            changed: count(1),
            denied: count(2),
            failed: count(3),
        }
    }

    /// Returns these quantiles of the recent durations, in microseconds. Each is `None` if there are no durations.
    fn quantiles<const N: usize>(&self, quantiles: [f64; N], now: Instant) -> [Option<u64>; N] {
        let mut combined = histogram(2);
        for period in self.periods(now) {
            // Adding cannot fail, because all of the histograms have the same limits.
            if combined.add(&period.durations).is_err() {
                return [None; N];
            }
        }
        quantiles.map(|quantile| (!combined.is_empty()).then(|| combined.value_at_quantile(quantile)))
    }
}

impl Period {
    fn new(now: Instant) -> Self {
        Self {
            start: now,
            results: ResultCounts::default(),
            durations: histogram(2),
        }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    fn reset(&mut self, now: Instant) {
        self.start = now;
        self.results = ResultCounts::default();
        self.durations.reset();
    }
}

pub(super) fn record_duration(durations: &mut Histogram<u32>, duration: Duration) {
    let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let _ = durations.record(microseconds.clamp(1, MAX_DURATION_MICROSECONDS));
}

/// Creates a histogram with a precision of `digits` decimal digits. It grows as longer durations are recorded.
pub(super) fn histogram(digits: u8) -> Histogram<u32> {
    #[expect(clippy::expect_used, reason = "one and two digits are possible")]
    Histogram::new(digits).expect("a histogram of one or two digits")
}

#[cfg(test)]
mod tests;
