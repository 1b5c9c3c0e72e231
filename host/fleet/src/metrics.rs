//! The metrics of this crate, through the `metrics` facade.

use metrics::{counter, describe_counter};

const STATUS_WRITES: &str = "admittance_status_writes_total";

/// Describes the metrics of the fleet to the exporter. Call it once, after the exporter is installed.
pub fn describe_metrics() {
    describe_counter!(
        STATUS_WRITES,
        "Statuses of resources that were written by this replica as the leader, by result: ok, failed"
    );
}

pub(crate) fn status_written(is_ok: bool) {
    let result = if is_ok { "ok" } else { "failed" };
    counter!(STATUS_WRITES, "result" => result).increment(1);
}
