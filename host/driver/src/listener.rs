//! A port: accepting connections, and everything that may go wrong with one.

mod activity;
mod guarded;
mod tracked;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use metrics::gauge;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

pub(crate) use self::guarded::Guarded;
use self::{
    activity::{Activity, Expiry, Patience},
    tracked::Tracked,
};
use crate::{measure, tls::ServerTls, upstream::Client};

/// How long a connection may stay open between requests. Longer than clients usually keep one, so that
/// it is they who close it.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// After a failed accept: out of file descriptors is over when a connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client that is told that it was too slow may be too slow to read it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What answers the requests of a port. Cheap to clone; a clone answers one request.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Whether its connections are what the metric of connections counts.
    const IS_COUNTED: bool;

    /// The reply to a request. `guard` is kept until the reply has been sent to its end.
    fn answer<G: Send + 'static>(
        self,
        request: Request<Body>,
        client: Client,
        guard: G,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The certificate that the client of a connection has shown, and that was found good: an extension that the
/// listener puts on each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificate(pub(crate) Arc<CertificateDer<'static>>);

/// A bound port. Lives until the driver stops.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    header_timeout: Duration,
}

/// How a listener ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// Accept no more, finish what is in flight.
    pub(crate) graceful: CancellationToken,
    /// Drop everything.
    pub(crate) now: CancellationToken,
}

impl Listener {
    /// `header_timeout` is for the TLS handshake and for the head of each request.
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Option<ServerTls>,
        header_timeout: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::bind(address).await?,
            tls,
            header_timeout,
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accept connections until told to stop, and end when the last of them has. Nothing that a
    /// connection does ends or delays this loop.
    pub(crate) async fn serve<A: Answer>(self, service: A, stop: Stop) {
        let connections = TaskTracker::new();
        let open = |stream, address| {
            let connection = Connection {
                service: service.clone(),
                tls: self.tls.as_ref().map(ServerTls::current),
                header_timeout: self.header_timeout,
                address,
                stop: stop.clone(),
            };
            let span = tracing::debug_span!("connection", client = %address);
            connections.spawn(connection.run(stream).instrument(span));
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.graceful.cancelled() => break,
                accepted = self.tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => open(stream, address),
                Err(error) if ended_before_accept(&error) => {
                    tracing::debug!(%error, "a client left before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Those that the system has taken already would be cut off with what they have sent.
        while let Some(Ok((stream, address))) = self.tcp.accept().now_or_never() {
            open(stream, address);
        }
        drop(self.tcp);
        connections.close();
        connections.wait().await;
    }
}

/// Whether the error is one client's and says nothing of the port.
fn ended_before_accept(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// One client's connection, in a task of its own.
struct Connection<A> {
    service: A,
    tls: Option<Arc<ServerConfig>>,
    header_timeout: Duration,
    address: SocketAddr,
    stop: Stop,
}

impl<A: Answer> Connection<A> {
    async fn run(self, stream: TcpStream) {
        if A::IS_COUNTED {
            gauge!(measure::CONNECTIONS).increment(1);
        }
        let now = self.stop.now.clone();
        // Dropped at the first await after the signal; nothing in here is worth more than that.
        now.run_until_cancelled(self.open(stream)).await;
        if A::IS_COUNTED {
            gauge!(measure::CONNECTIONS).decrement(1);
        }
    }

    async fn open(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let Some(tls) = self.tls.clone() else {
            return self.serve(stream, false, None).await;
        };
        match tokio::time::timeout(self.header_timeout, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates();
                let leaf = shown.and_then(|chain| chain.first());
                let certificate = leaf.map(|leaf| ClientCertificate(Arc::new(leaf.clone().into_owned())));
                self.serve(stream, true, certificate).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!(timeout = ?self.header_timeout, "the TLS handshake took too long"),
        }
    }

    async fn serve<S>(self, stream: S, is_tls: bool, certificate: Option<ClientCertificate>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = Client {
            address: self.address,
            is_tls,
        };
        let activity = Activity::new(Patience {
            head: self.header_timeout,
            idle: KEEP_ALIVE,
        });
        let (stream, remains) = Tracked::new(stream, activity.clone());
        let service = {
            let activity = activity.clone();
            let service = self.service.clone();
            service_fn(move |mut request: Request<Incoming>| {
                let busy = activity.request(request.version() == Version::HTTP_2);
                let service = service.clone();
                if let Some(certificate) = &certificate {
                    request.extensions_mut().insert(certificate.clone());
                }
                async move { Ok::<_, Infallible>(service.answer(request.map(Body::new), client, busy).await) }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http2().timer(TokioTimer::new());
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut is_stopping = false;
        let expiry = loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "the connection broke");
                    }
                    return;
                }
                () = self.stop.graceful.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                expiry = activity.expired() => break expiry,
            }
        };
        drop(connection);
        match (expiry, remains.take()) {
            (Expiry::Head, Some(stream)) => self.too_slow(stream).await,
            (expiry, _) => tracing::debug!(?expiry, "the connection is closed"),
        }
    }

    /// Tell a client that began a request and did not end its head. hyper would only hang up.
    async fn too_slow<S: AsyncWrite + Unpin>(&self, mut stream: S) {
        tracing::info!(client = %self.address, "the head of a request took too long");
        let text = format!(
            "the head of the request did not arrive within {:?}\n",
            self.header_timeout
        );
        let reply = format!(
            "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{text}",
            text.len()
        );
        let last_words = async {
            stream.write_all(reply.as_bytes()).await?;
            stream.shutdown().await
        };
        if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, last_words).await {
            tracing::debug!(%error, "the client did not wait to hear of it");
        }
    }
}
