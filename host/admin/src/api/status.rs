//! `GET /v1/status`: the live table, and everything around it that the driver depends on.

use admittance::{Moment, Status};
use admittance_bcs::{DiscoveryStatus, EnsembleStatus, GatewayStatus, RegisteredNode, ServerHealth};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a driver at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverStatus {
    /// The live table.
    #[serde(flatten)]
    pub table: Status,
    /// Whether the driver is stopping; `/readyz` then replies 503.
    pub stopping: bool,
    /// The servers of the control plane; empty behind kube-apiserver and for a gateway.
    pub upstream: Vec<ServerHealth>,
    /// How these servers are discovered; absent if they are listed.
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

/// A certificate that this driver presents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Where it is presented: `listen`, `admin` or `upstream`.
    pub certificate: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// Why the current content of the files is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
