use url::Url;

use crate::keywords;

/// The protocol of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The protocol of BCS: the webhook receives the object, and returns the whole object with the status 200. As in
    /// BCS's driver, any other status is a failure, which refuses the request only under the policy `Fail`.
    BcsResource,
    /// The protocol of Kubernetes: the webhook receives an AdmissionReview, and returns one, perhaps with a JSON Patch.
    AdmissionReview {
        /// The versions of AdmissionReview that the webhook supports. The first one is used.
        versions: Vec<ReviewVersion>,
    },
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`. Responses are checked strictly.
    V1,
    /// `admission.k8s.io/v1beta1`. The fields `uid`, `kind`, `apiVersion` and `patchType` of responses are ignored.
    V1Beta1,
}

keywords!(ReviewVersion, "version of AdmissionReview": V1 = "v1", V1Beta1 = "v1beta1");

impl ReviewVersion {
    /// Returns the `apiVersion` of AdmissionReviews of this version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// Returns the version with this `apiVersion`.
    pub fn of_api_version(api_version: &str) -> Option<Self> {
        let mut versions = Self::ALL.into_iter();
        versions.find(|version| version.api_version() == api_version)
    }
}

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// An `https` URL without user information and fragment. For an AdmissionReview webhook, the URL has no query. For
    /// a [`BcsResource`](Protocol::BcsResource) webhook, `http` is allowed as in BCS's driver, without authentication.
    Url(Url),
    /// A service in the cluster, which is called over TLS.
    Service {
        /// The namespace of the service.
        namespace: String,
        /// The name of the service.
        name: String,
        /// The port of the service. Default: [`WebhookTarget::DEFAULT_PORT`].
        port: u16,
        /// The path of the webhook, which begins with `/`; an empty path means `/`. If the webhook has BCS's protocol,
        /// the path may include a query.
        path: String,
        /// The form of the service's host name.
        naming: ServiceNaming,
    },
}

impl WebhookTarget {
    /// The default port of a webhook's service.
    pub const DEFAULT_PORT: u16 = 443;
}

/// The form of a service's host name, which the server's certificate must have as a subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceNaming {
    /// A service's host name has the form `{name}.{namespace}`.
    Bcs,
    /// A service's host name has the form `{name}.{namespace}.svc`.
    Kubernetes,
}
