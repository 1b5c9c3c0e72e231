//! The body of `/healthz`, compatible with bcs-mesos-driver.

use std::net::IpAddr;

use admittance::Moment;
use admittance_dialect::json_reply;
use admittance_net::upstream::{FollowedServers, UpstreamServerHealth};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{ClusterId, reply::to_indented_json};

/// The health of a BCS driver. The HTTP status of a reply with it is always 200.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HealthInfo {
    /// Always `master-master`, because all drivers of a cluster have the same role.
    #[serde(rename = "runMode")]
    run_mode: &'static str,
    /// Always `mesosdriver`.
    module: &'static str,
    /// The ID of the driver's cluster.
    #[serde(rename = "clusterID")]
    cluster_id: String,
    ip: String,
    /// Always `master`.
    current_role: &'static str,
    /// Whether a scheduler can serve the requests of clients.
    healthy: bool,
    /// `in starting`, `cannot connect to any scheduler` or `run ok`.
    message: &'static str,
    /// The time at which the health was determined, in seconds since 1970.
    #[serde(rename = "atTime")]
    at_time: u64,
}

const RUN_OK: &str = "run ok";

impl HealthInfo {
    /// Returns the health of a driver whose upstream consists of these servers. `discovered_servers` is `None` if the
    /// configuration lists the servers.
    pub(crate) fn new(
        cluster: &ClusterId,
        ip: IpAddr,
        servers: &[UpstreamServerHealth],
        discovered_servers: Option<&FollowedServers>,
    ) -> Self {
        let is_up = match discovered_servers {
            // Only the master, which is the first server, serves requests.
            Some(_) => servers.first().is_some_and(|server| server.downtime.is_none()),
            None => servers.iter().any(|server| server.downtime.is_none()),
        };
        let message = match discovered_servers {
            Some(discovered) if !discovered.is_known => "in starting",
            _ if is_up => RUN_OK,
            _ => "cannot connect to any scheduler",
        };
        Self {
            run_mode: "master-master",
            module: "mesosdriver",
            cluster_id: cluster.to_string(),
            ip: ip.to_string(),
            current_role: "master",
            healthy: message == RUN_OK,
            message,
            at_time: Moment::now().as_micros() / 1_000_000,
        }
    }
}

/// Writes the health in the format of bcs-mesos-driver.
impl IntoResponse for HealthInfo {
    fn into_response(self) -> Response {
        json_reply(StatusCode::OK, to_indented_json(&self, b"    ")).map(Body::from)
    }
}
