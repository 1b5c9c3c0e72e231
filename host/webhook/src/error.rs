use admittance_net::tls::TlsError;
use rustls_pki_types::InvalidDnsNameError;

/// Why the configuration of a webhook is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is not valid for a webhook.
    #[error("webhook URL `{url}`: {reason}")]
    Url {
        /// Without user and password.
        url: String,
        /// The problem, and what to write.
        reason: &'static str,
    },
    /// The path of a service is not valid.
    #[error("webhook service path `{path}`: {reason}")]
    Path {
        /// As configured.
        path: String,
        /// The problem, and what to write.
        reason: String,
    },
    /// Name and namespace of a service, or the host of a URL, do not form a valid host name.
    #[error("`{host}` is not a valid host name: {source}")]
    Host {
        /// The resulting host name.
        host: String,
        /// The problem.
        source: InvalidDnsNameError,
    },
    /// A service without CA bundle.
    #[error(
        "webhook service `{service}` has no caBundle; put the base64 of the PEM of its CA there \
         (`admittance certs` prints such a line)"
    )]
    CaBundleMissing {
        /// Its host name.
        service: String,
    },
    /// The CA bundle cannot be used.
    #[error("caBundle: {0}")]
    CaBundle(TlsError),
    /// The operating system's CAs cannot be used.
    #[error("{0}; give the webhook a caBundle")]
    SystemRoots(TlsError),
    /// AdmissionReview without versions.
    #[error("the webhook lists no version of AdmissionReview; list v1, v1beta1 or both")]
    NoReviewVersion,
    /// An invalid address in the `resolve` table.
    #[error(
        "resolve `{host}`: `{address}` is not a valid address; write HOST:PORT, as in 127.0.0.1:9443 or [::1]:9443"
    )]
    Address {
        /// The host name of the entry.
        host: String,
        /// As configured.
        address: String,
    },
}
