use std::net::IpAddr;

use admittance::dialect::{Bcs, Cluster, bcs::Behind};
use admittance_net::upstream::Server;

use super::{ConsoleConfig, NodePath, UpstreamConfig};

/// A driver of a BCS Mesos cluster.
#[derive(Clone, Debug)]
pub struct BcsConfig {
    /// Whose driver it is.
    pub cluster: Cluster,
    /// What is behind it. Default: the scheduler when schedulers are discovered, else a bcs-mesos-driver.
    pub behind: Behind,
    /// The servers behind it.
    pub servers: SchedulersConfig,
    /// How they are reached.
    pub upstream: UpstreamConfig,
    /// Where consoles are, when the scheduler is behind it.
    pub console: ConsoleConfig,
    /// Whether clients may read and change definitions and objects of custom resources in the Kubernetes cluster, with
    /// this program's credentials. Default: no; the routes are not found.
    pub custom_resources: bool,
    /// How others find it. None: it does not register.
    pub registration: Option<RegistrationConfig>,
}

impl BcsConfig {
    /// How it reads requests and writes replies.
    pub fn dialect(&self) -> Bcs {
        Bcs::new(self.cluster.clone()).in_front_of(self.behind)
    }
}

/// The servers behind a driver of a BCS cluster.
#[derive(Clone, Debug)]
pub enum SchedulersConfig {
    /// At least one. Schedulers are asked in this order, since only their master does anything; drivers take
    /// turns.
    Listed(Vec<Server>),
    /// The schedulers that are registered in the cluster's ensemble; all requests go to their master.
    Discovered(DiscoveryConfig),
}

/// Where schedulers register, in the cluster's ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Default: `/bcs/services/endpoints/scheduler`.
    pub path: NodePath,
}

impl DiscoveryConfig {
    /// See [`path`](Self::path).
    pub const DEFAULT_PATH: &str = "/bcs/services/endpoints/scheduler";
}

/// What a driver tells others of itself. It is registered while it serves: in the ensemble of the services
/// around below its cluster, and in the cluster's own ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// Where it is reached. None: at the address that it listens on.
    pub ip: Option<IpAddr>,
    /// None: the port that it listens on.
    pub port: Option<u16>,
    /// None: the machine's.
    pub hostname: Option<String>,
    /// Where it is reached from outside; a gateway prefers that.
    pub external: Option<ExternalAddress>,
}

/// Where a driver is reached from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalAddress {
    /// Of a load balancer, for instance.
    pub ip: IpAddr,
    /// Not 0.
    pub port: u16,
}
