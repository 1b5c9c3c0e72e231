//! Load balancing, health checks and forwarding for upstream servers.

mod connection;
mod headers;
mod health;
mod pool;
mod server;
mod servers;

use std::{
    any::Any,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header::HOST, request::Parts, uri::PathAndQuery,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use metrics::{Histogram, counter, histogram};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, debug_span, field::Empty};

pub(crate) use self::connection::connector_over;
use self::{
    connection::tcp_dial,
    headers::{prepare_request, prepare_response},
    pool::{ConnectionPool, ExchangeError, ReplyBody},
    servers::{InFlightGuard, ServerSet},
};
pub use self::{
    connection::{AnyConnection, Dial, UpstreamConnector, new_connector, tcp_connector, tcp_connector_with},
    headers::is_upgrade,
    server::{InvalidServer, UpstreamServer},
    servers::{Choice, FollowedServer, FollowedServers, Servers},
};
use crate::{
    body::{GuardedBody, ReplayBody},
    causes, telemetry,
    tls::{CertificateState, ClientTls},
    trace::{SPANS, inject_context},
};

/// The settings of the connections to the servers of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    pub tls: ClientTls,
    /// The timeout for connecting to a server: for DNS, TCP and the TLS handshake together. Default: 2 s.
    pub connect_timeout: Duration,
    /// The timeout from the end of a request to the head of its reply, and for each wait in a body. Default: 60 s.
    pub response_timeout: Duration,
    /// The health check of the servers. Without it, only requests find out whether a server is up.
    pub health: Option<HealthCheck>,
}

impl UpstreamConfig {
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
}

/// A GET request that checks whether a server is up. It is up if the status of the reply is 200 to 299.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub path: PathAndQuery,
    /// The interval at which each server is checked. Default: 5 s.
    pub interval: Duration,
    /// The timeout for the head of the server's reply to a check. Default: 2 s.
    pub timeout: Duration,
    /// The value of the header `Authorization` in the requests that check servers. Default: no header.
    pub authorization: Option<HeaderValue>,
}

impl HealthCheck {
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
}

/// The reason why no server of an upstream gave a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum UpstreamError {
    NoServers,
    NoMaster,
    Connect,
    Broken,
    TooManyInformational,
    Protocol,
    Timeout(Duration),
}

impl UpstreamError {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoServers => "the upstream has no servers",
            Self::NoMaster => "the upstream has no master",
            Self::Connect => "no server of the upstream accepted a connection",
            Self::Broken => "the connection to the upstream broke before it replied",
            Self::TooManyInformational => {
                "the upstream sent only informational responses (status 100 to 199), and more of them than one request may \
                 have"
            }
            Self::Protocol => "the upstream switched protocols without a request to do so",
            Self::Timeout(_) => "the upstream did not reply in time",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::NoServers | Self::NoMaster => "nobody",
            Self::Connect => "connect",
            Self::Broken | Self::TooManyInformational => "broken",
            Self::Protocol => "protocol",
            Self::Timeout(_) => "timeout",
        }
    }
}

/// A guard for a request that may open a tunnel. The guard is in the extensions of the request, so it lives as long as
/// the request or its tunnel.
#[derive(Clone, Debug)]
pub struct TunnelGuard {
    /// A value that is held as long as the tunnel is open, such as a permit of a limit.
    pub permit: Arc<dyn Any + Send + Sync>,
    /// A token that is cancelled when the client's connection must end.
    pub connection_end_token: CancellationToken,
}

/// A server, and whether it is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServerHealth {
    pub server: UpstreamServer,
    /// The current downtime of the server; `None` if the server is up.
    pub downtime: Option<Downtime>,
}

/// The time since which a server is down, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downtime {
    pub since: SystemTime,
    pub reason: String,
}

/// Sends requests to one of several servers. Clones share the connections.
///
/// [`Choice`] determines which server is tried first. If no connection to a server can be made, no byte was sent, so
/// the request is retried with another server. Servers that are down are tried last instead of never, in case their
/// health check is wrong. Bodies and trailers are streamed in both directions. A switch of protocols, as for a
/// WebSocket, opens a tunnel.
#[derive(Clone, Debug)]
pub struct Upstream {
    servers: Arc<ServerSet>,
    shared: Arc<SharedUpstream>,
    /// Whether servers get the `Host` of the client's request instead of their own address.
    keeps_host: bool,
}

#[derive(derive_more::Debug)]
#[debug("SharedUpstream {{ config: {config:?}, .. }}")]
struct SharedUpstream {
    pool: ConnectionPool,
    config: UpstreamConfig,
    duration_histogram: OnceLock<Histogram>,
    tunnels: TaskTracker,
    tunnel_stop_token: CancellationToken,
}

impl Upstream {
    pub fn new(servers: Servers, choice: Choice, config: UpstreamConfig) -> Self {
        Self::with_dial(None, servers, choice, config)
    }

    /// Creates an upstream that connects to its servers with `dial`, or by TCP if `dial` is `None`.
    pub fn with_dial(dial: Option<Dial>, servers: Servers, choice: Choice, config: UpstreamConfig) -> Self {
        Self {
            servers: Arc::new(ServerSet::new(servers, choice)),
            shared: Arc::new(SharedUpstream {
                pool: ConnectionPool::new(connector_over(
                    dial.unwrap_or_else(tcp_dial),
                    config.tls.clone(),
                    config.connect_timeout,
                )),
                config,
                duration_histogram: OnceLock::new(),
                tunnels: TaskTracker::new(),
                tunnel_stop_token: CancellationToken::new(),
            }),
            keeps_host: false,
        }
    }

    /// Creates an upstream for a single server. It shares the configuration, the connection pool and the tunnels of
    /// this upstream, so the tunnels of both upstreams end at the same time. Requests to the server keep the client's
    /// header `Host`, because web pages need it.
    pub fn for_server(&self, server: UpstreamServer) -> Self {
        Self {
            servers: Arc::new(ServerSet::new(Servers::Listed(vec![server]), Choice::Turns)),
            shared: self.shared.clone(),
            keeps_host: true,
        }
    }

    pub fn health(&self) -> Vec<UpstreamServerHealth> {
        let targets = self.servers.targets();
        let health = targets.iter().map(|target| UpstreamServerHealth {
            server: target.server.clone(),
            downtime: target.health.downtime(),
        });
        health.collect()
    }

    /// Checks the health of every server at the configured interval, if any. Runs until this future is dropped.
    pub async fn check_health(&self) {
        if let Some(check) = &self.shared.config.health {
            health::check_periodically(&self.servers, &self.shared.pool, check).await;
        }
    }

    /// Reloads the TLS files of the connections to servers whenever they change, until this future is dropped.
    pub async fn keep_tls_fresh(&self) {
        self.shared.config.tls.keep_fresh().await;
    }

    /// See [`ClientTls::status`].
    pub fn tls_status(&self) -> Option<CertificateState> {
        self.shared.config.tls.status()
    }

    pub async fn wait_until_tunnels_end(&self) {
        self.shared.tunnels.close();
        self.shared.tunnels.wait().await;
    }

    pub fn stop_tunnels(&self) {
        self.shared.tunnel_stop_token.cancel();
    }

    /// Forwards a request to a server, and returns the reply. CONNECT gets 405, because this is not a forward proxy.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>, UpstreamError> {
        let (response, _) = self.send_avoiding(request, &[]).await?;
        Ok(response)
    }

    /// Forwards a request to a server. Returns the reply and the server that sent it. `avoided_servers` come last.
    pub async fn send_avoiding(
        &self,
        mut request: Request<Body>,
        avoided_servers: &[UpstreamServer],
    ) -> Result<(Response<Body>, Option<UpstreamServer>), UpstreamError> {
        if request.method() == Method::CONNECT {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return Ok((response, None));
        }
        let client_upgrade = is_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        prepare_request(&mut head, client_upgrade.is_some());
        let exchange_result = self.exchange(&mut head, body, avoided_servers).await;
        let reply = exchange_result.and_then(|(mut response, server, in_flight)| {
            let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            let in_flight = match (switches, client_upgrade) {
                (true, Some(client)) => {
                    let guard = head.extensions.remove::<TunnelGuard>();
                    self.spawn_tunnel(client, hyper::upgrade::on(&mut response), in_flight, guard);
                    None
                }
                (true, None) => return Err(UpstreamError::Protocol),
                (false, _) => Some(in_flight),
            };
            prepare_response(&mut response, switches);
            let response = response.map(|body| match in_flight {
                Some(in_flight) => Body::new(GuardedBody::new(body, in_flight)),
                None => Body::new(body),
            });
            Ok((response, Some(server)))
        });
        reply.inspect_err(|error| telemetry::count_upstream_error(error.label()))
    }

    fn spawn_tunnel(&self, client: OnUpgrade, server: OnUpgrade, in_flight: InFlightGuard, guard: Option<TunnelGuard>) {
        let stop_token = self.shared.tunnel_stop_token.clone();
        self.shared.tunnels.spawn(async move {
            let _in_flight = in_flight;
            let connection_end_token = guard.as_ref().map(|guard| guard.connection_end_token.clone());
            let stop_or_end = async {
                match connection_end_token {
                    Some(end_token) => tokio::select! {
                        () = stop_token.cancelled() => {}
                        () = end_token.cancelled() => {}
                    },
                    None => stop_token.cancelled().await,
                }
            };
            let run = async {
                let (client, server) = tokio::try_join!(client, server)?;
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                Ok::<_, hyper::Error>(tokio::io::copy_bidirectional(&mut client, &mut server).await)
            };
            let outcome = tokio::select! {
                outcome = run => Some(outcome),
                () = stop_or_end => None,
            };
            match outcome {
                None => tracing::debug!("a tunnel was closed, because of the shutdown or with its client's connection"),
                Some(Err(error)) => tracing::debug!(%error, "a tunnel could not be established"),
                Some(Ok(Err(error))) => tracing::debug!(%error, "a tunnel failed"),
                Some(Ok(Ok((sent, received)))) => tracing::debug!(sent, received, "a tunnel ended"),
            }
        });
    }

    async fn exchange(
        &self,
        head: &mut Parts,
        body: Body,
        avoided_servers: &[UpstreamServer],
    ) -> Result<(Response<ReplyBody>, UpstreamServer, InFlightGuard), UpstreamError> {
        let config = &self.shared.config;
        let (mut body, mut replay) = ReplayBody::new(body);
        let mut attempts = self.servers.attempts(config.connect_timeout, avoided_servers).await;
        let mut error = match self.servers.choice {
            Choice::Master => UpstreamError::NoMaster,
            Choice::Turns | Choice::LeastLoaded => UpstreamError::NoServers,
        };
        while let Some(target) = attempts.next().await {
            let (server, health) = (&target.server, &target.health);
            let in_flight = target.enter();
            let started = Instant::now();
            let span = debug_span!(
                target: SPANS,
                "upstream",
                otel.kind = "client",
                otel.status_code = Empty,
                server.address = server.authority(),
                http.response.status_code = Empty,
            );
            let mut request = self.request_to(server, head, attempts.is_last(), body);
            inject_context(&span, request.headers_mut());
            let reply = self.shared.pool.request(server, request).instrument(span.clone());
            // The timeout begins when the request's body has been sent. The time for sending the body depends on the
            // client, so it does not count.
            let reply_timeout = async {
                replay.wait_until_body_ends().await;
                tokio::time::sleep(config.response_timeout).await;
            };
            let result = tokio::select! {
                biased;
                result = reply => result,
                () = reply_timeout => {
                    tracing::warn!(%server, timeout = ?config.response_timeout, "no reply in time");
                    return Err(UpstreamError::Timeout(config.response_timeout));
                }
            };
            if result.is_err() {
                span.record("otel.status_code", "ERROR");
            }
            match result {
                Ok(mut response) => {
                    if !replay.is_body_gone() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
                        response.body_mut().detach();
                    }
                    health.record_connected();
                    span.record("http.response.status_code", response.status().as_u16());
                    let cell = &self.shared.duration_histogram;
                    let duration_histogram = cell.get_or_init(|| histogram!(telemetry::UPSTREAM_DURATION));
                    duration_histogram.record(started.elapsed());
                    return Ok((response, server.clone(), in_flight));
                }
                Err(cause @ ExchangeError::Connect(_)) => {
                    let reason = causes::chain(&cause);
                    counter!(telemetry::UPSTREAM_CONNECT_FAILURES).increment(1);
                    tracing::warn!(%server, error = reason, "cannot connect to a server of the upstream");
                    health.record_refused(reason);
                    error = UpstreamError::Connect;
                    (body, replay) = match replay.take_untouched_body() {
                        Some(body) => body,
                        None => return Err(UpstreamError::Connect),
                    };
                }
                Err(cause @ ExchangeError::Broken(_)) => {
                    tracing::warn!(%server, error = causes::chain(&cause), "the connection to the upstream failed");
                    return Err(
                        match causes::find::<crate::informational::TooManyInformational>(&cause) {
                            Some(_) => UpstreamError::TooManyInformational,
                            None => UpstreamError::Broken,
                        },
                    );
                }
            }
        }
        Err(error)
    }

    fn request_to(
        &self,
        server: &UpstreamServer,
        head: &mut Parts,
        is_last: bool,
        body: ReplayBody,
    ) -> Request<ReplayBody> {
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = path_of(&head.uri);
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = if is_last {
            std::mem::take(&mut head.headers)
        } else {
            head.headers.clone()
        };
        let client_host = request
            .headers()
            .get(headers::X_FORWARDED_HOST)
            .filter(|_| self.keeps_host)
            .cloned();
        let host = client_host.unwrap_or_else(|| server.host().clone());
        request.headers_mut().insert(HOST, host);
        request
    }
}

fn path_of(url: &Uri) -> Uri {
    match url.path_and_query() {
        Some(path) => path.clone().into(),
        None => Uri::default(),
    }
}
