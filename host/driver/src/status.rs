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
use admittance_net::{
    tls::{self, ServerTls},
    upstream::Upstream,
};

use crate::front::Front;

/// The sources of `GET /v1/status`. Lives as long as the admin port.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) host: Host,
    pub(crate) front: Front,
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
        let accounts = self.front.accounts();
        accounts
            .is_some_and(|accounts| accounts.now().is_err())
            .then_some(
                "the database of users and clusters has not been read yet; the log and /v1/status say why",
            )
    }

    pub(crate) fn status(&self) -> DriverStatus {
        let servers = self.front.upstream().map(Upstream::health);
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
        DriverStatus {
            table: self.host.status(),
            stopping: self.is_stopping.load(Ordering::Relaxed),
            listeners: listeners.collect(),
            upstream: servers.into_iter().flatten().map(Into::into).collect(),
            discovery: match &self.front {
                Front::Bcs(driver) => driver.discovery(),
                _ => None,
            },
            zookeeper: self.ensembles.status(),
            registrations: self.registrations.status(),
            gateway: match &self.front {
                Front::Gateway(gateway) => Some(gateway.status()),
                _ => None,
            },
            cluster: self.cluster.as_ref().map(Cluster::status),
            webhook_configurations: self.webhooks.as_ref().map(Webhooks::status),
            audit: self.audits.as_ref().map(Audits::status),
            leader: self.leader.as_deref().map(Leader::status),
            replicas: self.replicas.as_deref().map(Replicas::status),
            certificates: own.chain(self.front.tls_status()).map(certificate).collect(),
        }
    }
}

fn certificate(status: tls::CertificateStatus) -> CertificateStatus {
    CertificateStatus {
        certificate: status.certificate.to_owned(),
        not_after: status.not_after.map(Moment),
        problem: status.problem,
    }
}
