//! Computes the rates of requests and verdicts of each chain.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_admission::{Decision, FailurePolicy, Mode, Phase, StageResult, TraceRow};

use super::{ChainRates, packed::PackedDecision};

/// The number of equal parts into which the time range is divided. Each part has rates of its own.
const PART_COUNT: usize = 12;

#[derive(Default)]
struct ChainCounts {
    request_count: u64,
    denied_count: u64,
    would_deny_count: u64,
    changed_count: u64,
    failed_count: u64,
    /// The times that requests spent in the chain, in microseconds. Each part of the time range has its own list, and
    /// the newest part comes first.
    microseconds: [Vec<u64>; PART_COUNT],
}

/// Returns the rates of each chain. The decisions come from the log, the newest first. `is_cut` means that the log has
/// lost older decisions, so it may not cover the whole time `time_range`.
pub(super) fn chain_rates(
    decisions: impl Iterator<Item = PackedDecision>,
    time_range: Duration,
    now: SystemTime,
    is_cut: bool,
) -> Vec<ChainRates> {
    let mut chains: BTreeMap<(Phase, Arc<str>), ChainCounts> = BTreeMap::new();
    let mut seconds = time_range.as_secs_f64();
    let part_length = (time_range / PART_COUNT as u32).as_micros().max(1);
    for entry in decisions {
        let age = now.duration_since(entry.unpacked_parts.time.0).unwrap_or_default();
        if is_cut {
            seconds = age.as_secs_f64();
        }
        let part = usize::try_from(age.as_micros() / part_length).unwrap_or(PART_COUNT);
        let rows = entry
            .read_part()
            .map(|packed| entry.trace_rows(&packed))
            .unwrap_or_default();
        for rows in rows.chunk_by(|one, other| (one.phase, &one.chain) == (other.phase, &other.chain)) {
            let Some(first) = rows.first() else { continue };
            let counts = chains.entry((first.phase, first.chain.clone())).or_default();
            counts.add(rows, entry.decision(), part.min(PART_COUNT - 1));
        }
    }
    let rates = chains.into_iter().map(|((phase, chain), counts)| {
        let mut all_microseconds = counts.microseconds.concat();
        let parts = || counts.microseconds.iter().rev();
        ChainRates {
            chain: chain.to_string(),
            phase,
            seconds,
            requests: counts.request_count,
            denied: counts.denied_count,
            would_deny: counts.would_deny_count,
            changed: counts.changed_count,
            failed: counts.failed_count,
            p50_microseconds: quantile(&mut all_microseconds, 50),
            p99_microseconds: quantile(&mut all_microseconds, 99),
            requests_series: parts().map(|part| part.len() as u64).collect(),
            p99_series: parts().map(|part| quantile(&mut part.clone(), 99)).collect(),
        }
    });
    rates.collect()
}

impl ChainCounts {
    /// Counts a request of the chain. `rows` are the rows of the chain's stages. A request may pass a chain twice,
    /// because a later stage has changed the object: the rows of the second time have the round 2. If there are only
    /// such rows, the request was counted already.
    fn add(&mut self, rows: &[TraceRow], decision: &Decision, part: usize) {
        if rows.iter().all(|row| row.round > 1) {
            return;
        }
        self.request_count += 1;
        let count_if = |mode: Mode, predicate: fn(&StageResult) -> bool| {
            u64::from(rows.iter().any(|row| row.mode == mode && predicate(&row.result)))
        };
        let is_denied = |result: &StageResult| matches!(result, StageResult::Denied(_));
        self.denied_count += count_if(Mode::Enforce, is_denied);
        self.would_deny_count += count_if(Mode::Audit, is_denied);
        if matches!(decision, Decision::Allowed) {
            self.changed_count += count_if(Mode::Enforce, |result| matches!(result, StageResult::Changed(_)));
        } else {
            self.failed_count += count_if(Mode::Enforce, |result| {
                matches!(
                    result,
                    StageResult::Failed {
                        policy: FailurePolicy::Fail,
                        ..
                    }
                )
            });
        }
        let span = |mode: Mode| {
            let called_rows = || rows.iter().filter(|row| row.mode == mode && row.was_called());
            let begin = called_rows().map(|row| row.start).min()?;
            let end = called_rows().map(|row| row.start + row.duration).max()?;
            Some(end.saturating_sub(begin))
        };
        let span_of_calls = span(Mode::Enforce).or_else(|| span(Mode::Audit));
        let time = span_of_calls.unwrap_or_default().as_micros();
        if let Some(part) = self.microseconds.get_mut(part) {
            part.push(u64::try_from(time).unwrap_or(u64::MAX));
        }
    }
}

fn quantile(values: &mut [u64], percent: usize) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
    *values.select_nth_unstable(index).1
}
