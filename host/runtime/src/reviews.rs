use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance_admission::{Decision, FrontEnd, Phase, Selection, TraceContext, Uid};
use admittance_dialect::{End, Review, ReviewAddress, read_review, status_reply, write_review};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    Host, Passage, REQUEST_ID, Table,
    body::BodyLimits,
    trace::{request_span, trace_context},
};

/// Answers the AdmissionReviews that kube-apiserver sends to webhooks: a `tower` service that speaks HTTP.
/// Cheap to clone. Made by [`Host::reviews`].
///
/// A POST to `/admit` calls every matching chain, `/mutate` and `/validate` those of a phase, and
/// `/mutate/{chain}` and `/validate/{chain}` one chain. The uid of a review is the uid of its request in
/// logs. The answer is sent a little before the `timeout` in the query expires, so that the failure policy of
/// a slow stage is applied here, and not that of the whole webhook. An `Arc<FrontEnd>` among the extensions of a call
/// becomes part of the decision on it.
#[derive(Clone, Debug)]
pub struct ReviewService(Arc<ReviewState>);

#[derive(Clone, Debug)]
struct ReviewState {
    host: Host,
    limits: BodyLimits,
}

impl Host {
    /// A service that answers AdmissionReviews with this host's chains. A review uses the table that is live
    /// when it arrives.
    pub fn reviews(&self) -> ReviewService {
        ReviewService(Arc::new(ReviewState {
            host: self.clone(),
            limits: BodyLimits::default(),
        }))
    }
}

impl ReviewService {
    /// The largest review that is read, in bytes. Default: 7 MiB.
    pub fn body_limit(self, bytes: usize) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.limits.size = bytes;
        Self(Arc::new(state))
    }

    /// The timeout for receiving a review. Default: 30 s.
    pub fn body_timeout(self, timeout: Duration) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.limits.time = timeout;
        Self(Arc::new(state))
    }

    /// The reply to a call that ends without a review.
    pub fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        // kube-apiserver retries an overload within its own deadline.
        let response = end.with_retry_after(status_reply(end.status(), &end.to_string()));
        Passage::Ended(end.as_str()).mark(response)
    }
}

impl<B> Service<Request<B>> for ReviewService
where
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let trace = trace_context(&mut head.headers);
            let response = service.answer(&head, body, trace).await;
            Ok(response.unwrap_or_else(|response| *response).map(B::from))
        })
    }
}

impl ReviewService {
    async fn answer<B>(
        &self,
        head: &Parts,
        body: B,
        trace: Option<TraceContext>,
    ) -> Result<Response<Bytes>, Box<Response<Bytes>>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let state = &*self.0;
        let address = ReviewAddress::parse(&head.uri).map_err(|error| {
            let status = match &error {
                admittance_dialect::AddressError::Path(_) => StatusCode::NOT_FOUND,
                admittance_dialect::AddressError::Timeout(_) => StatusCode::BAD_REQUEST,
            };
            rejected(status, &error.to_string())
        })?;
        if head.method != Method::POST {
            let message = format!("reviews must be sent with POST, not {}", head.method);
            let mut response = rejected(StatusCode::METHOD_NOT_ALLOWED, &message);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(response);
        }
        known(&state.host.table(), &address.selection)?;
        content_type(head)?;
        let body = state
            .limits
            .collect(head, body)
            .await
            .map_err(|error| Box::new(self.reply(&error.end())))?;
        let mut review =
            read_review(body).map_err(|error| rejected(StatusCode::BAD_REQUEST, &error.to_string()))?;
        review.request.front = head.extensions.get::<Arc<FrontEnd>>().cloned();
        let span = request_span(&review.request.uid, trace.as_ref());
        review.request.trace = trace;
        // Taken after the body has arrived, so that a slow body does not keep an old table alive.
        let table = state.host.table();
        known(&table, &address.selection)?;
        Ok(judge(&table, review, &address).instrument(span).await)
    }
}

/// Evaluates a review with the chains.
async fn judge(table: &Table, review: Review, address: &ReviewAddress) -> Response<Bytes> {
    let uid = review.request.uid.clone();
    let version = review.version;
    if review.is_never_hooked() {
        let body = write_review(version, &uid, None);
        return reply(&uid, body, Passage::Untouched);
    }
    let patience = address.timeout.map_or(Duration::MAX, within);
    let outcome = table.admit_by(review.request, &address.selection, patience).await;
    let passage = match &outcome.decision {
        Decision::Refused(refusal) => {
            tracing::info!(end = "refused", "the request ends here: {refusal}");
            Passage::Ended("refused")
        }
        Decision::Allowed if outcome.trace.is_empty() => Passage::Untouched,
        Decision::Allowed if outcome.is_changed() => Passage::Changed,
        Decision::Allowed => Passage::Allowed,
    };
    reply(&uid, write_review(version, &uid, Some(&outcome)), passage)
}

/// The time limit of the chains for a caller's timeout.
fn within(timeout: Duration) -> Duration {
    /// For the network, and because the caller's timeout started before the review was sent.
    const MARGIN: Duration = Duration::from_millis(250);
    timeout.saturating_sub(MARGIN.min(timeout / 10))
}

fn reply(uid: &Uid, body: Bytes, passage: Passage) -> Response<Bytes> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(uid) = HeaderValue::from_str(uid.as_str()) {
        headers.insert(REQUEST_ID, uid);
    }
    passage.mark(response)
}

fn rejected(status: StatusCode, message: &str) -> Box<Response<Bytes>> {
    const END: &str = "rejected";
    tracing::info!(end = END, "the request ends here: {message}");
    Box::new(Passage::Ended(END).mark(status_reply(status, message)))
}

/// A chain that is addressed by name must exist.
fn known(table: &Table, selection: &Selection) -> Result<(), Box<Response<Bytes>>> {
    let Selection::Chain(phase, name) = selection else {
        return Ok(());
    };
    if table.chain(*phase, name).is_some() {
        return Ok(());
    }
    let other = match phase {
        Phase::Mutating => Phase::Validating,
        Phase::Validating => Phase::Mutating,
    };
    let message = if table.chain(other, name).is_some() {
        let path = match other {
            Phase::Mutating => "mutate",
            Phase::Validating => "validate",
        };
        format!("the chain {name} is of the phase {other}: use /{path}/{name}")
    } else {
        let names: Vec<_> = table
            .chains()
            .filter(|chain| chain.phase == *phase)
            .map(|chain| &*chain.name)
            .collect();
        let names = match names.as_slice() {
            [] => "this phase has no chains".to_owned(),
            names => format!("the chains of this phase: {}", names.join(", ")),
        };
        format!("there is no chain {name} of the phase {phase}; {names}")
    };
    Err(rejected(StatusCode::NOT_FOUND, &message))
}

/// Reviews must be JSON; media type parameters are ignored.
fn content_type(head: &Parts) -> Result<(), Box<Response<Bytes>>> {
    let value = head
        .headers
        .get(CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or_default());
    let essence = value.and_then(|value| value.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let message = match value {
        None => "the review has no Content-Type; send application/json".to_owned(),
        Some(value) => format!("the review has the Content-Type {value:?}; send application/json"),
    };
    Err(rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message))
}
