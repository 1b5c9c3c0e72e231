use std::time::Duration;

use rustls_pki_types::CertificateDer;
use url::Url;

/// Configuration of a [`Webhook`](crate::Webhook).
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// Its address.
    pub target: Target,
    /// The CAs that are trusted for the server's certificate. Required for a service of BCS; otherwise none
    /// means the CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
    /// It may only allow or deny. A `v1` AdmissionReview with a patch is then invalid, and the patch of a
    /// `v1beta1` one is ignored, as in kube-apiserver. Default: false.
    pub validating: bool,
    /// The largest body of an answer, in bytes. Default: 8 MiB.
    pub response_limit: usize,
    /// The timeout for DNS, TCP and TLS together. Default: 2 s. A call's own deadline applies in addition.
    pub connect_timeout: Duration,
}

impl WebhookConfig {
    /// The default of [`response_limit`](Self::response_limit): the 7 MiB that webhook servers of
    /// Kubernetes commonly accept, and room for the envelope.
    pub const DEFAULT_RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

    /// The default of [`connect_timeout`](Self::connect_timeout): a lost SYN is retransmitted after a second
    /// and may still be answered.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// A webhook without a CA bundle, with the default limits.
    pub fn new(protocol: Protocol, target: Target) -> Self {
        Self {
            protocol,
            target,
            ca_bundle: None,
            validating: false,
            response_limit: Self::DEFAULT_RESPONSE_LIMIT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
        }
    }
}

/// The protocol of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The BCS protocol: the webhook is sent the object and answers with the whole object, changed or not,
    /// with status 200. It cannot deny: any other status is a failure, which refuses the request only under
    /// the policy `Fail`, as in the BCS driver.
    BcsResource,
    /// The Kubernetes protocol: the webhook is sent an AdmissionReview and answers with one, possibly with a
    /// JSON Patch.
    AdmissionReview {
        /// The versions that the webhook supports, the preferred one first, which is sent.
        versions: Vec<ReviewVersion>,
    },
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`: the answer is checked strictly.
    V1,
    /// `admission.k8s.io/v1beta1`: `uid`, `kind`, `apiVersion` and `patchType` of the answer are not checked,
    /// as in kube-apiserver.
    V1Beta1,
}

impl ReviewVersion {
    /// Every version.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// As `admissionReviewVersions` lists it: `v1`, `v1beta1`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// The `apiVersion` of its reviews.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At this URL: `https`, without user and fragment. An AdmissionReview webhook takes no query. A
    /// [`BcsResource`](Protocol::BcsResource) webhook may also have an `http` URL: the BCS driver accepts it,
    /// and then the server is not authenticated.
    Url(Url),
    /// At a service, always over TLS.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service.
        name: String,
        /// Default: [`Target::DEFAULT_PORT`].
        port: u16,
        /// Begins with `/`; empty means `/`. A BCS path may carry a query.
        path: String,
        /// The form of its host name.
        naming: Naming,
    },
}

impl Target {
    /// The default port of a service.
    pub const DEFAULT_PORT: u16 = 443;
}

/// The form of a service's host name. The server's certificate must have this name as a subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// `{name}.{namespace}`.
    Bcs,
    /// `{name}.{namespace}.svc`.
    Kubernetes,
}
