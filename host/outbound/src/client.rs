//! Connection pools for the requests of plugins.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use admittance_admission::IpNet;
use admittance_net::{
    informational::{LimitedStream, limit_informational},
    tls::{self, TlsError, Trust},
    upstream::tcp_connector_with,
};
use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{BoxError, ServiceExt as _, service_fn, util::BoxCloneSyncService};

use crate::{OutboundConfig, address::GrantResolver};

/// The time limit for connecting to a server. If the first packet is lost, TCP sends it again after one second. The
/// server then has one more second to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The time after which an idle connection to a server is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of idle connections to each server.
const IDLE_CONNECTIONS: usize = 16;

/// The maximum number of connection pools. Grants with the same list of allowed networks share a pool, and few
/// different lists are in use.
const MAX_POOLS: usize = 64;

pub(crate) type Pool =
    Client<BoxCloneSyncService<Uri, LimitedStream<MaybeHttpsStream<TokioIo<TcpStream>>>, BoxError>, Full<Bytes>>;

/// One connection pool for each list of networks, so that no request uses a connection that its grant forbids.
#[derive(derive_more::Debug)]
#[debug("Pools {{ fixed: {fixed:?}, .. }}")]
pub(crate) struct Pools {
    tls: ClientConfig,
    fixed: Arc<BTreeMap<String, IpAddr>>,
    pools: Mutex<HashMap<Vec<IpNet>, Pool>>,
}

impl Pools {
    pub(crate) fn new(config: &OutboundConfig) -> Result<Self, TlsError> {
        let names = config.resolve.iter();
        let fixed = names.map(|(name, address)| (name.to_ascii_lowercase(), *address));
        Ok(Self {
            tls: tls::client_config(Trust::SystemAnd(config.ca.as_deref()), None)?,
            fixed: Arc::new(fixed.collect()),
            pools: Mutex::default(),
        })
    }

    pub(crate) fn pool_for(&self, networks: Vec<IpNet>) -> Pool {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&networks) {
            return pool.clone();
        }
        // There are too many pools. It is unknown which of them will be needed again, so all of them are dropped.
        if pools.len() >= MAX_POOLS {
            pools.clear();
        }
        let pool = self.new_pool(&networks);
        pools.insert(networks, pool.clone());
        pool
    }

    fn new_pool(&self, networks: &[IpNet]) -> Pool {
        let resolver = GrantResolver {
            fixed: self.fixed.clone(),
            networks: networks.into(),
        };
        let mut tcp = tcp_connector_with(service_fn(move |name| resolver.clone().resolve(name)));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            // Plain HTTP is safe here, because a grant allows it only to loopback addresses.
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // If a reused connection is found closed, the request is sent again only if none of its bytes was sent.
            .retry_canceled_requests(true)
            .build(BoxCloneSyncService::new(https.map_response(limit_informational)))
    }
}
