use std::{fmt::Debug, sync::Arc};

use admittance_admission::{
    EnforcedSpelling, GroupVersionResource, Object, Operation, Outline, Patch, Pointer, ReachedResource, Request,
    SpellingError,
};
use bytes::Bytes;
use http::{Extensions, Response, request::Parts};

use crate::{EndReason, Rejection};

/// Translates requests of one control plane's API to admission requests, and outcomes of chains to its replies.
pub trait Dialect: Send + Sync + Debug + 'static {
    /// Returns the name of the dialect in the decision log, such as `rest`.
    fn name(&self) -> &str;

    /// Decides from the head of a request whether a chain could apply to it.
    fn classify(&self, head: &Parts) -> Class;

    /// Returns the query that fetches the stored object from the upstream. Returns `None`, the default, if
    /// [`read_body`](Self::read_body) does not need the object.
    ///
    /// The object in the reply becomes the [`StoredState`](crate::StoredState) of the request. This is called only if a
    /// chain could apply to the request.
    ///
    /// # Errors
    ///
    /// Fails if the body cannot be parsed, or does not identify its object.
    fn stored_query(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
    ) -> Result<Option<StoredQuery>, Rejection> {
        let _ = (head, inspection, body);
        Ok(None)
    }

    /// Reads the admission request from the body of a request that was classified as [`Class::Inspect`]. This is called
    /// only if a chain could apply to the request.
    ///
    /// # Errors
    ///
    /// Fails if the body cannot be parsed, or if the control plane could read it differently from the chains.
    fn read_body(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<BodyReading, Rejection>;

    /// Reads the admission request from a whole HTTP request, without a stored object; `None` if no chain applies.
    ///
    /// # Errors
    ///
    /// Fails if the request is refused before the chains see it.
    fn admission_request(&self, head: &Parts, body: &Bytes) -> Result<Option<Request>, Rejection> {
        let inspection = match self.classify(head) {
            Class::Pass => return Ok(None),
            Class::Refuse(rejection) => return Err(rejection),
            Class::Inspect(inspection) => inspection,
        };
        Ok(match self.read_body(head, &inspection, body)? {
            BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. } => Some(*request),
            BodyReading::Nothing => None,
        })
    }

    /// Returns the body to forward after the chains changed the object to `object` with `patch`.
    ///
    /// `body` is [`BodyReading::Admit::canonical`] if there is one, and otherwise the received body. By default, the
    /// text of the object is returned.
    ///
    /// # Errors
    ///
    /// Fails if a body of this dialect cannot express the change.
    fn changed_body(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
        object: &Object,
        patch: &Patch,
    ) -> Result<Bytes, Rejection> {
        let _ = (head, inspection, body, patch);
        Ok(Bytes::copy_from_slice(object.text().as_bytes()))
    }

    /// Returns an HTTP request without credentials that the dialect reads as `request`. If `request` is `None`, returns
    /// an example. Returns `None` if `request` cannot be expressed as HTTP; the default implementation always does.
    fn http_request(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        let _ = request;
        None
    }

    /// Returns the resources whose requests a chain could apply to; `None`, the default, means all resources.
    fn resources(&self) -> Option<Vec<ReachedResource>> {
        None
    }

    /// Writes the reply to a request that is not forwarded to the upstream, for the reason `end_reason`.
    fn reply(&self, end: &EndReason<'_>) -> Response<Bytes>;
}

/// The result of classifying a request by its head.
#[derive(Clone, Debug)]
pub enum Class {
    /// No chain applies: the request is streamed to the upstream unchanged.
    Pass,
    /// The request is refused with this rejection.
    Refuse(Rejection),
    /// The body must be read, unless no chain could apply to a request with this head.
    Inspect(Inspection),
}

/// The parts of an admission request that the head of the HTTP request contains.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The operation of the request.
    pub operation: Operation,
    /// The resource, if the head of the request contains it.
    pub resource: Option<Arc<GroupVersionResource>>,
    /// The kind, if the head of the request contains it.
    pub kind: Option<Arc<str>>,
    /// Data that [`Dialect::classify`] stores for [`Dialect::read_body`] and [`Dialect::changed_body`].
    pub detail: Extensions,
}

impl Inspection {
    /// Returns an inspection that contains this operation, without a resource and a kind.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            resource: None,
            kind: None,
            detail: Extensions::new(),
        }
    }

    /// Returns the parts of the request that are needed to find its chains.
    pub fn outline(&self) -> Outline<'_> {
        Outline {
            operation: self.operation,
            resource: self.resource.as_deref(),
            kind: self.kind.as_deref(),
        }
    }
}

/// The admission request that a dialect has read from an HTTP request, and how its body is forwarded.
#[derive(Clone, Debug)]
pub enum BodyReading {
    /// No chain applies to the request, so the body is forwarded unchanged.
    Nothing,
    /// The chains decide about the request, and may change its object.
    Admit {
        /// The admission request. Its UID is set by the caller.
        request: Box<Request>,
        /// The body with all keys in the canonical spelling; `None` if the client's body already has it. If a chain has
        /// seen the request, this body is forwarded instead of the client's.
        canonical: Option<Bytes>,
    },
    /// The chains may allow or refuse the request, but cannot change its object, because the object is not in the body
    /// of the request. A DELETE is an example.
    Fixed {
        /// The admission request. Its UID is set by the caller.
        request: Box<Request>,
        /// The reply to the client if a chain would change the object.
        rejection: Rejection,
    },
}

/// A query to the upstream for the object that it has stored.
#[derive(Clone, Debug)]
pub struct StoredQuery {
    /// The HTTP request that queries the object, without a body.
    pub request: http::Request<()>,
    /// The path of the object in the body of the reply.
    pub pointer: Pointer,
    /// The spelling of keys that the upstream uses in the stored object.
    pub spelling: EnforcedSpelling,
    /// Whether a 404 from the upstream means that there is no object. If false, the client gets the 404.
    pub may_be_absent: bool,
}

impl StoredQuery {
    /// Returns the object in a reply.
    ///
    /// # Errors
    ///
    /// Returns the reason why the reply has no object, as the end of a sentence.
    pub fn read_object(&self, reply: &[u8]) -> Result<Object, String> {
        let text = std::str::from_utf8(reply).map_err(|error| error.to_string())?;
        let object_text = self.pointer.locate(text).and_then(|range| text.get(range));
        let object = object_text.ok_or_else(|| format!("there is nothing at `{}`", self.pointer))?;
        let canonical = self.spelling.canonical_text(object).map_err(|error| match error {
            SpellingError::Json(error) | SpellingError::Ambiguous(error) => error.to_string(),
        })?;
        Object::parse_unique(canonical.as_deref().unwrap_or(object)).map_err(|error| error.to_string())
    }
}
