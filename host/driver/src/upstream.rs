//! The control plane behind the driver: which of its servers a request goes to, and how.

mod body;
mod connection;
mod headers;
mod health;
mod roster;
mod server;

use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance::dialect::End;
use admittance_net::{
    body::GuardedBody,
    causes,
    tls::{CertificateStatus, ClientTls},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version, header::HOST, request::Parts,
    uri::PathAndQuery,
};
use hyper_util::rt::TokioIo;
use metrics::{counter, histogram};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use self::{
    body::Lent,
    connection::Pool,
    headers::{prepare_request, prepare_response},
    roster::{InFlight, Roster},
};
pub(crate) use self::{
    connection::{Connector, connector},
    headers::upgrade as is_upgrade,
};
pub use self::{
    health::ServerHealth,
    roster::{Choice, FollowedServer, FollowedServers, Servers},
    server::{InvalidServer, Server},
};
use crate::{
    config::{HealthCheck, UpstreamConfig},
    front::Held,
    measure,
};

/// Writes the reply for a request that the upstream did not reply to.
pub type Replies = Arc<dyn Fn(&End<'_>) -> Response<Bytes> + Send + Sync>;

/// The server that has replied: an extension of its reply.
#[derive(Clone, Debug)]
pub(crate) struct Replied(pub(crate) Server);

/// Listed servers to which a request goes only when there is no other: an extension of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Avoided(pub(crate) Vec<Server>);

/// Hands requests on to the control plane. Cheap to clone; lives as long as the driver.
///
/// [`Choice`] says to which of its servers. A request goes to another one only when no connection could be
/// made to the one before, that is, when no byte of it has left; so servers that are down are tried last
/// rather than never, and a wrong health check does not stop everything. Bodies are streamed both ways,
/// trailers included, and a switched protocol (a WebSocket) becomes a tunnel.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    roster: Roster,
    pool: Pool,
    tls: ClientTls,
    connect_timeout: Duration,
    response_timeout: Duration,
    health: Option<HealthCheck>,
    replies: Replies,
    /// Whether servers get the client's `Host` rather than their own.
    keeps_host: bool,
    tunnels: TaskTracker,
    stop_tunnels: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("roster", &self.roster)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

impl Upstream {
    /// These servers, reached in this way. `replies` writes what clients get when none of them replied.
    pub fn new(servers: Servers, config: UpstreamConfig, choice: Choice, replies: Replies) -> Self {
        Self(Arc::new(Inner {
            roster: Roster::new(servers, choice),
            pool: Pool::new(config.tls.clone(), config.connect_timeout),
            tls: config.tls,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            health: config.health,
            replies,
            keeps_host: false,
            tunnels: TaskTracker::new(),
            stop_tunnels: CancellationToken::new(),
        }))
    }

    /// One server beside these, reached in the same way. Connections to it are kept with those of this upstream, and
    /// tunnels to it end with them. It gets the client's `Host`, to which pages of a browser belong. `replies` writes
    /// what clients get when it does not reply.
    pub(crate) fn beside(&self, server: Server, replies: Replies) -> Self {
        let inner = &*self.0;
        Self(Arc::new(Inner {
            roster: Roster::new(Servers::Listed(vec![server]), Choice::Turns),
            pool: inner.pool.clone(),
            tls: inner.tls.clone(),
            connect_timeout: inner.connect_timeout,
            response_timeout: inner.response_timeout,
            health: None,
            replies,
            keeps_host: true,
            tunnels: inner.tunnels.clone(),
            stop_tunnels: inner.stop_tunnels.clone(),
        }))
    }

    /// How the servers of this moment are.
    pub fn health(&self) -> Vec<ServerHealth> {
        let targets = self.0.roster.targets();
        targets
            .iter()
            .map(|target| ServerHealth {
                server: target.server.to_string(),
                is_up: target.health.is_up(),
            })
            .collect()
    }

    /// Ask every server how it is, again and again, when the configuration says so; until this future
    /// is dropped.
    pub async fn check_health(&self) {
        if let Some(check) = &self.0.health {
            health::check(&self.0.roster, &self.0.pool, check).await;
        }
    }

    /// Read its TLS files again whenever they change, until this future is dropped.
    pub async fn keep_tls_fresh(&self) {
        self.0.tls.keep_fresh().await;
    }

    /// How its TLS files are; none when it has none.
    pub(crate) fn tls_status(&self) -> Option<CertificateStatus> {
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
            Ok((mut response, in_flight)) => {
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                match (switches, client_upgrade) {
                    (true, Some(client)) => {
                        let held = head.extensions.remove::<Held>();
                        self.tunnel(client, hyper::upgrade::on(&mut response), in_flight, held);
                    }
                    (true, None) => {
                        return inner.end(
                            &End::UpstreamUnreachable {
                                reason: "the upstream switched protocols without being asked to",
                            },
                            "protocol",
                        );
                    }
                    (false, _) => {
                        response = response.map(|body| Body::new(GuardedBody::new(body, in_flight)));
                    }
                }
                prepare_response(&mut response, switches);
                response
            }
            Err(Broken::Nobody) => inner.end(
                &End::UpstreamUnreachable {
                    // As clients of bcs-mesos-driver know it.
                    reason: match inner.roster.choice() {
                        Choice::Master => "scheduler not exist",
                        Choice::Turns | Choice::LeastLoaded => "the upstream has no servers",
                    },
                },
                "nobody",
            ),
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

    fn tunnel(
        &self,
        client: hyper::upgrade::OnUpgrade,
        server: hyper::upgrade::OnUpgrade,
        in_flight: InFlight,
        held: Option<Held>,
    ) {
        let stop = self.0.stop_tunnels.clone();
        self.0.tunnels.spawn(async move {
            let _in_flight = in_flight;
            let connection_ended = held.as_ref().map(|held| held.connection_ended.clone());
            let stop_or_end = async {
                match connection_ended {
                    Some(ended) => tokio::select! {
                        () = stop.cancelled() => {}
                        () = ended.cancelled() => {}
                    },
                    None => stop.cancelled().await,
                }
            };
            let run = async {
                let (client, server) = tokio::try_join!(client, server)?;
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                let copied = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                Ok::<_, hyper::Error>(copied)
            };
            let ran = tokio::select! {
                ran = run => Some(ran),
                () = stop_or_end => None,
            };
            match ran {
                None => tracing::debug!("a tunnel was cut, by the shutdown or with its client's connection"),
                Some(Err(error)) => tracing::debug!(%error, "a tunnel could not be made"),
                Some(Ok(Err(error))) => tracing::debug!(%error, "a tunnel broke"),
                Some(Ok(Ok((sent, received)))) => tracing::debug!(sent, received, "a tunnel ended"),
            }
        });
    }
}

/// Why there is no reply.
enum Broken {
    /// There is no server.
    Nobody,
    NoConnection,
    Connection,
    Timeout,
}

impl Inner {
    async fn exchange(&self, head: &Parts, body: Body) -> Result<(Response<Body>, InFlight), Broken> {
        let (mut lent, mut loan) = Lent::new(body);
        let avoided = head
            .extensions
            .get::<Avoided>()
            .map_or(&[][..], |avoided| &avoided.0);
        let mut attempts = self.roster.attempts(self.connect_timeout, avoided).await;
        let mut broken = Broken::Nobody;
        while let Some(target) = attempts.next().await {
            let (server, health) = (&target.server, &target.health);
            let in_flight = target.enter();
            let started = Instant::now();
            let request = request_to(server, self.keeps_host, head, lent);
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
                    let mut response = response.map(Body::new);
                    response.extensions_mut().insert(Replied(server.clone()));
                    return Ok((response, in_flight));
                }
                Err(error) if error.is_connect() => {
                    health.refused();
                    counter!(measure::UPSTREAM_CONNECT_FAILURES).increment(1);
                    tracing::warn!(%server, error = causes::chain(&error), "no connection to a server of the upstream");
                    broken = Broken::NoConnection;
                    (lent, loan) = match loan.take_back() {
                        Some(body) => body,
                        None => return Err(Broken::NoConnection),
                    };
                }
                Err(error) => {
                    tracing::warn!(%server, error = causes::chain(&error), "the connection to the upstream broke");
                    return Err(Broken::Connection);
                }
            }
        }
        Err(broken)
    }

    fn end(&self, end: &End<'_>, reason: &'static str) -> Response<Body> {
        counter!(measure::UPSTREAM_ERRORS, "reason" => reason).increment(1);
        let mut response = (self.replies)(end).map(Body::from);
        response
            .extensions_mut()
            .insert(crate::front::EndedUpstream(end.as_str()));
        response
    }
}

fn request_to(server: &Server, keeps_host: bool, head: &Parts, body: Lent) -> Request<Lent> {
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
    let own = || HeaderValue::from_str(server.authority()).ok();
    let clients = head
        .headers
        .get(headers::X_FORWARDED_HOST)
        .filter(|_| keeps_host)
        .cloned();
    if let Some(host) = clients.or_else(own) {
        request.headers_mut().insert(HOST, host);
    }
    request
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
