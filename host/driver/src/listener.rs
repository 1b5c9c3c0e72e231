//! A port: accepting connections, and everything that may go wrong with one.

mod activity;
mod guarded;
mod places;
mod tracked;
mod transfer;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use admittance_net::tls::{ServerTls, TlsConnection};
use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use metrics::{counter, gauge};
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot::error::TryRecvError,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use self::{
    activity::{Activity, Expiry, Patience},
    tracked::Tracked,
};
pub(crate) use self::{
    guarded::Guarded,
    places::{Place, Places},
    transfer::{Pace, Stall, Transfer},
};
use crate::{measure, upstream::Client};

/// How long a connection may stay open between requests. Longer than clients usually keep one, so that
/// it is they who close it.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// After a failed accept: out of file descriptors is over when a connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client that is told that it was too slow may be too slow to read it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long requests in flight may go on after the authority of their client's certificate was removed.
const REVOKED_GRACE: Duration = Duration::from_secs(10);
const REVOKED: &str = "the client's certificate is no longer accepted";
/// Between two lines of the log that tell of refused connections.
const REFUSED_INTERVAL: Duration = Duration::from_secs(10);

/// What answers the requests of a port. Cheap to clone; a clone answers one request.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Whether its connections are what the metric of connections counts.
    const IS_COUNTED: bool;

    /// The reply to a request. `transfer` tells when one of its bodies stalls before there is a reply.
    fn answer(
        self,
        request: Request<Body>,
        client: Client,
        transfer: &Transfer,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The certificate that the client of a connection has shown, and that was found good: an extension that the
/// listener puts on each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificate(pub(crate) Arc<CertificateDer<'static>>);

/// What the connections of a port may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// How many there may be.
    pub(crate) connections: usize,
    /// For the TLS handshake, and for the head of each request.
    pub(crate) header_timeout: Duration,
    /// For bodies.
    pub(crate) pace: Pace,
}

/// A bound port. Lives until the driver stops.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    limits: ConnectionLimits,
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
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Option<ServerTls>,
        limits: ConnectionLimits,
    ) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::bind(address).await?,
            tls,
            limits,
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accept connections until told to stop, and end when the last of them has. Nothing that a
    /// connection does ends or delays this loop.
    pub(crate) async fn serve<A: Answer>(self, service: A, stop: Stop) {
        let connections = TaskTracker::new();
        let places = Places::new(self.limits.connections);
        let mut refused = Refused::default();
        let mut open = |stream: TcpStream, address: SocketAddr| {
            let Some(place) = places.take(address.ip()) else {
                return refused.tell(address, self.limits.connections);
            };
            let connection = Connection {
                service: service.clone(),
                tls: self.tls.clone(),
                limits: self.limits,
                address,
                stop: stop.clone(),
                _place: place,
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

/// When a client that was let in would not be any more.
async fn revoked(tls: &mut Option<TlsConnection>) {
    match tls {
        Some(tls) => tls.revoked().await,
        None => std::future::pending().await,
    }
}

/// When this time has come, if it ever does.
async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether the error is one client's and says nothing of the port.
fn ended_before_accept(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Connections for which there was no place.
#[derive(Debug, Default)]
struct Refused {
    since_told: u64,
    told: Option<Instant>,
}

impl Refused {
    /// Count one, and write to the log now and then.
    fn tell(&mut self, client: SocketAddr, limit: usize) {
        counter!(measure::CONNECTIONS_REFUSED).increment(1);
        self.since_told += 1;
        if self.told.is_some_and(|told| told.elapsed() < REFUSED_INTERVAL) {
            return;
        }
        tracing::warn!(
            %client, limit, refused = self.since_told,
            "connections are refused: all places for connections are taken, or the client has its share"
        );
        *self = Self {
            since_told: 0,
            told: Some(Instant::now()),
        };
    }
}

/// One client's connection, in a task of its own.
struct Connection<A> {
    service: A,
    tls: Option<ServerTls>,
    limits: ConnectionLimits,
    address: SocketAddr,
    stop: Stop,
    _place: Place,
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
        let Some(tls) = &self.tls else {
            return self.serve(stream, None).await;
        };
        let mut tls = tls.connection();
        let accepting = TlsAcceptor::from(tls.config()).accept(stream);
        match tokio::time::timeout(self.limits.header_timeout, accepting).await {
            Ok(Ok(stream)) => {
                tls.established(stream.get_ref().1.peer_certificates().unwrap_or_default());
                self.serve(stream, Some(tls)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => {
                tracing::debug!(timeout = ?self.limits.header_timeout, "the TLS handshake took too long");
            }
        }
    }

    async fn serve<S>(&self, stream: S, mut tls: Option<TlsConnection>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = Client {
            address: self.address,
            is_tls: tls.is_some(),
        };
        let certificate = tls.as_ref().and_then(TlsConnection::client_certificate);
        let certificate = certificate.map(|certificate| ClientCertificate(Arc::new(certificate.clone())));
        let activity = Activity::new(Patience {
            head: self.limits.header_timeout,
            idle: KEEP_ALIVE,
            pace: self.limits.pace,
        });
        let ended = CancellationToken::new();
        let (stream, mut remains) = Tracked::new(stream, activity.clone());
        let service = {
            let (activity, ended) = (activity.clone(), ended.clone());
            let service = self.service.clone();
            service_fn(move |mut request: Request<Incoming>| {
                let transfer = activity.request(
                    client.address,
                    request.version() == Version::HTTP_2,
                    ended.clone(),
                );
                let service = service.clone();
                if let Some(certificate) = &certificate {
                    request.extensions_mut().insert(certificate.clone());
                }
                async move {
                    let request = request.map(|body| transfer.receive(Body::new(body)));
                    let response = service.answer(request, client, &transfer).await;
                    Ok::<_, Infallible>(response.map(|body| transfer.send(body)))
                }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http2().timer(TokioTimer::new());
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut is_stopping = false;
        // Until when requests may go on after the client's certificate was revoked.
        let mut grace = None;
        let expiry = loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "the connection broke");
                    }
                    break None;
                }
                () = self.stop.graceful.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = revoked(&mut tls), if grace.is_none() => {
                    grace = Some(Instant::now() + REVOKED_GRACE);
                    tracing::info!(client = %self.address, "{REVOKED}: its connection is closed");
                    connection.as_mut().graceful_shutdown();
                }
                () = passed(grace) => break Some(Expiry::Revoked),
                expiry = activity.expired() => break Some(expiry),
            }
        };
        drop(connection);
        match (expiry, remains.try_recv()) {
            (Some(Expiry::Head), Ok(stream)) => self.too_slow(stream).await,
            (Some(expiry), _) => tracing::debug!(?expiry, "the connection is closed"),
            // A tunnel has taken the stream over.
            (None, Err(TryRecvError::Empty)) => {
                tokio::select! {
                    _ = &mut remains => return,
                    () = revoked(&mut tls) => {
                        tracing::info!(client = %self.address, "{REVOKED}: its tunnel is closed");
                    }
                    () = activity.silent_for(self.limits.pace.stream) => {
                        counter!(measure::STALLED, "who" => "tunnel", "how" => "idle").increment(1);
                        let limit = self.limits.pace.stream;
                        tracing::info!(client = %self.address, ?limit, "a tunnel was idle for too long and is closed");
                    }
                }
                ended.cancel();
                // An error: it is gone without its stream.
                let _ = remains.await;
            }
            (None, _) => {}
        }
    }

    /// Tell a client that began a request and did not end its head. hyper would only hang up.
    async fn too_slow<S: AsyncWrite + Unpin>(&self, mut stream: S) {
        tracing::info!(client = %self.address, "the head of a request took too long");
        let text = format!(
            "the head of the request did not arrive within {:?}\n",
            self.limits.header_timeout
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
