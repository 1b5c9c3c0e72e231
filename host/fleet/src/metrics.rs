use std::collections::BTreeMap;

use admittance::Moment;
use admittance_net::metric_table;
use metrics::{counter, gauge};

use crate::audit::AuditVerdict;

metric_table! {
    STATUS_WRITES = Counter "admittance_status_writes_total" [result]
        "Statuses of resources that were written by this replica as the leader, by result: ok, failed";
    WEBHOOK_WRITES = Counter "admittance_webhook_configuration_writes_total" [kind, result]
        "Webhook configurations, and Secrets with their certificate, that were written by this replica as \
         the leader, by kind: MutatingWebhookConfiguration, ValidatingWebhookConfiguration, Secret; and \
         result: ok, failed";
    AUDITS = Counter "admittance_audits_total" [result]
        "Audits of all objects by this replica as the leader, by result: ok, incomplete (something could not \
         be listed)";
    AUDIT_LAST_RUN = Gauge Seconds "admittance_audit_last_run_timestamp_seconds" []
        "When this replica last ended an audit of all objects, in seconds since 1970";
    AUDIT_LAST_DURATION = Gauge Seconds "admittance_audit_last_run_duration_seconds" []
        "How long the last audit of all objects took";
    AUDITED_OBJECTS = Gauge "admittance_audit_objects" [verdict]
        "Objects that this replica audits as the leader, by verdict";
    REPORT_WRITES = Counter "admittance_audit_report_writes_total" [result]
        "Reports of audits that were written or removed by this replica as the leader, by result: ok, failed";
    WEBHOOK_LAST_WRITE = Gauge Seconds "admittance_webhook_configuration_last_write_timestamp_seconds" [kind]
        "When this replica last wrote its webhook configuration or Secret, in seconds since 1970, by kind";
}

const WRITE_RESULTS: [&str; 2] = ["ok", "failed"];

/// Initializes the counter of status writes to zero, so that the first failure is visible as an increase.
pub(crate) fn initialize_status_counters() {
    for result in WRITE_RESULTS {
        counter!(STATUS_WRITES, "result" => result).absolute(0);
    }
}

pub(crate) fn initialize_configuration_counters(kinds: impl IntoIterator<Item = &'static str>) {
    for kind in kinds {
        for result in WRITE_RESULTS {
            counter!(WEBHOOK_WRITES, "kind" => kind, "result" => result).absolute(0);
        }
    }
}

pub(crate) fn initialize_audit_counters() {
    for result in ["ok", "incomplete"] {
        counter!(AUDITS, "result" => result).absolute(0);
    }
    for result in WRITE_RESULTS {
        counter!(REPORT_WRITES, "result" => result).absolute(0);
    }
}

pub(crate) fn record_audit_end(is_complete: bool, seconds: f64) {
    let result = if is_complete { "ok" } else { "incomplete" };
    counter!(AUDITS, "result" => result).increment(1);
    gauge!(AUDIT_LAST_RUN).set(now_seconds());
    gauge!(AUDIT_LAST_DURATION).set(seconds);
}

pub(crate) fn set_audited_counts(verdicts: &BTreeMap<AuditVerdict, u64>) {
    for verdict in AuditVerdict::ALL {
        let count = verdicts.get(&verdict).copied().unwrap_or_default();
        // An `f64` counts exactly up to 2^53, and a cluster has fewer objects.
        gauge!(AUDITED_OBJECTS, "verdict" => verdict.as_str()).set(count as f64);
    }
}

pub(crate) fn record_report_write(is_ok: bool) {
    counter!(REPORT_WRITES, "result" => result_label(is_ok)).increment(1);
}

fn now_seconds() -> f64 {
    Moment::now().as_micros() as f64 / 1e6
}

pub(crate) fn record_status_write(is_ok: bool) {
    counter!(STATUS_WRITES, "result" => result_label(is_ok)).increment(1);
}

pub(crate) fn record_configuration_write(kind: &'static str, is_ok: bool) {
    counter!(WEBHOOK_WRITES, "kind" => kind, "result" => result_label(is_ok)).increment(1);
    if is_ok {
        gauge!(WEBHOOK_LAST_WRITE, "kind" => kind).set(now_seconds());
    }
}

fn result_label(is_ok: bool) -> &'static str {
    let [ok, failed] = WRITE_RESULTS;
    if is_ok { ok } else { failed }
}
