//! The metrics of this crate, through the `metrics` facade.

use std::time::SystemTime;

use admittance::agreement::ReplicasStatus;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const STATUS_WRITES: &str = "admittance_status_writes_total";
const WEBHOOK_WRITES: &str = "admittance_webhook_configuration_writes_total";
const REPLICAS: &str = "admittance_replicas";
const REPLICAS_WAITING: &str = "admittance_replicas_waiting";
const REPLICA_READY: &str = "admittance_replica_ready";
const WEBHOOK_LAST_WRITE: &str = "admittance_webhook_configuration_last_write_timestamp_seconds";

/// Describes the metrics of the fleet to the exporter. Call it once, after the exporter is installed.
pub fn describe_metrics() {
    describe_counter!(
        STATUS_WRITES,
        "Statuses of resources that were written by this replica as the leader, by result: ok, failed"
    );
    describe_counter!(
        WEBHOOK_WRITES,
        "Webhook configurations, and Secrets with their certificate, that were written by this replica as the leader, by \
         kind: MutatingWebhookConfiguration, ValidatingWebhookConfiguration, Secret; and result: ok, failed"
    );
    describe_gauge!(REPLICAS, "Replicas that go live together, as this one sees them");
    describe_gauge!(
        REPLICAS_WAITING,
        "Replicas that have not prepared what another one has, so that no replica goes live with it"
    );
    describe_gauge!(
        REPLICA_READY,
        "1 if this replica serves what all replicas shall serve, 0 if it is late and /readyz says 503"
    );
    describe_gauge!(
        WEBHOOK_LAST_WRITE,
        Unit::Seconds,
        "When this replica last wrote its webhook configuration or Secret, in seconds since 1970, by kind"
    );
}

/// Sets what this replica sees of all.
pub(crate) fn replicas(status: &ReplicasStatus, is_ready: bool) {
    let alive = status.replicas.iter().filter(|replica| replica.alive);
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
    let [alive, waiting] = [alive.count(), status.waiting.len()].map(|number| number as f64);
    gauge!(REPLICAS).set(alive);
    gauge!(REPLICAS_WAITING).set(waiting);
    gauge!(REPLICA_READY).set(if is_ready { 1.0 } else { 0.0 });
}

pub(crate) fn status_written(is_ok: bool) {
    counter!(STATUS_WRITES, "result" => result(is_ok)).increment(1);
}

pub(crate) fn configuration_written(kind: &'static str, is_ok: bool) {
    counter!(WEBHOOK_WRITES, "kind" => kind, "result" => result(is_ok)).increment(1);
    if is_ok {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        gauge!(WEBHOOK_LAST_WRITE, "kind" => kind).set(now.unwrap_or_default().as_secs_f64());
    }
}

fn result(is_ok: bool) -> &'static str {
    if is_ok { "ok" } else { "failed" }
}
