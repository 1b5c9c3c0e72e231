//! The ports of the driver: where it listens, and what connections may take.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use admittance_admin::{Access, AdminConfig, AdminService, RenderMetrics, Sources};
use admittance_net::{
    limits::default_connections,
    listener::{ConnectionLimits, Listener, Stop, TransferLimits},
    tls::ServerTls,
};
use tokio::task::JoinHandle;

use crate::{Error, Limits, config::ListenConfig, status::Observed};

/// The maximum number of connections of the admin port.
const ADMIN_CONNECTIONS: usize = 256;
/// The time that clients of the admin port get at shutdown.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<ServerTls>,
}

impl Port {
    /// The port for clients. `upstream_timeout` is that of the upstream; `None` without one.
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

pub(crate) struct AdminPort {
    pub(crate) port: Port,
    pub(crate) access: Access,
    metrics: RenderMetrics,
}

impl std::fmt::Debug for AdminPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminPort")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl AdminPort {
    pub(crate) async fn bind(
        config: AdminConfig,
        limits: &Limits,
        metrics: RenderMetrics,
    ) -> Result<Self, Error> {
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

    pub(crate) fn serve(self, observed: Arc<Observed>) -> AdminServer {
        let sources = Sources {
            host: observed.host.clone(),
            is_stopping: observed.is_stopping.clone(),
            metrics: self.metrics,
            health: {
                let observed = observed.clone();
                Box::new(move || observed.front.health(observed.ip))
            },
            status: Box::new(move || observed.status()),
        };
        let service = AdminService::new(self.access, sources);
        let stop = Stop::default();
        AdminServer {
            server: tokio::spawn(self.port.listener.serve(service, stop.clone())),
            stop,
        }
    }
}

/// The admin port while it is served.
pub(crate) struct AdminServer {
    server: JoinHandle<()>,
    stop: Stop,
}

impl AdminServer {
    pub(crate) async fn end(mut self) {
        self.stop.graceful.cancel();
        if tokio::time::timeout(LAST_ANSWERS, &mut self.server)
            .await
            .is_err()
        {
            tracing::debug!("aborting a connection to the admin port");
            self.stop.now.cancel();
            // It cannot fail: it does not panic and is not aborted.
            let _ = self.server.await;
        }
    }
}
