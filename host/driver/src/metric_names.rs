//! Names the driver's metrics, which are recorded through the `metrics` facade.

use admittance_net::{Metric, metric_table};
use metrics::{counter, gauge};

metric_table! {
    pub(crate) REQUESTS = Counter "admittance_http_requests_total" [status, passage]
        "Answered requests, by status class (2xx) and passage";
    pub(crate) REQUEST_DURATION = Histogram Seconds "admittance_http_request_duration_seconds" []
        "Time from a request's head to the head of its reply, including chains and upstream";
    pub(crate) IN_FLIGHT = Gauge "admittance_http_requests_in_flight" []
        "Requests in flight, without watches and tunnels";
    pub(crate) STREAMS = Gauge "admittance_http_streams_open" []
        "Open watches and tunnels";
    pub(crate) SHED = Counter "admittance_http_requests_shed_total" []
        "Requests refused by the limit on requests in flight, in total or per client";
    pub(crate) SPANS = Counter "admittance_spans_total" [result]
        "Spans of sampled requests, by result: exported, failed (the collector did not accept them), dropped \
         (too many were waiting)";
    BUILD_INFO = Gauge "admittance_build_info" [version]
        "Always 1; the label is the program's version";
}

/// Returns the metrics of the driver and of the crates that it uses. It leaves out the metrics of the crate
/// `admittance`.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    let tables = [
        METRICS,
        admittance_net::METRICS,
        admittance_cluster::METRICS,
        admittance_bcs::METRICS,
        admittance_gateway::METRICS,
        admittance_fleet::METRICS,
        admittance_admin::METRICS,
    ];
    tables.into_iter().flatten()
}

/// Describes the driver's metrics, and sets its failure counters to 0. Call it once, after the exporter is installed.
pub fn describe_metrics() {
    admittance::describe_metrics();
    metrics().for_each(Metric::describe);
    admittance_net::begin_at_zero();
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    counter!(SHED).absolute(0);
}
