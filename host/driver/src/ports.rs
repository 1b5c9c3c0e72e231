//! Opens the driver's ports, and limits their connections.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use admittance_admin::{AdminAccess, AdminService, AdminSources, DecisionDatabase, RenderMetrics};
use admittance_bcs::HealthInfo;
use admittance_net::{
    budget::BodyBudget,
    limits::default_connections,
    listener::{ConnectionLimits, Listener, StopSignals, TransferLimits},
    tls::ServerTls,
    workers::ServingThread,
};
use axum::response::IntoResponse;
use http::Extensions;
use tokio::task::JoinHandle;

use crate::{
    Config, Error, Limits,
    config::ListenConfig,
    fronts,
    status::{DriverStatus, StatusSources},
};

const ADMIN_CONNECTIONS: usize = 256;
/// The time for which requests to the admin port are answered after the driver has stopped serving clients.
const ADMIN_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OpenPort {
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<ServerTls>,
}

impl OpenPort {
    pub(crate) async fn listen(
        config: ListenConfig,
        limits: &Limits,
        upstream_timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        let limits = connection_limits(limits, upstream_timeout);
        Self::bind("listen.address", config.address, config.tls, limits).await
    }

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
        let listener = Listener::bind(address, tls.clone(), limits).await.map_err(error)?;
        Ok(Self {
            address: listener.address().map_err(error)?,
            listener,
            tls,
        })
    }
}

/// Returns advice for the message that an address cannot be listened on; empty if there is none for this error.
pub fn bind_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop the program that listens there (`ss -ltnp` names it), or write another port"
        }
        io::ErrorKind::PermissionDenied => {
            "; only root may listen there: write a port from 1024 on, or give the service \
             `AmbientCapabilities=CAP_NET_BIND_SERVICE`"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address (`ip address` lists them): write one of its own, or 0.0.0.0"
        }
        _ => "",
    }
}

fn connection_limits(limits: &Limits, upstream_timeout: Option<Duration>) -> ConnectionLimits {
    ConnectionLimits {
        max_connections: limits.connections.unwrap_or_else(default_connections),
        header_timeout: limits.header_timeout,
        transfer: TransferLimits {
            client_timeout: limits.idle_timeout,
            minimum_rate: limits.minimum_rate,
            upstream_timeout: upstream_timeout.unwrap_or(limits.stream_idle_timeout),
            stream_timeout: limits.stream_idle_timeout,
        },
    }
}

/// The admin port. Before the driver runs, it has only metrics and probes: `/healthz` succeeds, and `/readyz` fails.
#[derive(derive_more::Debug)]
#[debug("AdminPort {{ address: {address:?}, .. }}")]
pub struct AdminPort {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) access: AdminAccess,
    /// The memory limit of requests' bodies, which all ports share.
    pub(crate) body_budget: BodyBudget,
    metrics: RenderMetrics,
    service: AdminService,
    /// The thread that serves the admin port's connections and answers probes.
    _thread: ServingThread,
    server: JoinHandle<()>,
    stop: StopSignals,
}

impl AdminPort {
    /// Opens the admin port; returns `None` if it is not configured. `metrics` renders the reply to `/metrics`.
    pub async fn open(config: &Config, metrics: RenderMetrics) -> Result<Option<Self>, Error> {
        let Some(admin) = &config.admin else {
            return Ok(None);
        };
        let tls = admin.tls().map(|tls| tls.server.clone());
        let limits = ConnectionLimits {
            max_connections: ADMIN_CONNECTIONS,
            ..connection_limits(&config.limits, None)
        };
        let OpenPort { listener, address, tls } = OpenPort::bind("admin.address", admin.address(), tls, limits).await?;
        let bodies = config.limits.body_budget();
        let service = AdminService::new(metrics.clone(), bodies.clone());
        let stop = StopSignals::default();
        let thread = ServingThread::start("admin").map_err(Error::Threads)?;
        let serving = listener.serve(service.clone(), stop.clone(), None);
        Ok(Some(Self {
            address,
            tls,
            access: AdminAccess::new(admin),
            body_budget: bodies,
            metrics,
            server: thread.runtime().spawn(serving),
            _thread: thread,
            service,
            stop,
        }))
    }

    /// Returns the address of the admin port. If port 0 is configured, it contains the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the admin port serve the whole API, not only metrics and probes.
    pub(crate) fn start(&self, observed: Arc<StatusSources>, decisions: Option<DecisionDatabase>) {
        let mut extensions = Extensions::new();
        if let Some(accounts) = observed.front.accounts() {
            extensions.insert(accounts.clone());
        }
        let share = |observed: &Arc<StatusSources>| observed.clone();
        let (health, not_ready, overview) = (share(&observed), share(&observed), share(&observed));
        let sources = AdminSources {
            host: observed.host.clone(),
            extensions,
            decisions,
            is_stopping: observed.is_stopping.clone(),
            metrics: self.metrics.clone(),
            dialect: observed.front.dialect(),
            health: Box::new(move || {
                let health = health.front.health(health.address.ip());
                health.map(IntoResponse::into_response)
            }),
            not_ready: Box::new(move || not_ready.not_ready_reason()),
            overview: Box::new(move || overview.status().overview()),
            status: Box::new(move || serde_json::to_value(observed.status())),
        };
        self.service
            .start::<DriverStatus, HealthInfo>(self.access.clone(), sources, fronts::admin_routes());
    }

    pub(crate) async fn shut_down(mut self) {
        self.stop.graceful_token.cancel();
        if tokio::time::timeout(ADMIN_SHUTDOWN_TIMEOUT, &mut self.server)
            .await
            .is_err()
        {
            tracing::debug!("aborting a connection to the admin port");
            self.stop.immediate_token.cancel();
            let _ = self.server.await;
        }
    }
}

#[cfg(test)]
mod tests;
