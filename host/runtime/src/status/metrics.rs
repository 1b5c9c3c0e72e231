//! Records the metrics of the host through the `metrics` facade. The embedding program chooses the exporter.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admittance_admission::{
    Digest, FailureKind, FailurePolicy, Mode, NamespaceSelector, Outcome, Phase, StageResult, TraceRow,
};
use admittance_definitions::Share;
use admittance_net::{Metric, metric_table};
use metrics::{Counter, Histogram, counter, gauge, histogram};

use crate::{
    DecisionVerdict,
    live::hash,
    live::stage::{LiveChain, LiveStage},
    replicas::agreement::ReplicasStatus,
};

metric_table! {
    REQUESTS = Counter "admittance_requests_total" [decision]
        "Requests that passed through chains, by decision: allowed, changed, denied, failed, deadline, \
         dry-run";
    TABLES = Counter "admittance_tables_total" [result]
        "Tables built from the definitions, at the start and whenever they change, by result: live, failed \
         (the previous one stays)";
    WRITE_FAILURES = Counter "admittance_write_failures_total" [directory]
        "Entries that could not be written to disk, by directory: history, store";
    REVISION = Gauge "admittance_table_revision" []
        "The revision of the live table";
    HASH = Gauge "admittance_table_hash" []
        "The first 48 bits of the content hash of the live table: the same number on every replica that \
         serves the same";
    CURRENT = Gauge "admittance_table_current" []
        "1 if the live table matches the definitions, 0 if it cannot be built from them and the previous one \
         stays, or if some of them are invalid";
    BAD_DEFINITION = Gauge "admittance_bad_definition" [definition]
        "1 for an invalid definition in a store, by its location (definition); 0 when it is repaired or \
         deleted";
    STAGE_DISABLED = Gauge "admittance_stage_disabled" [stage]
        "1 for a stage that an operator has disabled or audits for a time (stage); 0 when it is enabled again";
    EXCEPTIONS = Counter "admittance_exceptions_total" [exception, phase, chain, stage]
        "Stages that were not called for a request because of an exception, by exception, phase, chain and \
         stage";
    EXCEPTION_EXPIRY = Gauge Seconds "admittance_exception_expiry_timestamp_seconds" [exception]
        "When an exception expires, in seconds since 1970 (exception); 0 when it is removed";
    pub(crate) CANDIDATES = Counter "admittance_candidate_calls_total" [stage, result]
        "Calls of candidates alongside their plugins, by stage and result: same, different, failed (no \
         verdict where the plugin gave one), passed-over (too many were waiting)";
    ROLLOUT_SHARE = Gauge "admittance_rollout_share" [stage]
        "The share of a stage's requests that its candidate decides (stage), 0 to 1; 0 after an abort, and \
         when the rollout is removed";
    ROLLOUT_ABORTED = Gauge "admittance_rollout_aborted" [stage]
        "1 for a rollout that was aborted (stage), so that the plugin decides all requests; 0 otherwise";
    ROLLOUT_REQUESTS = Counter "admittance_rollout_requests_total" [stage, result]
        "Requests that a candidate decided, by stage and result: decided, failed (it gave no verdict), \
         refused (it denied one that the plugin does not deny; counted in decided too)";
    REQUEST_DURATION = Histogram Seconds "admittance_request_duration_seconds" []
        "Time a request spent in all of its chains";
    STAGE_DURATION = Histogram Seconds "admittance_stage_duration_seconds" [phase, chain, stage, mode, verdict]
        "Time a stage took for one request, by phase, chain, stage, mode and verdict: allow, patch, deny, \
         failed";
    STAGE_FAILURES = Counter "admittance_stage_failures_total" [phase, chain, stage, failure, policy]
        "Calls of a stage without a verdict, by phase, chain, stage, failure and the policy that was applied";
    REPLICAS = Gauge "admittance_replicas" []
        "Replicas that go live together, as this one sees them";
    REPLICAS_WAITING = Gauge "admittance_replicas_waiting" []
        "Replicas that have not prepared what another one has, so that no replica goes live with it";
    REPLICA_READY = Gauge "admittance_replica_ready" []
        "1 if this replica serves the table that the replicas have agreed on, 0 if it does not and /readyz \
         answers 503";
}

/// The limits of the histogram buckets for durations, in seconds: from 10 µs to 10 s. A plugin takes tens of
/// microseconds, a remote webhook takes milliseconds, and a timeout takes seconds.
pub const DURATION_BUCKETS: [f64; 19] = [
    1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// Describes the metrics to the exporter, which must be installed, and sets counters to 0. Must be called once.
pub fn describe_metrics() {
    METRICS.iter().for_each(Metric::describe);
    for directory in ["history", "store"] {
        counter!(WRITE_FAILURES, "directory" => directory).absolute(0);
    }
    for verdict in DecisionVerdict::ALL {
        counter!(REQUESTS, "decision" => verdict.as_str()).absolute(0);
    }
    for result in ["live", "failed"] {
        counter!(TABLES, "result" => result).absolute(0);
    }
}

pub(crate) fn record_replicas(status: &ReplicasStatus, is_ready: bool) {
    let alive = status.replicas.iter().filter(|replica| replica.alive);
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
    let [alive, waiting] = [alive.count(), status.waiting.len()].map(|number| number as f64);
    gauge!(REPLICAS).set(alive);
    gauge!(REPLICAS_WAITING).set(waiting);
    gauge!(REPLICA_READY).set(if is_ready { 1.0 } else { 0.0 });
}

/// Sets the failure counters of each stage to 0, so that its first failure is visible as an increase.
pub(crate) fn register_stage_metrics(chains: &[Arc<LiveChain>]) {
    for chain in chains {
        for stage in &chain.stages {
            let policy = match stage.spec.mode {
                Mode::Enforce => stage.spec.failure_policy,
                Mode::Audit => FailurePolicy::Ignore,
            };
            if stage.statistics.replace_metrics_policy(policy) {
                for kind in failures_of(stage) {
                    stage_failure_counter(chain.phase, &chain.name, &stage.spec.name, kind, policy).absolute(0);
                }
            }
            if let Some(trial) = stage.trial() {
                trial.begin_metrics();
            }
        }
    }
}

fn failures_of(stage: &LiveStage) -> impl Iterator<Item = FailureKind> {
    let has_labels = matches!(&stage.spec.namespace_selector, Some(NamespaceSelector::Labels(_)));
    let has_conditions = !stage.spec.match_conditions.is_empty();
    let of_hook = stage.prepared_hook.failures;
    FailureKind::ALL.into_iter().filter(move |kind| match kind {
        FailureKind::Trap
        | FailureKind::Memory
        | FailureKind::CapabilityDenied
        | FailureKind::Unreachable
        | FailureKind::Tls
        | FailureKind::BadStatus => of_hook.contains(kind),
        FailureKind::NamespaceUnknown => has_labels || of_hook.contains(kind),
        FailureKind::Condition => has_conditions,
        _ => true,
    })
}

fn stage_failure_counter(
    phase: Phase,
    chain: &Arc<str>,
    stage: &Arc<str>,
    kind: FailureKind,
    policy: FailurePolicy,
) -> Counter {
    counter!(
        STAGE_FAILURES,
        "phase" => phase.as_str(),
        "chain" => chain.clone(),
        "stage" => stage.clone(),
        "failure" => kind.as_str(),
        "policy" => policy.as_str(),
    )
}

pub(crate) fn count_table(is_live: bool) {
    let result = if is_live { "live" } else { "failed" };
    counter!(TABLES, "result" => result).increment(1);
}

pub(crate) fn count_write_failure(directory: &'static str) {
    counter!(WRITE_FAILURES, "directory" => directory).increment(1);
}

pub(crate) fn record_live_table(revision: u64, hash: Digest, is_current: bool) {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
    gauge!(REVISION).set(revision as f64);
    gauge!(HASH).set(hash::metric_value(hash));
    gauge!(CURRENT).set(if is_current { 1.0 } else { 0.0 });
}

pub(crate) fn record_bad_definition(path: &Path, is_bad: bool) {
    let definition = path.display().to_string();
    gauge!(BAD_DEFINITION, "definition" => definition).set(if is_bad { 1.0 } else { 0.0 });
}

pub(crate) fn record_disabled_stage(stage: &str, is_disabled: bool) {
    gauge!(STAGE_DISABLED, "stage" => stage.to_owned()).set(if is_disabled { 1.0 } else { 0.0 });
}

pub(crate) fn record_rollout(stage: &str, share: Option<Share>, is_aborted: bool) {
    let share = share.map_or(0.0, |share| f64::from(share.parts_of_ten_thousand()) / 1e4);
    gauge!(ROLLOUT_SHARE, "stage" => stage.to_owned()).set(share);
    gauge!(ROLLOUT_ABORTED, "stage" => stage.to_owned()).set(if is_aborted { 1.0 } else { 0.0 });
    for result in ["decided", "failed", "refused"] {
        rollout_request_counter(stage, result).absolute(0);
    }
}

pub(crate) fn count_rollout_request(stage: &str, result: &'static str) {
    rollout_request_counter(stage, result).increment(1);
}

fn rollout_request_counter(stage: &str, result: &'static str) -> Counter {
    counter!(ROLLOUT_REQUESTS, "stage" => stage.to_owned(), "result" => result)
}

pub(crate) fn record_exception_end(exception: &str, end: Duration) {
    gauge!(EXCEPTION_EXPIRY, "exception" => exception.to_owned()).set(end.as_secs_f64());
}

pub(crate) fn stage_duration_histogram(row: &TraceRow) -> Histogram {
    histogram!(
        STAGE_DURATION,
        "phase" => row.phase.as_str(),
        "chain" => row.chain.clone(),
        "stage" => row.stage.clone(),
        "mode" => row.mode.as_str(),
        "verdict" => row.result.as_str(),
    )
}

/// The metrics of requests that matched a chain. They are kept, because looking a metric up takes time.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    decisions: [OnceLock<Counter>; DecisionVerdict::ALL.len()],
    durations: OnceLock<Histogram>,
}

impl RequestMetrics {
    pub(crate) fn record(&self, verdict: DecisionVerdict, outcome: &Outcome, duration: Duration) {
        let counters = DecisionVerdict::ALL.iter().zip(&self.decisions);
        if let Some((_, counter)) = counters.into_iter().find(|(counted, _)| **counted == verdict) {
            let counter = counter.get_or_init(|| counter!(REQUESTS, "decision" => verdict.as_str()));
            counter.increment(1);
        }
        let durations = self.durations.get_or_init(|| histogram!(REQUEST_DURATION));
        durations.record(duration);
        record_rows(outcome);
    }
}

fn record_rows(outcome: &Outcome) {
    for row in &outcome.trace {
        if let Some(exception) = &row.exception {
            counter!(
                EXCEPTIONS,
                "exception" => exception.clone(),
                "phase" => row.phase.as_str(),
                "chain" => row.chain.clone(),
                "stage" => row.stage.clone(),
            )
            .increment(1);
        }
        if let StageResult::Failed { failure, policy } = &row.result {
            stage_failure_counter(row.phase, &row.chain, &row.stage, failure.kind, *policy).increment(1);
        }
    }
}
