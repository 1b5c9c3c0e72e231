use url::Url;

use crate::words;

/// The protocol of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The BCS form: the webhook receives the object, and answers the whole object, changed or not, with status 200. It
    /// has no way to deny: any other status is a failure, which refuses the request only under the policy `Fail`, as in
    /// the BCS driver.
    BcsResource,
    /// The Kubernetes form: the webhook receives an AdmissionReview and answers one, possibly with a JSON Patch.
    AdmissionReview {
        /// The versions that the webhook reads. The first is sent.
        versions: Vec<ReviewVersion>,
    },
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`: the answer of a webhook is checked strictly.
    V1,
    /// `admission.k8s.io/v1beta1`: `uid`, `kind`, `apiVersion` and `patchType` of the answer are ignored, as in
    /// kube-apiserver.
    V1Beta1,
}

words!(ReviewVersion, "version of AdmissionReview": V1 = "v1", V1Beta1 = "v1beta1");

impl ReviewVersion {
    /// Returns the `apiVersion` of its reviews.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// Returns the version whose reviews have this `apiVersion`.
    pub fn of_api_version(api_version: &str) -> Option<Self> {
        let mut versions = Self::ALL.into_iter();
        versions.find(|version| version.api_version() == api_version)
    }
}

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// An `https` URL without user and fragment. The URL of an AdmissionReview webhook has no query. A
    /// [`BcsResource`](Protocol::BcsResource) webhook may also have an `http` URL, as in the BCS driver, although
    /// nothing then proves who answers.
    Url(Url),
    /// A service, which is always called over TLS.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service's name.
        name: String,
        /// Default: [`WebhookTarget::DEFAULT_PORT`].
        port: u16,
        /// Begins with `/`; empty means `/`. A BCS path may carry a query.
        path: String,
        /// The form of its host name.
        naming: ServiceNaming,
    },
}

impl WebhookTarget {
    /// The default port of a service.
    pub const DEFAULT_PORT: u16 = 443;
}

/// The form of a service's host name. The server's certificate must have the same name as a subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceNaming {
    /// `{name}.{namespace}`.
    Bcs,
    /// `{name}.{namespace}.svc`.
    Kubernetes,
}
