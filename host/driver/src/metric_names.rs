//! What the driver counts and times, through the `metrics` facade.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

const BUILD_INFO: &str = "admittance_build_info";
pub(crate) const REQUESTS: &str = "admittance_http_requests_total";
pub(crate) const REQUEST_DURATION: &str = "admittance_http_request_duration_seconds";
pub(crate) const IN_FLIGHT: &str = "admittance_http_requests_in_flight";
pub(crate) const SHED: &str = "admittance_http_requests_shed_total";
pub(crate) const STREAMS: &str = "admittance_http_streams_open";
pub(crate) const DISCOVERED: &str = "admittance_discovered_servers";
pub(crate) const MASTER_CHANGES: &str = "admittance_master_changes_total";
pub(crate) const DEFINITIONS: &str = "admittance_definition_requests_total";
pub(crate) const REGISTERED: &str = "admittance_registered";
pub(crate) const ZOOKEEPER_CONNECTED: &str = "admittance_zookeeper_connected";
pub(crate) const ZOOKEEPER_SESSIONS: &str = "admittance_zookeeper_sessions_total";

/// Tell the exporter what the driver's metrics mean, and begin its counters of failures at 0. Call it once, after
/// the exporter is installed.
pub fn describe_metrics() {
    admittance_net::describe_metrics();
    crate::gateway::metric_names::describe();
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
    describe_gauge!(
        DISCOVERED,
        "Servers that are registered in ZooKeeper as far as is known, by the node that they are below (path)"
    );
    describe_counter!(
        MASTER_CHANGES,
        "Changes of the scheduler that requests go to, the first included, by the node that schedulers are below (path)"
    );
    describe_counter!(
        DEFINITIONS,
        "Requests about definitions of hooks that were answered here, by what was asked (action) and the code of the \
         answer (code), 0 for done"
    );
    describe_gauge!(
        REGISTERED,
        "Whether this driver is registered, by the ensemble and by the node that it is below (path)"
    );
    describe_gauge!(
        ZOOKEEPER_CONNECTED,
        "Whether there is a session with ZooKeeper and a connection, by the ensemble: cluster, service"
    );
    describe_counter!(
        ZOOKEEPER_SESSIONS,
        "Sessions with ZooKeeper that were made, the first included, by the ensemble"
    );
    describe_gauge!(BUILD_INFO, "Always 1; the label is the version of the program");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    counter!(SHED).absolute(0);
}
