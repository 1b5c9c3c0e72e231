use std::{fmt::Debug, sync::Arc};

use admittance_admission::{GroupVersionResource, Object, Operation, Outline, Request};
use bytes::Bytes;
use http::{Extensions, Response, request::Parts};

use crate::{End, Rejection};

/// One control plane's way of writing requests and replies. Lives as long as the front door.
pub trait Dialect: Send + Sync + Debug + 'static {
    /// What a request is, from its head alone.
    fn classify(&self, head: &Parts) -> Class;

    /// The admission request in the body of a request that was classified [`Class::Inspect`].
    ///
    /// It is called only when a chain may be for the request.
    ///
    /// # Errors
    ///
    /// When the body cannot be understood, or could be understood in two ways. What the control plane
    /// behind might read differently from the chains must not pass.
    fn read(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection>;

    /// The body to send on after the chains changed the object. `body` is the body as it came in, or
    /// [`Reading::Admit::canonical`] when there was one.
    fn write(&self, inspection: &Inspection, body: &Bytes, object: &Object) -> Bytes;

    /// The reply for everything that can end a request at the front door.
    fn reply(&self, end: &End<'_>) -> Response<Bytes>;
}

/// What a request is, from its head alone.
#[derive(Clone, Debug)]
pub enum Class {
    /// Nothing for the chains: it is streamed on untouched.
    Pass,
    /// It ends here.
    Refuse(Rejection),
    /// The body must be read, if any chain may be for such a request.
    Inspect(Inspection),
}

/// What the head of a request says of it. Lives as long as the request.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The operation.
    pub operation: Operation,
    /// The resource, when the head says it.
    pub resource: Option<Arc<GroupVersionResource>>,
    /// The kind, when the head says it.
    pub kind: Option<Arc<str>>,
    /// What the dialect keeps for itself from [`Dialect::classify`] to [`Dialect::write`].
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

    /// What the table of chains may be asked with.
    pub fn outline(&self) -> Outline<'_> {
        Outline {
            operation: self.operation,
            resource: self.resource.as_deref(),
            kind: self.kind.as_deref(),
        }
    }
}

/// What a body holds.
#[derive(Clone, Debug)]
pub enum Reading {
    /// Nothing for the chains: the body goes on as it is.
    Nothing,
    /// A request for the chains.
    Admit {
        /// The request; the caller gives it its uid.
        request: Box<Request>,
        /// The body in the only spelling that all readers read alike, when that is not how it came in.
        /// It goes on in place of the original once a chain has looked at the request.
        canonical: Option<Bytes>,
    },
}
