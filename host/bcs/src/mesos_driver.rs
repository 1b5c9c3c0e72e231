//! A driver that replaces bcs-mesos-driver, or forwards requests to one.

use std::{net::IpAddr, sync::Arc};

use admittance::{AdmissionService, BodyLimits, Host};
use admittance_cluster::Cluster;
use admittance_dialect::{Dialect, EndReason};
use admittance_net::upstream::{Choice, Servers, Upstream, UpstreamConfig, UpstreamServer};
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, Service};

use crate::{
    Bcs, ClusterId, UpstreamKind,
    definitions_api::{DefinitionRequest, DefinitionsApi},
    discovery::{Discovery, ServerKind},
    health::HealthInfo,
    other_servers::{ConsoleConfig, OtherServers},
    registration::RegistrationConfig,
    scheduler::{SchedulerForwarder, SchedulerService},
    status::DiscoveryStatus,
    zookeeper::{Ensembles, NoEnsemble, NodePath},
};

#[derive(Clone, Debug)]
pub struct BcsConfig {
    pub cluster: ClusterId,
    /// The kind of the servers to which requests are forwarded. Default: schedulers if servers are discovered,
    /// otherwise a bcs-mesos-driver.
    pub upstream_kind: UpstreamKind,
    pub servers: SchedulersConfig,
    pub upstream: UpstreamConfig,
    /// The settings of consoles. Requests for consoles are served only if the upstream is the scheduler.
    pub console: ConsoleConfig,
    /// Whether clients may use this program's credentials to read and change custom resources, and their definitions,
    /// in the Kubernetes cluster. Default: `false`, with which requests for them get a 404.
    pub allows_custom_resources: bool,
    /// The registration of the driver in ZooKeeper. Default: it does not register.
    pub registration: Option<RegistrationConfig>,
}

#[derive(Clone, Debug)]
pub enum SchedulersConfig {
    /// The servers are listed here. There must be at least one. Schedulers are tried in this order, because only their
    /// master serves requests. Drivers get requests in turns.
    Listed(Vec<UpstreamServer>),
    /// The schedulers that register below this node of the cluster's ensemble. All requests go to their master.
    Discovered(NodePath),
}

impl SchedulersConfig {
    pub const DEFAULT_PATH: &str = "/bcs/services/endpoints/scheduler";
}

impl BcsConfig {
    pub fn dialect(&self) -> Bcs {
        Bcs::new(self.cluster.clone()).with_upstream_kind(self.upstream_kind)
    }

    /// Starts to connect to the upstream. Fails if servers are to be discovered but no ensemble is configured.
    pub fn connect(&self, ensembles: &Ensembles) -> Result<ConnectedUpstream, NoEnsemble> {
        let (servers, discovery) = match &self.servers {
            SchedulersConfig::Listed(servers) => (Servers::Listed(servers.clone()), None),
            SchedulersConfig::Discovered(path) => {
                let zookeeper = ensembles.cluster().ok_or(NoEnsemble {
                    setting: "upstream.discover",
                    ensemble: "zookeeper.cluster",
                })?;
                let discovery = Discovery::start(zookeeper, path.clone(), ServerKind::Schedulers);
                (Servers::Followed(discovery.servers()), Some(discovery))
            }
        };
        let choice = match self.upstream_kind {
            UpstreamKind::Driver => Choice::Turns,
            UpstreamKind::Scheduler => Choice::Master,
        };
        Ok(ConnectedUpstream {
            upstream: Upstream::new(servers, choice, self.upstream.clone()),
            discovery,
        })
    }
}

/// The servers to which a driver forwards requests. Cheap to clone; discovery goes on until all clones are dropped.
#[derive(Clone, Debug)]
pub struct ConnectedUpstream {
    pub upstream: Upstream,
    discovery: Option<Discovery>,
}

impl From<Upstream> for ConnectedUpstream {
    fn from(upstream: Upstream) -> Self {
        Self {
            upstream,
            discovery: None,
        }
    }
}

/// Replies to the requests to a driver's port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub struct MesosDriver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cluster: ClusterId,
    dialect: Arc<Bcs>,
    definitions: DefinitionsApi,
    chains: AdmissionService<SchedulerService>,
    upstream: Upstream,
    discovery: Option<Discovery>,
}

impl MesosDriver {
    /// Creates a driver. `cluster` is the Kubernetes cluster with the custom resources that clients may access.
    pub fn new(
        config: BcsConfig,
        ensembles: &Ensembles,
        cluster: Option<Cluster>,
        host: &Host,
        limits: BodyLimits,
    ) -> Result<Self, NoEnsemble> {
        let dialect = Arc::new(config.dialect());
        let ConnectedUpstream { upstream, discovery } = config.connect(ensembles)?;
        let reply_timeout = config.upstream.response_timeout;
        let retry_timeout = config.upstream.connect_timeout;
        let cluster = cluster.filter(|_| config.allows_custom_resources);
        let other_servers = OtherServers::new(config.console, cluster, upstream.clone(), limits);
        let scheduler = SchedulerForwarder {
            dialect: dialect.clone(),
            limits,
            upstream: upstream.clone(),
            reply_timeout,
            retry_timeout,
            other_servers,
        };
        let layer = host.layer_with_shared_dialect(dialect.clone()).body_limits(limits);
        Ok(Self(Arc::new(Inner {
            cluster: config.cluster,
            definitions: DefinitionsApi::new(host.clone(), dialect.clone(), limits),
            chains: layer.layer(scheduler.into_service()),
            dialect,
            upstream,
            discovery,
        })))
    }

    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let definition_request = DefinitionRequest::parse(&head);
        let request = Request::from_parts(head, body);
        match definition_request {
            Some(definition_request) => self.0.definitions.answer(definition_request, request).await,
            None => match self.0.chains.clone().call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
        }
    }

    /// Returns the reply to a request that is not forwarded, for the reason `end`.
    pub fn reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        self.0.dialect.reply(end)
    }

    pub fn upstream(&self) -> &Upstream {
        &self.0.upstream
    }

    /// Returns the state of the discovery of servers; `None` if the configuration lists the servers.
    pub fn discovery(&self) -> Option<DiscoveryStatus> {
        self.0.discovery.as_ref().map(Discovery::status)
    }

    /// Returns the driver's health in the format of bcs-mesos-driver. `None` if the upstream is a bcs-mesos-driver,
    /// which reports its own health. `ip` is the address on which this driver listens.
    pub fn health(&self, ip: IpAddr) -> Option<HealthInfo> {
        let inner = &self.0;
        let found_servers = inner.discovery.as_ref().map(Discovery::servers);
        let discovered = found_servers.map(|servers| servers.borrow().clone());
        (inner.dialect.upstream_kind() == UpstreamKind::Scheduler)
            .then(|| HealthInfo::new(&inner.cluster, ip, &inner.upstream.health(), discovered.as_deref()))
    }
}
