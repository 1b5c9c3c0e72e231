//! Reads and writes AdmissionReviews, the messages between kube-apiserver and its webhooks. When kube-apiserver calls
//! the program, it reads requests and writes responses. When the program calls webhooks, it writes requests and reads
//! responses.

pub(crate) mod request;
pub(crate) mod response;

use crate::{Request, ReviewVersion};

/// An AdmissionReview that requests a verdict.
#[derive(Clone, Debug)]
pub struct Review {
    /// The version of the review. The response must have the same version.
    pub version: ReviewVersion,
    /// The request to admit.
    pub request: Request,
}

impl Review {
    /// Returns whether no hook is called for the request's resource, such as a webhook configuration. The request is
    /// then allowed unchanged.
    pub fn is_never_hooked(&self) -> bool {
        self.request.resource.is_never_hooked()
    }
}
