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
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
use metrics::{counter, gauge, histogram};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tower::Service;

use crate::{
    definitions_api::{Asked, DefinitionsApi},
    gateway::{For, Gateway},
    listener::{Answer, Guarded},
    measure,
    onward::Onward,
    upstream::Client,
};

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How a request ended behind the chains other than by a reply of the upstream: an extension of the reply that was
/// written instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedUpstream(pub(crate) &'static str);

/// The chains, and the upstream if there is one, behind a limit. Cheap to clone; lives as long as the
/// driver.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    service: FrontService,
    permits: Arc<Semaphore>,
    is_stopping: Arc<AtomicBool>,
}

/// What answers requests.
#[derive(Clone, Debug)]
pub(crate) enum FrontService {
    /// The chains, and then the upstream; before both what is answered here, if anything is.
    Proxy(AdmissionService<Onward>, Arc<dyn Dialect>, Option<DefinitionsApi>),
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
                    .and_then(|definitions| Some((definitions, Asked::of(&head)?)));
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
    /// At most `concurrency` requests are in flight; one more is turned away at once. While
    /// `is_stopping`, clients are asked to close their connections.
    pub(crate) fn new(service: FrontService, concurrency: usize, is_stopping: Arc<AtomicBool>) -> Self {
        Self {
            service,
            permits: Arc::new(Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS))),
            is_stopping,
        }
    }
}

impl Answer for Front {
    const IS_COUNTED: bool = true;

    async fn answer<G: Send + 'static>(
        mut self,
        mut request: Request<Body>,
        client: Client,
        guard: G,
    ) -> Response<Body> {
        let started = Instant::now();
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        request.extensions_mut().insert(client);
        let is_http_1 = request.version() < Version::HTTP_2;
        let mut response = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                let in_flight = InFlight::new(permit);
                let response = self.service.call(request).await;
                response.map(|body| Body::new(Guarded::new(body, (in_flight, guard))))
            }
            Err(_) => {
                counter!(measure::SHED).increment(1);
                let end = End::Overloaded {
                    retry_after: RETRY_AFTER,
                };
                let mut response = self.service.reply(&end);
                response.extensions_mut().insert(Passage::Ended(end.as_str()));
                response.map(|body| Body::new(Guarded::new(Body::from(body), guard)))
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
            duration_ms = duration.as_secs_f64() * 1e3,
            "{method} {path} {status}",
        );
        counter!(measure::REQUESTS, "status" => status_class(status), "passage" => passage).increment(1);
        histogram!(measure::REQUEST_DURATION).record(duration);
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
struct InFlight(#[expect(dead_code, reason = "it is given back when this is dropped")] OwnedSemaphorePermit);

impl InFlight {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        gauge!(measure::IN_FLIGHT).increment(1);
        Self(permit)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!(measure::IN_FLIGHT).decrement(1);
    }
}
