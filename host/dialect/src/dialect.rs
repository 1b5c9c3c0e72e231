use std::{fmt::Debug, sync::Arc};

use admittance_admission::{GroupVersionResource, Object, Operation, Outline, Request};
use bytes::Bytes;
use http::{Extensions, Response, request::Parts};

use crate::{End, Rejection};

/// The format of one control plane's requests and replies. Lives as long as the front door.
pub trait Dialect: Send + Sync + Debug + 'static {
    /// The class of a request, from its head alone.
    fn classify(&self, head: &Parts) -> Class;

    /// The admission request in the body of a request that was classified [`Class::Inspect`].
    ///
    /// Called only if a chain may apply to the request.
    ///
    /// # Errors
    ///
    /// If the body cannot be parsed, or is ambiguous. A request that the control plane
    /// might read differently from the chains must not pass.
    fn read(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection>;

    /// The body to send on after the chains changed the object. `body` is the body as it came in, or
    /// [`Reading::Admit::canonical`] when there was one.
    fn write(&self, inspection: &Inspection, body: &Bytes, object: &Object) -> Bytes;

    /// The reply for everything that can end a request at the front door.
    fn reply(&self, end: &End<'_>) -> Response<Bytes>;
}

/// The class of a request, from its head alone.
#[derive(Clone, Debug)]
pub enum Class {
    /// Not for the chains: it is streamed through unchanged.
    Pass,
    /// It ends here.
    Refuse(Rejection),
    /// The body must be read, if any chain may apply to such a request.
    Inspect(Inspection),
}

/// The parts of an admission request that its head has. Lives as long as the request.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The operation.
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
        /// The body in the one spelling that all servers read in the same way, if it was not received so.
        /// It is forwarded in place of the original once a chain has seen the request.
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
