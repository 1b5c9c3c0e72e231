//! Defines the driver's configuration.

pub(crate) mod read;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance::{AdmissionLayer, DecisionsConfig, OnBadDefinition, SandboxConfig, catalog::CatalogConfig};
use admittance_admin::{AdminConfig, SinksConfig};
pub use admittance_admission::LogLevel;
use admittance_admission::keywords;
use admittance_bcs::zookeeper::ZooKeeperConfig;
use admittance_cluster::ClusterConfig;
use admittance_definitions::{Location, Mistake, Share};
use admittance_dialect::ListRoute;
use admittance_net::{
    budget::BodyBudget,
    tls::{ClientTls, ServerTls},
};
use admittance_outbound::OutboundConfig;
use http::{HeaderName, Uri};

pub(crate) use self::read::{
    SectionContext,
    lists::check_lists,
    parse_namespace,
    upstream::{refuse_discovery, upstream_section},
    zookeeper::read_path as node_path,
};
use crate::{DefinitionLocation, FrontConfig, namespaces::NamespacesConfig};

/// The configuration of the driver. Its fields may be changed until [`Driver::bind`](crate::Driver::bind).
#[derive(Debug)]
pub struct Config {
    pub listen: ListenConfig,
    pub admin: Option<AdminConfig>,
    pub front: Box<dyn FrontConfig>,
    /// The lists of objects at the upstream that `admittance audit` reads.
    pub lists: Vec<ListConfig>,
    pub limits: Limits,
    /// The stores of chain definitions. A new definition is written to the first store that accepts it.
    pub definitions: Vec<Arc<dyn DefinitionLocation>>,
    /// The time at which this replica of the driver starts to use a change of the chains: at the same time as the other
    /// replicas, or as soon as this replica itself is ready. Default: at the same time if the replicas read chains as
    /// resources of Kubernetes, or if they are BCS drivers with definitions in ZooKeeper; otherwise, each replica as
    /// soon as it is ready.
    pub replicas: Option<SwitchMode>,
    /// The name of the Lease that the leader of the replicas holds. Default: the name that one of the `definitions`
    /// gives, or else the name of the webhook configurations, or else the default of `KubernetesResources`.
    pub lease: Option<String>,
    /// The treatment of an invalid definition in ZooKeeper or in a custom resource.
    pub on_bad_definition: OnBadDefinition,
    /// The ZooKeeper ensembles in which the driver discovers servers, and registers itself.
    pub zookeeper: ZooKeeperConfig,
    /// The directory that stores modules and their compiled forms.
    pub store: StoreConfig,
    pub history: HistoryConfig,
    /// The settings for fetching modules from servers and registries, and the rules for their signatures.
    pub catalog: CatalogConfig,
    pub sandbox: SandboxConfig,
    pub plugin_http: OutboundConfig,
    pub namespaces: NamespacesConfig,
    /// The Kubernetes cluster with the labels of namespaces, the objects for plugins, and the permissions of users.
    pub cluster: Option<ClusterConfig>,
    /// The `host:port` to connect to for each host name of a webhook.
    pub webhook_addresses: Vec<(String, String)>,
    /// Whether webhooks are accepted whose CA has an RSA key of less than 2048 bits.
    pub accepts_short_keys: bool,
    pub decisions: DecisionsConfig,
    pub decision_sinks: SinksConfig,
    pub log: LogConfig,
    pub tracing: Option<TracingConfig>,
    /// Warnings about plain values in the configuration file that YAML 1.1 and YAML 1.2 read differently.
    pub ambiguities: Vec<Mistake>,
}

impl Config {
    /// Returns the configured files and directories that contain chain definitions.
    pub fn definition_files(&self) -> impl Iterator<Item = &Path> {
        self.definitions.iter().filter_map(|location| location.path())
    }

    /// Returns whether this replica of the driver uses a change of the chains only after all replicas have prepared it.
    pub fn goes_live_together(&self) -> bool {
        match self.replicas {
            Some(mode) => mode == SwitchMode::Together,
            None => self.definitions.iter().any(|location| location.is_shared(&*self.front)),
        }
    }

    /// Returns whether the replicas elect a leader with a Lease.
    pub fn has_lease(&self) -> bool {
        let has_ensemble = false;
        has_leader(&*self.front, &self.definitions, has_ensemble)
    }

    /// Returns a mistake if the driver's two ports have the same address, or if an upstream server has the address of
    /// one of them. This is not checked when the file is read, because arguments of `serve` can replace the addresses.
    pub fn own_address_mistake(&self, file: &Path) -> Option<Mistake> {
        let listen = self.listen.address;
        let admin = self.admin.as_ref().map(AdminConfig::address);
        let listeners = [("listen", Some(listen)), ("admin", admin)];
        let own_server_and_section = self.front.servers().iter().find_map(|server| {
            let is_address_of_server = |(_, address): &&(_, Option<SocketAddr>)| {
                address.is_some_and(|socket_address| server.is_at(socket_address))
            };
            listeners
                .iter()
                .find(is_address_of_server)
                .map(|(section, _)| (server, section))
        });
        let (path, message) = match (admin, own_server_and_section) {
            (Some(admin), _) if is_same_listener(admin, listen) => {
                ("admin.address", format!("{admin} is `listen.address` too"))
            }
            (_, Some((server, port))) => (
                "upstream.servers",
                format!("{server} is `{port}.address`, a port of this program itself"),
            ),
            _ => return None,
        };
        let location = Location::of_file(file.display().to_string());
        Some(Mistake::new(&location, path, message, "write another address"))
    }

    /// Returns warnings about probable mistakes in the configuration: world-readable keys, and plain values that YAML
    /// 1.1 and YAML 1.2 read differently.
    pub fn warnings(&self) -> Vec<String> {
        let admin = self.admin.as_ref().and_then(AdminConfig::tls);
        let server_tls = self.listen.tls.iter().chain(admin.map(|tls| &tls.server));
        let collector = self.tracing.iter().map(|tracing| &tracing.tls);
        let client_tls = self.front.client_tls().into_iter().chain(collector);
        server_tls
            .filter_map(ServerTls::warning)
            .chain(client_tls.filter_map(ClientTls::warning))
            .chain(self.ambiguities.iter().map(Mistake::to_string))
            .collect()
    }
}

fn is_same_listener(one: SocketAddr, other: SocketAddr) -> bool {
    let has_wildcard = one.ip().is_unspecified() || other.ip().is_unspecified();
    let has_same_ip = one.ip() == other.ip() || has_wildcard && one.is_ipv4() == other.is_ipv4();
    has_same_ip && one.port() == other.port() && one.port() != 0
}

/// Whether the replicas of an installation start to use a change of the chains together, or each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchMode {
    /// All replicas start to use a change at the same time, after all have prepared it.
    Together,
    /// Each replica starts to use a change as soon as it has prepared it.
    Independently,
}

keywords!(SwitchMode, "way of going live": Together = "Together", Independently = "Independently");

#[derive(Clone, Debug)]
pub struct ListConfig {
    pub route: ListRoute,
    /// The headers of the requests that read the list. The value of each header is read from a file.
    pub headers: Vec<(HeaderName, PathBuf)>,
}

fn has_leader(front: &dyn FrontConfig, definitions: &[Arc<dyn DefinitionLocation>], has_ensemble: bool) -> bool {
    front.webhooks().is_some()
        || front.audit().is_some()
        || (front.agrees_in_zookeeper() && has_ensemble)
        || definitions.iter().any(|location| location.lease().is_some())
}

pub fn parse_lease(text: &str) -> Result<String, String> {
    admittance_admission::is_dns_subdomain(text)
        .then(|| text.to_owned())
        .ok_or_else(|| {
            format!("{text:?} is not a valid name: write lower case letters, digits, - and ., such as admittance")
        })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The directory of the store of modules. Default: the user's cache directory.
    pub directory: Option<PathBuf>,
    /// The maximum size of the store in bytes, above which the least recently used modules are removed. Default: 4 GiB.
    pub size_limit: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            directory: None,
            size_limit: 4 << 30,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// The directory of the history. Default: the user's state directory.
    pub directory: Option<PathBuf>,
    /// The number of revisions that the history keeps. Default: 20.
    pub max_revisions: usize,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            directory: None,
            max_revisions: 20,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address at which the driver listens for clients. Default: 127.0.0.1:8080.
    pub address: SocketAddr,
    /// The certificate of the port for clients; `None` for plain HTTP.
    pub tls: Option<ServerTls>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 8080).into(),
            tls: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a request's body that is read for the chains, in bytes. Default: 7 MiB.
    pub body: usize,
    /// The maximum memory of all requests' bodies together, in bytes. Default: [`BodyBudget::default_for`].
    pub body_memory: Option<usize>,
    /// The time within which a request's body must arrive if it is read for the chains. Default: 30 s.
    pub body_timeout: Duration,
    /// The timeout for the TLS handshake, and for the head of each request. Default: 10 s.
    pub header_timeout: Duration,
    /// The time after which a client is disconnected because it does not send its request's body, or does not read the
    /// reply. Default: 60 s.
    pub idle_timeout: Duration,
    /// The minimum rate at which a client must send a request's body or read a reply, in bytes per second, averaged
    /// over `idle_timeout`; 0 for no minimum. Default: 512.
    pub minimum_rate: u64,
    /// The maximum number of requests in flight, without watches and tunnels. Default: 1024.
    pub concurrency: usize,
    /// The maximum number of open watches and tunnels, which do not count towards `concurrency`. Default: 4096.
    pub streams: usize,
    /// The time after which a watch or a tunnel without traffic is closed. Default: 1 h.
    pub stream_idle_timeout: Duration,
    /// The maximum number of client connections. Each of them may need two file descriptors, one for the client and one
    /// for the upstream. Default: as many as the limit on file descriptors allows.
    pub connections: Option<usize>,
    /// The timeout for all chains that a request passes through, together. Default: 10 s.
    pub request_timeout: Duration,
    /// The time after a stop signal during which the driver keeps accepting connections. Meanwhile, `/readyz` replies
    /// 503 so that load balancers choose other replicas, and all replies ask clients to disconnect. Default: 5 s behind
    /// kube-apiserver, otherwise 0 s.
    pub shutdown_delay: Duration,
    /// The time after `shutdown_delay` within which requests in flight must finish. Default: 30 s.
    pub shutdown_timeout: Duration,
}

impl Limits {
    pub(crate) fn body_budget(&self) -> BodyBudget {
        let default = || BodyBudget::default_for(self.body);
        BodyBudget::new(self.body_memory.unwrap_or_else(default))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: AdmissionLayer::DEFAULT_BODY_LIMIT,
            body_memory: None,
            body_timeout: AdmissionLayer::DEFAULT_BODY_TIMEOUT,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            minimum_rate: 512,
            concurrency: 1024,
            streams: 4096,
            stream_idle_timeout: Duration::from_secs(3600),
            connections: None,
            request_timeout: Duration::from_secs(10),
            shutdown_delay: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// The export of traces to an OpenTelemetry collector. Defaults come from OpenTelemetry's environment variables.
#[derive(Clone, Debug)]
pub struct TracingConfig {
    /// The URL to which spans are posted.
    pub endpoint: Uri,
    pub protocol: TracingProtocol,
    /// The headers of each request to the collector. Their values are read from files again for each request.
    pub headers: Vec<(HeaderName, PathBuf)>,
    /// The share of traces to sample. It applies only to traces that begin in this driver.
    pub sampling: Option<Share>,
    pub timeout: Option<Duration>,
    pub tls: ClientTls,
}

impl TracingConfig {
    pub const PATH: &str = "/v1/traces";
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracingProtocol {
    #[default]
    HttpProtobuf,
    HttpJson,
}

keywords!(TracingProtocol, "protocol": HttpProtobuf = "http/protobuf", HttpJson = "http/json");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The format depends on the output: lines for people on a terminal, and otherwise JSON.
    #[default]
    Auto,
    Pretty,
    Json,
}

keywords!(LogFormat, "log format": Auto = "auto", Pretty = "pretty", Json = "json");
