use std::time::Duration;

use rustls_pki_types::CertificateDer;
use url::Url;

/// All that a webhook is made of.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// What the server is sent, and what it answers.
    pub protocol: Protocol,
    /// Where it is.
    pub target: Target,
    /// The CAs of which one must have signed the server's certificate. A service of BCS needs them;
    /// elsewhere none means the CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
    /// It may only allow or deny. An AdmissionReview of `v1` with a patch is then invalid, and the patch
    /// of one of `v1beta1` is passed over, as kube-apiserver has it. Default: false.
    pub validating: bool,
    /// The largest body of an answer, in bytes. Default: 8 MiB.
    pub response_limit: usize,
    /// How long name look-up, TCP and TLS may take together. Default: 2 s. A call's own deadline
    /// holds beside it.
    pub connect_timeout: Duration,
}

impl WebhookConfig {
    /// The default of [`response_limit`](Self::response_limit): the 7 MiB that webhook servers of
    /// Kubernetes commonly accept, and room for the envelope.
    pub const DEFAULT_RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

    /// The default of [`connect_timeout`](Self::connect_timeout): one lost SYN is sent again after a
    /// second and may still be answered.
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

/// What a webhook is sent, and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The BCS form: it is sent the object and answers the whole object, changed or not, with status
    /// 200. It has no way to deny: any other status is a failure, which refuses the request only under
    /// the policy `Fail`, as in the BCS driver.
    BcsResource,
    /// The Kubernetes form: it is sent an AdmissionReview and answers one, perhaps with a JSON Patch.
    AdmissionReview {
        /// The versions that the webhook reads, the preferred one first; that one is sent.
        versions: Vec<ReviewVersion>,
    },
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`: the answer is checked strictly.
    V1,
    /// `admission.k8s.io/v1beta1`: `uid`, `kind`, `apiVersion` and `patchType` of the answer do not
    /// count, as kube-apiserver has it.
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

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At this URL: `https`, without user and fragment. An AdmissionReview webhook takes no query. A
    /// [`BcsResource`](Protocol::BcsResource) webhook may also have an `http` URL: the BCS driver
    /// accepts it, and then nothing proves who answers.
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
        /// How its host name is written.
        naming: Naming,
    },
}

impl Target {
    /// The port of a service that names none.
    pub const DEFAULT_PORT: u16 = 443;
}

/// How the host name of a service is written. It is also the name that the server's certificate must
/// hold as a subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// `{name}.{namespace}`.
    Bcs,
    /// `{name}.{namespace}.svc`.
    Kubernetes,
}
