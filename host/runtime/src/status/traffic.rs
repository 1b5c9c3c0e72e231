//! Counts the requests of each minute, to show trends.
//!
//! The memory is bounded: for each of the last 120 minutes, each thread that handles requests has one histogram, with a
//! precision of one digit.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use thread_local::ThreadLocal;

use super::statistics::{histogram, record_duration};
use crate::decisions::DecisionVerdict;

const MINUTES_PER_HOUR: u64 = 60;

/// The number and the durations of the requests that matched a chain during some time, which is at most an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// The number of requests that matched a chain.
    pub requests: u64,
    /// The number of requests that the chains changed and allowed.
    pub changed: u64,
    /// The number of requests that a stage denied.
    pub denied: u64,
    /// The number of requests that were refused because a stage failed, or because their deadline passed.
    pub failed: u64,
    /// The median duration of the requests in microseconds, accurate to 10 %; 0 if there were none.
    pub p50_microseconds: u64,
    /// The 99th percentile of the duration of the requests in microseconds, accurate to 10 %; 0 if there were none.
    pub p99_microseconds: u64,
}

/// The number and the durations of the requests in one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficHour {
    /// The counts for the whole hour.
    pub total: TrafficCounts,
    /// The counts for each of the 60 minutes of the hour, the oldest minute first.
    pub minutes: Vec<TrafficCounts>,
}

/// Counts the requests of the last two hours. Each host contains one such value. The type is public for benchmarks.
#[derive(Debug)]
pub struct Traffic {
    start: Instant,
    /// The counts of each thread, so that threads do not wait for each other.
    threads: ThreadLocal<Mutex<Minutes>>,
}

type Minutes = VecDeque<Arc<CountedMinute>>;

/// The counts of the requests in one minute, or in several minutes together.
#[derive(Clone, Debug)]
struct CountedMinute {
    number: u64,
    changed_count: u64,
    denied_count: u64,
    failed_count: u64,
    durations: Histogram<u32>,
}

impl Traffic {
    /// Returns counts that are zero. Minutes are counted from `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            threads: ThreadLocal::new(),
        }
    }

    /// Counts a request that ended at `now` with this verdict and duration.
    pub fn record(&self, verdict: DecisionVerdict, duration: Duration, now: Instant) {
        let number = self.minute_number(now);
        let mut minutes = self.threads.get_or_default().lock();
        if minutes.back().is_none_or(|newest| newest.number < number) {
            minutes.retain(|minute| minute.number + 2 * MINUTES_PER_HOUR > number);
            minutes.push_back(Arc::new(CountedMinute::new(number)));
        }
        if let Some(newest) = minutes.back_mut() {
            Arc::make_mut(newest).record(verdict, duration);
        }
    }

    pub(crate) fn hours(&self, now: Instant) -> [TrafficHour; 2] {
        let threads: Vec<_> = self.threads.iter().map(|minutes| minutes.lock().clone()).collect();
        let now = self.minute_number(now);
        [0, MINUTES_PER_HOUR].map(|back| traffic_hour(&threads, now.checked_sub(back)))
    }

    fn minute_number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs() / 60
    }
}

/// Returns the counts of the hour that ends with the minute `last`. Minutes are numbered from the start of the
/// counting. If `last` is `None`, all counts are 0.
fn traffic_hour(threads: &[Minutes], last: Option<u64>) -> TrafficHour {
    let mut total = CountedMinute::new(0);
    let counts = (0..MINUTES_PER_HOUR).rev().map(|back| {
        let number = last.and_then(|last| last.checked_sub(back));
        let mut minute_total = CountedMinute::new(0);
        for minute in threads.iter().flatten().filter(|minute| Some(minute.number) == number) {
            minute_total.add(minute);
        }
        total.add(&minute_total);
        minute_total.summary()
    });
    TrafficHour {
        minutes: counts.collect(),
        total: total.summary(),
    }
}

impl CountedMinute {
    fn new(number: u64) -> Self {
        Self {
            number,
            changed_count: 0,
            denied_count: 0,
            failed_count: 0,
            durations: histogram(1),
        }
    }

    fn record(&mut self, verdict: DecisionVerdict, duration: Duration) {
        match verdict {
            DecisionVerdict::Changed => self.changed_count += 1,
            DecisionVerdict::Denied => self.denied_count += 1,
            DecisionVerdict::Failed | DecisionVerdict::Deadline => self.failed_count += 1,
            DecisionVerdict::Allowed | DecisionVerdict::DryRun => {}
        }
        record_duration(&mut self.durations, duration);
    }

    fn add(&mut self, other: &Self) {
        self.changed_count += other.changed_count;
        self.denied_count += other.denied_count;
        self.failed_count += other.failed_count;
        // An error is impossible: only a histogram with a fixed range can fail, and this histogram grows as needed.
        let _ = self.durations.add(&other.durations);
    }

    fn summary(&self) -> TrafficCounts {
        TrafficCounts {
            requests: self.durations.len(),
            changed: self.changed_count,
            denied: self.denied_count,
            failed: self.failed_count,
            p50_microseconds: self.durations.value_at_quantile(0.5),
            p99_microseconds: self.durations.value_at_quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    fn requests_per_minute(hour: &TrafficHour) -> Vec<u64> {
        hour.minutes.iter().map(|minute| minute.requests).collect()
    }

    #[test]
    fn requests_are_counted_in_the_minute_and_hour_of_their_arrival() {
        let start = Instant::now();
        let traffic = Traffic::new(start);
        let record = |verdict, minute| {
            traffic.record(verdict, Duration::from_micros(100), start + minutes(minute));
        };
        record(DecisionVerdict::Allowed, 0);
        record(DecisionVerdict::Changed, 1);
        record(DecisionVerdict::Denied, 1);
        record(DecisionVerdict::Deadline, 61);
        let [last, before] = traffic.hours(start + minutes(61));
        assert_eq!(requests_per_minute(&last)[59], 1);
        assert_eq!((last.total.requests, last.total.failed), (1, 1));
        assert_eq!(requests_per_minute(&before)[58..], [1, 2]);
        let total = before.total;
        assert_eq!((total.requests, total.changed, total.denied), (3, 1, 1));
        let [last, before] = traffic.hours(start + minutes(121));
        assert_eq!((last.total.requests, before.total.requests), (0, 1));
        record(DecisionVerdict::Allowed, 500);
        let [last, before] = traffic.hours(start + minutes(500));
        assert_eq!((last.total.requests, before.total.requests), (1, 0));
    }

    #[test]
    fn requests_of_all_threads_count_together() {
        let start = Instant::now();
        let (traffic, barrier) = (Traffic::new(start), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (traffic, barrier) = (&traffic, &barrier);
                scope.spawn(move || {
                    for minute in 0..=number {
                        traffic.record(DecisionVerdict::Denied, Duration::ZERO, start + minutes(minute));
                    }
                    // When a thread ends, the next thread that starts takes over its counts. This test needs separate
                    // counts for each thread, so no thread ends before all of them have counted.
                    barrier.wait();
                });
            }
        });
        let [last, _] = traffic.hours(start + minutes(3));
        assert_eq!(requests_per_minute(&last)[56..], [4, 3, 2, 1]);
        assert_eq!((last.total.requests, last.total.denied), (10, 10));
    }

    #[test]
    fn each_request_is_counted_in_its_minute_even_after_hours() {
        let start = Instant::now();
        let traffic = Traffic::new(start);
        for minute in 0..300 {
            for _ in 0..=minute % 3 {
                traffic.record(DecisionVerdict::Allowed, Duration::ZERO, start + minutes(minute));
            }
            let [last, before] = traffic.hours(start + minutes(minute));
            let expected = |back: u64| minute.checked_sub(back).map_or(0, |minute| minute % 3 + 1);
            assert_eq!(
                requests_per_minute(&last),
                (0..60).rev().map(expected).collect::<Vec<_>>()
            );
            assert_eq!(
                requests_per_minute(&before),
                (60..120).rev().map(expected).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn quantiles_of_durations_are_accurate_to_ten_percent() {
        let start = Instant::now();
        for microseconds in [1_u64, 2, 3, 7, 100, 1_500, 65_535, 1_000_000, 60_000_000] {
            let traffic = Traffic::new(start);
            let duration = Duration::from_micros(microseconds);
            for _ in 0..98 {
                traffic.record(DecisionVerdict::Allowed, duration, start);
            }
            traffic.record(DecisionVerdict::Allowed, 4 * duration, start);
            traffic.record(DecisionVerdict::Allowed, 4 * duration, start);
            let [last, _] = traffic.hours(start);
            let is_close = |estimate: u64, exact: u64| estimate.abs_diff(exact) * 100 <= exact * 10;
            let total = last.total;
            assert!(
                is_close(total.p50_microseconds, microseconds),
                "{microseconds}: {total:?}"
            );
            if 4 * microseconds <= 60_000_000 {
                assert!(
                    is_close(total.p99_microseconds, 4 * microseconds),
                    "{microseconds}: {total:?}"
                );
            }
        }
    }
}
