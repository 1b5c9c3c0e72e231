//! The registration of this driver or gateway in ZooKeeper while it serves.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use admittance_net::upstream::{InvalidServer, Server};
use futures_util::future::join_all;
use metrics::gauge;
use tokio::{sync::watch, time::timeout};

use crate::{
    ClusterId, metric_names,
    server_info::ServerInfo,
    status::RegisteredNode,
    zookeeper::{
        Ensembles, InvalidNodePath, NodePath, Registered, Registration, RegistrationState, ZooKeeper,
    },
};

/// Drivers register below this node, or below the node of their cluster below it.
const DRIVERS: &str = "/bcs/services/endpoints/mesosdriver";
/// Gateways register below this node, as bcs-api does.
const GATEWAYS: &str = "/bcs/services/endpoints/apiserver";

/// The longest time from the moment at which the drivers agree on a table until each serves it.
const SWITCH: Duration = Duration::from_secs(1);

/// How a driver or a gateway registers itself. It is registered while it serves: a driver in the service ensemble,
/// below its cluster, and in the cluster's own ensemble; a gateway in the service ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// The address that other servers connect to. None: the address that it listens on.
    pub ip: Option<IpAddr>,
    /// None: the port that it listens on.
    pub port: Option<u16>,
    /// None: the host name of the machine.
    pub hostname: Option<String>,
    /// The external address, which gateways prefer.
    pub external: Option<ExternalAddress>,
}

/// The external address of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalAddress {
    /// For example of a load balancer.
    pub ip: IpAddr,
    /// Not 0.
    pub port: u16,
}

/// Why this driver or gateway cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Other machines cannot connect to the address that it listens on.
    #[error(
        "it listens on {0}, which other machines cannot reach; write `registration.ip`, the address of this machine"
    )]
    NoAddress(IpAddr),
    /// The cluster's ID is not a valid name of a node.
    #[error("the cluster ID cannot be used as the name of a node: {0}")]
    Cluster(#[from] InvalidNodePath),
    /// There is no ensemble to register in.
    #[error("no ensemble is configured to register in; write `zookeeper: {{ service: ... }}`")]
    NoEnsemble,
    #[error(transparent)]
    Server(#[from] InvalidServer),
}

impl RegistrationConfig {
    /// The URL of a gateway with this registration.
    pub fn gateway(&self, ports: Ports) -> Result<Server, RegistrationError> {
        Ok(info(self, "", ports)?.server()?)
    }
}

/// The ports of a driver or gateway, once they are bound.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub address: SocketAddr,
    pub is_tls: bool,
    /// The admin port. 0: none.
    pub admin: u16,
}

/// A driver or gateway to register once it serves.
#[derive(Debug)]
pub struct Registrar(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    ensemble: &'static str,
    zookeeper: ZooKeeper,
    registration: Registration,
}

impl Entry {
    /// The node is named after the address.
    fn new(
        (ensemble, zookeeper): (&'static str, &ZooKeeper),
        parent: &NodePath,
        ip: IpAddr,
        info: &ServerInfo,
    ) -> Self {
        Self {
            ensemble,
            zookeeper: zookeeper.clone(),
            registration: Registration {
                parent: parent.to_string(),
                name: ip.to_string(),
                data: serde_json::to_vec(info).unwrap_or_default().into(),
            },
        }
    }
}

impl Registrar {
    /// What this driver registers, and where.
    ///
    /// Like bcs-mesos-driver: in the service ensemble below the cluster, where bcs-api looks
    /// for drivers; and in the cluster's own ensemble, without a cluster and without the external address.
    /// A registration is left out if its ensemble is not configured.
    pub fn new(
        config: &RegistrationConfig,
        cluster: &ClusterId,
        ports: Ports,
        ensembles: &Ensembles,
    ) -> Result<Self, RegistrationError> {
        let info = info(config, cluster.as_str(), ports)?;
        let drivers: NodePath = DRIVERS.parse()?;
        let of_cluster = drivers_node(cluster)?;
        let within = ServerInfo {
            external_ip: String::new(),
            external_ipv6: String::new(),
            external_port: 0,
            ..info.clone()
        };
        let ip = own_ip(config, ports);
        let service = ensembles.service().map(|zookeeper| ("service", zookeeper));
        let own = ensembles.cluster().map(|zookeeper| ("cluster", zookeeper));
        let entries: Vec<Entry> = service
            .map(|ensemble| Entry::new(ensemble, &of_cluster, ip, &info))
            .into_iter()
            .chain(own.map(|ensemble| Entry::new(ensemble, &drivers, ip, &within)))
            .collect();
        if entries.is_empty() {
            return Err(RegistrationError::NoEnsemble);
        }
        Ok(Self(entries))
    }

    /// What a gateway registers, and where.
    pub fn of_gateway(
        config: &RegistrationConfig,
        ports: Ports,
        ensembles: &Ensembles,
    ) -> Result<Self, RegistrationError> {
        let info = info(config, "", ports)?;
        let service = ensembles.service().ok_or(RegistrationError::NoEnsemble)?;
        let ip = own_ip(config, ports);
        let entry = Entry::new(("service", service), &gateways_node()?, ip, &info);
        Ok(Self(vec![entry]))
    }

    /// Register the driver or gateway until the result is withdrawn or dropped: at once if it is ready, otherwise once
    /// [`Registrations::follow`] learns that it is.
    pub fn register(self, is_ready: bool) -> Registrations {
        let register = match is_ready {
            true => ZooKeeper::register,
            false => ZooKeeper::register_later,
        };
        let active = |entry: Entry| ActiveRegistration {
            ensemble: entry.ensemble,
            parent: entry.registration.parent.clone(),
            registered: register(&entry.zookeeper, entry.registration),
        };
        Registrations(self.0.into_iter().map(active).collect())
    }
}

/// The node that the drivers of this cluster register below.
pub fn drivers_node(cluster: &ClusterId) -> Result<NodePath, InvalidNodePath> {
    DRIVERS.parse::<NodePath>()?.child(cluster.as_str())
}

/// The node that gateways register below.
pub fn gateways_node() -> Result<NodePath, InvalidNodePath> {
    GATEWAYS.parse()
}

/// The address that other servers connect to.
fn own_ip(config: &RegistrationConfig, ports: Ports) -> IpAddr {
    config.ip.unwrap_or(ports.address.ip())
}

/// The name of the machine, unless the configuration says another one.
pub(crate) fn hostname(config: Option<&RegistrationConfig>) -> String {
    let named = config.and_then(|config| config.hostname.clone());
    named.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// `cluster` is empty for a gateway, which serves many.
fn info(config: &RegistrationConfig, cluster: &str, ports: Ports) -> Result<ServerInfo, RegistrationError> {
    let own = own_ip(config, ports);
    if own.is_unspecified() {
        return Err(RegistrationError::NoAddress(own));
    }
    let (ip, ipv6) = ServerInfo::fields_of(own);
    let external = |external: ExternalAddress| (ServerInfo::fields_of(external.ip), external.port);
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

/// A registered driver or gateway, until this is withdrawn or all clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Registrations(Arc<[ActiveRegistration]>);

#[derive(Debug)]
struct ActiveRegistration {
    ensemble: &'static str,
    parent: String,
    registered: Registered,
}

impl ActiveRegistration {
    fn status(&self) -> RegisteredNode {
        let (node, problem) = match self.registered.state() {
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
        let gauge =
            gauge!(metric_names::REGISTERED, "ensemble" => self.ensemble, "path" => self.parent.clone());
        let mut states = self.registered.states();
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

    /// Keep the metrics up to date, until the registrations are withdrawn.
    pub async fn update_metrics(&self) {
        join_all(self.0.iter().map(ActiveRegistration::update_metrics)).await;
    }

    /// Registers a driver while it is ready, that is, while it serves what the other drivers serve, so that gateways ask no
    /// driver that is late. A change that goes live within a second does not affect the registrations. Never returns; drop it
    /// to stop.
    pub async fn follow(&self, mut is_ready: watch::Receiver<bool>) {
        loop {
            let now_ready = *is_ready.borrow_and_update();
            if !now_ready && let Ok(Ok(())) = timeout(SWITCH, is_ready.changed()).await {
                continue;
            }
            for active in self.0.iter() {
                active.registered.set_present(now_ready);
            }
            if is_ready.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Remove the registrations. Takes at most 2 s.
    pub async fn withdraw(&self) {
        join_all(self.0.iter().map(|active| active.registered.withdraw())).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::zookeeper::{EnsembleConfig, ZooKeeperConfig};

    const PORTS: Ports = Ports {
        address: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5)), 8090),
        is_tls: false,
        admin: 8091,
    };

    fn ensemble(server: &str) -> EnsembleConfig {
        EnsembleConfig::new(server.parse().unwrap())
    }

    fn registrar(
        config: &RegistrationConfig,
        ports: Ports,
        zookeeper: &ZooKeeperConfig,
    ) -> Result<Vec<(&'static str, String, String, Value)>, String> {
        let ensembles = Ensembles::open(zookeeper);
        let registrar = Registrar::new(config, &"BCS-MESOS-1".parse().unwrap(), ports, &ensembles)
            .map_err(|error| error.to_string())?;
        let described = |entry: &Entry| {
            let mut info: Value = serde_json::from_slice(&entry.registration.data).unwrap();
            assert_eq!(info["pid"], std::process::id());
            assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
            for key in ["pid", "version"] {
                info.as_object_mut().unwrap().remove(key);
            }
            let Registration { parent, name, .. } = entry.registration.clone();
            (entry.ensemble, parent, name, info)
        };
        Ok(registrar.0.iter().map(described).collect())
    }

    #[tokio::test]
    async fn nodes_and_data_of_registrations() {
        let both = ZooKeeperConfig {
            cluster: Some(ensemble("127.0.0.1:1")),
            service: Some(ensemble("127.0.0.1:2")),
        };
        let config = RegistrationConfig {
            hostname: Some("h".into()),
            external: Some(ExternalAddress {
                ip: [192, 0, 2, 1].into(),
                port: 8443,
            }),
            ..RegistrationConfig::default()
        };
        let info = json!({
            "ip": "10.0.0.5", "ipv6": "", "port": 8090, "grpc_port": 0, "metric_port": 8091, "hostname": "h",
            "scheme": "http", "cluster": "BCS-MESOS-1",
            "external_ip": "192.0.2.1", "external_ipv6": "", "external_port": 8443,
        });
        let mut within = info.clone();
        within["external_ip"] = "".into();
        within["external_port"] = 0.into();
        let drivers = "/bcs/services/endpoints/mesosdriver".to_owned();
        let of_cluster = format!("{drivers}/BCS-MESOS-1");
        let name = "10.0.0.5".to_owned();
        assert_eq!(
            registrar(&config, PORTS, &both).unwrap(),
            [
                ("service", of_cluster.clone(), name.clone(), info.clone()),
                ("cluster", drivers.clone(), name.clone(), within.clone()),
            ]
        );
        // One ensemble serves as both.
        for one in [
            ZooKeeperConfig {
                service: None,
                ..both.clone()
            },
            ZooKeeperConfig {
                service: both.cluster.clone(),
                ..both.clone()
            },
        ] {
            let registered = registrar(&config, PORTS, &one).unwrap();
            assert_eq!(registered.len(), 2, "{one:?}");
            assert_eq!(Ensembles::open(&one).status().len(), 1, "{one:?}");
        }
        let service = ZooKeeperConfig {
            cluster: None,
            ..both.clone()
        };
        assert_eq!(
            registrar(&config, PORTS, &service).unwrap(),
            [("service", of_cluster, name, info)]
        );
        assert!(registrar(&config, PORTS, &ZooKeeperConfig::default()).is_err());
    }

    #[tokio::test]
    async fn defaults_of_registrations() {
        let service = ZooKeeperConfig {
            cluster: None,
            service: Some(ensemble("127.0.0.1:2")),
        };
        let of = |config: RegistrationConfig, ports: Ports| {
            registrar(&config, ports, &service).map(|mut registered| registered.remove(0).3)
        };
        let info = of(
            RegistrationConfig::default(),
            Ports {
                is_tls: true,
                admin: 0,
                ..PORTS
            },
        )
        .unwrap();
        assert_eq!(
            (&info["scheme"], &info["metric_port"]),
            (&json!("https"), &json!(0))
        );
        assert_ne!(info["hostname"], "");
        let said = RegistrationConfig {
            ip: Some("2001:db8::1".parse().unwrap()),
            port: Some(80),
            ..RegistrationConfig::default()
        };
        let info = of(said, PORTS).unwrap();
        assert_eq!(
            [&info["ip"], &info["ipv6"], &info["port"]],
            [&json!(""), &json!("2001:db8::1"), &json!(80)]
        );
        let everywhere = Ports {
            address: ([0, 0, 0, 0], 8090).into(),
            ..PORTS
        };
        let error = of(RegistrationConfig::default(), everywhere).unwrap_err();
        assert!(error.contains("registration.ip"), "{error}");
        let error = Registrar::new(
            &RegistrationConfig::default(),
            &"a/b".parse().unwrap(),
            PORTS,
            &Ensembles::open(&service),
        );
        assert!(matches!(error, Err(RegistrationError::Cluster(_))), "{error:?}");
    }

    #[tokio::test]
    async fn gateways_register_where_bcs_api_does() {
        let service = ZooKeeperConfig {
            cluster: None,
            service: Some(ensemble("127.0.0.1:2")),
        };
        let tls = Ports {
            is_tls: true,
            ..PORTS
        };
        let config = RegistrationConfig::default();
        let registrar = Registrar::of_gateway(&config, tls, &Ensembles::open(&service)).unwrap();
        let [entry] = registrar.0.as_slice() else {
            panic!("{registrar:?}")
        };
        assert_eq!(entry.registration.parent, "/bcs/services/endpoints/apiserver");
        let info: Value = serde_json::from_slice(&entry.registration.data).unwrap();
        assert_eq!((&info["scheme"], &info["port"]), (&json!("https"), &json!(8090)));
        assert_eq!(config.gateway(tls).unwrap().to_string(), "https://10.0.0.5:8090");
    }
}
