//! The control plane behind the driver: which of its servers a request goes to, and how.

mod body;
mod connection;
mod headers;
mod health;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use admittance::dialect::{Dialect, End};
use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::HOST,
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper_util::rt::TokioIo;
use metrics::{counter, histogram};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

pub use self::health::ServerHealth;
use self::{
    body::Lent,
    connection::Pool,
    headers::{prepare_request, prepare_response},
    health::Health,
};
use crate::{
    config::{HealthCheck, UpstreamConfig},
    measure,
    tls::{ClientTls, TlsStatus},
};

/// One server of the control plane: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    scheme: Scheme,
    authority: Authority,
}

/// A text that is no server of a control plane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no server: write http:// or https://, a host and a port, such as http://127.0.0.1:8081")]
pub struct InvalidServer(pub String);

impl std::str::FromStr for Server {
    type Err = InvalidServer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri = text.parse().map_err(|_| InvalidServer(text.to_owned()))?;
        Self::new(uri)
    }
}

impl Server {
    /// The server at this URL.
    ///
    /// # Errors
    ///
    /// When it is not `http` or `https`, or says more than a host and a port.
    pub fn new(uri: Uri) -> Result<Self, InvalidServer> {
        let text = uri.to_string();
        let error = || InvalidServer(text.clone());
        let parts = uri.into_parts();
        let scheme = parts
            .scheme
            .filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        // User information would be lost, and a path would be silently dropped.
        let authority = parts
            .authority
            .filter(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
        let bare = parts.path_and_query.is_none_or(|path| path == "/");
        match (scheme, authority) {
            (Some(scheme), Some(authority)) if bare => Ok(Self { scheme, authority }),
            _ => Err(error()),
        }
    }

    /// Whether connections to it are encrypted.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        // All three are there and valid, which is all that is asked.
        Uri::from_parts(parts).unwrap_or_default()
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Hands requests on to the control plane. Cheap to clone; lives as long as the driver.
///
/// Servers that are up take turns; those that are down are tried last, so that a wrong health check
/// does not stop everything. A request goes to the next server only when no connection could be made
/// to the one before, that is, when no byte of it has left. Bodies are streamed both ways, trailers
/// included, and a switched protocol (a WebSocket) becomes a tunnel.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    servers: Vec<(Server, Health)>,
    turn: AtomicUsize,
    pool: Pool,
    tls: ClientTls,
    response_timeout: Duration,
    health: Option<HealthCheck>,
    dialect: Arc<dyn Dialect>,
    tunnels: TaskTracker,
    stop_tunnels: CancellationToken,
}

/// Who sent a request, and how: an extension that the listener puts on it.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The other end of the connection.
    pub address: std::net::SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

impl Upstream {
    /// The upstream of this configuration; errors go to clients in this dialect.
    pub fn new(config: UpstreamConfig, dialect: Arc<dyn Dialect>) -> Self {
        Self(Arc::new(Inner {
            pool: Pool::new(config.tls.clone(), config.connect_timeout),
            tls: config.tls,
            servers: config
                .servers
                .into_iter()
                .map(|server| (server, Health::default()))
                .collect(),
            turn: AtomicUsize::new(0),
            response_timeout: config.response_timeout,
            health: config.health,
            dialect,
            tunnels: TaskTracker::new(),
            stop_tunnels: CancellationToken::new(),
        }))
    }

    /// How the servers are.
    pub fn health(&self) -> Vec<ServerHealth> {
        self.0
            .servers
            .iter()
            .map(|(server, health)| ServerHealth {
                server: server.to_string(),
                is_up: health.is_up(),
            })
            .collect()
    }

    /// Ask every server how it is, again and again, when the configuration says so; until this future
    /// is dropped.
    pub async fn check_health(&self) {
        if let Some(check) = &self.0.health {
            health::check(&self.0.servers, &self.0.pool, check).await;
        }
    }

    /// Read its TLS files again whenever they change, until this future is dropped.
    pub async fn keep_tls_fresh(&self) {
        self.0.tls.keep_fresh().await;
    }

    /// How its TLS files are; none when it has none.
    pub(crate) fn tls_status(&self) -> Option<TlsStatus> {
        self.0.tls.status()
    }

    /// Wait for every tunnel to end.
    pub async fn tunnels_ended(&self) {
        self.0.tunnels.close();
        self.0.tunnels.wait().await;
    }

    /// End every tunnel now.
    pub fn stop_tunnels(&self) {
        self.0.stop_tunnels.cancel();
    }

    async fn send(self, mut request: Request<Body>) -> Response<Body> {
        let inner = &*self.0;
        // A tunnel to anywhere is a forward proxy's business.
        if request.method() == Method::CONNECT {
            return status(StatusCode::METHOD_NOT_ALLOWED);
        }
        let client_upgrade = headers::upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        prepare_request(&mut head, client_upgrade.is_some());
        match inner.exchange(&head, body).await {
            Ok(mut response) => {
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                match (switches, client_upgrade) {
                    (true, Some(client)) => self.tunnel(client, hyper::upgrade::on(&mut response)),
                    (true, None) => {
                        return inner.end(
                            &End::UpstreamUnreachable {
                                reason: "the upstream switched protocols without being asked to",
                            },
                            "protocol",
                        );
                    }
                    (false, _) => {}
                }
                prepare_response(&mut response, switches);
                response
            }
            Err(Broken::NoConnection) => inner.end(
                &End::UpstreamUnreachable {
                    reason: "no server of the upstream accepted a connection",
                },
                "connect",
            ),
            Err(Broken::Connection) => inner.end(
                &End::UpstreamUnreachable {
                    reason: "the connection to the upstream broke before it replied",
                },
                "broken",
            ),
            Err(Broken::Timeout) => inner.end(
                &End::UpstreamTimeout {
                    limit: inner.response_timeout,
                },
                "timeout",
            ),
        }
    }

    fn tunnel(&self, client: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) {
        let stop = self.0.stop_tunnels.clone();
        self.0.tunnels.spawn(async move {
            let run = async {
                let (client, server) = tokio::try_join!(client, server)?;
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                let copied = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                Ok::<_, hyper::Error>(copied)
            };
            match stop.run_until_cancelled(run).await {
                None => tracing::debug!("a tunnel was cut at shutdown"),
                Some(Err(error)) => tracing::debug!(%error, "a tunnel could not be made"),
                Some(Ok(Err(error))) => tracing::debug!(%error, "a tunnel broke"),
                Some(Ok(Ok((sent, received)))) => tracing::debug!(sent, received, "a tunnel ended"),
            }
        });
    }
}

/// Why there is no reply.
enum Broken {
    NoConnection,
    Connection,
    Timeout,
}

impl Inner {
    async fn exchange(&self, head: &Parts, body: Body) -> Result<Response<Body>, Broken> {
        let (mut lent, mut loan) = Lent::new(body);
        for (server, health) in self.order() {
            let started = Instant::now();
            let request = request_to(server, head, lent);
            let reply = self.pool.request(request);
            // Time runs from when the whole request has left: a large upload is not a slow server.
            let late = async {
                loan.given_back().await;
                tokio::time::sleep(self.response_timeout).await;
            };
            let result = tokio::select! {
                biased;
                result = reply => result,
                () = late => {
                    tracing::warn!(%server, timeout = ?self.response_timeout, "no reply in time");
                    return Err(Broken::Timeout);
                }
            };
            match result {
                Ok(response) => {
                    health.connected();
                    histogram!(measure::UPSTREAM_DURATION).record(started.elapsed());
                    return Ok(response.map(Body::new));
                }
                Err(error) if error.is_connect() => {
                    health.refused();
                    counter!(measure::UPSTREAM_CONNECT_FAILURES).increment(1);
                    tracing::warn!(%server, error = chain(&error), "no connection to a server of the upstream");
                    (lent, loan) = match loan.take_back() {
                        Some(body) => body,
                        None => return Err(Broken::NoConnection),
                    };
                }
                Err(error) => {
                    tracing::warn!(%server, error = chain(&error), "the connection to the upstream broke");
                    return Err(Broken::Connection);
                }
            }
        }
        Err(Broken::NoConnection)
    }

    /// The servers in the order in which to try them.
    fn order(&self) -> impl Iterator<Item = &(Server, Health)> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut up, down): (Vec<_>, Vec<_>) = self.servers.iter().partition(|(_, health)| health.is_up());
        if let Some(first) = turn.checked_rem(up.len()) {
            up.rotate_left(first);
        }
        up.into_iter().chain(down)
    }

    fn end(&self, end: &End<'_>, reason: &'static str) -> Response<Body> {
        counter!(measure::UPSTREAM_ERRORS, "reason" => reason).increment(1);
        let mut response = self.dialect.reply(end).map(Body::from);
        response
            .extensions_mut()
            .insert(crate::front::EndedUpstream(end.as_str()));
        response
    }
}

fn request_to(server: &Server, head: &Parts, body: Lent) -> Request<Lent> {
    let path = head
        .uri
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = server.uri(path);
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = head.headers.clone();
    if let Ok(host) = HeaderValue::from_str(server.authority.as_str()) {
        request.headers_mut().insert(HOST, host);
    }
    request
}

/// An error with its causes, for the log.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

impl Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { Ok(upstream.send(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        for (text, expected) in [
            ("http://127.0.0.1:8081", Some("http://127.0.0.1:8081")),
            ("https://scheduler/", Some("https://scheduler")),
            ("http://[::1]:80", Some("http://[::1]:80")),
            ("127.0.0.1:8081", None),
            ("ftp://a", None),
            ("http://user@a", None),
            ("http://a/path", None),
            ("http://a?x", None),
            ("/a", None),
            ("", None),
        ] {
            let server = text.parse::<Server>().ok().map(|server| server.to_string());
            assert_eq!(server.as_deref(), expected, "{text}");
        }
    }
}
