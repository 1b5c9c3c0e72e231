use std::{fmt::Debug, sync::Arc};

use admittance_admission::{
    GroupVersionResource, Object, Operation, Outline, Patch, Pointer, Request, Spelling, SpellingError,
};
use bytes::Bytes;
use http::{Extensions, Response, request::Parts};

use crate::{End, Rejection};

/// The format of one control plane's requests and replies. Lives as long as the front door.
pub trait Dialect: Send + Sync + Debug + 'static {
    /// Its name in the log of decisions, such as `rest`.
    fn name(&self) -> &str;

    /// The class of a request, from its head alone.
    fn classify(&self, head: &Parts) -> Class;

    /// The question for the object that the upstream has stored, if [`read`](Self::read) needs it.
    ///
    /// The answer becomes the [`StoredState`](crate::StoredState) of the request. Called only if a chain may apply to the
    /// request. The default implementation returns `None`.
    ///
    /// # Errors
    ///
    /// If the body cannot be parsed, or does not say which object it is for.
    fn stored(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
    ) -> Result<Option<StoredQuery>, Rejection> {
        let _ = (head, inspection, body);
        Ok(None)
    }

    /// The admission request in the body of a request that was classified [`Class::Inspect`].
    ///
    /// Called only if a chain may apply to the request.
    ///
    /// # Errors
    ///
    /// If the body cannot be parsed, or is ambiguous. A request that the control plane
    /// might read differently from the chains must not pass.
    fn read(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection>;

    /// The body to send on after the chains changed the object to this one with this patch. `body` is the body as it came
    /// in, or [`Reading::Admit::canonical`] when there was one. The default implementation returns the object's text.
    ///
    /// # Errors
    ///
    /// If such a body cannot express the change.
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

    /// The reply for everything that can end a request at the front door.
    fn reply(&self, end: &End<'_>) -> Response<Bytes>;
}

/// The class of a request, from its head alone.
#[derive(Clone, Debug)]
pub enum Class {
    /// Not for the chains: it is streamed through unchanged.
    Pass,
    /// The request ends here, with this reply.
    Refuse(Rejection),
    /// The body must be read, if any chain may apply to such a request.
    Inspect(Inspection),
}

/// The parts of an admission request that its head has. Lives as long as the request.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The operation that the request makes.
    pub operation: Operation,
    /// The resource, if the head has it.
    pub resource: Option<Arc<GroupVersionResource>>,
    /// The kind, if the head has it.
    pub kind: Option<Arc<str>>,
    /// Data of the dialect's own, kept from [`Dialect::classify`] to [`Dialect::write`].
    pub detail: Extensions,
}

impl Inspection {
    /// A request of which only the operation is known.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            resource: None,
            kind: None,
            detail: Extensions::new(),
        }
    }

    /// The query for the table of chains.
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
    /// Not for the chains: the body is forwarded unchanged.
    Nothing,
    /// A request for the chains.
    Admit {
        /// The request; the caller gives it its uid.
        request: Box<Request>,
        /// The body in the one spelling that all servers read in the same way, if it was received in another one. The
        /// upstream gets it in place of the original once a chain has seen the request.
        canonical: Option<Bytes>,
    },
    /// A request for the chains, of which they may change nothing: its object is not its body.
    Fixed {
        /// The request; the caller gives it its uid.
        request: Box<Request>,
        /// The end of the request if a chain would change the object.
        rejection: Rejection,
    },
}

/// A question to the upstream for the object that it has stored.
#[derive(Clone, Debug)]
pub struct StoredQuery {
    /// The request, without a body.
    pub request: http::Request<()>,
    /// The place of the object in the reply.
    pub pointer: Pointer,
    /// The spelling of the object.
    pub spelling: Spelling,
    /// Whether the request goes on without a stored object when the upstream replies 404. If not, the client gets that reply.
    pub may_be_absent: bool,
}

impl StoredQuery {
    /// The object in a reply.
    ///
    /// # Errors
    ///
    /// The reason, as the end of a sentence.
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
