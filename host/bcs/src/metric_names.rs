//! The metrics of BCS, recorded through the `metrics` facade.

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
pub(crate) const GATEWAY_TUNNELS: &str = "admittance_gateway_tunnels";
pub(crate) const GATEWAY_PEERS: &str = "admittance_gateway_peers_connected";
pub(crate) const TOKENS_RELOADED: &str = "admittance_gateway_tokens_last_reload_successful";
pub(crate) const ACCOUNTS_READ: &str = "admittance_gateway_accounts_last_read_successful";
pub(crate) const TOKEN_CHECKS: &str = "admittance_gateway_token_checks_total";

/// Registers the help texts of these metrics. Call it once, after the exporter is installed.
pub fn describe_metrics() {
    describe_gauge!(
        DISCOVERED,
        "Servers registered in ZooKeeper, by parent node (path)"
    );
    describe_counter!(
        MASTER_CHANGES,
        "Changes of the master scheduler, including the first one, by the parent node of the schedulers (path)"
    );
    describe_counter!(
        DEFINITIONS,
        "Requests to the API for definitions, by action and by the code of the reply (code), 0 on success"
    );
    describe_gauge!(
        REGISTERED,
        "Whether this driver is registered, by ensemble and parent node (path)"
    );
    describe_gauge!(
        ZOOKEEPER_CONNECTED,
        "Whether there is a connected session with ZooKeeper, by ensemble: cluster, service"
    );
    describe_counter!(
        ZOOKEEPER_SESSIONS,
        "Sessions with ZooKeeper that were opened, including the first one, by ensemble"
    );
    describe_counter!(
        GATEWAY_REQUESTS,
        "Requests that the gateway answered, by cluster (`unknown` for clusters that it does not know), class of the \
         driver's or the gateway's status, and how the request passed (passage)"
    );
    describe_histogram!(
        GATEWAY_DURATION,
        Unit::Seconds,
        "Time from the head of a request to the head of its reply, by cluster"
    );
    describe_gauge!(
        GATEWAY_CLUSTERS,
        "Clusters listed in the configuration or found in ZooKeeper"
    );
    describe_gauge!(
        GATEWAY_TUNNELS,
        "Open tunnels of agents to this gateway, by the ID of their cluster"
    );
    describe_gauge!(
        GATEWAY_PEERS,
        "Gateways that this one has told of its tunnels, and keeps informed"
    );
    describe_gauge!(
        TOKENS_RELOADED,
        "Whether the current content of the token file is in use: 0 if the last reload failed"
    );
    describe_gauge!(
        ACCOUNTS_READ,
        "Whether users and clusters are up to date: 0 if the database could not be read the last time"
    );
    describe_counter!(
        TOKEN_CHECKS,
        "Checked tokens, by result: allowed, refused, or unanswered if the endpoint failed; \
         and by source: file, accounts, endpoint, or cache for an endpoint's earlier answer"
    );
}
