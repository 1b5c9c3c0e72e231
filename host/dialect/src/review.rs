//! The dialect of kube-apiserver's admission webhooks: AdmissionReviews in, AdmissionReviews out.
//!
//! Unlike the other dialects it has no control plane behind it: the reply is the end of the request.

mod address;
mod read;
mod reply;

use admittance_admission::{Request, ReviewVersion};

pub use address::{AddressError, ReviewAddress};
pub use read::{ReviewError, read_review};
pub(crate) use reply::refusal_reply;
pub use reply::{status_reply, status_with_reason, write_review};

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
