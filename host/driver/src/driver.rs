use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance::Host;
use admittance_admin::{Access, AdminConfig, AdminService, RenderMetrics, Sources};
use admittance_bcs::{
    Ports, Registrar, RegistrationError, Registrations,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_cluster::Cluster;
use admittance_net::{
    limits::default_connections,
    listener::{ConnectionLimits, Listener, Stop, TransferLimits},
    tls::ServerTls,
};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, FrontConfig, Limits},
    front::Front,
    handler::FrontHandler,
    namespaces::{FileNamespaces, NamespacesConfig},
    status::Observed,
};

/// The maximum number of connections of the admin port.
const ADMIN_CONNECTIONS: usize = 256;
/// The time that clients of the admin port get at shutdown.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{setting}: cannot listen on {address}: {source}")]
    Bind {
        /// The setting that names it: `listen.address` or `admin.address`.
        setting: &'static str,
        address: SocketAddr,
        source: std::io::Error,
    },
    /// A setting requires an ensemble that is not connected.
    #[error(transparent)]
    NoEnsemble(#[from] NoEnsemble),
    #[error("registration: {0}")]
    Registration(#[from] RegistrationError),
}

/// The servers that the driver uses in addition to its upstream.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    pub ensembles: Ensembles,
    /// The Kubernetes cluster that the host uses, and to which requests for custom resources are forwarded.
    pub cluster: Option<Cluster>,
}

/// The driver with its ports bound. Requests that arrive before [`run`](Self::run) wait.
#[derive(Debug)]
pub struct Driver {
    port: Port,
    admin: Option<AdminPort>,
    front: Front,
    registrar: Option<Registrar>,
    connections: Connections,
    host: Host,
    limits: Limits,
    namespaces: Option<FileNamespaces>,
}

#[derive(Debug)]
struct Port {
    listener: Listener,
    address: SocketAddr,
    tls: Option<ServerTls>,
}

struct AdminPort {
    port: Port,
    access: Access,
    metrics: RenderMetrics,
}

impl std::fmt::Debug for AdminPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminPort")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Stops the driver. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    graceful: CancellationToken,
    now: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Cleanly,
    /// The shutdown timeout or a second signal aborted some requests.
    Cut,
}

impl Shutdown {
    /// The first call stops accepting connections, and finishes requests in flight. The second call aborts them.
    pub fn signal(&self) {
        if self.graceful.is_cancelled() {
            self.now.cancel();
        } else {
            self.graceful.cancel();
        }
    }
}

impl Port {
    async fn bind(
        setting: &'static str,
        address: SocketAddr,
        tls: Option<ServerTls>,
        limits: ConnectionLimits,
    ) -> Result<Self, Error> {
        let error = |source| Error::Bind {
            setting,
            address,
            source,
        };
        let listener = Listener::bind(address, tls.clone(), limits)
            .await
            .map_err(error)?;
        Ok(Self {
            address: listener.address().map_err(error)?,
            listener,
            tls,
        })
    }
}

impl AdminPort {
    async fn bind(config: AdminConfig, limits: &Limits, metrics: RenderMetrics) -> Result<Self, Error> {
        let tls = config.tls().map(|tls| tls.server.clone());
        let limits = ConnectionLimits {
            connections: ADMIN_CONNECTIONS,
            ..connection_limits(limits, None)
        };
        Ok(Self {
            port: Port::bind("admin.address", config.address(), tls, limits).await?,
            access: Access::new(&config),
            metrics,
        })
    }
}

impl Driver {
    /// Binds the ports. `metrics` renders the reply of `/metrics`; `connections` are those of the configuration.
    ///
    /// The limits that are the host's own (`limits.request_timeout`, `sandbox`, `definitions` and so on)
    /// must have been given to the host when it was built.
    pub async fn bind(
        config: Config,
        connections: Connections,
        host: Host,
        metrics: RenderMetrics,
    ) -> Result<Self, Error> {
        let Config {
            listen,
            admin,
            front,
            limits,
            namespaces,
            ..
        } = config;
        let upstream_timeout = front.upstream().map(|upstream| upstream.response_timeout);
        let connection_limits = connection_limits(&limits, upstream_timeout);
        let port = Port::bind("listen.address", listen.address, listen.tls, connection_limits).await?;
        let admin = match admin {
            Some(config) => Some(AdminPort::bind(config, &limits, metrics).await?),
            None => None,
        };
        let ports = Ports {
            address: port.address,
            is_tls: port.tls.is_some(),
            admin: admin.as_ref().map_or(0, |admin| admin.port.address.port()),
        };
        let registrar = match &front {
            FrontConfig::Bcs(bcs) => bcs
                .registration
                .as_ref()
                .map(|config| Registrar::new(config, &bcs.cluster, ports, &connections.ensembles))
                .transpose()?,
            _ => None,
        };
        let front = Front::new(front, &connections, &host, &limits)?;
        if let Front::Gateway(gateway) = &front {
            gateway.warn_of_port(port.address, port.tls.is_some());
        }
        Ok(Self {
            port,
            admin,
            front,
            registrar,
            connections,
            host,
            limits,
            namespaces: match namespaces {
                NamespacesConfig::Listed(_) => None,
                NamespacesConfig::File(file) => Some(file),
            },
        })
    }

    /// The listen address, with the port that the system chose if the configured one is 0.
    pub fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// The address of the admin port, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.port.address)
    }

    /// Serves until it is stopped, then finishes requests in flight.
    pub async fn run(self, shutdown: Shutdown) -> Stopped {
        let Self {
            port,
            admin,
            front,
            registrar,
            connections,
            host,
            limits,
            namespaces,
        } = self;
        let is_stopping = Arc::new(AtomicBool::new(false));
        // Its port is bound: connections are answered from now on.
        let registrations = registrar.map(Registrar::register).unwrap_or_default();
        let observed = Observed {
            host: host.clone(),
            front: front.clone(),
            ip: port.address.ip(),
            tls: [
                port.tls.clone(),
                admin.as_ref().and_then(|admin| admin.port.tls.clone()),
            ],
            ensembles: connections.ensembles.clone(),
            cluster: connections.cluster,
            registrations: registrations.clone(),
            is_stopping: is_stopping.clone(),
        };
        let background = follow(
            front.clone(),
            host,
            connections.ensembles,
            observed.tls.clone(),
            registrations.clone(),
            admin.as_ref().map(|admin| admin.access.clone()),
            namespaces,
        );
        // The admin port stays open longer, to show the progress of the shutdown.
        let admin_stop = Stop::default();
        let admin_server = admin.map(|admin| serve_admin(admin, observed, admin_stop.clone()));
        let stop = Stop::default();
        let serving = {
            let (front, stop) = (front.clone(), stop.clone());
            let handler = FrontHandler::new(
                front.clone(),
                limits.concurrency,
                limits.streams,
                is_stopping.clone(),
            );
            async move {
                port.listener.serve(handler, stop).await;
                front.tunnels_ended().await;
            }
        };
        tokio::pin!(serving);
        let stopped = tokio::select! {
            () = &mut serving => Stopped::Cleanly,
            () = background => Stopped::Cut,
            () = stop_in_order(&shutdown, &stop, &is_stopping, &registrations, &limits) => {
                stop.now.cancel();
                front.stop_tunnels();
                serving.await;
                Stopped::Cut
            }
        };
        if let Some(server) = admin_server {
            end_admin(server, &admin_stop).await;
        }
        stopped
    }
}

fn serve_admin(admin: AdminPort, observed: Observed, stop: Stop) -> JoinHandle<()> {
    let observed = Arc::new(observed);
    let sources = Sources {
        host: observed.host.clone(),
        is_stopping: observed.is_stopping.clone(),
        metrics: admin.metrics,
        health: {
            let observed = observed.clone();
            Box::new(move || observed.front.health(observed.ip))
        },
        status: Box::new(move || observed.status()),
    };
    let service = AdminService::new(admin.access, sources);
    tokio::spawn(admin.port.listener.serve(service, stop))
}

async fn end_admin(mut server: JoinHandle<()>, stop: &Stop) {
    stop.graceful.cancel();
    if tokio::time::timeout(LAST_ANSWERS, &mut server).await.is_err() {
        tracing::debug!("aborting a connection to the admin port");
        stop.now.cancel();
        // It cannot fail: it does not panic and is not aborted.
        let _ = server.await;
    }
}

/// What goes on beside the requests: definitions, certificates, tokens and namespaces are read again when they
/// change, the health of servers is checked, and metrics are kept up to date. It does not end.
async fn follow(
    front: Front,
    host: Host,
    ensembles: Ensembles,
    tls: [Option<ServerTls>; 2],
    registrations: Registrations,
    access: Option<Access>,
    namespaces: Option<FileNamespaces>,
) {
    let access = async {
        if let Some(access) = access {
            access.follow().await;
        }
    };
    let namespaces = async {
        if let Some(file) = namespaces {
            file.follow().await;
        }
    };
    tokio::join!(
        host.follow(),
        front.follow(),
        join_all(tls.iter().flatten().map(ServerTls::keep_fresh)),
        registrations.update_metrics(),
        ensembles.update_metrics(),
        access,
        namespaces,
    );
    std::future::pending().await
}

/// Waits for the stop signal, then shuts down gracefully. Returns when requests in flight must be aborted.
async fn stop_in_order(
    shutdown: &Shutdown,
    stop: &Stop,
    is_stopping: &AtomicBool,
    registrations: &Registrations,
    limits: &Limits,
) {
    let Limits {
        shutdown_delay: delay,
        shutdown_timeout: timeout,
        ..
    } = *limits;
    shutdown.graceful.cancelled().await;
    is_stopping.store(true, Ordering::Relaxed);
    tokio::select! {
        () = shutdown.now.cancelled() => {}
        () = registrations.withdraw() => {}
    }
    if !delay.is_zero() {
        tracing::info!(?delay, "stopping: connections are still accepted for a while");
        tokio::select! {
            () = shutdown.now.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
    }
    tracing::info!(?timeout, "stopping: requests in flight are finished first");
    stop.graceful.cancel();
    tokio::select! {
        () = shutdown.now.cancelled() => tracing::warn!("second stop signal: aborting requests in flight"),
        () = tokio::time::sleep(timeout) => {
            tracing::warn!(?timeout, "requests in flight took too long: aborting them");
        }
    }
}

/// The limits of connections. `upstream_timeout` is that of the upstream; `None` without one.
fn connection_limits(limits: &Limits, upstream_timeout: Option<Duration>) -> ConnectionLimits {
    ConnectionLimits {
        connections: limits.connections.unwrap_or_else(default_connections),
        header_timeout: limits.header_timeout,
        transfer: TransferLimits {
            client: limits.idle_timeout,
            minimum_rate: limits.minimum_rate,
            // No timeout for these replies.
            upstream: upstream_timeout.unwrap_or(limits.stream_idle_timeout),
            stream: limits.stream_idle_timeout,
        },
    }
}
