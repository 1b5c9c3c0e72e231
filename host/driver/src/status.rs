//! `GET /v1/status`: the state of everything that the driver depends on.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::{Host, Moment, replicas::Replicas};
use admittance_admin::api::{CertificateStatus, DriverStatus, ListenerStatus};
use admittance_bcs::{Registrations, zookeeper::Ensembles};
use admittance_cluster::Cluster;
use admittance_fleet::Leader;
use admittance_fleet::{Webhooks, audit::Audits};
use admittance_net::tls::{self, ServerTls};

use crate::fronts::Front;

/// The sources of `GET /v1/status`. Lives as long as the admin port.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) host: Host,
    pub(crate) front: Arc<dyn Front>,
    pub(crate) address: SocketAddr,
    /// The address of the admin port, if there is one.
    pub(crate) admin: Option<SocketAddr>,
    /// Of the listen port and of the admin port.
    pub(crate) tls: [Option<ServerTls>; 2],
    pub(crate) ensembles: Ensembles,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) webhooks: Option<Webhooks>,
    pub(crate) audits: Option<Audits>,
    pub(crate) leader: Option<Arc<Leader>>,
    /// The replicas that go live together, if they do.
    pub(crate) replicas: Option<Arc<Replicas>>,
    pub(crate) registrations: Registrations,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

impl Observed {
    /// Returns the reason if requests should go to other replicas.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        let replicas = self.replicas.as_deref();
        if replicas.is_some_and(|replicas| !replicas.is_ready(&self.host)) {
            return Some("the replicas serve another table");
        }
        self.front.not_ready()
    }

    pub(crate) fn status(&self) -> DriverStatus {
        let own = self.tls.iter().flatten().filter_map(ServerTls::status);
        let ports = [("listen", Some(self.address)), ("admin", self.admin)];
        let listeners = ports
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
            certificates: own.chain(self.front.tls_status()).map(certificate).collect(),
        };
        self.front.report(&mut status);
        status
    }
}

fn certificate(status: tls::CertificateStatus) -> CertificateStatus {
    CertificateStatus {
        certificate: status.certificate.to_owned(),
        not_after: status.not_after.map(Moment),
        problem: status.problem,
    }
}
