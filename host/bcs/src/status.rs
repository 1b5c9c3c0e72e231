//! The states of the parts of BCS, as the admin API shows them.

use admittance::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The discovery of the servers of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryStatus {
    /// The node of ZooKeeper below which the servers register.
    pub path: String,
    /// Whether the list was read since the start.
    pub known: bool,
    /// The registrations of the servers, the master's first.
    pub registrations: Vec<String>,
    /// The reason why the list may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A session with an ensemble of ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// `cluster` or `service`.
    pub ensemble: String,
    /// The servers of the ensemble.
    pub servers: String,
    /// `connecting`, `connected` or `lost`.
    pub state: String,
    /// The time at which the session entered that state.
    pub since: Moment,
    /// The reason why there is no connection. The field is absent if the reason is unknown.
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
    /// The node of the driver. It is absent while the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The reason why the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether a server is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerHealth {
    /// The URL of the server.
    pub server: String,
    /// Whether its last health check and connection succeeded, so that requests go to it first.
    #[serde(rename = "up")]
    pub is_up: bool,
    /// The time at which it went down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The reason why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl From<admittance_net::upstream::ServerHealth> for ServerHealth {
    fn from(health: admittance_net::upstream::ServerHealth) -> Self {
        Self {
            server: health.server.to_string(),
            is_up: health.downtime.is_none(),
            since: health.downtime.as_ref().map(|downtime| Moment(downtime.since)),
            problem: health.downtime.map(|downtime| downtime.reason),
        }
    }
}
