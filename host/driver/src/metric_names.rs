//! What the front doors count and time, through the `metrics` facade.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

const BUILD_INFO: &str = "admittance_build_info";
pub(crate) const REQUESTS: &str = "admittance_http_requests_total";
pub(crate) const REQUEST_DURATION: &str = "admittance_http_request_duration_seconds";
pub(crate) const IN_FLIGHT: &str = "admittance_http_requests_in_flight";
pub(crate) const SHED: &str = "admittance_http_requests_shed_total";
pub(crate) const STREAMS: &str = "admittance_http_streams_open";

/// Tell the exporter what the driver's metrics mean, and begin its counters of failures at 0. Call it once, after
/// the exporter is installed.
pub fn describe_metrics() {
    admittance_net::describe_metrics();
    admittance_bcs::describe_metrics();
    describe_counter!(
        REQUESTS,
        "Requests that were answered, by class of the status (2xx) and by what was done with them (passage)"
    );
    describe_histogram!(
        REQUEST_DURATION,
        Unit::Seconds,
        "Time from a request's head to the head of its reply, chains and upstream included"
    );
    describe_gauge!(
        IN_FLIGHT,
        "Requests whose reply has not been sent to its end, watches and tunnels left out"
    );
    describe_gauge!(STREAMS, "Watches and tunnels that are open");
    describe_counter!(
        SHED,
        "Requests that were turned away because as many as allowed were in flight, or their client had its share"
    );
    describe_gauge!(BUILD_INFO, "Always 1; the label is the version of the program");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    counter!(SHED).absolute(0);
}
