//! The rates of requests and verdicts of each chain.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_admission::{Decision, FailurePolicy, Mode, Phase, StageResult, TraceRow};

use super::{ChainRates, packed::LogEntry};

#[derive(Default)]
struct ChainCounts {
    requests: u64,
    denied: u64,
    changed: u64,
    failed: u64,
    /// The time of each request in the chain.
    microseconds: Vec<u64>,
}

/// Returns the rates of these decisions, which are sorted from the newest to the oldest. `is_cut` means that the log no
/// longer has all decisions of the time, so the rates are of the time since the oldest one.
pub(super) fn of(
    decisions: impl Iterator<Item = LogEntry>,
    within: Duration,
    now: SystemTime,
    is_cut: bool,
) -> Vec<ChainRates> {
    let mut chains: BTreeMap<(Phase, Arc<str>), ChainCounts> = BTreeMap::new();
    let mut seconds = within.as_secs_f64();
    for entry in decisions {
        if is_cut {
            seconds = now
                .duration_since(entry.unpacked.at.0)
                .unwrap_or_default()
                .as_secs_f64();
        }
        let rows = entry.read().map(|packed| entry.rows(&packed)).unwrap_or_default();
        for rows in rows.chunk_by(|one, other| (one.phase, &one.chain) == (other.phase, &other.chain)) {
            let Some(first) = rows.first() else { continue };
            let counts = chains.entry((first.phase, first.chain.clone())).or_default();
            counts.add(rows, entry.decision());
        }
    }
    let rates = chains.into_iter().map(|((phase, chain), mut counts)| ChainRates {
        chain: chain.to_string(),
        phase,
        seconds,
        requests: counts.requests,
        denied: counts.denied,
        changed: counts.changed,
        failed: counts.failed,
        p50_microseconds: quantile(&mut counts.microseconds, 50),
        p99_microseconds: quantile(&mut counts.microseconds, 99),
    });
    rates.collect()
}

impl ChainCounts {
    /// Adds the rows of one chain for one request. Rows of a second round alone are skipped, because the request is
    /// counted.
    fn add(&mut self, rows: &[TraceRow], decision: &Decision) {
        if rows.iter().all(|row| row.round > 1) {
            return;
        }
        self.requests += 1;
        let is_enforced = |row: &&TraceRow| row.mode == Mode::Enforce;
        let has = |wanted: fn(&StageResult) -> bool| {
            u64::from(rows.iter().filter(is_enforced).any(|row| wanted(&row.result)))
        };
        self.denied += has(|result| matches!(result, StageResult::Denied(_)));
        self.changed += has(|result| matches!(result, StageResult::Changed(_)));
        if matches!(decision, Decision::Refused(_)) {
            self.failed += has(|result| {
                matches!(
                    result,
                    StageResult::Failed {
                        policy: FailurePolicy::Fail,
                        ..
                    }
                )
            });
        }
        let enforced = || rows.iter().filter(is_enforced).filter(|row| row.was_called());
        let begin = enforced().map(|row| row.start).min().unwrap_or_default();
        let end = enforced()
            .map(|row| row.start + row.duration)
            .max()
            .unwrap_or_default();
        let time = end.saturating_sub(begin).as_micros();
        self.microseconds.push(u64::try_from(time).unwrap_or(u64::MAX));
    }
}

/// Returns the smallest value that this percentage of the values does not exceed; 0 without values.
fn quantile(values: &mut [u64], percent: usize) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
    *values.select_nth_unstable(index).1
}
