use std::time::SystemTime;

use admittance_zookeeper::{RegistrationState, SessionState, ZooKeeper};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{discovery::Discovery, registration::RegistrationStatus};

/// A session with an ensemble of ZooKeeper.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadyEnsemble {
    /// `cluster` or `service`.
    ensemble: &'static str,
    /// Its servers.
    servers: String,
    /// `connecting`, `connected` or `lost`.
    state: &'static str,
    /// Since when.
    since: String,
    /// Why it is not connected, where that is known.
    reason: Option<String>,
}

/// A registration of this driver.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadyRegistration {
    /// `cluster` or `service`.
    ensemble: &'static str,
    /// The node that it is below.
    below: String,
    /// Its own node; null while there is none.
    node: Option<String>,
    /// Why there is none.
    reason: Option<String>,
}

/// Servers that are discovered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadyDiscovery {
    /// The node that they register below.
    path: String,
    /// Whether it was ever learned which there are.
    known: bool,
    /// Their registrations, the master's first.
    registrations: Vec<String>,
    /// Why they may be old.
    lost: Option<String>,
}

impl ReadyEnsemble {
    pub(super) fn of((ensemble, zookeeper): (&'static str, &ZooKeeper)) -> Self {
        let state = zookeeper.state();
        let since = SystemTime::now().checked_sub(state.since().elapsed());
        Self {
            ensemble,
            servers: zookeeper.servers().to_string(),
            state: match &state {
                SessionState::Connecting { .. } => "connecting",
                SessionState::Connected { .. } => "connected",
                SessionState::Lost { .. } => "lost",
            },
            since: super::time(since.unwrap_or(SystemTime::UNIX_EPOCH)),
            reason: state.reason().map(str::to_owned),
        }
    }
}

impl ReadyRegistration {
    pub(super) fn of(status: &RegistrationStatus) -> Self {
        let (node, reason) = match status.state() {
            RegistrationState::Registered { path } => (Some(path), None),
            RegistrationState::Missing { reason } => (None, Some(reason)),
        };
        Self {
            ensemble: status.ensemble,
            below: status.parent.clone(),
            node,
            reason,
        }
    }
}

impl ReadyDiscovery {
    pub(super) fn of(discovery: &Discovery) -> Self {
        let servers = discovery.servers().borrow().clone();
        Self {
            path: discovery.path().to_string(),
            known: servers.is_known,
            registrations: servers.servers.iter().map(|server| server.name.clone()).collect(),
            lost: servers.lost.clone(),
        }
    }
}
