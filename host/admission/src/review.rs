//! Reads and writes AdmissionReviews, the messages between kube-apiserver and its webhooks. As a webhook, the program
//! reads requests and writes responses; as a client of webhooks, it writes requests and reads responses.

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
    /// Returns whether the request is allowed unchanged, without calling any hook.
    pub fn is_never_hooked(&self) -> bool {
        self.request.resource.is_never_hooked()
    }
}
