//! What is counted and timed of connections, through the `metrics` facade.

use metrics::{Unit, describe_counter, describe_gauge};

pub(crate) const CERTIFICATE_EXPIRY: &str = "admittance_certificate_expiry_timestamp_seconds";
pub(crate) const CERTIFICATE_RELOADED: &str = "admittance_certificate_last_reload_successful";
pub(crate) const CERTIFICATE_RELOAD_FAILURES: &str = "admittance_certificate_reload_failures_total";

/// Tell the exporter what these metrics mean, and begin the counters of failures at 0. Call it once, after the
/// exporter is installed.
pub fn describe_metrics() {
    describe_gauge!(
        CERTIFICATE_EXPIRY,
        Unit::Seconds,
        "When the certificate in use ends, in seconds since 1970"
    );
    describe_gauge!(
        CERTIFICATE_RELOADED,
        "Whether what the TLS files hold is in use: 0 when they changed to something that is no good"
    );
    describe_counter!(
        CERTIFICATE_RELOAD_FAILURES,
        "Changes of TLS files that were not taken, because they are no good"
    );
}
