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
    AddressOverrides, Error,
    connect::{Connector, connector},
    tls,
};

/// A connection to a webhook's server is closed after it was idle for this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The maximum number of idle connections that are kept for each webhook server.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// The interval of HTTP/2 pings, which reveal soon that the server of a connection is gone.
const PING_INTERVAL: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type PooledClient = Client<Connector, Full<Bytes>>;

/// The pools of connections to webhook servers, and the overrides of their addresses. Cheap to clone.
///
/// Webhooks that trust the same CAs share a pool. Therefore they share connections to the same server, and keep them
/// when their definitions are reloaded. A pool is closed when its last webhook is dropped.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("WebhookClients {{ resolve: {:?}, .. }}", _0.address_overrides)]
pub struct WebhookClients(Arc<SharedClients>);

#[derive(Default)]
struct SharedClients {
    address_overrides: Arc<AddressOverrides>,
    accepts_short_keys: bool,
    pools: Mutex<HashMap<ClientKey, Weak<PooledClient>>>,
}

#[derive(PartialEq, Eq, Hash)]
struct ClientKey {
    ca_bundle: Option<Vec<CertificateDer<'static>>>,
    connect_timeout: Duration,
}

impl WebhookClients {
    /// Creates clients without connections. Names that are missing in `resolve` are looked up in DNS.
    pub fn new(resolve: AddressOverrides) -> Self {
        Self::create(resolve, false)
    }

    /// Creates clients like [`new`](Self::new), but these also accept CAs with RSA keys of 1024 to 2047 bits.
    pub fn with_short_keys(resolve: AddressOverrides) -> Self {
        Self::create(resolve, true)
    }

    fn create(resolve: AddressOverrides, accepts_short_keys: bool) -> Self {
        Self(Arc::new(SharedClients {
            address_overrides: Arc::new(resolve),
            accepts_short_keys,
            pools: Mutex::default(),
        }))
    }

    pub(crate) fn client(
        &self,
        ca_bundle: Option<&[CertificateDer<'static>]>,
        connect_timeout: Duration,
    ) -> Result<Arc<PooledClient>, Error> {
        let key = ClientKey {
            ca_bundle: ca_bundle.map(<[_]>::to_vec),
            connect_timeout,
        };
        let mut pools = self.0.pools.lock();
        if let Some(client) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let tls = tls::client_config(ca_bundle, self.0.accepts_short_keys)?;
        let connector = connector(tls, self.0.address_overrides.clone(), connect_timeout);
        let client = Arc::new(
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
                .http2_keep_alive_interval(PING_INTERVAL)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .http2_keep_alive_while_idle(true)
                // A request is sent again only if the idle connection was closed before any byte of it was sent.
                .retry_canceled_requests(true)
                .build(connector),
        );
        pools.retain(|_, client| client.strong_count() > 0);
        pools.insert(key, Arc::downgrade(&client));
        Ok(client)
    }
}
