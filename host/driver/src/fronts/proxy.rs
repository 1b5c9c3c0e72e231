//! Serves as a proxy, which sends requests through the chains and then forwards them to a control plane.

mod section;

use std::{convert::Infallible, fmt::Debug, sync::Arc};

use admittance::{BodyLimits, Host, Passage};
use admittance_bcs::{
    ConnectedUpstream, SchedulersConfig,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_dialect::{Dialect, EndReason};
use admittance_net::upstream::{Choice, Servers, Upstream, UpstreamConfig, UpstreamServer};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use tower::{Layer, Service, service_fn};

pub(crate) use self::section::parse_method;
use super::{
    FrontConfig, FrontReply, FrontRow, FrontService, OpenedFront, StartContext, StartedFront, refuse_registration,
};
use crate::{
    Error,
    config::{check_lists, refuse_discovery, upstream_section},
    handler::FrontEndHandler,
};

#[derive(Clone, Debug)]
pub struct ProxyConfig {
    pub dialect: Arc<dyn Dialect>,
    /// The servers of the control plane, at least one.
    pub servers: Vec<UpstreamServer>,
    pub upstream: UpstreamConfig,
}

pub(super) const ROW: FrontRow = FrontRow {
    key: "rest",
    example: "rest: { routes: [ ... ] }",
    admin_routes: Vec::new,
    read: |node, fields, sections| {
        let dialect = section::read_dialect(node);
        refuse_registration(fields);
        let (servers, upstream, lists) = upstream_section(fields, sections)?;
        let SchedulersConfig::Listed(servers) = servers else {
            let why = "only schedulers of BCS can be discovered";
            return refuse_discovery(fields, why, "write `servers`");
        };
        let config = ProxyConfig {
            dialect: Arc::new(dialect?),
            servers,
            upstream,
        };
        let lists = check_lists(lists, &config)?;
        Some((Box::new(config), lists))
    },
};

#[async_trait]
impl FrontConfig for ProxyConfig {
    fn dialect_name(&self) -> &str {
        self.dialect.name()
    }

    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error> {
        Ok(Proxy::start(*self, context.host, context.body_limits))
    }

    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        Some(self.dialect.clone())
    }

    fn upstream(&self) -> Option<&UpstreamConfig> {
        Some(&self.upstream)
    }

    fn servers(&self) -> &[UpstreamServer] {
        &self.servers
    }

    fn set_servers(&mut self, servers: Vec<UpstreamServer>) -> Result<(), &'static str> {
        self.servers = servers;
        Ok(())
    }

    fn connect(&self, _: &Ensembles) -> Result<Option<ConnectedUpstream>, NoEnsemble> {
        let servers = Servers::Listed(self.servers.clone());
        Ok(Some(
            Upstream::new(servers, Choice::Turns, self.upstream.clone()).into(),
        ))
    }
}

#[derive(Clone, Debug)]
struct Proxy<C> {
    chains: C,
    upstream: Upstream,
    dialect: Arc<dyn Dialect>,
}

impl Proxy<()> {
    fn start(config: ProxyConfig, host: &Host, limits: BodyLimits) -> StartedFront {
        let upstream = Upstream::new(Servers::Listed(config.servers), Choice::Turns, config.upstream);
        let dialect = config.dialect;
        let layer = host.layer_with_shared_dialect(dialect.clone()).body_limits(limits);
        let upstream_and_dialect = (upstream.clone(), dialect.clone());
        let forward = service_fn(move |request: Request<Body>| {
            let (upstream, dialect) = upstream_and_dialect.clone();
            async move {
                Ok::<_, Infallible>(upstream.send(request).await.unwrap_or_else(|error| {
                    let end = EndReason::from(error);
                    Passage::Ended(end.as_str()).mark_response(dialect.reply(&end).map(Body::from))
                }))
            }
        });
        StartedFront::without_registration(Proxy {
            chains: layer.layer(forward),
            upstream,
            dialect,
        })
    }
}

impl<C> OpenedFront for Proxy<C>
where
    C: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    fn serve(&self, serving: FrontEndHandler) -> BoxFuture<'static, ()> {
        serving.run(self.clone()).boxed()
    }

    fn upstreams(&self) -> Vec<Upstream> {
        vec![self.upstream.clone()]
    }

    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        Some(self.dialect.clone())
    }
}

impl<C> FrontService for Proxy<C>
where
    C: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    async fn answer(&self, request: Request<Body>) -> FrontReply {
        match self.chains.clone().call(request).await {
            Ok(response) => response.into(),
            Err(never) => match never {},
        }
    }

    fn reply_to_ended(&self, _: &str, end: &EndReason<'_>) -> Response<Body> {
        self.dialect.reply(end).map(Body::from)
    }
}
