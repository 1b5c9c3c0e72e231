use std::time::Duration;

use admittance_admission::{Protocol, WebhookTarget};
use rustls_pki_types::CertificateDer;

/// All that a webhook is made of.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// What the server is sent, and what it answers.
    pub protocol: Protocol,
    /// Where it is.
    pub target: WebhookTarget,
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
