//! What every request meets first: the count of those in flight, and the access log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance::{
    AdmissionService, Passage, REQUEST_ID, ReviewService,
    dialect::{Dialect, End},
};
use admittance_net::{
    body::GuardedBody,
    limits::{FairLimit, Permit},
    listener::{Client, Handler, Stall, Transfer},
    upstream::{TunnelGuard, UpstreamError, is_upgrade},
};
use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, Version,
    header::{ACCEPT, CONNECTION},
};
use metrics::{counter, gauge, histogram};
use tokio::time::Instant;
use tower::Service;

use crate::{
    definitions_api::{DefinitionRequest, DefinitionsApi},
    forwarding::Forwarding,
    gateway::{For, Gateway},
    metric_names,
};

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How a request ended behind the chains other than by a reply of the upstream: an extension of the reply that was
/// written instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedUpstream(pub(crate) &'static str);

/// How a request ends that an upstream did not reply to.
pub(crate) fn upstream_end(error: UpstreamError) -> End<'static> {
    let reason = match error {
        UpstreamError::Timeout(limit) => return End::UpstreamTimeout { limit },
        // As clients of bcs-mesos-driver know it.
        UpstreamError::NoMaster => "scheduler not exist",
        error => error.reason(),
    };
    End::UpstreamUnreachable { reason }
}

/// The chains, and the upstream if there is one, behind limits. Cheap to clone; lives as long as the
/// driver.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    service: FrontService,
    requests: FairLimit,
    streams: FairLimit,
    is_stopping: Arc<AtomicBool>,
}

/// Requests that are counted, and limited, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    /// One whose reply ends when the client wants: a watch, or a tunnel.
    Stream,
}

impl Kind {
    /// From the head alone: whoever sends a request says for how long it is meant.
    fn of<B>(request: &Request<B>) -> Self {
        let is_watch = || {
            let query = request.uri().query().unwrap_or_default();
            form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
                // As servers written in Go read a flag.
                matches!(&*key, "watch" | "follow")
                    && matches!(&*value, "" | "1" | "t" | "T" | "true" | "True" | "TRUE")
            })
        };
        let is_event_stream = || {
            let mut accepted = request.headers().get_all(ACCEPT).iter();
            accepted.any(|value| value.as_bytes().starts_with(b"text/event-stream"))
        };
        let may_wait = request.method() == Method::GET && (is_watch() || is_event_stream());
        if may_wait || is_upgrade(request) {
            Self::Stream
        } else {
            Self::Request
        }
    }

    fn gauge(self) -> &'static str {
        match self {
            Self::Request => metric_names::IN_FLIGHT,
            Self::Stream => metric_names::STREAMS,
        }
    }
}

/// What answers requests.
#[derive(Clone, Debug)]
pub(crate) enum FrontService {
    /// The chains, and then the upstream; before both what is answered here, if anything is.
    Proxy(
        AdmissionService<Forwarding>,
        Arc<dyn Dialect>,
        Option<DefinitionsApi>,
    ),
    /// The chains alone.
    Reviews(ReviewService),
    /// The drivers of clusters.
    Gateway(Gateway),
}

impl FrontService {
    async fn call(&mut self, request: Request<Body>) -> Response<Body> {
        let answer = match self {
            Self::Proxy(service, _, definitions) => {
                let (head, body) = request.into_parts();
                let asked = definitions
                    .as_ref()
                    .and_then(|definitions| Some((definitions, DefinitionRequest::of(&head)?)));
                let request = Request::from_parts(head, body);
                match asked {
                    Some((definitions, asked)) => Ok(definitions.answer(asked, request).await),
                    None => service.call(request).await,
                }
            }
            Self::Reviews(service) => service
                .call(request)
                .await
                .map(|response| response.map(Body::from)),
            Self::Gateway(gateway) => Ok(gateway.answer(request).await),
        };
        match answer {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        match self {
            Self::Proxy(_, dialect, _) => dialect.reply(end),
            Self::Reviews(service) => service.reply(end),
            Self::Gateway(gateway) => gateway.reply(end),
        }
    }
}

impl Front {
    /// At most `requests` are in flight, and beside them `streams`; one more is turned away at once. While
    /// `is_stopping`, clients are asked to close their connections.
    pub(crate) fn new(
        service: FrontService,
        requests: usize,
        streams: usize,
        is_stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            service,
            requests: FairLimit::new(requests),
            streams: FairLimit::new(streams),
            is_stopping,
        }
    }

    /// The reply to a request within the limits.
    async fn pass(
        &mut self,
        mut request: Request<Body>,
        in_flight: InFlight,
        transfer: &Transfer,
    ) -> Response<Body> {
        if in_flight.kind == Kind::Stream {
            transfer.may_wait();
        }
        let in_flight = Arc::new(in_flight);
        request.extensions_mut().insert(TunnelGuard {
            permit: in_flight.clone(),
            connection_ended: transfer.connection_ended(),
        });
        let mut service = self.service.clone();
        let stall = tokio::select! {
            biased;
            stall = transfer.stalled() => stall,
            response = service.call(request) => match transfer.stall() {
                None => return response.map(|body| Body::new(GuardedBody::new(body, in_flight))),
                // That the body broke off is only what the service has seen of it.
                Some(stall) => stall,
            }
        };
        match stall {
            Stall::UpstreamIdle(limit) => self.end(&End::UpstreamTimeout { limit }),
            Stall::ClientIdle(_) | Stall::ClientSlow(_) => self.end(&End::BodyStalled {
                reason: &stall.to_string(),
            }),
        }
    }

    fn end(&self, end: &End<'_>) -> Response<Body> {
        let mut response = self.service.reply(end);
        response.extensions_mut().insert(Passage::Ended(end.as_str()));
        response.map(Body::from)
    }
}

impl Handler for Front {
    const IS_COUNTED: bool = true;

    async fn handle(mut self, request: Request<Body>, client: Client, transfer: &Transfer) -> Response<Body> {
        let started = Instant::now();
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let is_http_1 = request.version() < Version::HTTP_2;
        let kind = Kind::of(&request);
        let limit = match kind {
            Kind::Request => &self.requests,
            Kind::Stream => &self.streams,
        };
        let mut response = match limit.try_acquire(client.address.ip()) {
            Some(permit) => self.pass(request, InFlight::new(kind, permit), transfer).await,
            None => {
                counter!(metric_names::SHED).increment(1);
                self.end(&End::Overloaded {
                    retry_after: RETRY_AFTER,
                })
            }
        };
        if is_http_1 && self.is_stopping.load(Ordering::Relaxed) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let duration = started.elapsed();
        let status = response.status().as_u16();
        let passage = passage(&response);
        let to = response.extensions().get::<For>();
        let cluster = to.map(|to| to.cluster.as_str());
        let by = to.and_then(|to| to.holder.as_deref());
        let uid = response
            .headers()
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .unwrap_or_default();
        tracing::info!(
            target: "admittance::access",
            uid,
            client = %client.address,
            %method,
            path,
            status,
            passage,
            cluster,
            by,
            duration_ms = duration.as_nanos() as f64 / 1e6,
            "{method} {path} {status}",
        );
        counter!(metric_names::REQUESTS, "status" => status_class(status), "passage" => passage).increment(1);
        histogram!(metric_names::REQUEST_DURATION).record(duration);
        response
    }
}

/// What was done with the request of this reply.
pub(crate) fn passage(response: &Response<Body>) -> &'static str {
    let extensions = response.extensions();
    match (extensions.get::<EndedUpstream>(), extensions.get::<Passage>()) {
        (Some(EndedUpstream(how)), _) => how,
        (None, Some(passage)) => passage.as_str(),
        (None, None) => "unknown",
    }
}

/// As metrics have it.
pub(crate) fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// One request in flight.
#[derive(Debug)]
struct InFlight {
    kind: Kind,
    _permit: Permit,
}

impl InFlight {
    fn new(kind: Kind, permit: Permit) -> Self {
        gauge!(kind.gauge()).increment(1);
        Self {
            kind,
            _permit: permit,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!(self.kind.gauge()).decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (method, uri, headers, is_stream) in [
            ("GET", "/pods", &[][..], false),
            ("GET", "/pods?watch=true", &[], true),
            ("GET", "/pods?a=b&watch=1", &[], true),
            ("GET", "/pods?watch", &[], true),
            ("GET", "/pods?watch=false", &[], false),
            ("GET", "/pods?watches=true", &[], false),
            ("GET", "/log?follow=true", &[], true),
            ("GET", "/events", &[("accept", "text/event-stream")], true),
            // A request whose body waits is not a stream.
            ("POST", "/pods?watch=true", &[], false),
            (
                "GET",
                "/exec",
                &[("connection", "Upgrade"), ("upgrade", "websocket")],
                true,
            ),
            ("GET", "/exec", &[("upgrade", "websocket")], false),
        ] {
            let request = headers.iter().fold(
                Request::builder().method(method).uri(uri),
                |request, (name, value)| request.header(*name, *value),
            );
            let is = Kind::of(&request.body(()).unwrap()) == Kind::Stream;
            assert_eq!(is, is_stream, "{method} {uri} {headers:?}");
        }
    }
}
