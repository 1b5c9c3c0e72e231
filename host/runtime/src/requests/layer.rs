use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance_admission::{Decision, FrontEnd, TraceContext, Uid, offload_without_deadline};
use admittance_dialect::{BodyReading, Class, Dialect, EndReason, Inspection, Rejection, StoredState, append_warnings};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{CONTENT_LENGTH, EXPECT, TRAILER, TRANSFER_ENCODING},
    request::Parts,
};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    Host,
    requests::body::{BodyLimits, reading_work},
    requests::stored::add_stored_state,
    requests::trace::{request_span, trace_context},
};

/// The header with the uid of a request. The client may send it, and the inner service and the reply get it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers that contain digests of the body. They are removed if the chains change the body.
const DIGEST_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
];

/// Puts a [`Host`] in front of any `tower` service that speaks HTTP. Cheap to clone.
///
/// A request that no chain can match is streamed to the inner service unchanged. The body of any other request is read
/// and passed through the chains, and the result is forwarded. If the chains refuse the request, the dialect writes the
/// reply, and the inner service never sees the request. Trailers of a body that is read are dropped. If the dialect
/// needs the stored object ([`Dialect::stored_query`]), it is first fetched from the inner service, within a body's
/// limits.
///
/// If the value of `X-Request-Id` has at most 128 letters, digits and `.`, `_`, `:`, `-`, it is the uid of the request.
/// If not, a new uid is created. The uid is sent to the inner service and to the client. An invalid `traceparent` is
/// not forwarded, and neither is its `tracestate`. The decision on a request names the `Arc<FrontEnd>` in the request's
/// extensions. If there is none, it names the dialect.
#[derive(Clone, Debug)]
pub struct AdmissionLayer(Arc<LayerState>);

/// A service that passes requests through a [`Host`] before its inner service gets them. [`AdmissionLayer`] creates it.
#[derive(Clone, Debug)]
pub struct AdmissionService<S> {
    state: Arc<LayerState>,
    inner: S,
}

/// The result of a request. Each response carries it as an extension. The layer sets the extension, except on a
/// response on which the inner service has set one already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passage {
    /// No chain matched the request.
    Untouched,
    /// The chains allowed the request unchanged.
    Allowed,
    /// The chains changed the request.
    Changed,
    /// This host ended the request instead of forwarding it. Contains the reason from [`EndReason::as_str`].
    Ended(&'static str),
}

impl Passage {
    /// Returns the word that logs contain: `untouched`, `allowed`, `changed`, or the reason why the request ended.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Allowed => "allowed",
            Self::Changed => "changed",
            Self::Ended(reason) => reason,
        }
    }

    /// Adds this value to the extensions of a response.
    pub fn mark_response<B>(self, mut response: Response<B>) -> Response<B> {
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Clone, Debug)]
struct LayerState {
    host: Host,
    dialect: Arc<dyn Dialect>,
    /// The front end that is assumed for a request without a `FrontEnd` in its extensions.
    front: Arc<FrontEnd>,
    limits: BodyLimits,
}

impl Host {
    /// Creates a layer that passes requests through this host's chains. A request whose body is read passes the chains
    /// that are live when the body has arrived.
    pub fn layer(&self, dialect: impl Dialect) -> AdmissionLayer {
        self.layer_with_shared_dialect(Arc::new(dialect))
    }

    /// Creates a [`layer`](Self::layer) with a shared dialect.
    pub fn layer_with_shared_dialect(&self, dialect: Arc<dyn Dialect>) -> AdmissionLayer {
        AdmissionLayer(Arc::new(LayerState {
            host: self.clone(),
            front: Arc::new(FrontEnd::of_dialect(dialect.name())),
            dialect,
            limits: BodyLimits::default(),
        }))
    }
}

impl AdmissionLayer {
    /// The default size limit of a body: twice kube-apiserver's limit for a request, and room for an envelope.
    pub const DEFAULT_BODY_LIMIT: usize = 7 * 1024 * 1024;
    /// The default time within which a body must arrive. It is long enough for slow connections.
    pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);

    /// Limits the size of a body that is read, and the time within which it must arrive. Does not limit bodies that are
    /// streamed. Default: 7 MiB within 30 s.
    pub fn body_limits(self, limits: BodyLimits) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.limits = limits;
        Self(Arc::new(state))
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService {
            state: self.0.clone(),
            inner,
        }
    }
}

impl<S, B, R> Service<Request<B>> for AdmissionService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body<Data = Bytes> + From<Bytes> + Send,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // A `tower` service may only be called after its `poll_ready` has succeeded, and a clone is not ready.
        // `self.inner` was polled, so this request uses it, and `self` keeps the clone.
        let unready_inner = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready_inner);
        let state = self.state.clone();
        let uid = request_uid(request.headers());
        let trace = trace_context(request.headers_mut());
        let span = request_span(&uid, trace.as_ref());
        let handle = async move {
            let (mut head, body) = request.into_parts();
            let request_id = HeaderValue::from_str(uid.as_str()).ok();
            if let Some(id) = &request_id {
                head.headers.insert(REQUEST_ID, id.clone());
            }
            let pass_result = match state.pass(head, body, uid, trace, &mut inner).await {
                Ok(passed) => Ok(passed),
                Err(StopReason::Reply(reply)) => Err(reply),
                Err(StopReason::Failed(error)) => return Err(error),
            };
            let mut response = match pass_result {
                Ok(forwarded) => {
                    let mut response = inner.call(forwarded.request).await?;
                    append_warnings(response.headers_mut(), &forwarded.warnings);
                    if response.extensions().get::<Passage>().is_none() {
                        response.extensions_mut().insert(forwarded.passage);
                    }
                    response
                }
                Err(reply) => reply,
            };
            if let Some(id) = request_id {
                response.headers_mut().insert(REQUEST_ID, id);
            }
            Ok(response)
        };
        Box::pin(handle.instrument(span))
    }
}

pub(crate) enum StopReason<R, E> {
    Reply(Response<R>),
    Failed(E),
}

impl<R: From<Bytes>, E> From<Response<Bytes>> for StopReason<R, E> {
    fn from(reply: Response<Bytes>) -> Self {
        Self::Reply(reply.map(R::from))
    }
}

struct ForwardedRequest<B> {
    request: Request<B>,
    passage: Passage,
    warnings: Vec<String>,
}

impl LayerState {
    async fn pass<S, B, R>(
        &self,
        head: Parts,
        body: B,
        uid: Uid,
        trace: Option<TraceContext>,
        inner: &mut S,
    ) -> Result<ForwardedRequest<B>, StopReason<R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes> + From<Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        R: Body<Data = Bytes> + From<Bytes>,
        R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let inspection = match self.dialect.classify(&head) {
            Class::Refuse(rejection) => return Err(self.end_request(&EndReason::Rejected(&rejection), &[]).into()),
            Class::Inspect(inspection) if self.host.table().may_match(&inspection.outline()) => inspection,
            Class::Inspect(_) | Class::Pass => {
                return Ok(ForwardedRequest {
                    request: Request::from_parts(head, body),
                    passage: Passage::Untouched,
                    warnings: Vec::new(),
                });
            }
        };
        // The future is boxed, so that the future of a request that is only forwarded is several times smaller.
        Box::pin(self.inspect(head, body, inspection, uid, trace, inner)).await
    }

    async fn inspect<S, B, R>(
        &self,
        mut head: Parts,
        body: B,
        inspection: Inspection,
        uid: Uid,
        trace: Option<TraceContext>,
        inner: &mut S,
    ) -> Result<ForwardedRequest<B>, StopReason<R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes> + From<Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        R: Body<Data = Bytes> + From<Bytes>,
        R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = self.collect(&head, body).await?;
        let rejection_reply = |rejection: &Rejection| self.end_request(&EndReason::Rejected(rejection), &[]);
        let query = self.dialect.stored_query(&head, &inspection, &body);
        let mut work = reading_work(&body);
        if let Some(query) = query.map_err(|rejection| rejection_reply(&rejection))? {
            // Only few requests need the stored object. The future that fetches it is boxed, because it would otherwise
            // enlarge the future of every request.
            let stored_state_future = add_stored_state(query, &mut head, inner.clone(), self.limits, |end| {
                self.end_request(end, &[])
            });
            Box::pin(stored_state_future).await?;
            let state = head.extensions.get::<StoredState>();
            let stored_object = state.and_then(|state| state.object.as_ref());
            // The body may be a patch that the dialect applies to the stored object, whose size counts as well.
            work = body.len() + stored_object.map_or(0, |stored| stored.text().len());
        }
        let (dialect, original_body) = (self.dialect.clone(), body.clone());
        let (head, inspection, reading) = offload_without_deadline(work, move || {
            let body_reading = dialect.read_body(&head, &inspection, &original_body);
            (head, inspection, body_reading)
        })
        .await;
        let (mut request, canonical, fixed_rejection) = match reading {
            Ok(BodyReading::Admit { request, canonical }) => (*request, canonical, None),
            Ok(BodyReading::Fixed { request, rejection }) => (*request, None, Some(rejection)),
            Ok(BodyReading::Nothing) => {
                return Ok(ForwardedRequest::from_body(head, body, Passage::Untouched));
            }
            Err(rejection) => return Err(rejection_reply(&rejection).into()),
        };
        request.uid = uid;
        request.front = Some(head.extensions.get().unwrap_or(&self.front).clone());
        request.trace = trace;
        // Each request uses the table that is live now, not the one that was live when the first byte arrived.
        // Otherwise, a client that sends a body slowly would keep an old table in memory.
        let outcome = self.host.admit(request).await;
        if let Decision::Refused(refusal) = &outcome.decision {
            return Err(self.end_request(&EndReason::Refused(refusal), &outcome.warnings).into());
        }
        if let Some(rejection) = fixed_rejection.filter(|_| outcome.is_changed()) {
            return Err(self
                .end_request(&EndReason::Rejected(&rejection), &outcome.warnings)
                .into());
        }
        // No stage was called, so the original body is forwarded, even if the spelling of its keys is not canonical.
        if outcome.trace.is_empty() {
            return Ok(ForwardedRequest::from_body(head, body, Passage::Untouched));
        }
        let canonical_body = canonical.unwrap_or(body);
        let (head, body, passage) = match outcome.object {
            Some(object) if !outcome.patch.is_empty() => {
                let (dialect, patch) = (self.dialect.clone(), outcome.patch);
                let work = work.max(object.text().len());
                let (head, written_body) = offload_without_deadline(work, move || {
                    let written_body = dialect.changed_body(&head, &inspection, &canonical_body, &object, &patch);
                    (head, written_body)
                })
                .await;
                let rejection_reply = |rejection| self.end_request(&EndReason::Rejected(&rejection), &outcome.warnings);
                (head, written_body.map_err(rejection_reply)?, Passage::Changed)
            }
            _ => (head, canonical_body, Passage::Allowed),
        };
        let mut forwarded = ForwardedRequest::from_body(head, body, passage);
        forwarded.warnings = outcome.warnings;
        Ok(forwarded)
    }

    async fn collect<B>(&self, head: &Parts, body: B) -> Result<Bytes, Response<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.limits
            .collect(head, body)
            .await
            .map_err(|error| self.end_request(&error.end_reason(), &[]))
    }

    fn end_request(&self, end: &EndReason<'_>, warnings: &[String]) -> Response<Bytes> {
        tracing::info!(target: "admittance::layer", end = end.as_str(), "the request ends here: {end}");
        let mut response = self.dialect.reply(end);
        append_warnings(response.headers_mut(), warnings);
        Passage::Ended(end.as_str()).mark_response(response)
    }
}

impl<B: From<Bytes>> ForwardedRequest<B> {
    fn from_body(mut head: Parts, body: Bytes, passage: Passage) -> Self {
        let headers = &mut head.headers;
        // The body is sent as a whole, so the headers for a body that arrives in parts are removed.
        for name in [EXPECT, TRANSFER_ENCODING, TRAILER] {
            headers.remove(name);
        }
        if !body.is_empty() || headers.contains_key(CONTENT_LENGTH) {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        if passage == Passage::Changed {
            for name in DIGEST_HEADERS {
                headers.remove(name);
            }
        }
        Self {
            request: Request::from_parts(head, B::from(body)),
            passage,
            warnings: Vec::new(),
        }
    }
}

/// Returns the value of [`REQUEST_ID`] if it is a valid uid, or else a new uid. It is public for services that should
/// behave like an [`AdmissionLayer`].
pub fn request_uid(headers: &HeaderMap) -> Uid {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| (1..=128).contains(&text.len()))
        .filter(|text| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
        })
        .map_or_else(Uid::generate, |text| Uid::from(text.to_owned()))
}

#[cfg(test)]
mod tests;
