//! `GET /v1/status`: the live table, and everything around it that the driver depends on.

use admittance::{Moment, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a driver at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverStatus {
    /// The live table.
    #[serde(flatten)]
    pub table: Status,
    /// Whether the driver was told to stop, so that `/readyz` says 503.
    pub stopping: bool,
    /// The servers of the control plane; empty behind kube-apiserver and for a gateway.
    pub upstream: Vec<ServerHealth>,
    /// How these servers are discovered; absent when they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
    /// The sessions with ZooKeeper.
    pub zookeeper: Vec<EnsembleStatus>,
    /// The nodes of ZooKeeper by which others find this driver.
    pub registrations: Vec<RegisteredNode>,
    /// The clusters behind a gateway; absent unless it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayStatus>,
    /// The connection to a Kubernetes API server; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The driver's own certificates.
    pub certificates: Vec<CertificateStatus>,
}

/// How the servers of the control plane are discovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryStatus {
    /// The node of ZooKeeper that they register below.
    pub path: String,
    /// Whether the list was read since the start.
    pub known: bool,
    /// Their registrations, the master's first.
    pub registrations: Vec<String>,
    /// Why the list may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A session with an ensemble of ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// `cluster` or `service`.
    pub ensemble: String,
    /// Its servers.
    pub servers: String,
    /// `connecting`, `connected` or `lost`.
    pub state: String,
    /// When it entered that state.
    pub since: Moment,
    /// Why it is not connected, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A registration of this driver in ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredNode {
    /// `cluster` or `service`.
    pub ensemble: String,
    /// The parent of the node.
    pub below: String,
    /// The node; absent while the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

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
    /// What knows the tokens; absent when clients need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensStatus>,
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
    /// `file`, or the URL of the endpoint.
    pub source: String,
    /// How many there are; absent for an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Why what the file holds now is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The connection to a Kubernetes API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Its URL.
    pub server: String,
    /// The watch on namespaces.
    pub namespaces: ClusterWatch,
    /// The watches on kinds that plugins read.
    pub kinds: Vec<ClusterWatch>,
}

/// A watch on objects of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterWatch {
    /// What is watched: `v1/Node`.
    pub kind: String,
    /// `idle`, `starting`, `watching`, `down` or `refused`.
    pub state: String,
    /// When it entered that state.
    pub since: Moment,
    /// How many objects are cached.
    pub objects: usize,
    /// When the API server last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Moment>,
    /// The last error; absent once the watch works again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether a server is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerHealth {
    /// Its URL.
    pub server: String,
    /// Whether its last health check and connection succeeded, so that requests go to it first.
    #[serde(rename = "up")]
    pub is_up: bool,
}

impl From<admittance_net::upstream::ServerHealth> for ServerHealth {
    fn from(health: admittance_net::upstream::ServerHealth) -> Self {
        Self {
            server: health.server.to_string(),
            is_up: health.is_up,
        }
    }
}

/// A certificate that this driver presents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Where it is presented: `listen`, `admin` or `upstream`.
    pub certificate: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// Why what the files hold now is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
