use admittance_admission::{Denial, FailureKind, FailurePolicy, Patch, Phase, SkipReason};

use super::*;

fn row(result: StageResult) -> TraceRow {
    let mut row = TraceRow::new("chain", Phase::Mutating, "stage", result);
    row.duration = Duration::from_micros(10);
    row
}

#[test]
fn results_of_calls_are_counted_and_the_last_one_sets_the_state_of_the_stage() {
    let statistics = StageStatistics::default();
    let failed = || StageResult::Failed {
        failure: Failure::new(FailureKind::Trap, "unreachable"),
        policy: FailurePolicy::Fail,
    };
    let table = [
        (StageResult::Skipped(SkipReason::Rules), StageState::Idle),
        (StageResult::NotReached, StageState::Idle),
        (StageResult::Allowed, StageState::Healthy),
        (failed(), StageState::Failing),
        (StageResult::NotReached, StageState::Failing),
        (StageResult::Changed(Patch::default()), StageState::Healthy),
        (StageResult::Denied(Denial::forbidden("no")), StageState::Healthy),
    ];
    for (result, expected) in table {
        let row = row(result);
        statistics.record(&row);
        assert_eq!(statistics.status().0, expected, "{row:?}");
    }
    let (_, calls, failure) = statistics.status();
    let counts = [calls.total, calls.allowed, calls.changed, calls.denied, calls.failed];
    assert_eq!(counts, [4, 1, 1, 1, 1]);
    assert_eq!(calls.p99_microseconds, Some(10));
    assert_eq!(failure.unwrap().kind, "trap");
}

#[test]
fn failure_metrics_are_initialized_once_for_each_policy() {
    let statistics = StageStatistics::default();
    let lacking = [FailurePolicy::Fail, FailurePolicy::Fail, FailurePolicy::Ignore]
        .map(|policy| statistics.replace_metrics_policy(policy));
    assert_eq!(lacking, [true, false, true]);
}

#[test]
fn statistics_continue_while_a_table_has_the_stage_with_the_same_hook() {
    let statistics = Statistics::default();
    let first = statistics.get_or_create("a/b", "1");
    assert!(Arc::ptr_eq(&first, &statistics.get_or_create("a/b", "1")));
    assert!(!Arc::ptr_eq(&first, &statistics.get_or_create("a/b", "2")));
    assert!(!Arc::ptr_eq(&first, &statistics.get_or_create("a/c", "1")));
    first.record(&row(StageResult::Allowed));
    drop(first);
    assert_eq!(statistics.get_or_create("a/b", "1").status().0, StageState::Idle);
}

#[test]
fn statistics_forget_calls_after_two_periods() {
    let start = Instant::now();
    let mut recent = CallWindow::new(start);
    let quantiles_of = |recent: &CallWindow, now| recent.quantiles([0.5, 0.99], now);
    let counts = |recent: &CallWindow, now| {
        let status = recent.status(now);
        (status.seconds, status.allowed, status.denied, status.failed)
    };
    assert_eq!(quantiles_of(&recent, start), [None, None]);
    assert_eq!(counts(&recent, start), (0, 0, 0, 0));
    for _ in 0..98 {
        recent.record(0, Duration::from_micros(20), start);
    }
    for _ in 0..2 {
        recent.record(3, Duration::from_secs(3600), start + PERIOD);
    }
    let [p50, p99] = quantiles_of(&recent, start + PERIOD);
    assert_eq!(p50, Some(20));
    assert!(p99.is_some_and(|p99| p99 >= 60_000_000), "{p99:?}");
    assert_eq!(counts(&recent, start + PERIOD), (300, 98, 0, 2));
    recent.record(2, Duration::from_micros(30), start + 2 * PERIOD);
    recent.record(2, Duration::from_micros(30), start + 3 * PERIOD);
    assert_eq!(quantiles_of(&recent, start + 3 * PERIOD), [Some(30), Some(30)]);
    assert_eq!(counts(&recent, start + 3 * PERIOD), (300, 0, 2, 0));
    let idle = start + 5 * PERIOD;
    assert_eq!(
        (quantiles_of(&recent, idle), counts(&recent, idle)),
        ([None, None], (0, 0, 0, 0))
    );
    recent.record(0, Duration::from_micros(40), start + 9 * PERIOD);
    assert_eq!(quantiles_of(&recent, start + 9 * PERIOD), [Some(40), Some(40)]);
}
