mod serving;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance::Host;
use admittance_cluster::Cluster;
use admittance_net::{
    limits::default_connections,
    listener::{ConnectionLimits, Listener, Stop, TransferLimits},
    tls::ServerTls,
    upstream::Upstream,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::serving::Serving;
use crate::{
    admin::{self, Access, AdminService, RECORDINGS, RenderMetrics},
    config::{AdminConfig, Config, Limits},
    discovery::Discovery,
    ensembles::Ensembles,
    forwarding::Forwarding,
    front::Front,
    gateway::Gateway,
    namespaces::{FileNamespaces, NamespacesConfig},
    registration::{self, Ports, Registrar, RegistrationError, Registrations},
};

/// How many connections the operator's port takes.
const ADMIN_CONNECTIONS: usize = 256;
/// For clients of the operator's port at the very end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why the driver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port cannot be had.
    #[error("{setting}: {address} cannot be listened on: {source}")]
    Bind {
        /// The setting that names it: `listen.address` or `admin.address`.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A setting needs an ensemble that was not opened.
    #[error("{setting} needs the ensemble `{ensemble}`, which is not known")]
    NoEnsemble {
        /// `upstream.discover`, for instance.
        setting: &'static str,
        /// `zookeeper.cluster`, for instance.
        ensemble: &'static str,
    },
    /// It cannot be registered.
    #[error("registration: {0}")]
    Registration(#[from] RegistrationError),
}

/// The front door with its ports bound. Requests that come before [`run`](Self::run) wait.
#[derive(Debug)]
pub struct Driver {
    listener: Listener,
    address: SocketAddr,
    admin_listener: Option<(Listener, SocketAddr)>,
    admin: admin::Parts,
    front: Front,
    forwarding: Option<Forwarding>,
    upstream: Option<Upstream>,
    gateway: Option<Gateway>,
    discovery: Option<Discovery>,
    registrar: Option<Registrar>,
    limits: Limits,
    namespaces: Option<FileNamespaces>,
}

/// Says when the driver is to stop. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    graceful: CancellationToken,
    now: CancellationToken,
}

/// How the driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every request in flight was answered.
    Cleanly,
    /// The shutdown timeout, or a second signal, cut some off.
    Cut,
}

impl Shutdown {
    /// First call: accept no more, and finish what is in flight. Second call: stop now.
    pub fn signal(&self) {
        if self.graceful.is_cancelled() {
            self.now.cancel();
        } else {
            self.graceful.cancel();
        }
    }
}

impl Driver {
    /// Bind the ports. `metrics` writes what `/metrics` shows; `ensembles` are those of the configuration.
    ///
    /// The limits that are the host's own (`limits.request_timeout`, `sandbox`, `definitions` and so on)
    /// must have been given to the host when it was built.
    pub async fn bind(
        config: Config,
        ensembles: Ensembles,
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
        let bind_error = |setting, address| {
            move |source| Error::Bind {
                setting,
                address,
                source,
            }
        };
        let upstream_timeout = front.upstream().map(|upstream| upstream.response_timeout);
        let listener = Listener::bind(
            listen.address,
            listen.tls.clone(),
            connection_limits(&limits, upstream_timeout),
        )
        .await
        .map_err(bind_error("listen.address", listen.address))?;
        let address = listener
            .address()
            .map_err(bind_error("listen.address", listen.address))?;
        let admin_listener = match &admin {
            None => None,
            Some(config) => {
                let address = config.address();
                let tls = config.tls().map(|tls| tls.server.clone());
                let limits = ConnectionLimits {
                    connections: ADMIN_CONNECTIONS,
                    ..connection_limits(&limits, None)
                };
                let listener = Listener::bind(address, tls, limits)
                    .await
                    .map_err(bind_error("admin.address", address))?;
                let bound = listener.address().map_err(bind_error("admin.address", address))?;
                Some((listener, bound))
            }
        };
        let is_stopping = Arc::new(AtomicBool::new(false));
        let ports = Ports {
            address,
            is_tls: listen.tls.is_some(),
            admin: admin_listener.as_ref().map_or(0, |(_, address)| address.port()),
        };
        let Serving {
            service,
            forwarding,
            upstream,
            discovery,
            gateway,
            registrar,
            bcs_health,
        } = Serving::new(front, ports, &ensembles, &host, &limits)?;
        if let Some(gateway) = &gateway {
            gateway.tell(address, listen.tls.is_some());
        }
        Ok(Self {
            front: Front::new(service, limits.concurrency, limits.streams, is_stopping.clone()),
            admin: admin::Parts {
                tls: listen.tls,
                own_tls: admin
                    .as_ref()
                    .and_then(AdminConfig::tls)
                    .map(|tls| tls.server.clone()),
                access: Access::new(&admin.unwrap_or_else(|| AdminConfig::new(address))),
                host,
                upstream: upstream.clone(),
                gateway: gateway.clone(),
                bcs_health,
                ensembles,
                registrations: Vec::new(),
                discovery: discovery.clone(),
                cluster: None,
                is_stopping,
                recordings: Arc::new(Semaphore::new(RECORDINGS)),
                metrics,
            },
            listener,
            address,
            admin_listener,
            forwarding,
            upstream,
            gateway,
            discovery,
            registrar,
            limits,
            namespaces: match namespaces {
                NamespacesConfig::Listed(_) => None,
                NamespacesConfig::File(file) => Some(file),
            },
        })
    }

    /// Show how this cluster is at the operator's port: the one that the host asks. It is also the one that requests
    /// about custom resources are handed on to.
    pub fn showing(mut self, cluster: Option<Cluster>) -> Self {
        if let (Some(forwarding), Some(cluster)) = (&self.forwarding, &cluster) {
            forwarding.reach(cluster.clone());
        }
        self.admin.cluster = cluster;
        self
    }

    /// Where it listens: with the port that the system chose, when the configuration says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the operator's endpoints are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_listener.as_ref().map(|(_, address)| *address)
    }

    /// Serve until told to stop, and end what is in flight.
    pub async fn run(self, shutdown: Shutdown) -> Stopped {
        let Self {
            listener,
            admin_listener,
            mut admin,
            front,
            upstream,
            gateway,
            // It is followed as long as this is there.
            discovery: _discovery,
            registrar,
            limits,
            namespaces,
            ..
        } = self;
        let Limits {
            shutdown_delay,
            shutdown_timeout,
            ..
        } = limits;
        let refreshing = keep_tls_fresh([admin.tls.clone(), admin.own_tls.clone()], admin.upstream.clone());
        let access = admin.access.clone();
        let is_stopping = admin.is_stopping.clone();
        let host = admin.host.clone();
        let ensembles = admin.ensembles.clone();
        // Its port is bound: who connects from now on is answered.
        let registrations = registrar.map(Registrar::register);
        admin.registrations = registrations.iter().flat_map(Registrations::status).collect();
        let telling = registration::measure(admin.registrations.clone());
        // The operator's port outlives the other, to show how it ends.
        let admin_stop = Stop::default();
        let admin_server = admin_listener.map(|(listener, _)| {
            let service = AdminService::new(admin.into());
            tokio::spawn(listener.serve(service, admin_stop.clone()))
        });
        let stop = Stop::default();
        let serving = {
            let (upstream, gateway, stop) = (upstream.clone(), gateway.clone(), stop.clone());
            async move {
                listener.serve(front, stop).await;
                if let Some(upstream) = upstream {
                    upstream.tunnels_ended().await;
                }
                if let Some(gateway) = gateway {
                    gateway.tunnels_ended().await;
                }
            }
        };
        let following = host.follow();
        let checking = async {
            if let Some(upstream) = &upstream {
                upstream.check_health().await;
            }
        };
        let renewing = async {
            if let Some(gateway) = &gateway {
                gateway.follow().await;
            }
        };
        let reading = async {
            if let Some(file) = namespaces {
                file.follow().await;
            }
        };
        // None of them ends the driver.
        let background = async {
            tokio::join!(
                checking,
                following,
                refreshing,
                renewing,
                reading,
                telling,
                ensembles.measure(),
                access.follow()
            );
            std::future::pending::<()>().await;
        };
        let stopping = async {
            shutdown.graceful.cancelled().await;
            is_stopping.store(true, Ordering::Relaxed);
            if let Some(registrations) = registrations {
                tokio::select! {
                    () = shutdown.now.cancelled() => {}
                    () = registrations.withdraw() => {}
                }
            }
            if !shutdown_delay.is_zero() {
                tracing::info!(delay = ?shutdown_delay, "stopping: connections are still accepted for a while");
                tokio::select! {
                    () = shutdown.now.cancelled() => {}
                    () = tokio::time::sleep(shutdown_delay) => {}
                }
            }
            tracing::info!(timeout = ?shutdown_timeout, "stopping: requests in flight are finished first");
            stop.graceful.cancel();
            tokio::select! {
                () = shutdown.now.cancelled() => tracing::warn!("told twice to stop: requests in flight are cut off"),
                () = tokio::time::sleep(shutdown_timeout) => {
                    tracing::warn!(timeout = ?shutdown_timeout, "requests in flight took too long and are cut off");
                }
            }
        };
        tokio::pin!(serving);
        let stopped = tokio::select! {
            () = &mut serving => Stopped::Cleanly,
            () = background => Stopped::Cut,
            () = stopping => {
                stop.now.cancel();
                if let Some(upstream) = &upstream {
                    upstream.stop_tunnels();
                }
                if let Some(gateway) = &gateway {
                    gateway.stop_tunnels();
                }
                serving.await;
                Stopped::Cut
            }
        };
        admin_stop.graceful.cancel();
        if let Some(mut server) = admin_server
            && tokio::time::timeout(LAST_ANSWERS, &mut server).await.is_err()
        {
            tracing::debug!("a client of the operator's port is cut off");
            admin_stop.now.cancel();
            // It cannot fail: nothing in it panics, and nobody aborts it.
            let _ = server.await;
        }
        stopped
    }
}

/// What connections may take. `upstream_timeout` is for the servers behind; none when there are none.
fn connection_limits(limits: &Limits, upstream_timeout: Option<Duration>) -> ConnectionLimits {
    ConnectionLimits {
        connections: limits.connections.unwrap_or_else(default_connections),
        header_timeout: limits.header_timeout,
        transfer: TransferLimits {
            client: limits.idle_timeout,
            minimum_rate: limits.minimum_rate,
            // What is answered here may take as long as it wants.
            upstream: upstream_timeout.unwrap_or(limits.stream_idle_timeout),
            stream: limits.stream_idle_timeout,
        },
    }
}

/// Read the TLS files again whenever they change.
async fn keep_tls_fresh(ports: [Option<ServerTls>; 2], upstream: Option<Upstream>) {
    let ports = ports.iter().flatten().map(ServerTls::keep_fresh);
    let ports = futures_util::future::join_all(ports);
    let upstream = async {
        if let Some(upstream) = &upstream {
            upstream.keep_tls_fresh().await;
        }
    };
    tokio::join!(ports, upstream);
}
