//! The numbers of requests by the minute, for trends.
//!
//! Requests count with atomic additions and without a lock. The memory is bounded: two hours of minutes, and a histogram
//! with four buckets to an octave for the durations of each.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::decisions::DecisionVerdict;

const HOUR: u64 = 60;
/// Two hours, of which the last minute is still being counted, and the next minute, which is clear already.
const SLOTS: usize = 2 * HOUR as usize + 1;
/// The octaves of durations in microseconds, up to more than a minute.
const OCTAVES: usize = 27;
const PER_OCTAVE: usize = 4;

/// The requests that matched a chain during some time, at most an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// The number of all requests.
    pub requests: u64,
    /// The requests that the chains changed and allowed.
    pub changed: u64,
    /// The requests that a stage denied.
    pub denied: u64,
    /// The requests that were refused because a stage failed or the time was over.
    pub failed: u64,
    /// The time that half of them did not exceed, in microseconds, to 15 %; 0 without requests.
    pub p50_microseconds: u64,
    /// The time that 99 of 100 did not exceed, in microseconds, to 15 %; 0 without requests.
    pub p99_microseconds: u64,
}

/// The requests of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficHour {
    /// The sum of its minutes.
    pub total: TrafficCounts,
    /// Its 60 minutes, the oldest first.
    pub minutes: Vec<TrafficCounts>,
}

/// Counts the requests of the last two hours. Lives as long as the host.
#[derive(Debug)]
pub(crate) struct Traffic {
    begun: Instant,
    /// The newest minute with a request, from the beginning. The slots of this minute and of the next one are its own.
    newest: AtomicU64,
    slots: Vec<Slot>,
}

/// One minute.
#[derive(Debug, Default)]
struct Slot {
    changed: AtomicU32,
    denied: AtomicU32,
    failed: AtomicU32,
    durations: [[AtomicU32; PER_OCTAVE]; OCTAVES],
}

impl Traffic {
    pub(crate) fn new(begun: Instant) -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default());
        Self {
            begun,
            newest: AtomicU64::new(0),
            slots: slots.collect(),
        }
    }

    /// Counts a request that took this long.
    pub(crate) fn record(&self, verdict: DecisionVerdict, duration: Duration, now: Instant) {
        let minute = self.minute(now);
        let newest = self.newest.load(Relaxed);
        if minute > newest
            && self
                .newest
                .compare_exchange(newest, minute, Relaxed, Relaxed)
                .is_ok()
        {
            // Slots are cleared a minute ahead, so that no request is counted in a slot that is being cleared, except
            // after a minute without requests.
            let stale = (newest + 2..=minute + 1).rev().take(SLOTS);
            stale.filter_map(|minute| self.slot(minute)).for_each(Slot::clear);
        }
        let Some(slot) = self.slot(minute) else { return };
        let counter = match verdict {
            DecisionVerdict::Changed => Some(&slot.changed),
            DecisionVerdict::Denied => Some(&slot.denied),
            DecisionVerdict::Failed | DecisionVerdict::Deadline => Some(&slot.failed),
            DecisionVerdict::Allowed | DecisionVerdict::DryRun => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Relaxed);
        }
        if let Some(bucket) = slot.bucket(duration) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// Returns the last hour, and the hour before it.
    pub(crate) fn hours(&self, now: Instant) -> [TrafficHour; 2] {
        let end = self.minute(now) + 1;
        [
            self.hour(Some(end)),
            self.hour(end.checked_sub(HOUR).filter(|end| *end > 0)),
        ]
    }

    /// Returns the hour before this minute. It has no requests without one.
    fn hour(&self, end: Option<u64>) -> TrafficHour {
        let newest = self.newest.load(Relaxed);
        let mut total = SlotCounts::default();
        let minutes = (1..=HOUR).rev().map(|back| {
            let minute = end.and_then(|end| end.checked_sub(back));
            let counted = minute.filter(|minute| *minute <= newest);
            let mut counts = SlotCounts::default();
            if let Some(slot) = counted.and_then(|minute| self.slot(minute)) {
                counts.add(slot);
                total.add(slot);
            }
            counts.summary()
        });
        TrafficHour {
            minutes: minutes.collect(),
            total: total.summary(),
        }
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs() / 60
    }

    fn slot(&self, minute: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(minute).ok()? % SLOTS)
    }
}

impl Slot {
    fn clear(&self) {
        let results = [&self.changed, &self.denied, &self.failed];
        for counter in results.into_iter().chain(self.durations.iter().flatten()) {
            counter.store(0, Relaxed);
        }
    }

    /// Returns the bucket of a duration. Its octave is the position of the highest bit, and the next two bits choose one of
    /// four.
    fn bucket(&self, duration: Duration) -> Option<&AtomicU32> {
        let longest = (1 << OCTAVES) - 1;
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(longest);
        let microseconds = microseconds.clamp(1, longest);
        let octave = microseconds.ilog2() as usize;
        let quarter = (microseconds << 2 >> octave) & 3;
        self.durations.get(octave)?.get(usize::try_from(quarter).ok()?)
    }
}

/// The sum of several minutes.
#[derive(Default)]
struct SlotCounts {
    changed: u64,
    denied: u64,
    failed: u64,
    durations: [[u64; PER_OCTAVE]; OCTAVES],
}

impl SlotCounts {
    fn add(&mut self, slot: &Slot) {
        self.changed += u64::from(slot.changed.load(Relaxed));
        self.denied += u64::from(slot.denied.load(Relaxed));
        self.failed += u64::from(slot.failed.load(Relaxed));
        let own = self.durations.iter_mut().flatten();
        for (sum, counter) in own.zip(slot.durations.iter().flatten()) {
            *sum += u64::from(counter.load(Relaxed));
        }
    }

    fn summary(&self) -> TrafficCounts {
        let requests = self.durations.iter().flatten().sum();
        TrafficCounts {
            requests,
            changed: self.changed,
            denied: self.denied,
            failed: self.failed,
            p50_microseconds: self.quantile(requests.div_ceil(2)),
            p99_microseconds: self.quantile((requests * 99).div_ceil(100)),
        }
    }

    /// Returns the middle of the bucket that has the `rank`th shortest duration; 0 for the rank 0.
    fn quantile(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for (octave, buckets) in self.durations.iter().enumerate() {
            for (quarter, count) in buckets.iter().enumerate() {
                seen += count;
                if rank > 0 && seen >= rank {
                    // The middle of `quarter` and the next one.
                    return ((9 + 2 * quarter as u64) << octave) >> 3;
                }
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    fn requests(hour: &TrafficHour) -> Vec<u64> {
        hour.minutes.iter().map(|minute| minute.requests).collect()
    }

    #[test]
    fn requests_count_in_the_minute_and_hour_in_which_they_come() {
        let begun = Instant::now();
        let traffic = Traffic::new(begun);
        let record = |verdict, minute| {
            traffic.record(verdict, Duration::from_micros(100), begun + minutes(minute));
        };
        record(DecisionVerdict::Allowed, 0);
        record(DecisionVerdict::Changed, 1);
        record(DecisionVerdict::Denied, 1);
        record(DecisionVerdict::Deadline, 61);
        let [last, before] = traffic.hours(begun + minutes(61));
        assert_eq!(requests(&last)[59], 1);
        assert_eq!((last.total.requests, last.total.failed), (1, 1));
        assert_eq!(requests(&before)[58..], [1, 2]);
        let total = before.total;
        assert_eq!((total.requests, total.changed, total.denied), (3, 1, 1));
        // The ring has turned: what is two hours old is gone, also without a request since.
        let [last, before] = traffic.hours(begun + minutes(121));
        assert_eq!((last.total.requests, before.total.requests), (0, 1));
        record(DecisionVerdict::Allowed, 500);
        let [last, before] = traffic.hours(begun + minutes(500));
        assert_eq!((last.total.requests, before.total.requests), (1, 0));
    }

    #[test]
    fn each_minute_of_a_long_run_has_its_own_requests() {
        let begun = Instant::now();
        let traffic = Traffic::new(begun);
        for minute in 0..300 {
            for _ in 0..=minute % 3 {
                traffic.record(DecisionVerdict::Allowed, Duration::ZERO, begun + minutes(minute));
            }
            let [last, before] = traffic.hours(begun + minutes(minute));
            let expected = |back: u64| minute.checked_sub(back).map_or(0, |minute| minute % 3 + 1);
            assert_eq!(requests(&last), (0..60).rev().map(expected).collect::<Vec<_>>());
            assert_eq!(
                requests(&before),
                (60..120).rev().map(expected).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn quantiles_are_close_to_the_durations() {
        let begun = Instant::now();
        for microseconds in [1_u64, 2, 3, 7, 100, 1_500, 65_535, 1_000_000, 60_000_000] {
            let traffic = Traffic::new(begun);
            let duration = Duration::from_micros(microseconds);
            for _ in 0..98 {
                traffic.record(DecisionVerdict::Allowed, duration, begun);
            }
            traffic.record(DecisionVerdict::Allowed, 4 * duration, begun);
            traffic.record(DecisionVerdict::Allowed, 4 * duration, begun);
            let [last, _] = traffic.hours(begun);
            let is_close = |found: u64, exact: u64| found.abs_diff(exact) * 100 <= exact * 15;
            let total = last.total;
            assert!(
                is_close(total.p50_microseconds, microseconds),
                "{microseconds}: {total:?}"
            );
            // A duration beyond the last octave is among its longest.
            if microseconds < 30_000_000 {
                assert!(
                    is_close(total.p99_microseconds, 4 * microseconds),
                    "{microseconds}: {total:?}"
                );
            }
        }
    }
}
