//! What is counted and timed of connections, through the `metrics` facade.

use metrics::{Unit, describe_counter, describe_gauge};

pub(crate) const STALLED: &str = "admittance_http_stalled_total";
pub(crate) const CONNECTIONS: &str = "admittance_http_connections";
pub(crate) const CONNECTIONS_REFUSED: &str = "admittance_http_connections_refused_total";
pub(crate) const CERTIFICATE_EXPIRY: &str = "admittance_certificate_expiry_timestamp_seconds";
pub(crate) const CERTIFICATE_RELOADED: &str = "admittance_certificate_last_reload_successful";
pub(crate) const CERTIFICATE_RELOAD_FAILURES: &str = "admittance_certificate_reload_failures_total";

/// Tell the exporter what these metrics mean, and begin the counters of failures at 0. Call it once, after the
/// exporter is installed.
pub fn describe_metrics() {
    describe_counter!(
        STALLED,
        "Requests, watches and tunnels that were given up because nothing moved any more, by who was waited for \
         (who: client, upstream, tunnel) and by whether it was idle or too slow (how)"
    );
    describe_gauge!(CONNECTIONS, "Connections of clients that are open");
    describe_counter!(
        CONNECTIONS_REFUSED,
        "Connections that were closed at once because as many as allowed were open, or their client had its share"
    );
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
