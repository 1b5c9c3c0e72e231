use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector, dns::GaiResolver},
    rt::TokioIo,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::{BoxError, ServiceExt, service_fn, timeout::Timeout, util::BoxCloneSyncService};

use crate::{
    informational::{LimitedStream, limit_informational},
    tls::ClientTls,
};

/// The time without received bytes after which TCP sends keepalive probes to a server.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A function that connects to the server at a URL, with TLS if the scheme of the URL requires it.
pub type UpstreamConnector = BoxCloneSyncService<Uri, LimitedStream<MaybeHttpsStream<AnyConnection>>, BoxError>;

/// A function that connects to the server at a URL without TLS: by TCP, or through a tunnel.
pub type Dial = BoxCloneSyncService<Uri, AnyConnection, BoxError>;

/// A connection to a server: a TCP connection or a connection of any other type.
#[derive(derive_more::Debug)]
#[debug("AnyConnection")]
pub struct AnyConnection {
    stream: Box<dyn WireStream>,
    is_to_proxy: bool,
}

trait WireStream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> WireStream for T {}

impl AnyConnection {
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::from_hyper(TokioIo::new(stream))
    }

    pub(crate) fn from_hyper(stream: impl Read + Write + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            is_to_proxy: false,
        }
    }

    pub(crate) fn with_proxy(self) -> Self {
        Self {
            is_to_proxy: true,
            ..self
        }
    }
}

impl Connection for AnyConnection {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_to_proxy)
    }
}

impl Read for AnyConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for AnyConnection {
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

pub(super) fn tcp_dial() -> Dial {
    let tcp = tcp_connector();
    let dial = service_fn(move |server: Uri| {
        let connecting = tcp.clone().oneshot(server);
        async move { Ok::<_, BoxError>(AnyConnection::from_hyper(connecting.await?)) }
    });
    BoxCloneSyncService::new(dial)
}

/// Returns a connector for TCP. A layer above it may add TLS.
pub fn tcp_connector() -> HttpConnector {
    tcp_connector_with(GaiResolver::new())
}

/// Returns a connector for TCP that resolves host names with `resolver`.
pub fn tcp_connector_with<R>(resolver: R) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    // By default, this connector accepts only `http` URLs. It has to accept `https` as well, because a layer above it
    // adds TLS and checks the scheme.
    tcp.enforce_http(false);
    // Nagle's algorithm is turned off. It delays small writes, and a request is usually a single small write.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp
}

/// Returns a connector for TCP and TLS. `connect_timeout` limits the time for DNS, TCP and the TLS handshake together.
pub fn new_connector(tls: ClientTls, connect_timeout: Duration) -> UpstreamConnector {
    connector_over(tcp_dial(), tls, connect_timeout)
}

pub(crate) fn connector_over(dial: Dial, tls: ClientTls, connect_timeout: Duration) -> UpstreamConnector {
    let names: Arc<dyn ResolveServerName + Send + Sync> = {
        let tls = tls.clone();
        Arc::new(move |server: &Uri| tls.server_name(server))
    };
    // Each connection uses the current TLS configuration. TLS sessions are resumed until the configuration changes.
    let connector = service_fn(move |server: Uri| {
        HttpsConnector::new(dial.clone(), tls.current(), false, names.clone())
            .map_response(limit_informational)
            .oneshot(server)
    });
    BoxCloneSyncService::new(Timeout::new(connector, connect_timeout))
}
