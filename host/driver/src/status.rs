//! `GET /v1/status`: the state of everything that the driver depends on.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::{Host, Moment};
use admittance_admin::api::{CertificateStatus, DriverStatus};
use admittance_bcs::{Registrations, zookeeper::Ensembles};
use admittance_cluster::Cluster;
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
    pub(crate) ip: IpAddr,
    /// Of the listen port and of the admin port.
    pub(crate) tls: [Option<ServerTls>; 2],
    pub(crate) ensembles: Ensembles,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) registrations: Registrations,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

impl Observed {
    pub(crate) fn status(&self) -> DriverStatus {
        let servers = self.front.upstream().map(Upstream::health);
        let own = self.tls.iter().flatten().filter_map(ServerTls::status);
        DriverStatus {
            table: self.host.status(),
            stopping: self.is_stopping.load(Ordering::Relaxed),
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
