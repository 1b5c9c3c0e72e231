//! The dialect of kube-apiserver's admission webhooks: AdmissionReviews in, AdmissionReviews out.
//!
//! Unlike the other dialects it has no control plane behind it: the reply is the end of the request.

mod address;
mod read;
mod reply;

use admittance_admission::{GroupVersionResource, Request, ReviewVersion};

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

/// The resources for which no hook is called, by group: the configuration of admission itself, which must stay repairable
/// whatever the hooks do, and reviews that are answered and not stored. But for its own group, it is the list of
/// kube-apiserver 1.37; older servers do call webhooks for some of these.
const NEVER_HOOKED: [(&str, &[&str]); 4] = [
    (
        "admittance.dev",
        &[
            "admissionchains",
            "namespacedadmissionchains",
            "admissionexceptions",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ],
    ),
    ("authentication.k8s.io", &["tokenreviews", "selfsubjectreviews"]),
    (
        "authorization.k8s.io",
        &[
            "subjectaccessreviews",
            "selfsubjectaccessreviews",
            "localsubjectaccessreviews",
            "selfsubjectrulesreviews",
        ],
    ),
];

impl Review {
    /// Whether the request must not be sent to any hook, and is allowed unchanged.
    pub fn is_never_hooked(&self) -> bool {
        is_never_hooked(&self.request.resource)
    }
}

pub(crate) fn is_never_hooked(resource: &GroupVersionResource) -> bool {
    NEVER_HOOKED
        .iter()
        .any(|(group, resources)| resource.group == *group && resources.contains(&resource.resource.as_str()))
}
