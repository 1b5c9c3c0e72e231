//! The driver's metrics, through the `metrics` facade.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

const BUILD_INFO: &str = "admittance_build_info";
pub(crate) const REQUESTS: &str = "admittance_http_requests_total";
pub(crate) const REQUEST_DURATION: &str = "admittance_http_request_duration_seconds";
pub(crate) const IN_FLIGHT: &str = "admittance_http_requests_in_flight";
pub(crate) const SHED: &str = "admittance_http_requests_shed_total";
pub(crate) const SPANS: &str = "admittance_spans_total";
pub(crate) const STREAMS: &str = "admittance_http_streams_open";

/// Describes the driver's metrics to the exporter, and sets its counters of failures to 0. Call it once, after
/// the exporter is installed.
pub fn describe_metrics() {
    admittance_net::describe_metrics();
    admittance_bcs::describe_metrics();
    admittance_fleet::describe_metrics();
    admittance_admin::describe_metrics();
    describe_counter!(REQUESTS, "Answered requests, by status class (2xx) and passage");
    describe_histogram!(
        REQUEST_DURATION,
        Unit::Seconds,
        "Time from a request's head to the head of its reply, including chains and upstream"
    );
    describe_gauge!(IN_FLIGHT, "Requests in flight, without watches and tunnels");
    describe_gauge!(STREAMS, "Open watches and tunnels");
    describe_counter!(
        SHED,
        "Requests refused by the limit on requests in flight, in total or per client"
    );
    describe_counter!(
        SPANS,
        "Spans of sampled requests, by result: exported, failed (the collector did not accept them), dropped (too \
         many were waiting)"
    );
    describe_gauge!(BUILD_INFO, "Always 1; the label is the program's version");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    counter!(SHED).absolute(0);
}
