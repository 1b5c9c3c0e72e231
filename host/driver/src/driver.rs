//! Runs the driver: binds its ports, serves, and stops.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};

use admittance::{BodyLimits, Host, admission::FrontEnd, replicas::Replicas};
use admittance_admin::{AdminAccess, DecisionSinks, SinkError};
use admittance_bcs::{
    Drivers, Ports, Registrar, RegistrationError,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_cluster::{Cluster, ElectionTimes};
use admittance_fleet::{ChainStore, Leader, Webhooks, audit::Audits};
use admittance_gateway::GatewayStartError;
use admittance_net::{listener::StopSignals, tls::ServerTls, upstream::Upstream, workers::Workers};
use futures_util::future::{OptionFuture, join_all};
use tokio::sync::watch;

use crate::{
    KubernetesResources,
    config::{Config, Limits},
    fronts::{OpenedFront, StartContext, StartedFront},
    handler::FrontEndHandler,
    namespaces::{FileNamespaces, NamespacesConfig},
    ports::{AdminPort, OpenPort, bind_advice},
    shutdown::{Shutdown, ShutdownResult},
    status::StatusSources,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{setting}: cannot listen on {address}: {source}{}", bind_advice(.source))]
    Bind {
        /// The setting or argument that contains the address on which the driver cannot listen: `listen.address`,
        /// `admin.address` or `--listen`.
        setting: &'static str,
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("the threads of the admin port cannot be started: {0}")]
    Threads(std::io::Error),
    /// A setting requires a ZooKeeper ensemble, but the driver is not connected to it.
    #[error(transparent)]
    NoEnsemble(#[from] NoEnsemble),
    #[error(transparent)]
    Gateway(#[from] GatewayStartError),
    #[error(transparent)]
    Decisions(#[from] SinkError),
    #[error("registration: {0}")]
    Registration(#[from] RegistrationError),
}

/// The driver's connections, except those to its upstream.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    pub ensembles: Ensembles,
    /// The Kubernetes cluster that the host uses. The driver also forwards requests for custom resources to it.
    pub cluster: Option<Cluster>,
    /// The store of chains in the Kubernetes cluster; `None` if the host reads no chains there.
    pub chain_store: Option<ChainStore>,
    /// The webhook configurations that the leader of the replicas writes; `None` if it writes none.
    pub webhooks: Option<Webhooks>,
    /// Whether the replicas start to use a change of the chains at the same time. If so, the host must be built with
    /// `go_live_on_request`.
    pub goes_live_together: bool,
}

impl Connections {
    pub fn new(config: &Config, ensembles: Ensembles, cluster: Option<Cluster>) -> Self {
        let reads_chains = config.definitions.iter().any(|location| location.lease().is_some());
        Self {
            ensembles,
            chain_store: cluster.as_ref().filter(|_| reads_chains).map(ChainStore::new),
            cluster,
            webhooks: None,
            goes_live_together: config.goes_live_together(),
        }
    }
}

/// A driver whose ports are open. Clients can connect, but get replies only after [`run`](Self::run) is called.
#[derive(Debug)]
pub struct Driver {
    port: OpenPort,
    workers: Option<Workers>,
    admin: Option<AdminPort>,
    front: Arc<dyn OpenedFront>,
    front_end: FrontEnd,
    sinks: DecisionSinks,
    registrar: Option<Registrar>,
    drivers: Option<Drivers>,
    connections: Connections,
    host: Host,
    limits: Limits,
    namespaces: Option<FileNamespaces>,
    lease: String,
    audits: Option<Audits>,
}

impl Driver {
    /// Binds the port for clients.
    ///
    /// The caller must have created `connections`, `admin` and `host` from this same `config`. For the host, this
    /// includes the settings `limits.request_timeout`, `sandbox` and `definitions`.
    pub async fn bind(
        config: Config,
        connections: Connections,
        host: Host,
        admin: Option<AdminPort>,
    ) -> Result<Self, Error> {
        let Config {
            listen,
            front,
            limits,
            namespaces,
            decision_sinks,
            definitions,
            lease,
            ..
        } = config;
        let lease_of_definitions = || {
            definitions
                .iter()
                .find_map(|location| location.lease().map(str::to_owned))
        };
        // The Lease gets the name of the webhook configurations by default. Each installation names its webhook
        // configurations differently, so each installation has a Lease of its own.
        let lease_of_webhooks = || Some(connections.webhooks.as_ref()?.status().name);
        let configured_lease = lease.or_else(lease_of_definitions).or_else(lease_of_webhooks);
        let lease = configured_lease.unwrap_or_else(|| KubernetesResources::DEFAULT_LEASE.to_owned());
        let audits = front
            .audit()
            .zip(connections.cluster.as_ref())
            .map(|(audit, cluster)| Audits::new(cluster, audit.clone(), &lease, connections.webhooks.as_ref()));
        let upstream_timeout = front.upstream().map(|upstream| upstream.response_timeout);
        let port = OpenPort::listen(listen, &limits, upstream_timeout).await?;
        let ports = Ports {
            address: port.address,
            is_tls: port.tls.is_some(),
            admin: admin.as_ref().map_or(0, |admin| admin.address.port()),
        };
        let front_end = FrontEnd {
            listener: Some(port.address.to_string().into()),
            cluster: front.cluster().map(Into::into),
            ..FrontEnd::of_dialect(front.dialect_name())
        };
        let sinks = DecisionSinks::open(decision_sinks, connections.cluster.as_ref()).await?;
        let context = StartContext {
            ports,
            connections: &connections,
            host: &host,
            body_limits: BodyLimits::new(limits.body, limits.body_timeout),
        };
        let StartedFront {
            front,
            registrar,
            drivers,
        } = front.start(context).await?;
        Ok(Self {
            port,
            workers: None,
            admin,
            front,
            front_end,
            sinks,
            registrar,
            drivers: drivers.filter(|_| connections.goes_live_together),
            connections,
            host,
            limits,
            namespaces: match namespaces {
                NamespacesConfig::Listed(_) => None,
                NamespacesConfig::File(file) => Some(file),
            },
            lease,
            audits,
        })
    }

    /// Serves connections on these threads instead of the runtime on which [`run`](Self::run) is called.
    pub fn with_workers(self, workers: Workers) -> Self {
        Self {
            workers: Some(workers),
            ..self
        }
    }

    /// Returns the address for clients. If port 0 is configured, it contains the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.port.address
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Serves until shutdown, then lets the requests in flight finish.
    pub async fn run(self, shutdown: Shutdown) -> ShutdownResult {
        let Self { port, admin, front, .. } = self;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (leader, replicas) = leader_and_replicas(&self.connections, self.audits.as_ref(), self.lease, self.drivers);
        let is_ready = replicas.is_none() && front.becomes_ready().is_none();
        let registrations = self.registrar.map(|registrar| registrar.register(is_ready));
        let status_sources = Arc::new(StatusSources {
            host: self.host,
            front: front.clone(),
            address: port.address,
            admin: admin.as_ref().map(AdminPort::address),
            tls: [port.tls, admin.as_ref().and_then(|admin| admin.tls.clone())],
            ensembles: self.connections.ensembles,
            cluster: self.connections.cluster,
            webhooks: self.connections.webhooks,
            audits: self.audits,
            leader: leader.clone(),
            replicas: replicas.clone(),
            registrations: registrations.unwrap_or_default(),
            is_stopping: is_stopping.clone(),
        });
        let access = admin.as_ref().map(|admin| admin.access.clone());
        let background_tasks = run_background_tasks(&status_sources, access, self.namespaces, leader.as_deref());
        // The admin port stops last, because it shows the progress of the shutdown.
        if let Some(admin) = &admin {
            admin.start(status_sources.clone(), self.sinks.database());
        }
        let sinks = self.sinks.start(status_sources.host.decisions());
        tracing::info!(
            address = %port.address,
            admin = admin.as_ref().map(|admin| tracing::field::display(admin.address())),
            "serving"
        );
        let stop = StopSignals::default();
        let bodies = admin
            .as_ref()
            .map_or_else(|| self.limits.body_budget(), |admin| admin.body_budget.clone());
        let serving = serve(
            front.clone(),
            FrontEndHandler {
                listener: port.listener,
                workers: self.workers,
                stop: stop.clone(),
                front_end: self.front_end,
                in_flight_limits: [self.limits.concurrency, self.limits.streams],
                body_budget: bodies,
                is_stopping: is_stopping.clone(),
            },
        );
        tokio::pin!(serving);
        let shutdown_result = tokio::select! {
            () = &mut serving => ShutdownResult::Cleanly,
            () = background_tasks => ShutdownResult::Cut,
            () = shutdown.carry_out(&stop, &is_stopping, &status_sources.registrations, &self.limits) => {
                stop.immediate_token.cancel();
                front.upstreams().iter().for_each(Upstream::stop_tunnels);
                serving.await;
                ShutdownResult::Cut
            }
        };
        let resign = OptionFuture::from(leader.as_deref().map(Leader::resign));
        let leave = OptionFuture::from(replicas.as_deref().map(Replicas::leave));
        tokio::join!(resign, leave);
        sinks.finish().await;
        if let Some(admin) = admin {
            admin.shut_down().await;
        }
        shutdown_result
    }
}

fn leader_and_replicas(
    connections: &Connections,
    audits: Option<&Audits>,
    lease: String,
    drivers: Option<Drivers>,
) -> (Option<Arc<Leader>>, Option<Arc<Replicas>>) {
    let Connections {
        cluster,
        chain_store: chains,
        webhooks,
        goes_live_together: together,
        ..
    } = connections;
    let leader = cluster.as_ref().and_then(|cluster| {
        let (chains, webhooks) = (chains.clone(), webhooks.clone());
        Leader::new(
            cluster,
            chains,
            webhooks,
            audits.cloned(),
            lease,
            ElectionTimes::default(),
        )
    });
    let replicas = match &leader {
        Some(leader) => together.then(|| leader.replicas()),
        None => drivers.map(Replicas::new),
    };
    (leader.map(Arc::new), replicas.map(Arc::new))
}

async fn serve(front: Arc<dyn OpenedFront>, handler: FrontEndHandler) {
    // A tunnel, such as a WebSocket, runs on the same threads as the connection on which it was opened, but may live
    // longer than this connection. So the threads are kept until all tunnels have ended.
    let (workers, stop) = (handler.workers.clone(), handler.stop.clone());
    let stop_front = async {
        stop.graceful_token.cancelled().await;
        front.stop();
    };
    tokio::join!(front.serve(handler), stop_front);
    front.wait_for_tunnels().await;
    drop(workers);
}

/// Does the driver's background work until the future is dropped.
async fn run_background_tasks(
    status_sources: &StatusSources,
    access: Option<AdminAccess>,
    namespaces: Option<FileNamespaces>,
    leader: Option<&Leader>,
) {
    let access = OptionFuture::from(access.as_ref().map(AdminAccess::follow));
    let namespaces = OptionFuture::from(namespaces.map(FileNamespaces::follow));
    let webhooks = OptionFuture::from(status_sources.webhooks.as_ref().map(Webhooks::follow));
    let leader = OptionFuture::from(leader.map(|leader| leader.follow(&status_sources.host)));
    let replicas = async {
        if let Some(replicas) = &status_sources.replicas {
            let registrations = status_sources.registrations.follow(replicas.readiness());
            tokio::join!(replicas.follow(&status_sources.host), registrations);
        }
    };
    let readiness = async {
        if let Some(ready) = status_sources
            .front
            .becomes_ready()
            .filter(|_| status_sources.replicas.is_none())
        {
            ready.await;
            status_sources.registrations.follow(watch::channel(true).1).await;
        }
    };
    tokio::join!(
        status_sources.host.clone().follow(),
        status_sources.front.follow(),
        join_all(status_sources.tls.iter().flatten().map(ServerTls::keep_fresh)),
        status_sources.registrations.update_metrics(),
        status_sources.ensembles.update_metrics(),
        access,
        namespaces,
        webhooks,
        leader,
        replicas,
        readiness,
    );
    std::future::pending().await
}
