use admittance_net::tls::TlsError;
use rustls_pki_types::InvalidDnsNameError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("webhook URL `{url}`: {reason}")]
    Url { url: String, reason: &'static str },
    #[error("webhook service path `{path}`: {reason}")]
    Path { path: String, reason: String },
    #[error("`{host}` is not a valid host name: {source}")]
    Host { host: String, source: InvalidDnsNameError },
    #[error(
        "webhook service `{service}` has no caBundle; put the base64 of the PEM of its CA there \
         (`admittance certs` prints such a line)"
    )]
    CaBundleMissing { service: String },
    #[error("caBundle: {0}")]
    CaBundle(TlsError),
    #[error("{0}; give the webhook a caBundle")]
    SystemRoots(TlsError),
    #[error("the webhook lists no version of AdmissionReview; list v1, v1beta1 or both")]
    NoReviewVersion,
    #[error(
        "resolve `{host}`: `{address}` is not a valid address; write HOST:PORT, as in 127.0.0.1:9443 or [::1]:9443"
    )]
    Address { host: String, address: String },
}
