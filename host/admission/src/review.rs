//! Reads and writes AdmissionReviews, the messages between kube-apiserver and its webhooks. The program receives them
//! from kube-apiserver, as a webhook; and it sends them to webhooks, in place of kube-apiserver.

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
    /// Returns whether the request is allowed unchanged because no hook is called for its resource.
    pub fn is_never_hooked(&self) -> bool {
        self.request.resource.is_never_hooked()
    }
}
