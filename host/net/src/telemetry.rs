//! What is counted and timed of connections, through the `metrics` facade.

use http::StatusCode;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

pub(crate) const STALLED: &str = "admittance_http_stalled_total";
pub(crate) const CONNECTIONS: &str = "admittance_http_connections";
pub(crate) const CONNECTIONS_REFUSED: &str = "admittance_http_connections_refused_total";
pub(crate) const UPSTREAM_DURATION: &str = "admittance_http_upstream_duration_seconds";
pub(crate) const UPSTREAM_ERRORS: &str = "admittance_http_upstream_errors_total";
pub(crate) const UPSTREAM_CONNECT_FAILURES: &str = "admittance_http_upstream_connect_failures_total";
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
    describe_histogram!(
        UPSTREAM_DURATION,
        Unit::Seconds,
        "Time from handing a request to the upstream to the head of its reply, connecting included"
    );
    describe_counter!(
        UPSTREAM_ERRORS,
        "Requests that the upstream gave no reply to, by reason: nobody, connect, broken, timeout, protocol, \
         invalid"
    );
    describe_counter!(
        UPSTREAM_CONNECT_FAILURES,
        "Attempts to connect to a server of the upstream that failed; the next server may have answered"
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
    counter!(UPSTREAM_CONNECT_FAILURES).absolute(0);
    for reason in ["nobody", "connect", "broken", "timeout", "protocol", "invalid"] {
        counter!(UPSTREAM_ERRORS, "reason" => reason).absolute(0);
    }
}

/// Count a request that an upstream gave no valid reply to.
pub fn count_upstream_error(reason: &'static str) {
    counter!(UPSTREAM_ERRORS, "reason" => reason).increment(1);
}

/// The class of a reply's status, as metrics have it.
pub fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
