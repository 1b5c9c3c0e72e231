//! The states of the parts of the gateway, as the admin API shows them.

use admittance::Moment;
use admittance_bcs::status::{DiscoveryStatus, ServerHealth};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clusters behind a gateway, and the tokens of its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The Mesos clusters that the gateway knows.
    pub clusters: Vec<GatewayCluster>,
    /// The node of ZooKeeper below which clusters are discovered. It is absent if all clusters are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<String>,
    /// The reason why the list of clusters may be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The source of the clients' tokens. It is absent if no token is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensStatus>,
    /// The database of users and clusters. It is absent if the gateway has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<AccountsStatus>,
    /// The Kubernetes clusters in the database.
    #[serde(default)]
    pub kubernetes: Vec<KubernetesCluster>,
    /// The other gateways. They are absent if this gateway shares no tunnels with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<PeersStatus>,
    /// The roles of users in the clusters. They are absent if the gateway writes no roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<RolesStatus>,
}

/// The roles of users that gateways write into clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolesStatus {
    /// Whether this gateway writes the roles. Only the gateway that writes them reports problems with clusters.
    pub is_writer: bool,
    /// The number of roles that have been granted to users.
    pub grants: usize,
    /// The reasons why roles in some clusters are, or may be, out of date.
    pub problems: Vec<String>,
}

/// The connection from a gateway to a cluster in its database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesCluster {
    /// The ID of the cluster.
    pub cluster: String,
    /// The number of tunnels that the cluster's agents have open to this gateway.
    pub tunnels: usize,
    /// The number of tunnels that the agents have open to other gateways. This gateway uses one only if no agent has a
    /// tunnel to it.
    pub gateways: usize,
    /// The time at which the cluster's agent last reported changed credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Moment>,
    /// The API servers of the cluster to which requests have been sent.
    pub servers: Vec<ServerHealth>,
    /// The reason why requests for the cluster fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The other gateways, which use the tunnels that agents have opened to this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeersStatus {
    /// The discovery of the other gateways.
    pub discovery: DiscoveryStatus,
    /// The other gateways that are registered.
    pub gateways: Vec<Peer>,
    /// The number of gateways that have opened a tunnel to this one.
    pub accepted: usize,
    /// The reason why the current content of the file with the shared secret is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Another gateway, with which this one shares tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// The URL of the gateway.
    pub server: String,
    /// The reason why the other gateway cannot use the tunnels that agents have opened to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The users and clusters of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountsStatus {
    /// Whether the gateway has read its users and clusters since it started.
    pub read: bool,
    /// The number of users.
    pub users: usize,
    /// The number of clusters.
    pub clusters: usize,
    /// The reason why the gateway cannot use its database now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A cluster behind a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayCluster {
    /// The ID of the cluster.
    pub cluster: String,
    /// The drivers of the cluster.
    pub drivers: Vec<ServerHealth>,
    /// The reason why requests for the cluster fail, or why the list of its drivers may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The source of a gateway's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokensStatus {
    /// `file`, `accounts`, or the URL of the endpoint.
    pub source: String,
    /// The number of tokens. It is known only if they come from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The reason why the current content of the file is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
