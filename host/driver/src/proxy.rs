//! The chains in front of a control plane to which requests are forwarded unchanged.

use std::{convert::Infallible, sync::Arc};

use admittance::{BodyLimits, Host, Passage};
use admittance_dialect::{Dialect, End};
use admittance_net::upstream::{Choice, Server, Servers, Upstream, UpstreamConfig};
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, Service, service_fn, util::BoxCloneSyncService};

/// Cheap to clone; lives as long as its port.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    chains: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
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
        let upstream = Upstream::new(Servers::Listed(servers), Choice::Turns, config);
        let layer = host
            .layer_with(dialect.clone())
            .body_limit(limits.size)
            .body_timeout(limits.time);
        let behind = (upstream.clone(), dialect.clone());
        let forward = service_fn(move |request: Request<Body>| {
            let (upstream, dialect) = behind.clone();
            async move {
                let reply = upstream.send(request).await;
                Ok::<_, Infallible>(reply.unwrap_or_else(|error| {
                    let end = End::from(error);
                    Passage::Ended(end.as_str()).mark(dialect.reply(&end).map(Body::from))
                }))
            }
        });
        Self {
            chains: BoxCloneSyncService::new(layer.layer(forward)),
            upstream,
            dialect,
        }
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        match self.chains.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    pub(crate) fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        self.dialect.reply(end)
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }
}
