use std::{fmt::Debug, sync::Arc};

use admittance_admission::{
    GroupVersionResource, Object, Operation, Outline, Patch, Pointer, Request, Spelling, SpellingError,
};
use bytes::Bytes;
use http::{Extensions, Response, request::Parts};

use crate::{End, Rejection};

/// The format of one control plane's requests and replies.
pub trait Dialect: Send + Sync + Debug + 'static {
    /// Returns the name of the dialect in the log of decisions, such as `rest`.
    fn name(&self) -> &str;

    /// Decides from the head of a request whether chains may apply to it.
    fn classify(&self, head: &Parts) -> Class;

    /// Returns the query for the object that the upstream has stored, if [`read`](Self::read) needs it.
    ///
    /// The object in the reply becomes the [`StoredState`](crate::StoredState) of the request. The front door calls
    /// this only if a chain may apply to the request. The default implementation returns `None`.
    ///
    /// # Errors
    ///
    /// Fails if the body cannot be parsed, or does not say which object it is for.
    fn stored(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
    ) -> Result<Option<StoredQuery>, Rejection> {
        let _ = (head, inspection, body);
        Ok(None)
    }

    /// Reads the admission request from the body of a request that was classified [`Class::Inspect`].
    ///
    /// The front door calls this only if a chain may apply to the request.
    ///
    /// # Errors
    ///
    /// Fails if the body cannot be parsed, or is ambiguous. A request that the control plane might read differently
    /// from the chains must not pass.
    fn read(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection>;

    /// Reads the admission request that a whole HTTP request describes, without the object that the upstream has
    /// stored. `None` if it passes without chains.
    ///
    /// # Errors
    ///
    /// Fails if the request is refused before any chain.
    fn admission_request(&self, head: &Parts, body: &Bytes) -> Result<Option<Request>, Rejection> {
        let inspection = match self.classify(head) {
            Class::Pass => return Ok(None),
            Class::Refuse(rejection) => return Err(rejection),
            Class::Inspect(inspection) => inspection,
        };
        Ok(match self.read(head, &inspection, body)? {
            Reading::Admit { request, .. } | Reading::Fixed { request, .. } => Some(*request),
            Reading::Nothing => None,
        })
    }

    /// Returns the body to send on after the chains changed the object to this one with this patch.
    ///
    /// `body` is the body as it was received, or [`Reading::Admit::canonical`] if there is one. The default
    /// implementation returns the text of the object.
    ///
    /// # Errors
    ///
    /// Fails if such a body cannot express the change.
    fn write(
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

    /// Returns an HTTP request that the dialect reads as this admission request, or an example of one; without
    /// credentials. `None` if there is none, which is the default implementation.
    fn written(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        let _ = request;
        None
    }

    /// Writes the reply to a request that ends at the front door.
    fn reply(&self, end: &End<'_>) -> Response<Bytes>;
}

/// The decision of a dialect about a request whose head it has read.
#[derive(Clone, Debug)]
pub enum Class {
    /// No chain applies: the request is streamed to the upstream unchanged.
    Pass,
    /// The request is refused for this reason.
    Refuse(Rejection),
    /// The body must be read, if any chain may apply to such a request.
    Inspect(Inspection),
}

/// The parts of an admission request that are known from the head of the HTTP request.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The operation of the request.
    pub operation: Operation,
    /// The resource, if the head has it.
    pub resource: Option<Arc<GroupVersionResource>>,
    /// The kind, if the head has it.
    pub kind: Option<Arc<str>>,
    /// Data of the dialect's own, passed from [`Dialect::classify`] to [`Dialect::write`].
    pub detail: Extensions,
}

impl Inspection {
    /// Returns an inspection of which only the operation is known.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            resource: None,
            kind: None,
            detail: Extensions::new(),
        }
    }

    /// Returns the query for the table of chains.
    pub fn outline(&self) -> Outline<'_> {
        Outline {
            operation: self.operation,
            resource: self.resource.as_deref(),
            kind: self.kind.as_deref(),
        }
    }
}

/// The result of reading a body.
#[derive(Clone, Debug)]
pub enum Reading {
    /// No chain applies: the body is forwarded unchanged.
    Nothing,
    /// The chains decide about the request, and may change its object.
    Admit {
        /// The request; the caller gives it its uid.
        request: Box<Request>,
        /// The body in the one spelling that all servers read in the same way, if it was received in another spelling.
        /// This spelling replaces the original once a chain has seen the request.
        canonical: Option<Bytes>,
    },
    /// The chains decide about the request, and cannot change the object, because the object is not the body.
    Fixed {
        /// The request; the caller gives it its uid.
        request: Box<Request>,
        /// The reply if a chain would change the object.
        rejection: Rejection,
    },
}

/// A query to the upstream for the object that it has stored.
#[derive(Clone, Debug)]
pub struct StoredQuery {
    /// The request, without a body.
    pub request: http::Request<()>,
    /// The place of the object in the reply.
    pub pointer: Pointer,
    /// The spelling of the object's keys at the upstream.
    pub spelling: Spelling,
    /// Whether the request continues without a stored object when the upstream replies 404. If not, the client gets
    /// that reply.
    pub may_be_absent: bool,
}

impl StoredQuery {
    /// Returns the object in a reply.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is none, as the end of a sentence.
    pub fn object(&self, reply: &[u8]) -> Result<Object, String> {
        let text = std::str::from_utf8(reply).map_err(|error| error.to_string())?;
        let object = self.pointer.locate(text).and_then(|place| text.get(place));
        let object = object.ok_or_else(|| format!("there is nothing at `{}`", self.pointer))?;
        let respelled = self.spelling.canonical(object).map_err(|error| match error {
            SpellingError::Json(error) | SpellingError::Ambiguous(error) => error.to_string(),
        })?;
        Object::parse_unique(respelled.as_deref().unwrap_or(object)).map_err(|error| error.to_string())
    }
}
