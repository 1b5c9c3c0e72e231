//! How requests go on once the chains have let them pass, as their dialect says: as they are, translated, or
//! not at all; and how the replies to translated ones come back.

mod opened;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance::{
    BodyError, BodyLimits,
    dialect::{Dialect, End, Forwarding as Next, NextBody, Relay, Rewritten},
    encoding,
};
use admittance_cluster::Cluster;
use admittance_net::{
    count_upstream_error,
    upstream::{AvoidedServers, RepliedBy, Upstream},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, Uri, header::CONTENT_LENGTH, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::Service;

use self::opened::Opened;
use crate::{
    front::{EndedUpstream, upstream_end},
    other_servers::{OtherServers, Unanswered},
};

/// So much of a reply's body is read before the dialect says what becomes of it, in bytes.
const START: usize = 1024;

/// Before servers that have done nothing with a request are asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a [`Forwarding`] waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the beginning of a reply's body, after its head.
    pub(crate) reply: Duration,
    /// For a server that takes a request, once one has replied that it does not.
    pub(crate) taker: Duration,
}

/// The way from the chains to the control plane. Cheap to clone; lives as long as the driver.
///
/// A request that goes on as it is streams through [`Upstream`]. One that is translated is another request: no
/// header of the client's goes on, and nothing tells of the client. Its body is read whole only when the
/// translation needs it, and such a request is asked again of another server when one has done nothing with it.
#[derive(Clone, Debug)]
pub(crate) struct Forwarding(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dialect: Arc<dyn Dialect>,
    limits: BodyLimits,
    upstream: Upstream,
    patience: Patience,
    other_servers: OtherServers,
}

/// The body of a request to the upstream.
enum Sent {
    Whole(Bytes),
    /// It can be sent only once.
    Streamed(Body),
}

impl Forwarding {
    /// To this upstream, as the dialect says. `limits` are for bodies that are translated.
    pub(crate) fn new(
        dialect: Arc<dyn Dialect>,
        limits: BodyLimits,
        upstream: Upstream,
        patience: Patience,
        other_servers: OtherServers,
    ) -> Self {
        Self(Arc::new(Inner {
            dialect,
            limits,
            upstream,
            patience,
            other_servers,
        }))
    }

    /// Ask this cluster for custom resources.
    pub(crate) fn reach(&self, cluster: Cluster) {
        self.0.other_servers.reach(cluster);
    }
}

impl Inner {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        match self.dialect.forwarding(&head) {
            Next::Translate => match self.limits.collect(&head, body).await {
                Ok(body) => {
                    let next = self.dialect.translate(&head, &body);
                    self.go(next, head, Body::from(body)).await
                }
                Err(error) => self.end(&error.end()),
            },
            next => self.go(next, head, body).await,
        }
    }

    async fn go(&self, next: Next, head: Parts, body: Body) -> Response<Body> {
        match next {
            // A body that is in hand is not read again.
            Next::AsIs | Next::Translate => self
                .ask(Request::from_parts(head, body))
                .await
                .unwrap_or_else(|ended| ended),
            Next::Rewritten(rewritten) => match Self::rewrite(rewritten, &head, body) {
                Ok((head, sent, unread)) => {
                    let reply = self.put(head, sent);
                    tokio::pin!(reply);
                    tokio::select! {
                        biased;
                        reply = &mut reply => reply,
                        // Else a client that still sends may never see the reply.
                        () = drain(unread, self.limits.size) => reply.await,
                    }
                }
                Err(error) => self.end(&error.end()),
            },
            Next::OtherServer(to) => match self.other_servers.send(to, head, body).await {
                Ok(reply) => reply,
                Err(Unanswered::NoRoute) => self.end(&End::NoRoute),
                Err(Unanswered::Body(error)) => self.end(&error.end()),
            },
            Next::Reply(reply) => ended(reply.map(Body::from), "answered"),
        }
    }

    /// The request to the upstream, and what of the client's body is not for it.
    fn rewrite(rewritten: Rewritten, head: &Parts, body: Body) -> Result<(Parts, Sent, Body), BodyError> {
        let (sent, unread) = match rewritten.body {
            NextBody::Nothing => (Sent::Whole(Bytes::new()), body),
            NextBody::New(bytes) => (Sent::Whole(bytes), Body::empty()),
            // The header that would say so does not go on.
            NextBody::AsIs => match encoding(&head.headers) {
                Some(encoding) => return Err(BodyError::Encoded { encoding }),
                None => (Sent::Streamed(body), Body::empty()),
            },
        };
        let length = match &sent {
            Sent::Whole(bytes) => u64::try_from(bytes.len()).ok(),
            Sent::Streamed(body) => body.size_hint().exact(),
        };
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = rewritten.method;
        head.uri = Uri::from(rewritten.path_and_query);
        head.headers = rewritten.headers;
        // Some servers ask for the length even of nothing (RFC 9110, section 8.6).
        let wants_length = matches!(head.method, Method::POST | Method::PUT);
        if let Some(length) = length.filter(|length| *length > 0 || wants_length) {
            head.headers.insert(CONTENT_LENGTH, length.into());
        }
        Ok((head, sent, unread))
    }

    /// The client's reply to a request that was rewritten.
    ///
    /// A server that replies that it has done nothing is followed by the next one of a list, and all of them by
    /// themselves after a while: between the end of a master and the next one, nobody takes requests.
    async fn put(&self, head: Parts, sent: Sent) -> Response<Body> {
        let body = match sent {
            Sent::Whole(body) => body,
            Sent::Streamed(body) => {
                return match self.ask(Request::from_parts(head, body)).await {
                    Ok(reply) => self
                        .relay(reply)
                        .await
                        .unwrap_or_else(|idle| Self::invalid(*idle)),
                    Err(ended) => ended,
                };
            }
        };
        let mut avoided = AvoidedServers::default();
        let mut until = None;
        loop {
            let mut request = Request::from_parts(head.clone(), Body::from(body.clone()));
            request.extensions_mut().insert(avoided.clone());
            let reply = match self.ask(request).await {
                Ok(reply) => reply,
                Err(ended) => return ended,
            };
            let replied = reply.extensions().get::<RepliedBy>().cloned();
            let idle = match self.relay(reply).await {
                Ok(reply) => return reply,
                Err(idle) => idle,
            };
            let until = *until.get_or_insert_with(|| Instant::now() + self.patience.taker);
            match replied {
                Some(RepliedBy(server)) if !avoided.0.contains(&server) => avoided.0.push(server),
                _ => {
                    avoided.0.clear();
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if Instant::now() >= until {
                return Self::invalid(*idle);
            }
        }
    }

    /// The upstream's reply, or this program's in its place.
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
        self.upstream.send(request).await.map_err(|error| {
            let end = upstream_end(error);
            ended(self.dialect.reply(&end).map(Body::from), end.as_str())
        })
    }

    /// The upstream's reply to a request that was rewritten, as the client gets it.
    async fn relay(&self, reply: Response<Body>) -> Result<Response<Body>, Box<Response<Bytes>>> {
        // Nobody asked for a compressed one. What it begins with cannot be seen, and nothing of it is to be lost.
        if encoding(reply.headers()).is_some() {
            return Ok(reply);
        }
        let (mut head, body) = reply.into_parts();
        let opening = tokio::time::timeout(self.patience.reply, Opened::open(body, START));
        let mut opened = match opening.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the reply of the upstream broke off");
                return Ok(self.failed(
                    "broken",
                    &End::UpstreamUnreachable {
                        reason: "the connection to the upstream broke after the head of its reply",
                    },
                ));
            }
            Err(_) => {
                let limit = self.patience.reply;
                return Ok(self.failed("timeout", &End::UpstreamTimeout { limit }));
            }
        };
        Ok(match self.dialect.relay(head.status, opened.start()) {
            Relay::AsIs => Response::from_parts(head, Body::new(opened)),
            Relay::Head { status, headers } => {
                head.status = status;
                head.headers = headers;
                opened.drop_trailers();
                Response::from_parts(head, Body::new(opened))
            }
            Relay::Reply(reply) => Self::invalid(reply),
            Relay::Idle(reply) => return Err(Box::new(reply)),
        })
    }

    /// What the client gets in place of a reply that is none.
    fn invalid(reply: Response<Bytes>) -> Response<Body> {
        count_upstream_error("invalid");
        ended(reply.map(Body::from), "upstream-invalid")
    }

    /// The reply to a request whose body cannot be had, or that the upstream does not answer.
    fn end(&self, end: &End<'_>) -> Response<Body> {
        tracing::info!(end = end.as_str(), "the request ends here: {end}");
        ended(self.dialect.reply(end).map(Body::from), end.as_str())
    }

    fn failed(&self, reason: &'static str, end: &End<'_>) -> Response<Body> {
        count_upstream_error(reason);
        self.end(end)
    }
}

/// A reply of this program's own, with how the request ended.
fn ended(mut reply: Response<Body>, how: &'static str) -> Response<Body> {
    reply.extensions_mut().insert(EndedUpstream(how));
    reply
}

/// Read a body and throw it away, up to this many bytes.
async fn drain(mut body: Body, limit: usize) {
    let mut read = 0_usize;
    while read <= limit
        && let Some(Ok(frame)) = body.frame().await
    {
        read = read.saturating_add(frame.data_ref().map_or(0, |data| data.len()));
    }
}

impl Service<Request<Body>> for Forwarding {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let forwarding = self.0.clone();
        Box::pin(async move { Ok(forwarding.send(request).await) })
    }
}
