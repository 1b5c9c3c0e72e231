//! The chains in front of a control plane to which requests are forwarded unchanged.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use admittance::{AdmissionService, BodyLimits, Host, Passage};
use admittance_bcs::upstream_end;
use admittance_dialect::{Dialect, End};
use admittance_net::upstream::{Choice, Server, Servers, Upstream, UpstreamConfig};
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower::{Layer, Service};

/// Cheap to clone; lives as long as its port.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    chains: AdmissionService<ControlPlane>,
    behind: ControlPlane,
}

/// The control plane, as a `tower` service. Cheap to clone.
#[derive(Clone, Debug)]
struct ControlPlane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Upstream,
    dialect: Arc<dyn Dialect>,
}

impl Proxy {
    pub(crate) fn new(
        dialect: Arc<dyn Dialect>,
        servers: Vec<Server>,
        config: UpstreamConfig,
        host: &Host,
        limits: BodyLimits,
    ) -> Self {
        let layer = host
            .layer_with(dialect.clone())
            .body_limit(limits.size)
            .body_timeout(limits.time);
        let upstream = Upstream::new(Servers::Listed(servers), Choice::Turns, config);
        let behind = ControlPlane(Arc::new(Inner { upstream, dialect }));
        Self {
            chains: layer.layer(behind.clone()),
            behind,
        }
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        match self.chains.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    pub(crate) fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        self.behind.0.dialect.reply(end)
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.behind.0.upstream
    }
}

impl Service<Request<Body>> for ControlPlane {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move {
            let reply = inner.upstream.send(request).await;
            Ok(reply.unwrap_or_else(|error| {
                let end = upstream_end(error);
                Passage::Ended(end.as_str()).mark(inner.dialect.reply(&end).map(Body::from))
            }))
        })
    }
}
