//! `GET /v1/status`: collects the state of everything that the driver depends on.

use std::{
    sync::atomic::Ordering,
    time::{Instant, SystemTime},
};

use admittance::Moment;
use admittance_cluster::{Cluster, WatchStatus};
use admittance_net::{tls::ServerTls, upstream::Upstream};
use admittance_zookeeper::{RegistrationState, SessionState, ZooKeeper};

use super::Api;
use crate::{
    api::{
        CertificateStatus, ClusterStatus, ClusterWatch, DiscoveryStatus, DriverStatus, EnsembleStatus,
        RegisteredNode, ServerHealth,
    },
    discovery::Discovery,
    gateway::Gateway,
    registration::RegistrationStatus,
};

impl Api {
    /// The state of the driver now.
    pub(super) fn status(&self) -> DriverStatus {
        let own = [&self.tls, &self.own_tls].into_iter().flatten();
        DriverStatus {
            table: self.host.status(),
            stopping: self.is_stopping.load(Ordering::Relaxed),
            upstream: self
                .upstream
                .iter()
                .flat_map(Upstream::health)
                .map(ServerHealth::from)
                .collect(),
            discovery: self.discovery.as_ref().map(discovery),
            zookeeper: self.ensembles.each().map(ensemble).collect(),
            registrations: self.registrations.iter().map(registration).collect(),
            gateway: self.gateway.as_ref().map(Gateway::status),
            cluster: self.cluster.as_ref().map(cluster),
            certificates: own
                .filter_map(ServerTls::status)
                .chain(self.upstream.iter().filter_map(Upstream::tls_status))
                .chain(self.gateway.iter().filter_map(Gateway::tls_status))
                .map(certificate)
                .collect(),
        }
    }
}

fn discovery(discovery: &Discovery) -> DiscoveryStatus {
    let servers = discovery.servers().borrow().clone();
    DiscoveryStatus {
        path: discovery.path().to_string(),
        known: servers.is_known,
        registrations: servers.servers.iter().map(|server| server.name.clone()).collect(),
        problem: servers.lost.clone(),
    }
}

fn ensemble((ensemble, zookeeper): (&'static str, &ZooKeeper)) -> EnsembleStatus {
    let state = zookeeper.state();
    EnsembleStatus {
        ensemble: ensemble.to_owned(),
        servers: zookeeper.servers().to_string(),
        state: match &state {
            SessionState::Connecting { .. } => "connecting",
            SessionState::Connected { .. } => "connected",
            SessionState::Lost { .. } => "lost",
        }
        .to_owned(),
        since: moment(state.since()),
        problem: state.reason().map(str::to_owned),
    }
}

/// When that was on the clock.
fn moment(instant: Instant) -> Moment {
    let then = SystemTime::now().checked_sub(instant.elapsed());
    Moment(then.unwrap_or(SystemTime::UNIX_EPOCH))
}

fn registration(status: &RegistrationStatus) -> RegisteredNode {
    let (node, problem) = match status.state() {
        RegistrationState::Registered { path } => (Some(path), None),
        RegistrationState::Missing { reason } => (None, Some(reason)),
    };
    RegisteredNode {
        ensemble: status.ensemble.to_owned(),
        below: status.parent.clone(),
        node,
        problem,
    }
}

fn cluster(cluster: &Cluster) -> ClusterStatus {
    let status = cluster.status();
    let kinds = status.kinds.iter();
    ClusterStatus {
        server: status.server,
        namespaces: watch("v1/Namespace", &status.namespaces),
        kinds: kinds
            .map(|(kind, status)| watch(&kind.to_string(), status))
            .collect(),
    }
}

fn certificate(status: admittance_net::tls::CertificateStatus) -> CertificateStatus {
    CertificateStatus {
        certificate: status.certificate.to_owned(),
        not_after: status.not_after.map(Moment),
        problem: status.problem,
    }
}

fn watch(kind: &str, status: &WatchStatus) -> ClusterWatch {
    ClusterWatch {
        kind: kind.to_owned(),
        state: status.state.as_str().to_owned(),
        since: Moment(status.since),
        objects: status.objects,
        heard: status.heard.map(Moment),
        problem: status.last_error.clone(),
    }
}
