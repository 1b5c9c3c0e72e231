use std::time::Duration;

use admittance_admission::{Protocol, WebhookTarget};
use rustls_pki_types::CertificateDer;

#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The format of the webhook's requests and responses.
    pub protocol: Protocol,
    pub target: WebhookTarget,
    /// The CAs with which the certificate of the webhook's server is verified; `None` for the CAs of the operating
    /// system. A BCS service must have a bundle.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
    /// Whether the webhook may only allow or deny requests, but not change objects. If it returns a patch in a `v1`
    /// AdmissionReview, the call fails. A patch in a `v1beta1` AdmissionReview is ignored. kube-apiserver does the
    /// same. Default: false.
    pub is_validating: bool,
    /// The maximum size of the body of a response, in bytes. Default: 8 MiB.
    pub response_limit: usize,
    /// The timeout of connecting: DNS, TCP and TLS together. Default: 2 s. The deadline of a call applies as well.
    pub connect_timeout: Duration,
}

impl WebhookConfig {
    /// The default of [`response_limit`](Self::response_limit). An object may have 7 MiB, as webhook servers of
    /// Kubernetes commonly accept; 1 MiB is added for the AdmissionReview around it.
    pub const DEFAULT_RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

    /// The default of [`connect_timeout`](Self::connect_timeout). If the first SYN is lost, the operating system sends
    /// another one after 1 s, which the server can still answer in time.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// Creates the configuration of a webhook without a CA bundle and with the default limits.
    pub fn new(protocol: Protocol, target: WebhookTarget) -> Self {
        Self {
            protocol,
            target,
            ca_bundle: None,
            is_validating: false,
            response_limit: Self::DEFAULT_RESPONSE_LIMIT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
        }
    }
}
