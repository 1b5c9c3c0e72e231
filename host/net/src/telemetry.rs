//! The metrics of connections, recorded through the `metrics` facade.

use http::StatusCode;
use metrics::counter;

crate::metric_table! {
    pub(crate) STALLED = Counter "admittance_http_stalled_total" [who, how]
        "Requests, watches and tunnels that were aborted because no data was transferred, by the side that \
         stalled (who: client, upstream, tunnel) and by whether it was idle or too slow (how)";
    pub(crate) CONNECTIONS = Gauge "admittance_http_connections" []
        "Open connections of clients";
    pub(crate) CONNECTIONS_REFUSED = Counter "admittance_http_connections_refused_total" []
        "Connections that were refused because the limit of open connections, or of connections of one \
         client, was reached";
    pub(crate) BODY_BYTES = Gauge Bytes "admittance_http_body_bytes" []
        "Memory of bodies that are held until they are complete, or while they are in use";
    pub(crate) BODIES_REFUSED = Counter "admittance_http_bodies_refused_total" []
        "Bodies that were refused because the memory for bodies, or one client's share of it, was used up";
    pub(crate) UPSTREAM_DURATION = Histogram Seconds "admittance_http_upstream_duration_seconds" []
        "Time from forwarding a request to the head of the upstream's reply, including the time to connect";
    pub(crate) UPSTREAM_ERRORS = Counter "admittance_http_upstream_errors_total" [reason]
        "Requests without a reply from the upstream, by reason: nobody, connect, broken, timeout, protocol, \
         invalid";
    pub(crate) UPSTREAM_CONNECT_FAILURES = Counter "admittance_http_upstream_connect_failures_total" []
        "Failed attempts to connect to a server of the upstream; another server may have answered";
    pub(crate) CERTIFICATE_EXPIRY = Gauge Seconds "admittance_certificate_expiry_timestamp_seconds" [certificate]
        "When the certificate in use expires, in seconds since 1970";
    pub(crate) CERTIFICATE_RELOADED = Gauge "admittance_certificate_last_reload_successful" [certificate]
        "1 if the TLS files are in use as they are on disk, 0 if they changed to invalid content";
    pub(crate) CERTIFICATE_RELOAD_FAILURES = Counter "admittance_certificate_reload_failures_total" [certificate]
        "Changes of TLS files that were rejected because the files are invalid";
}

/// Sets the counters of failures to 0 when the program starts. If a counter first appeared with the value 1, Prometheus
/// would see no increase, and would miss the first failure.
pub fn begin_at_zero() {
    for (who, how) in [
        ("client", "idle"),
        ("client", "slow"),
        ("upstream", "idle"),
        ("tunnel", "idle"),
    ] {
        counter!(STALLED, "who" => who, "how" => how).absolute(0);
    }
    counter!(UPSTREAM_CONNECT_FAILURES).absolute(0);
    counter!(CONNECTIONS_REFUSED).absolute(0);
    counter!(BODIES_REFUSED).absolute(0);
    for reason in ["nobody", "connect", "broken", "timeout", "protocol", "invalid"] {
        counter!(UPSTREAM_ERRORS, "reason" => reason).absolute(0);
    }
}

pub fn count_upstream_error(reason: &'static str) {
    counter!(UPSTREAM_ERRORS, "reason" => reason).increment(1);
}

/// Returns the class of an HTTP status, such as `2xx`, for a label of metrics.
pub fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
