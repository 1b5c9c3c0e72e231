//! The metrics of the gateway, recorded through the `metrics` facade.

admittance_net::metric_table! {
    pub(crate) GATEWAY_REQUESTS = Counter "admittance_gateway_requests_total" [cluster, status, passage]
        "Requests that the gateway answered, by cluster (`unknown` for clusters that it does not know), \
         class of the driver's or the gateway's status, and how the request passed (passage)";
    pub(crate) GATEWAY_DURATION = Histogram Seconds "admittance_gateway_request_duration_seconds" [cluster]
        "Time from the head of a request to the head of its reply, by cluster";
    pub(crate) GATEWAY_CLUSTERS = Gauge "admittance_gateway_clusters" []
        "Clusters listed in the configuration or found in ZooKeeper";
    pub(crate) GATEWAY_TUNNELS = Gauge "admittance_gateway_tunnels" [cluster]
        "Open tunnels of agents to this gateway, by the ID of their cluster";
    pub(crate) AGENT_REPORTED = Gauge "admittance_agent_reported" []
        "Whether the gateway accepted the last report of this agent";
    pub(crate) AGENT_TUNNEL = Gauge "admittance_agent_tunnel" []
        "Whether this agent has a tunnel open";
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
