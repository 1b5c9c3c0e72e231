use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance_admission::{
    Decision, Denial, FrontEnd, Object, Operation, Outcome, Phase, RefusalCause, RequestRefusal, Review, Selection,
    TraceContext, Uid, offload_without_deadline, read_review, write_response,
};
use admittance_definitions::DefinitionFile;
use admittance_dialect::{EndReason, ReviewAddress, status_reply};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Body;
use tokio::time::timeout;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    CheckResult, Host, Passage, REQUEST_ID, Table,
    requests::body::{BodyLimits, reading_work},
    requests::trace::{request_span, trace_context},
};

/// A `tower` service that answers the AdmissionReviews which kube-apiserver sends to webhooks. Cheap to clone;
/// [`Host::reviews`] creates it.
///
/// A POST to `/admit` calls every matching chain. `/mutate` and `/validate` call the chains of one phase, and
/// `/mutate/{chain}` and `/validate/{chain}` a single chain. `/mutate-cluster` and `/validate-cluster` leave out
/// namespaced chains; `/mutate-namespaced` and `/validate-namespaced` call only namespaced chains. Log lines contain
/// the uid of the review. The reply is sent shortly before the `timeout` in the query expires, so that a slow stage is
/// subject to its own failure policy, and not to the failure policy of the whole webhook. The decision names the
/// `Arc<FrontEnd>` in the request's extensions. If there is none, it names the dialect `kubernetes`.
#[derive(Clone, Debug)]
pub struct ReviewService(Arc<ReviewState>);

#[derive(Clone, derive_more::Debug)]
#[debug("ReviewState {{ host: {host:?}, limits: {limits:?}, .. }}")]
struct ReviewState {
    host: Host,
    /// The front end that is assumed for a review without a `FrontEnd` in the extensions of its HTTP request.
    front: Arc<FrontEnd>,
    limits: BodyLimits,
    definition_reader: Option<Arc<DefinitionReader>>,
}

/// Converts an object to a definition; returns `None` if no store of the host contains objects of this kind.
type DefinitionReader = dyn Fn(&Object) -> Option<DefinitionFile> + Send + Sync;

impl Host {
    /// Creates a service that answers AdmissionReviews with the chains that are live when the body has arrived.
    pub fn reviews(&self) -> ReviewService {
        ReviewService(Arc::new(ReviewState {
            host: self.clone(),
            front: Arc::new(FrontEnd::of_dialect("kubernetes")),
            limits: BodyLimits::default(),
            definition_reader: None,
        }))
    }
}

impl ReviewService {
    /// Limits the size of a review, and the time within which it must arrive. Default: 7 MiB within 30 s.
    pub fn body_limits(self, limits: BodyLimits) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.limits = limits;
        Self(Arc::new(state))
    }

    /// Makes the service also answer reviews of definitions, at `/definitions`. An API server can send a review there
    /// before it stores a definition; a definition with mistakes is then denied. `convert` converts an object to a
    /// definition, as the definition store does. If `convert` returns `None`, the object is allowed.
    pub fn definitions(self, convert: impl Fn(&Object) -> Option<DefinitionFile> + Send + Sync + 'static) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.definition_reader = Some(Arc::new(convert));
        Self(Arc::new(state))
    }

    /// Creates the reply to a request that ends before its review can be answered.
    pub fn end_reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        // If this host is overloaded, `Retry-After` makes kube-apiserver repeat the call within the call's deadline.
        let response = end.with_retry_after(status_reply(end.status(), &end.to_string()));
        Passage::Ended(end.as_str()).mark_response(response)
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
            rejection_reply(status, &error.to_string())
        })?;
        if head.method != Method::POST {
            let message = format!("reviews must be sent with POST, not {}", head.method);
            let mut response = rejection_reply(StatusCode::METHOD_NOT_ALLOWED, &message);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(response);
        }
        match (&address.selection, &state.definition_reader) {
            (Some(selection), _) => ensure_chain_exists(&state.host.table(), selection)?,
            (None, Some(_)) => {}
            (None, None) => {
                let message = "no definitions are resources of the cluster: add `kubernetes: {}` to `definitions`";
                return Err(rejection_reply(StatusCode::NOT_FOUND, message));
            }
        }
        ensure_json(head)?;
        let body = state
            .limits
            .collect(head, body)
            .await
            .map_err(|error| Box::new(self.end_reply(&error.end_reason())))?;
        let mut review = offload_without_deadline(reading_work(&body), move || read_review(body))
            .await
            .map_err(|error| rejection_reply(StatusCode::BAD_REQUEST, &error.to_string()))?;
        review.request.front = Some(head.extensions.get().unwrap_or(&state.front).clone());
        let span = request_span(&review.request.uid, trace.as_ref());
        review.request.trace = trace;
        let time_limit = address.timeout.map_or(Duration::MAX, chain_time_limit);
        let Some(selection) = address.selection else {
            return Ok(Box::pin(state.check(review, time_limit)).instrument(span).await);
        };
        // Each review uses the table that is live now, not the one that was live when the first byte arrived.
        // Otherwise, a client that sends a body slowly would keep an old table in memory.
        let table = state.host.table();
        ensure_chain_exists(&table, &selection)?;
        Ok(answer_review(&table, review, &selection, time_limit)
            .instrument(span)
            .await)
    }
}

impl ReviewState {
    /// Checks the definition in a review. If there is not enough time for the check, the definition is allowed, because
    /// a denial would keep users from repairing an invalid definition.
    async fn check(&self, review: Review, time_limit: Duration) -> Response<Bytes> {
        let Review { version, request } = review;
        let allow_reply = |warnings| {
            let mut outcome = Outcome::new(request.uid.clone(), Decision::Allowed);
            outcome.warnings = warnings;
            let body = write_response(version, &request.uid, Some(&outcome));
            review_reply(&request.uid, body, Passage::Allowed)
        };
        let definition_of = |object: &Option<Object>| self.definition_reader.as_ref()?(object.as_ref()?);
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        let written_definition = definition_of(&request.object).filter(|_| is_write && request.subresource.is_none());
        let Some(definition) = written_definition else {
            return allow_reply(Vec::new());
        };
        let check_result = match timeout(time_limit, self.host.check(definition)).await {
            Ok(Ok(checked)) => checked,
            Ok(Err(error)) => return allow_reply(vec![format!("it was not checked: {error}")]),
            Err(_) => return allow_reply(vec!["it was not checked: there was not enough time".to_owned()]),
        };
        // An update that does not change the `spec` is allowed even if the definition is invalid. Otherwise, a user
        // could not change the labels of an invalid definition, or remove a finalizer to delete it.
        let spec = |object: &Option<Object>| object.as_ref()?.value().get("spec").cloned();
        let is_same = request.operation == Operation::Update && spec(&request.object) == spec(&request.old_object);
        let CheckResult { mistakes, mut warnings } = check_result;
        if mistakes.is_empty() || is_same {
            warnings.splice(0..0, mistakes);
            return allow_reply(warnings);
        }
        let mut denial = Denial::new(422, "Invalid", mistakes.join("\n"));
        denial.names_policy = true;
        for mistake in &mistakes {
            let field = mistake.split_once(": ").filter(|(field, _)| !field.contains(' '));
            denial.add_cause(
                field.map(|(field, _)| field),
                field.map_or(mistake.as_str(), |(_, rest)| rest),
            );
        }
        let refusal = RequestRefusal {
            chain: "definitions".into(),
            stage: "check".into(),
            cause: RefusalCause::Denied(denial),
        };
        tracing::info!(target: "admittance::layer", end = "refused", "the request ends here: {refusal}");
        let outcome = Outcome::new(request.uid.clone(), Decision::Refused(refusal));
        let body = write_response(version, &request.uid, Some(&outcome));
        review_reply(&request.uid, body, Passage::Ended("refused"))
    }
}

async fn answer_review(table: &Table, review: Review, selection: &Selection, time_limit: Duration) -> Response<Bytes> {
    let uid = review.request.uid.clone();
    let version = review.version;
    if review.is_never_hooked() {
        return review_reply(&uid, write_response(version, &uid, None), Passage::Untouched);
    }
    let outcome = table.admit_selected(review.request, selection, time_limit).await;
    let passage = match &outcome.decision {
        Decision::Refused(refusal) => {
            tracing::info!(target: "admittance::layer", end = "refused", "the request ends here: {refusal}");
            Passage::Ended("refused")
        }
        Decision::Allowed if outcome.trace.is_empty() => Passage::Untouched,
        Decision::Allowed if outcome.is_changed() => Passage::Changed,
        Decision::Allowed => Passage::Allowed,
    };
    let (bytes, id) = (outcome.patch.memory_size(), uid.clone());
    let body = offload_without_deadline(bytes, move || write_response(version, &id, Some(&outcome))).await;
    review_reply(&uid, body, passage)
}

/// Returns the time limit for the chains of a request. `timeout` is the time for which the caller waits for the reply.
/// The chains get a little less, because sending the reply takes time, too.
fn chain_time_limit(timeout: Duration) -> Duration {
    /// The time that is reserved for sending the reply to the caller.
    const MARGIN: Duration = Duration::from_millis(250);
    timeout.saturating_sub(MARGIN.min(timeout / 10))
}

fn review_reply(uid: &Uid, body: Bytes, passage: Passage) -> Response<Bytes> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(uid) = HeaderValue::from_str(uid.as_str()) {
        headers.insert(REQUEST_ID, uid);
    }
    passage.mark_response(response)
}

fn rejection_reply(status: StatusCode, message: &str) -> Box<Response<Bytes>> {
    const END_REASON: &str = "rejected";
    tracing::info!(target: "admittance::layer", end = END_REASON, "the request ends here: {message}");
    Box::new(Passage::Ended(END_REASON).mark_response(status_reply(status, message)))
}

fn ensure_chain_exists(table: &Table, selection: &Selection) -> Result<(), Box<Response<Bytes>>> {
    let Selection::Chain(phase, name) = selection else {
        return Ok(());
    };
    if table.chain(*phase, name).is_some() {
        return Ok(());
    }
    let other_phase = match phase {
        Phase::Mutating => Phase::Validating,
        Phase::Validating => Phase::Mutating,
    };
    let message = if table.chain(other_phase, name).is_some() {
        let path = match other_phase {
            Phase::Mutating => "mutate",
            Phase::Validating => "validate",
        };
        format!("the chain {name} is of the phase {other_phase}: use /{path}/{name}")
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
    Err(rejection_reply(StatusCode::NOT_FOUND, &message))
}

/// Returns an error unless the content type of a review is JSON. The parameters of the media type do not matter.
fn ensure_json(head: &Parts) -> Result<(), Box<Response<Bytes>>> {
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
    Err(rejection_reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message))
}
