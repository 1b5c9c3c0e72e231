use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::{
    client::legacy::{
        Client, Error,
        connect::{Connected, Connection, HttpConnector, dns::GaiResolver},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::{
    BoxError, Service, ServiceExt, service_fn,
    timeout::Timeout,
    util::{BoxCloneSyncService, Oneshot},
};

use crate::{
    body::ReplayBody,
    informational::{LimitedStream, limited},
    tls::ClientTls,
    workers,
};

/// Upstreams usually close idle connections after a minute or more; closing them earlier avoids sending a
/// request on a connection that is being closed.
const IDLE: Duration = Duration::from_secs(30);
/// The silence on a connection after which TCP sends a keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to servers, with TLS if their URL says so.
pub type Connector = BoxCloneSyncService<Uri, LimitedStream<MaybeHttpsStream<Wire>>, BoxError>;

/// Connects to the server at a URL, without TLS: by TCP, or in another way.
pub type Dial = BoxCloneSyncService<Uri, Wire, BoxError>;

/// A connection, however it was made.
pub struct Wire {
    stream: Box<dyn WireStream>,
    is_to_proxy: bool,
}

trait WireStream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> WireStream for T {}

impl Wire {
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::of(TokioIo::new(stream))
    }

    pub(crate) fn of(stream: impl Read + Write + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            is_to_proxy: false,
        }
    }

    /// Marks that the connection ends at a proxy, so that the URLs of requests have to name the server.
    pub(crate) fn with_proxy(self) -> Self {
        Self {
            is_to_proxy: true,
            ..self
        }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_to_proxy)
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}

fn tcp() -> Dial {
    let tcp = tcp_connector();
    let dial = service_fn(move |server: Uri| {
        let connecting = tcp.clone().oneshot(server);
        async move { Ok::<_, BoxError>(Wire::of(connecting.await?)) }
    });
    BoxCloneSyncService::new(dial)
}

/// The pooled connections to the upstream: a pool for each of the workers, and one for other threads.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    of_workers: Vec<Client<SharedConnector, ReplayBody>>,
    of_others: Client<SharedConnector, ReplayBody>,
}

/// A connector that is cheap to clone: the client clones it for each request, also if it has a connection.
#[derive(Clone, Debug)]
struct SharedConnector(Arc<Connector>);

impl Service<Uri> for SharedConnector {
    type Response = <Connector as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Oneshot<Connector, Uri>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        Connector::clone(&self.0).oneshot(server)
    }
}

/// Makes TCP connections, to which a layer above may add TLS.
pub fn tcp_connector() -> HttpConnector {
    tcp_connector_with(GaiResolver::new())
}

/// Returns a TCP connector with another way to resolve host names.
pub fn tcp_connector_with<R>(resolver: R) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    // The TLS layer above accepts or refuses the scheme.
    tcp.enforce_http(false);
    // A request is one small write and one read, so Nagle's algorithm would only add latency.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp
}

/// Returns a connector over TCP. `connect_timeout` is for DNS, connection and TLS handshake together.
pub fn connector(tls: ClientTls, connect_timeout: Duration) -> Connector {
    over(tcp(), tls, connect_timeout)
}

pub(crate) fn over(dial: Dial, tls: ClientTls, connect_timeout: Duration) -> Connector {
    let names: Arc<dyn ResolveServerName + Send + Sync> = {
        let tls = tls.clone();
        Arc::new(move |server: &Uri| tls.server_name(server))
    };
    // Each connection uses the current configuration. Sessions are resumed as long as it stays the same.
    let connector = service_fn(move |server: Uri| {
        HttpsConnector::new(dial.clone(), tls.current(), false, names.clone())
            .map_response(limited)
            .oneshot(server)
    });
    BoxCloneSyncService::new(Timeout::new(connector, connect_timeout))
}

impl Pool {
    /// Connects by `dial`, or by TCP without it. `connect_timeout` is for DNS, connection and TLS handshake together.
    pub(super) fn new(dial: Option<Dial>, tls: ClientTls, connect_timeout: Duration) -> Self {
        let connector = over(dial.unwrap_or_else(tcp), tls, connect_timeout);
        let connector = SharedConnector(Arc::new(connector));
        let client = || {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_timer(TokioTimer::new())
                .build(connector.clone())
        };
        Self {
            of_workers: (0..workers::count()).map(|_| client()).collect(),
            of_others: client(),
        }
    }

    pub(super) async fn request(&self, request: Request<ReplayBody>) -> Result<Response<Incoming>, Error> {
        let of_worker = workers::index().and_then(|index| self.of_workers.get(index));
        of_worker.unwrap_or(&self.of_others).request(request).await
    }
}
