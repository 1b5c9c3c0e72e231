//! The states of the parts of the gateway, as the admin API shows them.

use admittance::Moment;
use admittance_bcs::status::{DiscoveryStatus, ServerHealth};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clusters behind a gateway, and the tokens of its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The clusters that are known.
    pub clusters: Vec<GatewayCluster>,
    /// The node of ZooKeeper below which clusters are discovered; absent when all are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<String>,
    /// Why the clusters may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The source of the tokens; absent if no token is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensStatus>,
    /// The database of users and clusters; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<AccountsStatus>,
    /// The clusters of that database.
    #[serde(default)]
    pub kubernetes: Vec<KubernetesCluster>,
    /// The other gateways; absent if it uses no tunnels to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<PeersStatus>,
}

/// How a gateway reaches a cluster of its database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesCluster {
    /// Its ID.
    pub cluster: String,
    /// The tunnels that its agents have open to this gateway.
    pub tunnels: usize,
    /// Those to other gateways, which this one uses if it has none.
    pub gateways: usize,
    /// When its agent last reported other credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Moment>,
    /// Its API servers, as far as they were used.
    pub servers: Vec<ServerHealth>,
    /// Why requests for it fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The other gateways, which use the tunnels to this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeersStatus {
    /// How they are found.
    pub discovery: DiscoveryStatus,
    /// Those that are registered, without this one.
    pub gateways: Vec<Peer>,
    /// How many of them have opened a tunnel to this one.
    pub accepted: usize,
    /// Why what the file of the secret holds now is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Another gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its URL.
    pub server: String,
    /// Why it cannot use the tunnels to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The users and clusters of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountsStatus {
    /// Whether they were read since the start.
    pub read: bool,
    /// How many users there are.
    pub users: usize,
    /// How many clusters there are.
    pub clusters: usize,
    /// Why the database cannot be used now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A cluster behind a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayCluster {
    /// Its id.
    pub cluster: String,
    /// Its drivers.
    pub drivers: Vec<ServerHealth>,
    /// Why requests for it fail, or its drivers may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The source of a gateway's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokensStatus {
    /// `file`, `accounts`, or the URL of the endpoint.
    pub source: String,
    /// How many there are; absent unless they are in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Why what the file holds now is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
