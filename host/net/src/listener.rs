//! A port that accepts and limits connections.

mod activity;
mod connection;
mod stream;
mod transfer;
mod when_woken;

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, Uri};
use metrics::counter;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tracing::Instrument;

use self::connection::ClientConnection;
pub use self::transfer::{BodyTransfer, Stall, TransferLimits};
use crate::{
    limits::FairLimit,
    telemetry,
    tls::ServerTls,
    workers::{StreamExecutor, Workers},
};

/// The pause after a connection could not be accepted. If file descriptors ran out, some may become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The number of connections accepted beyond the limit, if [`RequestHandler::handler_beyond_limit`] returns a handler
/// for them.
const MAX_CONNECTIONS_BEYOND_LIMIT: usize = 64;
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The client of a request, which the listener adds to the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedClient {
    pub address: SocketAddr,
    /// Whether the client's connection uses TLS.
    pub is_tls: bool,
}

/// The client's certificate, which TLS has verified. The listener adds it to the extensions of the client's requests.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Arc<CertificateDer<'static>>);

/// Replies to the requests that arrive at a port. Each request is handled by a clone of the handler.
pub trait RequestHandler: Clone + Send + Sync + 'static {
    /// Whether the metric `admittance_http_connections` counts the connections of this handler.
    const IS_COUNTED: bool;

    /// Returns a handler for connections that exceed the limit of the port. The default is `None`: these connections
    /// are closed at once. With a handler, at most 64 of these connections are open. If one more arrives, the oldest of
    /// the 64 is closed, so that a client cannot keep others out by holding its connections open.
    fn handler_beyond_limit(&self) -> Option<Self> {
        None
    }

    /// Replies to a request. From `transfer`, the handler learns whether the request's body stalls before the reply.
    fn handle(
        self,
        request: Request<Body>,
        client: ConnectedClient,
        transfer: &BodyTransfer,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Returns whether only programs on this machine can connect to an address.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Returns the IP address that is the host of a URL, with or without IPv6's brackets; `None` for a name.
pub fn host_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Returns whether the host of a URL is an IP address to which only programs on this machine can connect.
pub fn is_loopback_host(url: &Uri) -> bool {
    host_address(url.host().unwrap_or_default()).is_some_and(|ip| is_loopback((ip, 0).into()))
}

/// The limits that apply to the connections of a port.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub max_connections: usize,
    /// The timeout for the TLS handshake of a connection, and for the head of each request.
    pub header_timeout: Duration,
    pub transfer: TransferLimits,
}

#[derive(Debug)]
pub struct Listener {
    /// A listener of tokio belongs to the runtime in which the port was bound. The connections may be accepted in
    /// another runtime, so the listener of the standard library is used.
    tcp: std::net::TcpListener,
    tls: Option<ServerTls>,
    limits: ConnectionLimits,
}

/// The signals that end a listener.
#[derive(Clone, Debug, Default)]
pub struct StopSignals {
    /// Cancelled to stop accepting connections. Requests in flight may finish.
    pub graceful_token: CancellationToken,
    /// Cancelled to close all connections at once, even if requests are in flight.
    pub immediate_token: CancellationToken,
}

impl Listener {
    pub async fn bind(address: SocketAddr, tls: Option<ServerTls>, limits: ConnectionLimits) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::bind(address).await?.into_std()?,
            tls,
            limits,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts and serves connections until `stop`, and returns when the last connection has ended. The connections are
    /// served by the threads of `workers`, or if it is `None`, by the current runtime.
    pub async fn serve<H: RequestHandler>(self, handler: H, stop: StopSignals, workers: Option<Workers>) {
        let Some(workers) = workers else {
            return self.accept(handler, stop, None).await;
        };
        let runtime = workers.accept_runtime();
        let accepting = runtime.spawn(self.accept(handler, stop, Some(workers)));
        if let Err(error) = AbortOnDropHandle::new(accepting).await {
            tracing::error!(%error, "connections are no longer accepted");
        }
    }

    async fn accept<H: RequestHandler>(self, handler: H, stop: StopSignals, workers: Option<Workers>) {
        let tcp = match TcpListener::from_std(self.tcp) {
            Ok(tcp) => tcp,
            Err(error) => return tracing::error!(%error, "connections cannot be accepted"),
        };
        let connections = TaskTracker::new();
        let limit: FairLimit = FairLimit::new(self.limits.max_connections);
        let (mut refused, mut beyond) = (RefusedConnections::default(), ExcessConnections::default());
        let mut open = |stream: TcpStream, address: SocketAddr| {
            let permit = limit.try_acquire(address.ip());
            let (handler, stop) = if permit.is_some() {
                (handler.clone(), stop.clone())
            } else if let Some(handler) = handler.handler_beyond_limit() {
                (handler, beyond.enter(&stop))
            } else {
                return refused.report(address, self.limits.max_connections);
            };
            let connection = ClientConnection {
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
                    connections.spawn_on(connection.run_in_slot(slot, stream).instrument(span), &runtime);
                }
                None => {
                    connections.spawn(connection.run(stream).instrument(span));
                }
            }
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.graceful_token.cancelled() => break,
                accepted = tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => open(stream, address),
                Err(error) if is_caused_by_client(&error) => {
                    tracing::debug!(%error, "a client closed its connection before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted; retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // The kernel has a queue of connections that were not accepted yet. They are accepted before the port is
        // closed, because closing the port would reset them.
        while let Some(Ok((stream, address))) = tcp.accept().now_or_never() {
            open(stream, address);
        }
        drop(tcp);
        connections.close();
        connections.wait().await;
    }
}

fn is_caused_by_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[derive(Debug, Default)]
struct RefusedConnections {
    unreported_count: u64,
    reported_at: Option<Instant>,
}

impl RefusedConnections {
    /// Counts a refused connection. Logs refused connections at most once per [`REPORT_INTERVAL`].
    fn report(&mut self, client: SocketAddr, limit: usize) {
        counter!(telemetry::CONNECTIONS_REFUSED).increment(1);
        self.unreported_count += 1;
        if self.reported_at.is_some_and(|at| at.elapsed() < REPORT_INTERVAL) {
            return;
        }
        tracing::warn!(
            %client, limit, refused = self.unreported_count,
            "connections are refused: the limit of open connections, or of connections of this client, is reached"
        );
        *self = Self {
            unreported_count: 0,
            reported_at: Some(Instant::now()),
        };
    }
}

#[derive(Debug, Default)]
struct ExcessConnections(VecDeque<CancellationToken>);

impl ExcessConnections {
    /// Adds a connection. If there are too many, closes the oldest. Returns the signals that end the new connection.
    fn enter(&mut self, stop: &StopSignals) -> StopSignals {
        if self.0.len() >= MAX_CONNECTIONS_BEYOND_LIMIT
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let now = stop.immediate_token.child_token();
        self.0.push_back(now.clone());
        StopSignals {
            graceful_token: stop.graceful_token.clone(),
            immediate_token: now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_of_urls_are_recognized() {
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
