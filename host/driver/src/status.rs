//! Reports the state of the driver and everything that it depends on: `GET /v1/status`.

mod panels;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::{Host, Moment, Status, agreement::ReplicasStatus, replicas::Replicas};
use admittance_admin::{
    HealthPanel, Overview,
    api::{CertificateStatus, ListenerStatus},
};
use admittance_bcs::{
    Registrations,
    status::{DiscoveryStatus, EnsembleStatus, RegisteredNode, ServerHealth},
    zookeeper::Ensembles,
};
use admittance_cluster::{Cluster, ClusterStatus, LeaderStatus};
use admittance_fleet::{
    Leader, Webhooks, WebhooksStatus,
    audit::{AuditStatus, Audits},
};
use admittance_gateway::GatewayStatus;
use admittance_net::tls::{self, ServerTls};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fronts::OpenedFront;

/// The reply to `GET /v1/status`: the state of the driver and of everything that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverStatus {
    /// The live table of chains, which requests pass through.
    #[serde(flatten)]
    pub table: Status,
    /// Whether the driver is stopping; `/readyz` then replies 503.
    pub stopping: bool,
    /// The ports at which the driver listens.
    #[serde(default)]
    pub listeners: Vec<ListenerStatus>,
    /// The servers of the control plane; empty behind kube-apiserver and for a gateway.
    pub upstream: Vec<ServerHealth>,
    /// The state of the discovery of the control plane's servers; absent if the configuration lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
    /// The driver's sessions with ZooKeeper ensembles.
    pub zookeeper: Vec<EnsembleStatus>,
    /// The ZooKeeper nodes through which other programs find this driver.
    pub registrations: Vec<RegisteredNode>,
    /// The clusters behind a gateway; absent unless the driver is a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayStatus>,
    /// The connection to a Kubernetes API server; absent if none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The webhook configurations that the leader of the replicas keeps up to date; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_configurations: Option<WebhooksStatus>,
    /// The audits of the cluster's objects; absent unless they are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStatus>,
    /// The leader of the replicas in the cluster; absent unless a leader has work to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderStatus>,
    /// The state of all replicas: which table of chains each one serves, and which one it has prepared. Absent unless
    /// the replicas go live together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasStatus>,
    /// The certificates that the driver itself presents.
    pub certificates: Vec<CertificateStatus>,
}

#[derive(Debug)]
pub(crate) struct StatusSources {
    pub(crate) host: Host,
    pub(crate) front: Arc<dyn OpenedFront>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    /// The TLS settings of the port for clients, and after them those of the admin port. `None` for plain HTTP.
    pub(crate) tls: [Option<ServerTls>; 2],
    pub(crate) ensembles: Ensembles,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) webhooks: Option<Webhooks>,
    pub(crate) audits: Option<Audits>,
    pub(crate) leader: Option<Arc<Leader>>,
    pub(crate) replicas: Option<Arc<Replicas>>,
    pub(crate) registrations: Registrations,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

impl StatusSources {
    pub(crate) fn not_ready_reason(&self) -> Option<&'static str> {
        let replicas = self.replicas.as_deref();
        if replicas.is_some_and(|replicas| !replicas.is_ready(&self.host)) {
            return Some("the replicas serve another table");
        }
        self.front.not_ready_reason()
    }

    pub(crate) fn status(&self) -> DriverStatus {
        let own_certificates = self.tls.iter().flatten().filter_map(ServerTls::status);
        let listeners = [("listen", Some(self.address)), ("admin", self.admin)]
            .into_iter()
            .zip(&self.tls)
            .filter_map(|((name, address), tls)| {
                Some(ListenerStatus {
                    listener: name.to_owned(),
                    address: address?,
                    is_tls: tls.is_some(),
                })
            });
        let mut status = DriverStatus {
            table: self.host.status(),
            stopping: self.is_stopping.load(Ordering::Relaxed),
            listeners: listeners.collect(),
            upstream: Vec::new(),
            discovery: None,
            zookeeper: self.ensembles.status(),
            registrations: self.registrations.status(),
            gateway: None,
            cluster: self.cluster.as_ref().map(Cluster::status),
            webhook_configurations: self.webhooks.as_ref().map(Webhooks::status),
            audit: self.audits.as_ref().map(Audits::status),
            leader: self.leader.as_deref().map(Leader::status),
            replicas: self.replicas.as_deref().map(Replicas::status),
            certificates: own_certificates
                .chain(self.front.tls_status())
                .map(certificate_status)
                .collect(),
        };
        self.front.report(&mut status);
        status
    }
}

impl DriverStatus {
    /// Describes each server, session and certificate that the driver depends on, in groups for the health page.
    pub fn dependency_panels(&self, now: Moment) -> Vec<HealthPanel> {
        panels::dependency_panels(self, now)
    }

    pub(crate) fn overview(self) -> Overview {
        let mut panels = panels::own_panels(&self);
        panels.extend(self.dependency_panels(Moment::now()));
        Overview {
            stopping: self.stopping,
            waiting: self.replicas.map(|replicas| replicas.waiting).unwrap_or_default(),
            panels,
            table: self.table,
            listeners: self.listeners,
        }
    }
}

fn certificate_status(status: tls::CertificateState) -> CertificateStatus {
    CertificateStatus {
        certificate: status.certificate.to_owned(),
        not_after: status.not_after.map(Moment),
        problem: status.problem,
    }
}
