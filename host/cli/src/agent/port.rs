//! The port on which an agent reports its health and its metrics.

use std::{future::pending, net::SocketAddr, time::Duration};

use admittance_gateway::tunnel::agent::AgentStatus;
use admittance_net::listener::{
    BodyTransfer, ConnectedClient, ConnectionLimits, Listener, RequestHandler, StopSignals, TransferLimits,
};
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use tokio::sync::watch;

use crate::{exporter::ExportedMetrics, process_metrics};

/// Few connections suffice, because only probes and one scraper of metrics connect.
const LIMITS: ConnectionLimits = ConnectionLimits {
    max_connections: 32,
    header_timeout: Duration::from_secs(10),
    transfer: TransferLimits {
        client_timeout: Duration::from_secs(10),
        minimum_rate: 0,
        upstream_timeout: Duration::from_secs(10),
        stream_timeout: Duration::from_secs(10),
    },
};

pub(super) struct AgentPort {
    listener: Listener,
    handler: AgentHandler,
}

#[derive(Clone)]
struct AgentHandler {
    metrics: ExportedMetrics,
    status: watch::Receiver<AgentStatus>,
    needs_tunnel: bool,
}

impl AgentPort {
    pub(super) async fn bind(
        address: SocketAddr,
        status: watch::Receiver<AgentStatus>,
        needs_tunnel: bool,
    ) -> crate::Result<Self> {
        let bound = Listener::bind(address, None, LIMITS).await;
        let listener = bound.map_err(|error| format!("--listen-addr {address}: {error}"))?;
        tracing::info!(address = %listener.address()?, "serving /healthz, /readyz and /metrics");
        let handler = AgentHandler {
            metrics: ExportedMetrics::install()?,
            status,
            needs_tunnel,
        };
        Ok(Self { listener, handler })
    }

    pub(super) async fn serve(port: Option<Self>) {
        if let Some(Self { listener, handler }) = port {
            listener.serve(handler, StopSignals::default(), None).await;
        }
        pending().await
    }
}

impl RequestHandler for AgentHandler {
    const IS_COUNTED: bool = false;

    async fn handle(self, request: Request<Body>, _: ConnectedClient, _: &BodyTransfer) -> Response<Body> {
        let AgentStatus {
            is_reported,
            has_tunnel,
        } = *self.status.borrow();
        let problem = if self.needs_tunnel {
            (!has_tunnel).then_some("no tunnel to the gateway is open")
        } else {
            (!is_reported).then_some("the gateway has not accepted the last report")
        };
        let (code, text) = match request.uri().path() {
            "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match problem {
                Some(problem) => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{problem}; the log says why\n"),
                ),
                None => (StatusCode::OK, "ok\n".to_owned()),
            },
            "/metrics" => {
                process_metrics::collect();
                (StatusCode::OK, self.metrics.render())
            }
            _ => (
                StatusCode::NOT_FOUND,
                "not found: /healthz, /readyz or /metrics\n".to_owned(),
            ),
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = code;
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }
}
