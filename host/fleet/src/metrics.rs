//! The metrics of this crate, through the `metrics` facade.

use std::time::SystemTime;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const STATUS_WRITES: &str = "admittance_status_writes_total";
const WEBHOOK_WRITES: &str = "admittance_webhook_configuration_writes_total";
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
    describe_gauge!(
        WEBHOOK_LAST_WRITE,
        Unit::Seconds,
        "When this replica last wrote its webhook configuration or Secret, in seconds since 1970, by kind"
    );
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
