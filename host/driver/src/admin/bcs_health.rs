//! `/healthz` as operators of bcs-mesos-driver know it.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use admittance_net::upstream::{FollowedServers, Upstream};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header::CONTENT_TYPE};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Serializer, ser::PrettyFormatter};
use tokio::sync::watch;

/// What `/healthz` of a driver of BCS is made of. Cheap to clone; lives as long as the driver.
#[derive(Clone, Debug)]
pub(crate) struct BcsHealth {
    pub(crate) cluster: String,
    pub(crate) ip: IpAddr,
    pub(crate) upstream: Upstream,
    /// The schedulers as they are discovered; none when they are listed.
    pub(crate) discovered: Option<watch::Receiver<Arc<FollowedServers>>>,
}

/// How a driver of BCS is. The status is 200 however it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct HealthInfo {
    /// Always `master-master`: all drivers of a cluster do the same.
    #[serde(rename = "runMode")]
    run_mode: &'static str,
    /// Always `mesosdriver`.
    module: &'static str,
    /// Whose driver it is.
    #[serde(rename = "clusterID")]
    cluster_id: String,
    /// Where it listens.
    ip: String,
    /// Always `master`.
    current_role: &'static str,
    /// Whether requests can be answered.
    healthy: bool,
    /// `in starting`, `cannot connect to any scheduler` or `run ok`.
    message: &'static str,
    /// When this was so, in seconds since 1970.
    #[serde(rename = "atTime")]
    at_time: u64,
}

impl BcsHealth {
    pub(super) fn now(&self) -> HealthInfo {
        let message = self.message();
        HealthInfo {
            run_mode: "master-master",
            module: "mesosdriver",
            cluster_id: self.cluster.clone(),
            ip: self.ip.to_string(),
            current_role: "master",
            healthy: message == RUN_OK,
            message,
            at_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    fn message(&self) -> &'static str {
        let servers = self.upstream.health();
        let is_up = match &self.discovered {
            Some(discovered) if !discovered.borrow().is_known => return "in starting",
            // Only the master does anything.
            Some(_) => servers.first().is_some_and(|server| server.is_up),
            None => servers.iter().any(|server| server.is_up),
        };
        if is_up {
            RUN_OK
        } else {
            "cannot connect to any scheduler"
        }
    }
}

const RUN_OK: &str = "run ok";

/// As bcs-mesos-driver writes it.
impl IntoResponse for HealthInfo {
    fn into_response(self) -> Response {
        let mut text = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
        // It cannot fail: it is of plain fields, and written to memory.
        let _ = self.serialize(&mut serializer);
        (
            [(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            text,
        )
            .into_response()
    }
}
