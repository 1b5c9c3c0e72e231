use std::time::Duration;

use admittance_admission::{Protocol, WebhookTarget};
use rustls_pki_types::CertificateDer;

#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The format of requests and responses.
    pub protocol: Protocol,
    pub target: WebhookTarget,
    /// The CAs that are trusted for the server's certificate. Required for a service of BCS; otherwise `None` means the
    /// CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
    /// Whether the webhook may only allow or deny. If so, a `v1` AdmissionReview with a patch is invalid, and the patch
    /// of a `v1beta1` review is ignored, as in kube-apiserver. Default: false.
    pub validating: bool,
    /// The largest body of a response, in bytes. Default: 8 MiB.
    pub response_limit: usize,
    /// The timeout for DNS, TCP and TLS together. Default: 2 s. A call's own deadline applies in addition.
    pub connect_timeout: Duration,
}

impl WebhookConfig {
    /// The default of [`response_limit`](Self::response_limit): 7 MiB, which webhook servers of Kubernetes commonly
    /// accept, and 1 MiB for the AdmissionReview around the object.
    pub const DEFAULT_RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

    /// The default of [`connect_timeout`](Self::connect_timeout). The operating system retransmits a lost SYN after 1
    /// s, so the server can still answer the second SYN.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// Creates a configuration without a CA bundle and with the default limits.
    pub fn new(protocol: Protocol, target: WebhookTarget) -> Self {
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
