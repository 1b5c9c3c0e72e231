//! Connection pools for the requests of plugins.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use admittance_admission::IpNet;
use admittance_net::{
    informational::{LimitedStream, limited},
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

use crate::{OutboundConfig, address::Resolver};

/// A lost SYN is sent again after a second, and may still be answered.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An idle connection is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of idle connections to each server that are kept.
const IDLE_CONNECTIONS: usize = 16;

/// The number of pools that are kept. Grants name few different networks.
const POOLS: usize = 64;

/// A pool of connections.
pub(crate) type Pool = Client<
    BoxCloneSyncService<Uri, LimitedStream<MaybeHttpsStream<TokioIo<TcpStream>>>, BoxError>,
    Full<Bytes>,
>;

/// The pools of connections, one for all grants with the same networks: a connection to an address that one stage
/// may use is never used for another stage. Lives as long as the program.
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
            tls: tls::client(Trust::SystemAnd(config.ca.as_deref()), None)?,
            fixed: Arc::new(fixed.collect()),
            pools: Mutex::default(),
        })
    }

    /// The pool for grants with these networks.
    pub(crate) fn of(&self, networks: Vec<IpNet>) -> Pool {
        // Nothing panics halfway through a change of the map.
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&networks) {
            return pool.clone();
        }
        // Which of them belong to definitions that are gone is not known.
        if pools.len() >= POOLS {
            pools.clear();
        }
        let pool = self.pool(&networks);
        pools.insert(networks, pool.clone());
        pool
    }

    fn pool(&self, networks: &[IpNet]) -> Pool {
        let resolver = Resolver {
            fixed: self.fixed.clone(),
            networks: networks.into(),
        };
        let mut tcp = tcp_connector_with(service_fn(move |name| resolver.clone().resolve(name)));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            // An origin with http is on a loopback interface.
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // Only for a request of which nothing was sent.
            .retry_canceled_requests(true)
            .build(BoxCloneSyncService::new(https.map_response(limited)))
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools")
            .field("fixed", &self.fixed)
            .finish_non_exhaustive()
    }
}
