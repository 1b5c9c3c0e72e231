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
    dialect::{Dialect, End, NextBody, Onward as Next, Relay, Rewritten},
    encoding,
};
use admittance_cluster::Cluster;
use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, Uri, header::CONTENT_LENGTH, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use metrics::counter;
use tower::Service;

use self::opened::Opened;
use crate::{
    elsewhere::{Elsewhere, Unanswered},
    front::EndedUpstream,
    measure,
    upstream::Upstream,
};

/// So much of a reply's body is read before the dialect says what becomes of it, in bytes.
const START: usize = 1024;

/// The way from the chains to the control plane. Cheap to clone; lives as long as the driver.
///
/// A request that goes on as it is streams through [`Upstream`]. One that is translated is another request: no
/// header of the client's goes on, and nothing tells of the client. Its body is read whole only when the
/// translation needs it.
#[derive(Clone, Debug)]
pub(crate) struct Onward(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dialect: Arc<dyn Dialect>,
    limits: BodyLimits,
    upstream: Upstream,
    response_timeout: Duration,
    elsewhere: Elsewhere,
}

impl Onward {
    /// To this upstream, as the dialect says. `limits` are for bodies that are translated, `response_timeout`
    /// for the beginning of a reply's body, after its head.
    pub(crate) fn new(
        dialect: Arc<dyn Dialect>,
        limits: BodyLimits,
        upstream: Upstream,
        response_timeout: Duration,
        elsewhere: Elsewhere,
    ) -> Self {
        Self(Arc::new(Inner {
            dialect,
            limits,
            upstream,
            response_timeout,
            elsewhere,
        }))
    }

    /// Ask this cluster for custom resources.
    pub(crate) fn reach(&self, cluster: Cluster) {
        self.0.elsewhere.reach(cluster);
    }
}

impl Inner {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        match self.dialect.onward(&head) {
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
            Next::AsIs | Next::Translate => self.ask(Request::from_parts(head, body)).await,
            Next::Rewritten(rewritten) => match Self::rewrite(rewritten, &head, body) {
                Ok((request, unread)) => {
                    let reply = self.ask(request);
                    tokio::pin!(reply);
                    let reply = tokio::select! {
                        biased;
                        reply = &mut reply => reply,
                        // Else a client that still sends may never see the reply.
                        () = drain(unread, self.limits.size) => reply.await,
                    };
                    self.relay(reply).await
                }
                Err(error) => self.end(&error.end()),
            },
            Next::Elsewhere(to) => match self.elsewhere.send(to, head, body).await {
                Ok(reply) => reply,
                Err(Unanswered::NoRoute) => self.end(&End::NoRoute),
                Err(Unanswered::Body(error)) => self.end(&error.end()),
            },
            Next::Reply(reply) => ended(reply.map(Body::from), "answered"),
        }
    }

    /// The request to the upstream, and what of the client's body is not for it.
    fn rewrite(rewritten: Rewritten, head: &Parts, body: Body) -> Result<(Request<Body>, Body), BodyError> {
        let (body, unread) = match rewritten.body {
            NextBody::Nothing => (Body::empty(), body),
            NextBody::New(bytes) => (Body::from(bytes), Body::empty()),
            // The header that would say so does not go on.
            NextBody::AsIs => match encoding(&head.headers) {
                Some(encoding) => return Err(BodyError::Encoded { encoding }),
                None => (body, Body::empty()),
            },
        };
        let length = body.size_hint().exact();
        let mut request = Request::new(body);
        *request.method_mut() = rewritten.method;
        *request.uri_mut() = Uri::from(rewritten.path_and_query);
        *request.headers_mut() = rewritten.headers;
        // Some servers ask for the length even of nothing (RFC 9110, section 8.6).
        let wants_length = matches!(*request.method(), Method::POST | Method::PUT);
        if let Some(length) = length.filter(|length| *length > 0 || wants_length) {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        Ok((request, unread))
    }

    async fn ask(&self, request: Request<Body>) -> Response<Body> {
        match self.upstream.clone().call(request).await {
            Ok(reply) => reply,
            Err(never) => match never {},
        }
    }

    /// The upstream's reply to a request that was rewritten, as the client gets it.
    async fn relay(&self, reply: Response<Body>) -> Response<Body> {
        // It is a reply of this program already.
        if reply.extensions().get::<EndedUpstream>().is_some() {
            return reply;
        }
        // Nobody asked for a compressed one. What it begins with cannot be seen, and nothing of it is to be lost.
        if encoding(reply.headers()).is_some() {
            return reply;
        }
        let (mut head, body) = reply.into_parts();
        let opening = tokio::time::timeout(self.response_timeout, Opened::open(body, START));
        let mut opened = match opening.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the reply of the upstream broke off");
                return self.failed(
                    "broken",
                    &End::UpstreamUnreachable {
                        reason: "the connection to the upstream broke after the head of its reply",
                    },
                );
            }
            Err(_) => {
                return self.failed(
                    "timeout",
                    &End::UpstreamTimeout {
                        limit: self.response_timeout,
                    },
                );
            }
        };
        match self.dialect.relay(head.status, opened.start()) {
            Relay::AsIs => Response::from_parts(head, Body::new(opened)),
            Relay::Head { status, headers } => {
                head.status = status;
                head.headers = headers;
                opened.drop_trailers();
                Response::from_parts(head, Body::new(opened))
            }
            Relay::Reply(reply) => {
                counter!(measure::UPSTREAM_ERRORS, "reason" => "invalid").increment(1);
                ended(reply.map(Body::from), "upstream-invalid")
            }
        }
    }

    /// The reply to a request whose body cannot be had, or that the upstream does not answer.
    fn end(&self, end: &End<'_>) -> Response<Body> {
        tracing::info!(end = end.as_str(), "the request ends here: {end}");
        ended(self.dialect.reply(end).map(Body::from), end.as_str())
    }

    fn failed(&self, reason: &'static str, end: &End<'_>) -> Response<Body> {
        counter!(measure::UPSTREAM_ERRORS, "reason" => reason).increment(1);
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

impl Service<Request<Body>> for Onward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let onward = self.0.clone();
        Box::pin(async move { Ok(onward.send(request).await) })
    }
}
