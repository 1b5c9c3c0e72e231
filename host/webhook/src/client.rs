use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

use crate::{
    Error, Resolve,
    connect::{Connector, connector},
    tls,
};

/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The number of idle connections that are kept for each server.
const IDLE_CONNECTIONS: usize = 64;

/// The interval of HTTP/2 pings. All calls share one connection, so a dead peer must be noticed soon.
const PING_INTERVAL: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type PooledClient = Client<Connector, Full<Bytes>>;

/// The connection pools of all webhooks, and their address overrides. Cheap to clone.
///
/// Webhooks that trust the same CAs share a pool, so they share connections to the same server, even across a reload of
/// their definitions. A pool is closed when its last webhook is dropped.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("WebhookClients {{ resolve: {:?}, .. }}", _0.resolve)]
pub struct WebhookClients(Arc<Shared>);

#[derive(Default)]
struct Shared {
    resolve: Arc<Resolve>,
    accepts_short_keys: bool,
    pools: Mutex<HashMap<Key, Weak<PooledClient>>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    ca_bundle: Option<Vec<CertificateDer<'static>>>,
    connect_timeout: Duration,
}

impl WebhookClients {
    /// Creates empty pools. `resolve` overrides the addresses of some host names; DNS resolves the others.
    pub fn new(resolve: Resolve) -> Self {
        Self::create(resolve, false)
    }

    /// Creates empty pools like [`new`](Self::new), and also trusts CAs with RSA keys of 1024 to 2047 bits.
    pub fn accepting_short_keys(resolve: Resolve) -> Self {
        Self::create(resolve, true)
    }

    fn create(resolve: Resolve, accepts_short_keys: bool) -> Self {
        Self(Arc::new(Shared {
            resolve: Arc::new(resolve),
            accepts_short_keys,
            pools: Mutex::default(),
        }))
    }

    pub(crate) fn client(
        &self,
        ca_bundle: Option<&[CertificateDer<'static>]>,
        connect_timeout: Duration,
    ) -> Result<Arc<PooledClient>, Error> {
        let key = Key {
            ca_bundle: ca_bundle.map(<[_]>::to_vec),
            connect_timeout,
        };
        let mut pools = self.0.pools.lock();
        if let Some(client) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let tls = tls::client_config(ca_bundle, self.0.accepts_short_keys)?;
        let connector = connector(tls, self.0.resolve.clone(), connect_timeout);
        let client = Arc::new(
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
                .http2_keep_alive_interval(PING_INTERVAL)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .http2_keep_alive_while_idle(true)
                // A request is retried only if the server had closed the idle connection before any byte was sent. A
                // POST that may have arrived is never sent again.
                .retry_canceled_requests(true)
                .build(connector),
        );
        pools.retain(|_, client| client.strong_count() > 0);
        pools.insert(key, Arc::downgrade(&client));
        Ok(client)
    }
}
