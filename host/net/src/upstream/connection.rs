use std::{sync::Arc, time::Duration};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::{BoxError, ServiceExt, service_fn, timeout::Timeout, util::BoxCloneSyncService};

use crate::{body::ReplayBody, tls::ClientTls};

/// Upstreams usually close idle connections after a minute or more; closing them earlier avoids sending a
/// request on a connection that is being closed.
const IDLE: Duration = Duration::from_secs(30);
/// TCP keepalive is sent after this much silence.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to servers, with TLS if their URL says so.
pub type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// The pooled connections to the upstream.
#[derive(Clone, Debug)]
pub(super) struct Pool(Client<Connector, ReplayBody>);

/// For connections to which TLS may be added.
pub fn tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // The TLS layer above decides about the scheme.
    tcp.enforce_http(false);
    // A request is one small write and one read, so Nagle's algorithm would only add latency.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp
}

/// `connect_timeout` is for DNS, connection and TLS handshake together.
pub fn connector(tls: ClientTls, connect_timeout: Duration) -> Connector {
    let tcp = tcp_connector();
    // The current configuration at each connection. Sessions are resumed as long as it stays the same.
    let names: Arc<dyn ResolveServerName + Send + Sync> = {
        let tls = tls.clone();
        Arc::new(move |server: &Uri| tls.server_name(server))
    };
    let connector = service_fn(move |server: Uri| {
        HttpsConnector::new(tcp.clone(), tls.current(), false, names.clone()).oneshot(server)
    });
    BoxCloneSyncService::new(Timeout::new(connector, connect_timeout))
}

impl Pool {
    /// `connect_timeout` is for DNS, connection and TLS handshake together.
    pub(super) fn new(tls: ClientTls, connect_timeout: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector(tls, connect_timeout));
        Self(client)
    }

    pub(super) async fn request(&self, request: Request<ReplayBody>) -> Result<Response<Incoming>, Error> {
        self.0.request(request).await
    }
}
