//! The codec of AdmissionReviews, the messages between kube-apiserver and its webhooks. The program reads requests and
//! writes responses as a webhook, and writes requests and reads responses as a client of webhooks.

pub(crate) mod request;
pub(crate) mod response;

use crate::{Request, ReviewVersion};

/// An AdmissionReview that asks for a verdict. Lives until its request goes to the chains.
#[derive(Clone, Debug)]
pub struct Review {
    /// The response has the same one.
    pub version: ReviewVersion,
    /// The request to admit.
    pub request: Request,
}

impl Review {
    /// Whether the request must not be sent to any hook, and is allowed unchanged.
    pub fn is_never_hooked(&self) -> bool {
        self.request.resource.is_never_hooked()
    }
}
