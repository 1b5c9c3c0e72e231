use rustls_pki_types::InvalidDnsNameError;

/// Why a webhook cannot be made of its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is not one that a webhook can have.
    #[error("webhook URL `{url}`: {reason}")]
    Url {
        /// Without user and password.
        url: String,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// The path of a service is not one.
    #[error("webhook service path `{path}`: {reason}")]
    Path {
        /// As it was given.
        path: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// Name and namespace of a service, or the host of a URL, make no host name.
    #[error("`{host}` is no host name, so no certificate can hold it: {source}")]
    Host {
        /// The host that was made.
        host: String,
        /// What is wrong with it.
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
    /// A CA bundle without certificates.
    #[error("caBundle holds no certificate; put the PEM of at least one CA there")]
    CaBundleEmpty,
    /// A certificate of the CA bundle that is none.
    #[error("certificate {index} of caBundle cannot be used: {source}")]
    CaBundle {
        /// Which one, from 1.
        index: usize,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The operating system has no CAs.
    #[error("no CA certificates were found on this system{details}; give the webhook a caBundle")]
    SystemRoots {
        /// What went wrong on the way, if anything: begins with a colon.
        details: String,
    },
    /// AdmissionReview without versions.
    #[error("the webhook names no version of AdmissionReview; list v1, v1beta1 or both")]
    NoReviewVersion,
    /// An address in the `resolve` table that is none.
    #[error(
        "resolve `{host}`: `{address}` is no address; write HOST:PORT, as in 127.0.0.1:9443 or [::1]:9443"
    )]
    Address {
        /// The name that it was for.
        host: String,
        /// As it was given.
        address: String,
    },
}
