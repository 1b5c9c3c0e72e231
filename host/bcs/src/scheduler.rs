//! Forwards requests that have passed the chains.
//!
//! If the upstream is a bcs-mesos-driver, it gets the requests unchanged. Otherwise, requests are translated for the
//! scheduler, or sent to a console or kube-apiserver, or answered directly. The scheduler's replies are translated too.

mod forwarding;
mod peeked_body;
pub(crate) mod relay;

use std::{convert::Infallible, sync::Arc, time::Duration};

use admittance::{BodyError, BodyLimits, Passage, content_encoding};
use admittance_dialect::{Dialect, EndReason};
use admittance_net::{
    count_upstream_error,
    trace::{TRACEPARENT, TRACESTATE},
    upstream::{Upstream, UpstreamError, UpstreamServer},
};
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, Uri, header::CONTENT_LENGTH, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{service_fn, util::BoxCloneSyncService};

use self::peeked_body::PeekedBody;
pub use self::{
    forwarding::{NextBody, OtherServer, Relay, RewrittenRequest, SchedulerForwarding},
    relay::{definitions_reply, relay},
};
use crate::{Bcs, UpstreamKind, other_servers::OtherServers, translation::forwarding};

/// The number of bytes that are read from the beginning of a reply's body before this program decides how to pass the
/// reply on to the client.
const PEEKED_BYTES: usize = 1024;

/// If none of the servers processed the request, all of them are tried again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) type SchedulerService = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// Forwards requests that have passed the chains. Lives as long as the driver.
///
/// If a request is forwarded unchanged, it streams through [`Upstream`]. If it is translated, the new request has its
/// own headers. Of the client's headers, it gets only those with the trace context.
#[derive(Debug)]
pub(crate) struct SchedulerForwarder {
    pub(crate) dialect: Arc<Bcs>,
    pub(crate) limits: BodyLimits,
    pub(crate) upstream: Upstream,
    /// The longest time to wait for the beginning of a reply's body after the head of the reply has arrived.
    pub(crate) reply_timeout: Duration,
    /// The longest time to look for a server that processes a request.
    pub(crate) retry_timeout: Duration,
    pub(crate) other_servers: OtherServers,
}

enum SentRequest {
    Whole(Bytes),
    Streamed(Body),
}

/// Returns the reason why the upstream sent no reply, with the message that bcs-mesos-driver has for it.
pub fn upstream_end(error: UpstreamError) -> EndReason<'static> {
    match error {
        UpstreamError::NoMaster => EndReason::UpstreamUnreachable {
            reason: "scheduler not exist",
        },
        error => error.into(),
    }
}

impl SchedulerForwarder {
    pub(crate) fn into_service(self) -> SchedulerService {
        let scheduler = Arc::new(self);
        BoxCloneSyncService::new(service_fn(move |request| {
            let scheduler = scheduler.clone();
            async move { Ok(scheduler.send(request).await) }
        }))
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        if self.dialect.upstream_kind() == UpstreamKind::Driver {
            let reply = self.upstream.send(request).await;
            return reply.unwrap_or_else(|error| self.unreachable_reply(error));
        }
        let (head, body) = request.into_parts();
        let reply = match forwarding(&head, None) {
            Some(forwarding) => self.forward(forwarding, head, body).await,
            None => self.translate(head, body).await,
        };
        reply.unwrap_or_else(|error| self.end_reply(&error.end_reason()))
    }

    async fn translate(&self, head: Parts, body: Body) -> Result<Response<Body>, BodyError> {
        let body = self.limits.collect(&head, body).await?;
        match forwarding(&head, Some(&body)) {
            Some(forwarding) => self.forward(forwarding, head, Body::from(body)).await,
            None => Ok(self.end_reply(&EndReason::NoRoute)),
        }
    }

    async fn forward(
        &self,
        forwarding: SchedulerForwarding,
        head: Parts,
        body: Body,
    ) -> Result<Response<Body>, BodyError> {
        Ok(match forwarding {
            SchedulerForwarding::Rewritten(rewritten) => {
                let (head, sent_body, unread_body) = Self::rewrite(rewritten, &head, body)?;
                let reply = self.exchange(head, sent_body);
                tokio::pin!(reply);
                tokio::select! {
                    biased;
                    reply = &mut reply => reply,
                    // The rest of the body is read too, because a client that is still sending might miss the reply.
                    () = drain(unread_body, self.limits.size) => reply.await,
                }
            }
            SchedulerForwarding::OtherServer(server) => match self.other_servers.send(server, head, body).await? {
                Some(reply) => reply,
                None => self.end_reply(&EndReason::NoRoute),
            },
            SchedulerForwarding::Reply(reply) => Passage::Ended("answered").mark_response(reply.map(Body::from)),
        })
    }

    fn rewrite(rewritten: RewrittenRequest, head: &Parts, body: Body) -> Result<(Parts, SentRequest, Body), BodyError> {
        let (sent_body, unread_body) = match rewritten.body {
            NextBody::Nothing => (SentRequest::Whole(Bytes::new()), body),
            NextBody::New(bytes) => (SentRequest::Whole(bytes), Body::empty()),
            // A compressed body cannot be forwarded, because the new request does not have the client's header
            // `Content-Encoding`.
            NextBody::AsIs => match content_encoding(&head.headers) {
                Some(encoding) => return Err(BodyError::Encoded(encoding)),
                None => (SentRequest::Streamed(body), Body::empty()),
            },
        };
        let length = match &sent_body {
            SentRequest::Whole(bytes) => u64::try_from(bytes.len()).ok(),
            SentRequest::Streamed(body) => body.size_hint().exact(),
        };
        let clients = &head.headers;
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = rewritten.method;
        head.uri = Uri::from(rewritten.path_and_query);
        head.headers = rewritten.headers;
        for name in [TRACEPARENT, TRACESTATE] {
            for value in clients.get_all(&name) {
                head.headers.append(&name, value.clone());
            }
        }
        // Some servers require `Content-Length` in a POST or PUT, even if the body is empty (RFC 9110, section 8.6).
        let wants_length = matches!(head.method, Method::POST | Method::PUT);
        if let Some(length) = length.filter(|length| *length > 0 || wants_length) {
            head.headers.insert(CONTENT_LENGTH, length.into());
        }
        Ok((head, sent_body, unread_body))
    }

    /// Sends a request to the upstream, and returns the reply for the client. If a server did not process the request,
    /// the next server in the list is tried.
    async fn exchange(&self, head: Parts, sent_body: SentRequest) -> Response<Body> {
        let (repeatable_body, mut request_body) = match sent_body {
            SentRequest::Whole(body) => (Some(body.clone()), Body::from(body)),
            SentRequest::Streamed(body) => (None, body),
        };
        let mut idle_servers: Vec<UpstreamServer> = Vec::new();
        let mut deadline = None;
        loop {
            let request = Request::from_parts(head.clone(), request_body);
            let (reply, server) = match self.upstream.send_avoiding(request, &idle_servers).await {
                Ok(replied) => replied,
                Err(error) => return self.unreachable_reply(error),
            };
            let idle = match self.relay(reply).await {
                Ok(reply) => return reply,
                Err(idle) => *idle,
            };
            let Some(body) = &repeatable_body else {
                return Self::invalid_reply(idle);
            };
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.retry_timeout);
            match server {
                Some(server) if !idle_servers.contains(&server) => idle_servers.push(server),
                _ => {
                    idle_servers.clear();
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
            if Instant::now() >= deadline {
                return Self::invalid_reply(idle);
            }
            request_body = Body::from(body.clone());
        }
    }

    fn unreachable_reply(&self, error: UpstreamError) -> Response<Body> {
        let end = upstream_end(error);
        Passage::Ended(end.as_str()).mark_response(self.dialect.reply(&end).map(Body::from))
    }

    /// Translates a reply of the scheduler. Returns an error if the scheduler did not process the request, so that
    /// another server can be tried.
    async fn relay(&self, reply: Response<Body>) -> Result<Response<Body>, Box<Response<Bytes>>> {
        if content_encoding(reply.headers()).is_some() {
            return Ok(reply);
        }
        let (mut head, body) = reply.into_parts();
        let peeking = tokio::time::timeout(self.reply_timeout, PeekedBody::read(body, PEEKED_BYTES));
        let mut peeked = match peeking.await {
            Ok(Ok(peeked)) => peeked,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the reply of the upstream was interrupted");
                return Ok(self.error_reply(
                    "broken",
                    &EndReason::UpstreamUnreachable {
                        reason: "the connection to the upstream broke after the head of its reply",
                    },
                ));
            }
            Err(_) => {
                let limit = self.reply_timeout;
                return Ok(self.error_reply("timeout", &EndReason::UpstreamTimeout { limit }));
            }
        };
        Ok(match relay(head.status, &peeked.start) {
            Relay::Unchanged { status, headers } => {
                head.status = status;
                head.headers = headers;
                peeked.drop_trailers();
                Response::from_parts(head, Body::new(peeked))
            }
            Relay::Reply(reply) => Self::invalid_reply(reply),
            Relay::NotProcessed(reply) => return Err(Box::new(reply)),
        })
    }

    fn invalid_reply(reply: Response<Bytes>) -> Response<Body> {
        count_upstream_error("invalid");
        Passage::Ended("upstream-invalid").mark_response(reply.map(Body::from))
    }

    fn end_reply(&self, end: &EndReason<'_>) -> Response<Body> {
        tracing::info!(end = end.as_str(), "the request ends here: {end}");
        Passage::Ended(end.as_str()).mark_response(self.dialect.reply(end).map(Body::from))
    }

    fn error_reply(&self, reason: &'static str, end: &EndReason<'_>) -> Response<Body> {
        count_upstream_error(reason);
        self.end_reply(end)
    }
}

async fn drain(mut body: Body, limit: usize) {
    let mut byte_count = 0_usize;
    while byte_count <= limit
        && let Some(Ok(frame)) = body.frame().await
    {
        byte_count = byte_count.saturating_add(frame.data_ref().map_or(0, |data| data.len()));
    }
}
