//! A listening port: accepts connections, limits them, and handles their errors.

mod activity;
mod stream;
mod transfer;
mod when_woken;

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, Uri, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use metrics::{counter, gauge};
use rustls::InvalidMessage;
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tracing::Instrument;

pub use self::transfer::{Stall, Transfer, TransferLimits};
use self::{
    activity::{Activity, Expiry},
    stream::TrackedStream,
    when_woken::WhenWoken,
};
use crate::{
    limits::{FairLimit, Permit},
    telemetry,
    tls::{ServerTls, TlsConnection},
    workers::{StreamExecutor, WorkerSlot, Workers},
};

/// The pause after a failed accept: running out of file descriptors ends when a connection is closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The timeout for sending a 408 reply, since a slow client may also be slow to read it.
const TIMEOUT_REPLY_LIMIT: Duration = Duration::from_secs(1);
/// The time that requests in flight have after their client's certificate was revoked.
const REVOKED_GRACE: Duration = Duration::from_secs(10);
const REVOKED: &str = "the client's certificate is no longer accepted";
/// The number of connections beyond the limit that a handler for them serves.
const BEYOND_LIMIT: usize = 64;
/// The interval between log lines about refused connections.
const REFUSED_INTERVAL: Duration = Duration::from_secs(10);

/// The client of a request: an extension that the listener adds to each request.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

/// The accepted client certificate of a connection: an extension that the listener adds to each of its
/// requests.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Arc<CertificateDer<'static>>);

/// Replies to the requests of a port. Cheap to clone; a clone replies to one request.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Whether connections are counted in the metric `admittance_http_connections`.
    const IS_COUNTED: bool;

    /// Returns the handler for connections beyond the limit; without one, they are closed at once. Only the latest 64
    /// are served: each new connection closes the oldest, so that a client cannot keep others out by holding
    /// connections open.
    fn beyond_limit(&self) -> Option<Self> {
        None
    }

    /// Replies to a request. `transfer` reports when a body stalls before there is a reply.
    fn handle(
        self,
        request: Request<Body>,
        client: Client,
        transfer: &Transfer,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Returns whether only programs of this machine can reach an address.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Returns the IP address that stands as the host of a URL, where IPv6 addresses have brackets; `None` for a name.
pub fn host_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Returns whether the host of a URL is an address that only programs of this machine can reach.
pub fn is_loopback_host(url: &Uri) -> bool {
    let address = host_address(url.host().unwrap_or_default());
    address.is_some_and(|ip| is_loopback((ip, 0).into()))
}

/// Limits on the connections of a port.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The maximum number of connections.
    pub connections: usize,
    /// The timeout for the TLS handshake, and for the head of each request.
    pub header_timeout: Duration,
    /// Timeouts of bodies.
    pub transfer: TransferLimits,
}

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    /// The listener belongs to no runtime yet, since the runtime that accepts connections may differ from the one that
    /// binds.
    tcp: std::net::TcpListener,
    tls: Option<ServerTls>,
    limits: ConnectionLimits,
}

/// The signals that stop a listener.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Stops accepting connections, and lets requests in flight end.
    pub graceful: CancellationToken,
    /// Drops all connections.
    pub now: CancellationToken,
}

impl Listener {
    pub async fn bind(
        address: SocketAddr,
        tls: Option<ServerTls>,
        limits: ConnectionLimits,
    ) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::bind(address).await?.into_std()?,
            tls,
            limits,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts connections until stopped, and returns when the last one has ended. Threads of the `workers` accept and
    /// serve them; without workers, this runtime does.
    pub async fn serve<H: Handler>(self, handler: H, stop: Stop, workers: Option<Workers>) {
        let Some(workers) = workers else {
            return self.accept(handler, stop, None).await;
        };
        let runtime = workers.accepting();
        let accepting = runtime.spawn(self.accept(handler, stop, Some(workers)));
        if let Err(error) = AbortOnDropHandle::new(accepting).await {
            tracing::error!(%error, "connections are no longer accepted");
        }
    }

    async fn accept<H: Handler>(self, handler: H, stop: Stop, workers: Option<Workers>) {
        let tcp = match TcpListener::from_std(self.tcp) {
            Ok(tcp) => tcp,
            Err(error) => return tracing::error!(%error, "connections cannot be accepted"),
        };
        let connections = TaskTracker::new();
        let limit: FairLimit = FairLimit::new(self.limits.connections);
        let (mut refused, mut beyond) = (RefusedConnections::default(), BeyondLimit::default());
        let mut open = |stream: TcpStream, address: SocketAddr| {
            let permit = limit.try_acquire(address.ip());
            let (handler, stop) = if permit.is_some() {
                (handler.clone(), stop.clone())
            } else if let Some(handler) = handler.beyond_limit() {
                (handler, beyond.enter(&stop))
            } else {
                return refused.report(address, self.limits.connections);
            };
            let connection = Connection {
                handler,
                tls: self.tls.clone(),
                limits: self.limits,
                address,
                stop,
                streams: StreamExecutor(workers.clone()),
                _permit: permit,
            };
            let span = tracing::debug_span!("connection", client = %address);
            match workers.as_ref().and_then(Workers::assign) {
                Some(slot) => {
                    let runtime = slot.runtime().clone();
                    connections.spawn_on(connection.run_at(slot, stream).instrument(span), &runtime);
                }
                None => {
                    connections.spawn(connection.run(stream).instrument(span));
                }
            }
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.graceful.cancelled() => break,
                accepted = tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => open(stream, address),
                Err(error) if is_of_client(&error) => {
                    tracing::debug!(%error, "a client closed its connection before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted; retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Closing the port would reset connections that wait to be accepted, with their requests, so they are accepted
        // first.
        while let Some(Ok((stream, address))) = tcp.accept().now_or_never() {
            open(stream, address);
        }
        drop(tcp);
        connections.close();
        connections.wait().await;
    }
}

/// Returns whether an accept error concerns only one client.
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[derive(Debug, Default)]
struct RefusedConnections {
    since_report: u64,
    reported: Option<Instant>,
}

impl RefusedConnections {
    /// Counts a refused connection, and logs at most once per interval.
    fn report(&mut self, client: SocketAddr, limit: usize) {
        counter!(telemetry::CONNECTIONS_REFUSED).increment(1);
        self.since_report += 1;
        if self.reported.is_some_and(|at| at.elapsed() < REFUSED_INTERVAL) {
            return;
        }
        tracing::warn!(
            %client, limit, refused = self.since_report,
            "connections are refused: the limit of open connections, or of connections of this client, is reached"
        );
        *self = Self {
            since_report: 0,
            reported: Some(Instant::now()),
        };
    }
}

/// Tokens that close the latest connections beyond the limit, the oldest first.
#[derive(Debug, Default)]
struct BeyondLimit(VecDeque<CancellationToken>);

impl BeyondLimit {
    /// Makes room for a new connection by closing the oldest one. Returns the signals that stop the new one.
    fn enter(&mut self, stop: &Stop) -> Stop {
        if self.0.len() >= BEYOND_LIMIT
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let now = stop.now.child_token();
        self.0.push_back(now.clone());
        Stop {
            graceful: stop.graceful.clone(),
            now,
        }
    }
}

/// One client's connection, which runs in its own task.
struct Connection<H> {
    handler: H,
    tls: Option<ServerTls>,
    limits: ConnectionLimits,
    address: SocketAddr,
    stop: Stop,
    streams: StreamExecutor,
    /// The connection's place within the limit; `None` for a connection beyond it.
    _permit: Option<Permit>,
}

impl<H: Handler> Connection<H> {
    async fn run_at(self, _slot: WorkerSlot, stream: TcpStream) {
        // The stream belongs to the runtime that accepted it, and has to be registered with this one.
        match stream.into_std().and_then(TcpStream::from_std) {
            Ok(stream) => self.run(stream).await,
            Err(error) => tracing::warn!(%error, "a connection could not be handed to its thread"),
        }
    }

    async fn run(self, stream: TcpStream) {
        if H::IS_COUNTED {
            gauge!(telemetry::CONNECTIONS).increment(1);
        }
        let now = self.stop.now.clone();
        tokio::select! {
            biased;
            () = WhenWoken::new(now.cancelled()) => {}
            () = self.open(stream) => {}
        }
        if H::IS_COUNTED {
            gauge!(telemetry::CONNECTIONS).decrement(1);
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
        let accepting = TlsAcceptor::from(tls.config()).accept(stream).into_fallible();
        match tokio::time::timeout(self.limits.header_timeout, accepting).await {
            Ok(Ok(stream)) => {
                tls.record_client(stream.get_ref().1.peer_certificates().unwrap_or_default());
                self.serve(stream, Some(tls)).await;
            }
            Ok(Err((error, stream))) if is_without_tls(&error) => tracing::info!(
                client = stream
                    .peer_addr()
                    .map_or_else(|_| String::new(), |peer| peer.to_string()),
                "a client sent something else than TLS, such as plain HTTP; its URL must begin with https://"
            ),
            Ok(Err((error, _))) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => {
                tracing::debug!(timeout = ?self.limits.header_timeout, "the TLS handshake timed out");
            }
        }
    }

    /// Serves a connection until it ends. A connection that became a tunnel ends with the tunnel.
    async fn serve<S>(&self, stream: S, mut tls: Option<TlsConnection>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let activity = Activity::new(self.limits);
        let ended = CancellationToken::new();
        let (stream, mut released) = TrackedStream::track(stream, activity.clone());
        let expiry = self.exchange(stream, &mut tls, &activity, &ended).await;
        match (expiry, released.try_recv()) {
            (Some(Expiry::Head), Ok(stream)) => self.reply_timeout(stream).await,
            (Some(expiry), _) => tracing::debug!(?expiry, "the connection is closed"),
            // The tunnel has taken over the stream.
            (None, Err(oneshot::error::TryRecvError::Empty)) => {
                self.watch_tunnel(&mut released, &mut tls, &activity, &ended)
                    .await;
            }
            (None, _) => {}
        }
    }

    /// Serves requests until the connection ends. Returns why it was aborted, if it was.
    async fn exchange<S>(
        &self,
        stream: TrackedStream<S>,
        tls: &mut Option<TlsConnection>,
        activity: &Activity,
        ended: &CancellationToken,
    ) -> Option<Expiry>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = Client {
            address: self.address,
            is_tls: tls.is_some(),
        };
        let certificate = tls.as_ref().and_then(TlsConnection::client_certificate);
        let certificate = certificate.map(|certificate| ClientCertificate(Arc::new(certificate.clone())));
        let service = service_fn(|mut request: Request<Incoming>| {
            let is_http2 = request.version() == Version::HTTP_2;
            let transfer = activity.begin_request(client.address, is_http2, ended.clone());
            let handler = self.handler.clone();
            request.extensions_mut().insert(client);
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(certificate.clone());
            }
            async move {
                let request = request.map(|body| transfer.receive(Body::new(body)));
                let response = handler.handle(request, client, &transfer).await;
                Ok::<_, Infallible>(response.map(|body| transfer.send(body)))
            }
        });
        let mut builder = auto::Builder::new(self.streams.clone());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http2().timer(TokioTimer::new());
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let (mut stopped, mut is_stopping) = (WhenWoken::new(self.stop.graceful.cancelled()), false);
        let mut expired = WhenWoken::new(activity.expired());
        // The deadline of requests in flight after the client's certificate was revoked.
        let mut grace = None;
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "the connection failed");
                    }
                    return None;
                }
                () = &mut stopped, if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = revoked(tls), if grace.is_none() => {
                    grace = Some(Instant::now() + REVOKED_GRACE);
                    tracing::info!(client = %self.address, "{REVOKED}: its connection is closed");
                    connection.as_mut().graceful_shutdown();
                }
                () = sleep_until(grace) => return Some(Expiry::Revoked),
                expiry = &mut expired => return Some(expiry),
            }
        }
    }

    /// Waits until a tunnel returns its stream. Ends the tunnel when it is idle for too long, or when the client's
    /// certificate is no longer accepted.
    async fn watch_tunnel<S>(
        &self,
        released: &mut oneshot::Receiver<S>,
        tls: &mut Option<TlsConnection>,
        activity: &Activity,
        ended: &CancellationToken,
    ) {
        let limit = self.limits.transfer.stream;
        tokio::select! {
            _ = &mut *released => return,
            () = revoked(tls) => {
                tracing::info!(client = %self.address, "{REVOKED}: its tunnel is closed");
            }
            () = activity.silent_for(limit) => {
                counter!(telemetry::STALLED, "who" => "tunnel", "how" => "idle").increment(1);
                tracing::info!(client = %self.address, ?limit, "a tunnel was idle for too long and is closed");
            }
        }
        ended.cancel();
        let _ = released.await;
    }

    /// Replies 408 to a client that did not complete the head of a request. hyper would only close the
    /// connection.
    async fn reply_timeout<S: AsyncWrite + Unpin>(&self, mut stream: S) {
        tracing::info!(client = %self.address, "timeout while reading the head of a request");
        let text = format!(
            "the head of the request did not arrive within {:?}\n",
            self.limits.header_timeout
        );
        let reply = format!(
            "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{text}",
            text.len()
        );
        let sending = async {
            stream.write_all(reply.as_bytes()).await?;
            stream.shutdown().await
        };
        if let Ok(Err(error)) = tokio::time::timeout(TIMEOUT_REPLY_LIMIT, sending).await {
            tracing::debug!(%error, "the client did not wait for the reply");
        }
    }
}

/// Waits until the client's certificate is no longer accepted.
async fn revoked(tls: &mut Option<TlsConnection>) {
    match tls {
        Some(tls) => tls.revoked().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns whether a handshake failed because the client does not speak TLS.
fn is_without_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(
        cause,
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_hosts_of_urls_are_recognized() {
        for (uri, is_here) in [
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://[::ffff:127.0.0.1]:8080", true),
            ("http://10.0.0.5:8080", false),
            ("http://localhost.example.com:8080", false),
        ] {
            assert_eq!(is_loopback_host(&uri.parse().unwrap()), is_here, "{uri}");
        }
    }
}
