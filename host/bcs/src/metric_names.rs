//! The metrics of BCS, recorded through the `metrics` facade.

admittance_net::metric_table! {
    pub(crate) DISCOVERED = Gauge "admittance_discovered_servers" [path]
        "Servers registered in ZooKeeper, by parent node (path)";
    pub(crate) MASTER_CHANGES = Counter "admittance_master_changes_total" [path]
        "Changes of the master scheduler, including the first one, by the parent node of the schedulers \
         (path)";
    pub(crate) DEFINITIONS = Counter "admittance_definition_requests_total" [action, code]
        "Requests to the API for definitions, by action and by the code of the reply (code), 0 on success";
    pub(crate) REGISTERED = Gauge "admittance_registered" [ensemble, path]
        "Whether this driver is registered, by ensemble and parent node (path)";
    pub(crate) ZOOKEEPER_CONNECTED = Gauge "admittance_zookeeper_connected" [ensemble]
        "Whether there is a connected session with ZooKeeper, by ensemble: cluster, service";
    pub(crate) ZOOKEEPER_SESSIONS = Counter "admittance_zookeeper_sessions_total" [ensemble]
        "Sessions with ZooKeeper that were opened, including the first one, by ensemble";
    pub(crate) GATEWAY_REQUESTS = Counter "admittance_gateway_requests_total" [cluster, status, passage]
        "Requests that the gateway answered, by cluster (`unknown` for clusters that it does not know), \
         class of the driver's or the gateway's status, and how the request passed (passage)";
    pub(crate) GATEWAY_DURATION = Histogram Seconds "admittance_gateway_request_duration_seconds" [cluster]
        "Time from the head of a request to the head of its reply, by cluster";
    pub(crate) GATEWAY_CLUSTERS = Gauge "admittance_gateway_clusters" []
        "Clusters listed in the configuration or found in ZooKeeper";
    pub(crate) GATEWAY_TUNNELS = Gauge "admittance_gateway_tunnels" [cluster]
        "Open tunnels of agents to this gateway, by the ID of their cluster";
    pub(crate) GATEWAY_PEERS = Gauge "admittance_gateway_peers_connected" []
        "Gateways that this one has told of its tunnels, and keeps informed";
    pub(crate) TOKENS_RELOADED = Gauge "admittance_gateway_tokens_last_reload_successful" []
        "Whether the current content of the token file is in use: 0 if the last reload failed";
    pub(crate) ACCOUNTS_READ = Gauge "admittance_gateway_accounts_last_read_successful" []
        "Whether users and clusters are up to date: 0 if the database could not be read the last time";
    pub(crate) TOKEN_CHECKS = Counter "admittance_gateway_token_checks_total" [source, result]
        "Checked tokens, by result: allowed, refused, or unanswered if the endpoint failed; and by source: \
         file, accounts, endpoint, or cache for an endpoint's earlier answer";
}
