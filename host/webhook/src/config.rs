use std::time::Duration;

use admittance_admission::{Protocol, WebhookTarget};
use rustls_pki_types::CertificateDer;

/// Configuration of a [`Webhook`](crate::Webhook).
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// The address of the webhook.
    pub target: WebhookTarget,
    /// The CAs that are trusted for the server's certificate. Required for a service of BCS; otherwise none means the
    /// CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
    /// Whether the webhook may only allow or deny. Then a `v1` AdmissionReview with a patch is invalid, and the patch
    /// of a `v1beta1` review is ignored, as in kube-apiserver. Default: false.
    pub validating: bool,
    /// The largest body of an answer, in bytes. Default: 8 MiB.
    pub response_limit: usize,
    /// The timeout for DNS, TCP and TLS together. Default: 2 s. A call's own deadline applies in addition.
    pub connect_timeout: Duration,
}

impl WebhookConfig {
    /// The default of [`response_limit`](Self::response_limit): the 7 MiB that webhook servers of Kubernetes commonly
    /// accept, and room for the envelope.
    pub const DEFAULT_RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

    /// The default of [`connect_timeout`](Self::connect_timeout): a lost SYN is retransmitted after a second and may
    /// still be answered.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// Creates the configuration of a webhook without a CA bundle, with the default limits.
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
