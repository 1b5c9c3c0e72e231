//! The dialect of kube-apiserver's admission webhooks: AdmissionReviews in, AdmissionReviews out.
//!
//! Unlike the other dialects it has no control plane behind it: the reply is the end of the request.

mod address;
mod read;
mod reply;
mod status;

use std::fmt;

use admittance_admission::Request;

pub use address::{AddressError, ReviewAddress};
pub use read::{ReviewError, read_review};
pub use reply::write_review;
pub use status::status_reply;

/// An AdmissionReview that asks for a verdict. Lives until its request goes to the chains.
#[derive(Clone, Debug)]
pub struct Review {
    /// The answer has the same one.
    pub version: ReviewVersion,
    /// What is asked about.
    pub request: Request,
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`: the same in other words.
    V1Beta1,
}

impl ReviewVersion {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// The `apiVersion` of its reviews.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }

    fn of(api_version: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.api_version() == api_version)
    }
}

impl fmt::Display for ReviewVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api_version())
    }
}

/// What kube-apiserver calls no webhook for, by group and resource: the configuration of admission itself,
/// which must stay repairable whatever the hooks do, and questions that are answered and not stored.
const NEVER_HOOKED: [(&str, &[&str]); 3] = [
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
    /// Whether the request is one that no hook may see: it is allowed as it is. The list is
    /// kube-apiserver's of version 1.37; servers before it do ask about some of these.
    pub fn is_never_hooked(&self) -> bool {
        let resource = &self.request.resource;
        NEVER_HOOKED.iter().any(|(group, resources)| {
            resource.group == *group && resources.contains(&resource.resource.as_str())
        })
    }
}
