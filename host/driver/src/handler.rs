//! Limits requests in flight, and writes the access log.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance::{Passage, REQUEST_ID, admission::FrontEnd};
use admittance_dialect::EndReason;
use admittance_net::{
    body::GuardedBody,
    budget::BodyBudget,
    limits::{FairLimit, Permit},
    listener::{BodyTransfer, ConnectedClient, Listener, RequestHandler, Stall, StopSignals},
    status_class,
    upstream::{TunnelGuard, is_upgrade},
    workers::Workers,
};
use axum::body::Body;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ACCEPT, CONNECTION},
};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    fronts::{FrontReply, FrontService},
    metric_names, trace,
};

/// The `Retry-After` in replies to requests that are refused because too many are in flight.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const TOO_MANY_REQUESTS: &str = "too many requests are in flight; try again later";

/// Serves a front end at a port. Requests and streams that exceed the limits are refused at once.
#[derive(Debug)]
pub(crate) struct FrontEndHandler {
    pub(crate) listener: Listener,
    pub(crate) workers: Option<Workers>,
    pub(crate) stop: StopSignals,
    pub(crate) front_end: FrontEnd,
    /// The maximum number of requests in flight, and after it the maximum number of open streams.
    pub(crate) in_flight_limits: [usize; 2],
    pub(crate) body_budget: BodyBudget,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

impl FrontEndHandler {
    pub(crate) async fn run<S: FrontService>(self, front: S) {
        let [requests, streams] = self.in_flight_limits.map(FairLimit::new);
        let handler = FrontHandler(Arc::new(FrontState {
            front,
            front_end: Arc::new(self.front_end),
            request_limit: requests,
            stream_limit: streams,
            body_budget: self.body_budget,
            is_stopping: self.is_stopping,
            metrics: FrontMetrics::new(),
        }));
        self.listener.serve(handler, self.stop, self.workers).await;
    }
}

#[derive(Debug)]
struct FrontHandler<S>(Arc<FrontState<S>>);

impl<S> Clone for FrontHandler<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct FrontState<S> {
    front: S,
    front_end: Arc<FrontEnd>,
    request_limit: FairLimit,
    stream_limit: FairLimit,
    body_budget: BodyBudget,
    is_stopping: Arc<AtomicBool>,
    metrics: FrontMetrics,
}

/// The metrics of a front end. They are looked up once and kept, because finding a metric by its labels takes longer
/// than counting.
#[derive(Debug)]
struct FrontMetrics {
    requests_in_flight: Gauge,
    streams_open: Gauge,
    durations: Histogram,
    /// The counters of successful replies, in the order of [`PASSAGES`].
    success_counters: [OnceLock<Counter>; PASSAGES.len()],
}

const PASSAGES: [Passage; 3] = [Passage::Untouched, Passage::Allowed, Passage::Changed];

impl FrontMetrics {
    fn new() -> Self {
        Self {
            requests_in_flight: gauge!(metric_names::IN_FLIGHT),
            streams_open: gauge!(metric_names::STREAMS),
            durations: histogram!(metric_names::REQUEST_DURATION),
            success_counters: Default::default(),
        }
    }

    fn count_request(&self, status: StatusCode, passage: &'static str) {
        let counter = || counter!(metric_names::REQUESTS, "status" => status_class(status), "passage" => passage);
        let counters = PASSAGES.iter().zip(&self.success_counters);
        let mut successes = counters.filter(|_| status_class(status) == "2xx");
        match successes.find(|(counted_passage, _)| counted_passage.as_str() == passage) {
            Some((_, success)) => success.get_or_init(counter).increment(1),
            None => counter().increment(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// A group of requests that share a limit on the number in flight.
enum RequestClass {
    Request,
    /// A watch or a tunnel, which may stay open for long.
    Stream,
}

impl RequestClass {
    fn from_request<B>(request: &Request<B>) -> Self {
        let is_watch = || {
            let query = request.uri().query().unwrap_or_default();
            form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
                // The request is a watch if Go would parse the value of this query parameter as true.
                matches!(&*key, "watch" | "follow")
                    && matches!(&*value, "" | "1" | "t" | "T" | "true" | "True" | "TRUE")
            })
        };
        let is_event_stream = || {
            let mut accepted = request.headers().get_all(ACCEPT).iter();
            accepted.any(|value| value.as_bytes().starts_with(b"text/event-stream"))
        };
        // Kubernetes also has an older form of watches, with `/watch/` in the path.
        let is_watch_path = || {
            let mut segments = request.uri().path().split('/');
            let of_group = segments.find(|segment| matches!(*segment, "api" | "apis")) == Some("apis");
            segments.nth(1 + usize::from(of_group)) == Some("watch")
        };
        let may_wait = request.method() == Method::GET && (is_watch() || is_watch_path() || is_event_stream());
        if may_wait || is_upgrade(request) {
            Self::Stream
        } else {
            Self::Request
        }
    }
}

impl<S: FrontService> FrontState<S> {
    fn ended_front_reply(&self, path: &str, end: &EndReason<'_>) -> FrontReply {
        FrontReply {
            response: self.front.reply_to_ended(path, end),
            passage: Some(Passage::Ended(end.as_str())),
            recipient: None,
        }
    }

    async fn answer(
        &self,
        path: &str,
        mut request: Request<Body>,
        class: RequestClass,
        in_flight_request: InFlightRequest,
        transfer: &BodyTransfer,
    ) -> FrontReply {
        let in_flight = Arc::new(in_flight_request);
        if class == RequestClass::Stream {
            transfer.mark_as_stream();
            request.extensions_mut().insert(TunnelGuard {
                permit: in_flight.clone(),
                connection_end_token: transfer.connection_end_token(),
            });
        }
        request.extensions_mut().insert(self.front_end.clone());
        request.extensions_mut().insert(self.body_budget.clone());
        let stall = tokio::select! {
            biased;
            stall = transfer.wait_until_stalled() => stall,
            mut answer = self.front.answer(request) => match transfer.stall() {
                None => {
                    answer.response = answer.response.map(|body| Body::new(GuardedBody::new(body, in_flight)));
                    return answer;
                }
                // The transfer of the body stalled. The front end could not see this: it got a body that ended too
                // early, and its answer says only that. The client gets another answer, which names the stall.
                Some(stall) => stall,
            }
        };
        match stall {
            Stall::UpstreamIdle(limit) => self.ended_front_reply(path, &EndReason::UpstreamTimeout { limit }),
            Stall::ClientIdle(_) | Stall::ClientSlow(_) => {
                let reason = &stall.to_string();
                self.ended_front_reply(path, &EndReason::BodyStalled { reason })
            }
        }
    }
}

impl<S: FrontService> RequestHandler for FrontHandler<S> {
    const IS_COUNTED: bool = true;

    async fn handle(
        self,
        mut request: Request<Body>,
        client: ConnectedClient,
        transfer: &BodyTransfer,
    ) -> Response<Body> {
        let started = Instant::now();
        let front = &*self.0;
        let (span, trace) = trace::begin_span(&mut request, &client);
        let method = request.method().clone();
        let uri = request.uri().clone();
        let path = uri.path();
        let is_http_1 = request.version() < Version::HTTP_2;
        let kind = RequestClass::from_request(&request);
        let limit = match kind {
            RequestClass::Request => &front.request_limit,
            RequestClass::Stream => &front.stream_limit,
        };
        let FrontReply {
            mut response,
            passage,
            recipient,
        } = match limit.try_acquire(client.address.ip()) {
            Some(permit) => {
                let gauge = match kind {
                    RequestClass::Request => &front.metrics.requests_in_flight,
                    RequestClass::Stream => &front.metrics.streams_open,
                };
                let in_flight = InFlightRequest::new(gauge.clone(), permit);
                let answer = front.answer(path, request, kind, in_flight, transfer);
                answer.instrument(span.clone()).await
            }
            None => {
                counter!(metric_names::SHED).increment(1);
                let (retry_after, reason) = (RETRY_AFTER, TOO_MANY_REQUESTS);
                front.ended_front_reply(path, &EndReason::Overloaded { retry_after, reason })
            }
        };
        if is_http_1 && front.is_stopping.load(Ordering::Relaxed) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let duration = started.elapsed();
        let status = response.status();
        let passage = passage.map_or("unknown", Passage::as_str);
        let cluster = recipient.as_ref().and_then(|to| to.cluster.as_deref());
        let by = recipient.as_ref().and_then(|to| to.holder.as_deref());
        let uid = response
            .headers()
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .unwrap_or_default();
        tracing::info!(
            target: "admittance::access",
            uid,
            trace_id = trace.map(|trace| tracing::field::display(trace.trace_id())),
            client = %client.address,
            %method,
            path,
            status = status.as_u16(),
            passage,
            cluster,
            by,
            duration_ms = duration.as_nanos() as f64 / 1e6,
            "{method} {path} {}", status.as_u16(),
        );
        trace::end_span(&span, uid, status, passage);
        front.metrics.count_request(status, passage);
        front.metrics.durations.record(duration);
        response
    }
}

#[derive(Debug)]
struct InFlightRequest {
    gauge: Gauge,
    _permit: Permit,
}

impl InFlightRequest {
    fn new(gauge: Gauge, permit: Permit) -> Self {
        gauge.increment(1);
        Self { gauge, _permit: permit }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.gauge.decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_and_tunnels_are_classified_as_streams() {
        for (method, uri, headers, is_stream) in [
            ("GET", "/pods", &[][..], false),
            ("GET", "/pods?watch=true", &[], true),
            ("GET", "/pods?a=b&watch=1", &[], true),
            ("GET", "/pods?watch", &[], true),
            ("GET", "/pods?watch=false", &[], false),
            ("GET", "/pods?watches=true", &[], false),
            ("GET", "/api/v1/watch/namespaces/a/pods", &[], true),
            ("GET", "/clusters/c/apis/apps/v1/watch/deployments", &[], true),
            ("GET", "/api/v1/namespaces/watch", &[], false),
            ("GET", "/api/v1/namespaces/a/pods/watch", &[], false),
            ("GET", "/apis/watch/v1/pods", &[], false),
            ("POST", "/api/v1/watch/pods", &[], false),
            ("GET", "/log?follow=true", &[], true),
            ("GET", "/events", &[("accept", "text/event-stream")], true),
            ("POST", "/pods?watch=true", &[], false),
            (
                "GET",
                "/exec",
                &[("connection", "Upgrade"), ("upgrade", "websocket")],
                true,
            ),
            ("GET", "/exec", &[("upgrade", "websocket")], false),
        ] {
            let request = headers
                .iter()
                .fold(Request::builder().method(method).uri(uri), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let is = RequestClass::from_request(&request.body(()).unwrap()) == RequestClass::Stream;
            assert_eq!(is, is_stream, "{method} {uri} {headers:?}");
        }
    }
}
