//! Metrics of connections, through the `metrics` facade.

use http::StatusCode;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

pub(crate) const STALLED: &str = "admittance_http_stalled_total";
pub(crate) const CONNECTIONS: &str = "admittance_http_connections";
pub(crate) const CONNECTIONS_REFUSED: &str = "admittance_http_connections_refused_total";
pub(crate) const BODY_BYTES: &str = "admittance_http_body_bytes";
pub(crate) const BODIES_REFUSED: &str = "admittance_http_bodies_refused_total";
pub(crate) const UPSTREAM_DURATION: &str = "admittance_http_upstream_duration_seconds";
pub(crate) const UPSTREAM_ERRORS: &str = "admittance_http_upstream_errors_total";
pub(crate) const UPSTREAM_CONNECT_FAILURES: &str = "admittance_http_upstream_connect_failures_total";
pub(crate) const CERTIFICATE_EXPIRY: &str = "admittance_certificate_expiry_timestamp_seconds";
pub(crate) const CERTIFICATE_RELOADED: &str = "admittance_certificate_last_reload_successful";
pub(crate) const CERTIFICATE_RELOAD_FAILURES: &str = "admittance_certificate_reload_failures_total";

/// Describes these metrics to the exporter, and initializes the counters of failures. Call it once, after the
/// exporter is installed.
pub fn describe_metrics() {
    describe_counter!(
        STALLED,
        "Requests, watches and tunnels that were aborted because no data was transferred, by the side that stalled \
         (who: client, upstream, tunnel) and by whether it was idle or too slow (how)"
    );
    describe_gauge!(CONNECTIONS, "Open connections of clients");
    describe_counter!(
        CONNECTIONS_REFUSED,
        "Connections that were refused because the limit of open connections, or of connections of one client, was reached"
    );
    describe_gauge!(
        BODY_BYTES,
        Unit::Bytes,
        "Memory of bodies that are held until they are complete, or while they are in use"
    );
    describe_counter!(
        BODIES_REFUSED,
        "Bodies that were refused because the memory for bodies, or one client's share of it, was used up"
    );
    describe_histogram!(
        UPSTREAM_DURATION,
        Unit::Seconds,
        "Time from forwarding a request to the head of the upstream's reply, including the time to connect"
    );
    describe_counter!(
        UPSTREAM_ERRORS,
        "Requests without a reply from the upstream, by reason: nobody, connect, broken, timeout, protocol, \
         invalid"
    );
    describe_counter!(
        UPSTREAM_CONNECT_FAILURES,
        "Failed attempts to connect to a server of the upstream; another server may have answered"
    );
    describe_gauge!(
        CERTIFICATE_EXPIRY,
        Unit::Seconds,
        "When the certificate in use expires, in seconds since 1970"
    );
    describe_gauge!(
        CERTIFICATE_RELOADED,
        "1 if the TLS files are in use as they are on disk, 0 if they changed to invalid content"
    );
    describe_counter!(
        CERTIFICATE_RELOAD_FAILURES,
        "Changes of TLS files that were rejected because the files are invalid"
    );
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

/// Counts a request without a valid reply from an upstream.
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
