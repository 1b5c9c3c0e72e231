//! What is counted for BCS, through the `metrics` facade.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const DISCOVERED: &str = "admittance_discovered_servers";
pub(crate) const MASTER_CHANGES: &str = "admittance_master_changes_total";
pub(crate) const DEFINITIONS: &str = "admittance_definition_requests_total";
pub(crate) const REGISTERED: &str = "admittance_registered";
pub(crate) const ZOOKEEPER_CONNECTED: &str = "admittance_zookeeper_connected";
pub(crate) const ZOOKEEPER_SESSIONS: &str = "admittance_zookeeper_sessions_total";
pub(crate) const GATEWAY_REQUESTS: &str = "admittance_gateway_requests_total";
pub(crate) const GATEWAY_DURATION: &str = "admittance_gateway_request_duration_seconds";
pub(crate) const GATEWAY_CLUSTERS: &str = "admittance_gateway_clusters";
pub(crate) const TOKENS_RELOADED: &str = "admittance_gateway_tokens_last_reload_successful";
pub(crate) const TOKEN_CHECKS: &str = "admittance_gateway_token_checks_total";

/// Tell the exporter what these metrics mean. Call it once, after the exporter is installed.
pub fn describe_metrics() {
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
    describe_counter!(
        GATEWAY_REQUESTS,
        "Requests that the gateway answered, by cluster (`unknown` for those that it does not know), class of the \
         driver's or the gateway's status, and what was done with them (passage)"
    );
    describe_histogram!(
        GATEWAY_DURATION,
        Unit::Seconds,
        "Time from a request's head to the head of its reply, by cluster"
    );
    describe_gauge!(
        GATEWAY_CLUSTERS,
        "Clusters that are listed, or found in ZooKeeper"
    );
    describe_gauge!(
        TOKENS_RELOADED,
        "Whether what the file of tokens holds is in use: 0 when it changed to something that is no good"
    );
    describe_counter!(
        TOKEN_CHECKS,
        "Tokens that were looked at, by result: allowed, refused, or unanswered when the endpoint could not say; \
         and by source: file, endpoint, or cache for an endpoint's earlier answer"
    );
}
