//! Registers a driver or gateway in ZooKeeper while it serves requests.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use admittance_net::upstream::{InvalidServer, UpstreamServer};
use futures_util::future::join_all;
use metrics::gauge;
use tokio::{sync::watch, time::timeout};

use crate::{
    ClusterId, metric_names,
    server_info::ServerInfo,
    status::RegisteredNode,
    zookeeper::{
        Ensembles, HeldRegistration, InvalidNodePath, NodePath, NodeRegistration, RegistrationState, ZooKeeper,
    },
};

/// The node in the service ensemble with a child node for each cluster, below which the cluster's drivers register.
const DRIVERS_NODE: &str = "/bcs/services/endpoints/mesosdriver";
/// The node below which gateways register, as bcs-api does.
const GATEWAYS_NODE: &str = "/bcs/services/endpoints/apiserver";

/// The time within which each driver must serve a table on which the drivers agreed.
const SWITCH_TIME: Duration = Duration::from_secs(1);

/// The registration of a driver or a gateway, which exists while the program serves requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// The address at which other servers reach this program. Default: the address on which it listens.
    pub ip: Option<IpAddr>,
    /// The port at which other servers reach this program. Default: the port on which it listens.
    pub port: Option<u16>,
    /// The host name in the registration. Default: the host name of the machine.
    pub hostname: Option<String>,
    /// The external address in the registration, to which gateways connect instead of the internal one.
    pub external: Option<ExternalAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalAddress {
    pub ip: IpAddr,
    /// The port at which the external address is reached. It must not be 0.
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    #[error(
        "it listens on {0}, which other machines cannot reach; write `registration.ip`, the address of this machine"
    )]
    NoAddress(IpAddr),
    #[error("the cluster ID cannot be used as the name of a node: {0}")]
    Cluster(#[from] InvalidNodePath),
    #[error("no ensemble is configured to register in; write `zookeeper: {{ service: ... }}`")]
    NoEnsemble,
    #[error(transparent)]
    Server(#[from] InvalidServer),
}

impl RegistrationConfig {
    /// Returns the URL at which a gateway with this registration is reached.
    pub fn gateway_url(&self, ports: Ports) -> Result<UpstreamServer, RegistrationError> {
        Ok(server_info(self, "", ports)?.server()?)
    }
}

/// The ports on which a driver or gateway listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub address: SocketAddr,
    pub is_tls: bool,
    /// The admin port; 0 if there is none.
    pub admin: u16,
}

/// The registrations that a driver or gateway will make when it begins to serve.
#[derive(Debug)]
pub struct Registrar(Vec<RegistrationEntry>);

#[derive(Debug)]
struct RegistrationEntry {
    ensemble: &'static str,
    zookeeper: ZooKeeper,
    registration: NodeRegistration,
}

impl RegistrationEntry {
    fn new(
        (ensemble, zookeeper): (&'static str, &ZooKeeper),
        parent: &NodePath,
        ip: IpAddr,
        info: &ServerInfo,
    ) -> Self {
        Self {
            ensemble,
            zookeeper: zookeeper.clone(),
            registration: NodeRegistration {
                parent: parent.to_string(),
                name: ip.to_string(),
                data: serde_json::to_vec(info).unwrap_or_default().into(),
            },
        }
    }
}

impl Registrar {
    /// Returns the registrations that a driver will make, at the nodes where bcs-mesos-driver registers. An ensemble
    /// that is not configured is left out.
    pub fn new(
        config: &RegistrationConfig,
        cluster: &ClusterId,
        ports: Ports,
        ensembles: &Ensembles,
    ) -> Result<Self, RegistrationError> {
        let info = server_info(config, cluster.as_str(), ports)?;
        let cluster_parent: NodePath = DRIVERS_NODE.parse()?;
        let service_parent = drivers_node(cluster)?;
        let cluster_info = ServerInfo {
            external_ip: String::new(),
            external_ipv6: String::new(),
            external_port: 0,
            ..info.clone()
        };
        let ip = own_ip(config, ports);
        let service_ensemble = ensembles.service().map(|zookeeper| ("service", zookeeper));
        let cluster_ensemble = ensembles.cluster().map(|zookeeper| ("cluster", zookeeper));
        let entries: Vec<RegistrationEntry> = service_ensemble
            .map(|ensemble| RegistrationEntry::new(ensemble, &service_parent, ip, &info))
            .into_iter()
            .chain(
                cluster_ensemble.map(|ensemble| RegistrationEntry::new(ensemble, &cluster_parent, ip, &cluster_info)),
            )
            .collect();
        if entries.is_empty() {
            return Err(RegistrationError::NoEnsemble);
        }
        Ok(Self(entries))
    }

    /// Returns the registration that a gateway will make in the service ensemble.
    pub fn for_gateway(
        config: &RegistrationConfig,
        ports: Ports,
        ensembles: &Ensembles,
    ) -> Result<Self, RegistrationError> {
        let info = server_info(config, "", ports)?;
        let service = ensembles.service().ok_or(RegistrationError::NoEnsemble)?;
        let ip = own_ip(config, ports);
        let entry = RegistrationEntry::new(("service", service), &gateways_node()?, ip, &info);
        Ok(Self(vec![entry]))
    }

    /// Registers the driver or gateway until the result is withdrawn or dropped. If `is_ready` is false,
    /// [`Registrations::follow`] registers it later.
    pub fn register(self, is_ready: bool) -> Registrations {
        let register = if is_ready {
            ZooKeeper::register
        } else {
            ZooKeeper::register_later
        };
        let active = |entry: RegistrationEntry| ActiveRegistration {
            ensemble: entry.ensemble,
            parent: entry.registration.parent.clone(),
            registration: register(&entry.zookeeper, entry.registration),
        };
        Registrations(self.0.into_iter().map(active).collect())
    }
}

/// Returns the node below which the drivers of this cluster register.
pub fn drivers_node(cluster: &ClusterId) -> Result<NodePath, InvalidNodePath> {
    DRIVERS_NODE.parse::<NodePath>()?.child(cluster.as_str())
}

/// Returns the node below which gateways register.
pub fn gateways_node() -> Result<NodePath, InvalidNodePath> {
    GATEWAYS_NODE.parse()
}

fn own_ip(config: &RegistrationConfig, ports: Ports) -> IpAddr {
    config.ip.unwrap_or(ports.address.ip())
}

/// Returns the host name in the configuration, or else the host name of the machine.
pub(crate) fn hostname(config: Option<&RegistrationConfig>) -> String {
    let configured_name = config.and_then(|config| config.hostname.clone());
    configured_name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

fn server_info(config: &RegistrationConfig, cluster: &str, ports: Ports) -> Result<ServerInfo, RegistrationError> {
    let own_address = own_ip(config, ports);
    if own_address.is_unspecified() {
        return Err(RegistrationError::NoAddress(own_address));
    }
    let (ip, ipv6) = ServerInfo::address_fields(own_address);
    let external = |external: ExternalAddress| (ServerInfo::address_fields(external.ip), external.port);
    let ((external_ip, external_ipv6), external_port) = config.external.map(external).unwrap_or_default();
    Ok(ServerInfo {
        ip,
        ipv6,
        port: config.port.unwrap_or(ports.address.port()),
        grpc_port: 0,
        metric_port: ports.admin,
        hostname: hostname(Some(config)),
        scheme: if ports.is_tls { "https" } else { "http" }.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster.to_owned(),
        pid: std::process::id(),
        external_ip,
        external_ipv6,
        external_port,
    })
}

/// The registrations of a driver or gateway. They end when they are withdrawn, or when all clones of this are dropped.
#[derive(Clone, Debug, Default)]
pub struct Registrations(Arc<[ActiveRegistration]>);

#[derive(Debug)]
struct ActiveRegistration {
    ensemble: &'static str,
    parent: String,
    registration: HeldRegistration,
}

impl ActiveRegistration {
    fn status(&self) -> RegisteredNode {
        let (node, problem) = match self.registration.state() {
            RegistrationState::Registered { path } => (Some(path), None),
            RegistrationState::Missing { reason, .. } => (None, Some(reason)),
        };
        RegisteredNode {
            ensemble: self.ensemble.to_owned(),
            below: self.parent.clone(),
            node,
            problem,
        }
    }

    async fn update_metrics(&self) {
        let gauge = gauge!(metric_names::REGISTERED, "ensemble" => self.ensemble, "path" => self.parent.clone());
        let mut states = self.registration.states();
        loop {
            let is_registered = states.borrow_and_update().is_registered();
            gauge.set(if is_registered { 1.0 } else { 0.0 });
            if states.changed().await.is_err() {
                gauge.set(0.0);
                return;
            }
        }
    }
}

impl Registrations {
    pub fn status(&self) -> Vec<RegisteredNode> {
        self.0.iter().map(ActiveRegistration::status).collect()
    }

    /// Updates the metrics of the registrations until they are withdrawn.
    pub async fn update_metrics(&self) {
        join_all(self.0.iter().map(ActiveRegistration::update_metrics)).await;
    }

    /// Registers the driver while `is_ready` is true. A driver is not ready, for example, while it serves another table
    /// than the other drivers. If it is not ready for a second, its registration is removed, so that gateways send it
    /// no requests. Never returns.
    pub async fn follow(&self, mut is_ready: watch::Receiver<bool>) {
        loop {
            let now_ready = *is_ready.borrow_and_update();
            if !now_ready && let Ok(Ok(())) = timeout(SWITCH_TIME, is_ready.changed()).await {
                continue;
            }
            for active in self.0.iter() {
                active.registration.set_present(now_ready);
            }
            if is_ready.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Removes the registrations. Takes at most 2 s.
    pub async fn withdraw(&self) {
        join_all(self.0.iter().map(|active| active.registration.withdraw())).await;
    }
}

#[cfg(test)]
mod tests;
