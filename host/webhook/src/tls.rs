use std::{borrow::Cow, error::Error as StdError, io};

use admittance_admission::{Failure, FailureKind};
use admittance_net::{
    causes::find,
    tls::{self, TlsAdvice, Trust},
};
use rustls::{AlertDescription, ClientConfig};
use rustls_pki_types::CertificateDer;

use crate::Error;

const ADVICE: TlsAdvice<'static> = TlsAdvice {
    trust: Cow::Borrowed(
        "put the PEM of the CA that signed it into the webhook's caBundle (without a caBundle, the system's CAs are trusted)",
    ),
    name: "",
    identity: "webhooks are called without a client certificate",
    plain: "check that it is not an http port",
};

/// Creates a TLS configuration that trusts only the CAs in `ca_bundle`; without a bundle, it trusts those of the
/// operating system. CAs with RSA keys of 1024 to 2047 bits are trusted only if `accepts_short_keys` is true.
pub(crate) fn client_config(
    ca_bundle: Option<&[CertificateDer<'static>]>,
    accepts_short_keys: bool,
) -> Result<ClientConfig, Error> {
    let is_short = |certificate| tls::rsa_bits(certificate).is_some_and(|bits| bits < tls::SHORTEST_RSA_KEY);
    match ca_bundle {
        Some(certificates) if accepts_short_keys && certificates.iter().any(is_short) => {
            tls::client_of_short_keys(certificates).map_err(Error::CaBundle)
        }
        Some(certificates) => tls::client_config(Trust::Only(certificates), None).map_err(Error::CaBundle),
        None => tls::client_config(Trust::System, None).map_err(Error::SystemRoots),
    }
}

pub(crate) fn handshake_failure(error: &(dyn StdError + 'static), authority: &str, host: &str) -> Failure {
    if let Some(error) = find::<rustls::Error>(error) {
        return tls_failure(error, authority, host);
    }
    match find::<io::Error>(error) {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            no_connection(authority, host, "the server closed the connection during the handshake")
        }
        _ => no_connection(authority, host, &error.to_string()),
    }
}

pub(crate) fn tls_failure(error: &rustls::Error, authority: &str, host: &str) -> Failure {
    no_connection(authority, host, &ADVICE.explain(error, host))
}

fn no_connection(authority: &str, host: &str, reason: &str) -> Failure {
    Failure::new(
        FailureKind::Tls,
        format!("no TLS connection to {authority} with the server name {host}: {reason}"),
    )
}

/// Returns the TLS alert about a client certificate that `text` mentions, if any. `text` is the message of an error.
pub(crate) fn find_alert(text: &str) -> Option<rustls::Error> {
    [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnknownCA,
    ]
    .map(rustls::Error::AlertReceived)
    .into_iter()
    .find(|alert| text.contains(&alert.to_string()))
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[test]
    fn tls_errors_are_recognised_inside_io_errors() {
        let error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        let failure = handshake_failure(&nested, "hook.ns:8443", "hook.ns");
        assert_eq!(failure.kind, FailureKind::Tls);
        assert!(failure.message.contains("caBundle"), "{}", failure.message);
        assert!(failure.message.contains("hook.ns:8443"), "{}", failure.message);
    }

    #[test]
    fn a_ca_bundle_must_contain_certificates() {
        let no_bundle = client_config(Some(&[]), true).unwrap_err().to_string();
        assert!(
            no_bundle.starts_with("caBundle: it holds no certificate"),
            "{no_bundle}"
        );
        let broken = [CertificateDer::from(vec![1, 2, 3])];
        let broken = client_config(Some(&broken), true).unwrap_err().to_string();
        assert!(broken.starts_with("caBundle: certificate 1 cannot be used"), "{broken}");
    }
}
