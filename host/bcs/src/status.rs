//! The states of the sessions, registrations and servers of BCS, as the admin API shows them.

use admittance::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of the discovery of the upstream's servers in ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryStatus {
    /// The node in ZooKeeper below which the upstream's servers register.
    pub path: String,
    /// Whether the list of servers has been read since the program started.
    pub known: bool,
    /// The names of the nodes that the servers registered, the master's first.
    pub registrations: Vec<String>,
    /// The reason why the list of servers may be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The state of the session with an ensemble of ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// The name of the ensemble in the configuration: `cluster` or `service`.
    pub ensemble: String,
    /// The addresses of the ensemble's servers.
    pub servers: String,
    /// The state of the session: `connecting`, `connected` or `lost`.
    pub state: String,
    /// The time at which `state` took its present value.
    pub since: Moment,
    /// The reason why the session is not connected; absent if the reason is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A registration of this driver in ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredNode {
    /// The name of the ensemble in the configuration: `cluster` or `service`.
    pub ensemble: String,
    /// The path of the node below which the driver registers.
    pub below: String,
    /// The path of the driver's own node; absent while the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The reason why the driver is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether a server of the upstream can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerHealth {
    /// The URL of the server.
    pub server: String,
    /// Whether the server is up: its last health check has succeeded, and so has the last connection to it. Requests go
    /// to servers that are up first, and to servers that are down only after them.
    #[serde(rename = "up")]
    pub is_up: bool,
    /// The time since which the server is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The reason why the server is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl From<admittance_net::upstream::UpstreamServerHealth> for ServerHealth {
    fn from(health: admittance_net::upstream::UpstreamServerHealth) -> Self {
        Self {
            server: health.server.to_string(),
            is_up: health.downtime.is_none(),
            since: health.downtime.as_ref().map(|downtime| Moment(downtime.since)),
            problem: health.downtime.map(|downtime| downtime.reason),
        }
    }
}
