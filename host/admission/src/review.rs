//! The codec of AdmissionReviews, the messages between kube-apiserver and its webhooks. The program reads requests and
//! writes responses as a webhook, and writes requests and reads responses as a client of webhooks.

pub(crate) mod request;
pub(crate) mod response;

use crate::{Request, ReviewVersion};

/// An AdmissionReview that requests a verdict. Lives until its request enters the chains.
#[derive(Clone, Debug)]
pub struct Review {
    /// The version of the review, which its response has too.
    pub version: ReviewVersion,
    /// The request to admit.
    pub request: Request,
}

impl Review {
    /// Returns whether the request is allowed unchanged without calling any hook.
    pub fn is_never_hooked(&self) -> bool {
        self.request.resource.is_never_hooked()
    }
}
