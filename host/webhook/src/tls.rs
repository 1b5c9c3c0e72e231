use std::{
    error::Error as StdError,
    io,
    sync::{Arc, OnceLock},
};

use admittance_admission::{Failure, FailureKind};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, client::WebPkiServerVerifier};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::Error;

/// A client that trusts these CAs, or the operating system's when there are none, and nobody else.
pub(crate) fn client_config(ca_bundle: Option<&[CertificateDer<'static>]>) -> Result<ClientConfig, Error> {
    let roots = match ca_bundle {
        Some(certificates) => Arc::new(bundle_roots(certificates)?),
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |source: rustls::Error| Error::CaBundle { index: 1, source };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| unusable(rustls::Error::General(error.to_string())))?;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_webpki_verifier(verifier)
        .with_no_client_auth())
}

fn bundle_roots(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, Error> {
    if certificates.is_empty() {
        return Err(Error::CaBundleEmpty);
    }
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|source| Error::CaBundle {
            index: index + 1,
            source,
        })?;
    }
    Ok(roots)
}

/// The operating system's CAs, read when they are first needed and kept to the program's end.
fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system may hold certificates that rustls does not read; the others still count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let details = found.errors.first().map(|error| format!(": {error}"));
        return Err(Error::SystemRoots {
            details: details.unwrap_or_default(),
        });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

/// The failure that an error of a TLS handshake is.
pub(crate) fn handshake_failure(error: &(dyn StdError + 'static), authority: &str, host: &str) -> Failure {
    if let Some(error) = find::<rustls::Error>(error) {
        return failure(error, authority, host);
    }
    match find::<io::Error>(error) {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => no_connection(
            authority,
            host,
            "the server closed the connection during the handshake",
        ),
        _ => no_connection(authority, host, &error.to_string()),
    }
}

/// The failure that an error of TLS is.
pub(crate) fn failure(error: &rustls::Error, authority: &str, host: &str) -> Failure {
    no_connection(authority, host, &describe(error, host))
}

fn no_connection(authority: &str, host: &str, reason: &str) -> Failure {
    Failure::new(
        FailureKind::Tls,
        format!("no TLS connection to {authority} with the server name {host}: {reason}"),
    )
}

/// The alert about a client certificate, in a text that rustls wrote.
pub(crate) fn alert_in(text: &str) -> Option<rustls::Error> {
    [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnknownCA,
    ]
    .map(rustls::Error::AlertReceived)
    .into_iter()
    .find(|alert| text.contains(&alert.to_string()))
}

/// The first cause of this type. An [`io::Error`] hides what it was made of from
/// [`source`](StdError::source).
pub(crate) fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            // An io::Error made of another is only a wrapping of it.
            if let Some(found) = find(inner) {
                return Some(found);
            }
        }
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What is wrong, for whoever has to put it right.
fn describe(error: &rustls::Error, host: &str) -> String {
    use CertificateError as C;
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            C::NotValidForNameContext { presented, .. } if presented.is_empty() => no_alternative_name(host),
            C::NotValidForNameContext { presented, .. } => {
                let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
                format!(
                    "its certificate is for {}; the subjectAltName must hold {host}",
                    names.join(", ")
                )
            }
            C::UnknownIssuer => {
                "its certificate comes from none of the trusted CAs (the webhook's caBundle, or the \
                 system's CAs when it has none); put the PEM of the CA that signed it into caBundle"
                    .to_owned()
            }
            C::BadSignature => {
                "its certificate bears the name of a trusted CA but not its signature; was the CA made \
                 anew? Put the PEM of the present one into caBundle"
                    .to_owned()
            }
            C::ExpiredContext { not_after, .. } => {
                format!("its certificate expired at {}; renew it", date(*not_after))
            }
            C::NotValidYetContext { not_before, .. } => format!(
                "its certificate is not valid before {}; compare the clocks",
                date(*not_before)
            ),
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
                "its certificate is not for TLS servers (extendedKeyUsage serverAuth)".to_owned()
            }
            C::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
                // What `openssl x509 -req` makes without an extension file: it cannot hold a name.
                Some(webpki::Error::UnsupportedCertVersion) => no_alternative_name(host),
                Some(webpki::Error::CaUsedAsEndEntity) => {
                    "it shows the certificate of a CA (basicConstraints CA:TRUE) as its own; make it a \
                     certificate that the CA signs, with `admittance certs`"
                        .to_owned()
                }
                _ => format!("its certificate is not valid: {other}"),
            },
            other => format!("its certificate is not valid: {other}"),
        },
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS; is it an http port?".to_owned()
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        ) => "the server wants a client certificate, and webhooks are called without one".to_owned(),
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            format!("the server does not know the name {host}")
        }
        other => other.to_string(),
    }
}

fn no_alternative_name(host: &str) -> String {
    format!(
        "its certificate has no subjectAltName, and a common name (CN) does not count; make one with \
         subjectAltName DNS:{host}, as `admittance certs` does"
    )
}

/// `DnsName("a.b")`, as the verifier writes a name, without the wrapping.
fn bare(name: &str) -> &str {
    name.strip_prefix("DnsName(\"")
        .and_then(|name| name.strip_suffix("\")"))
        .unwrap_or(name)
}

fn date(time: UnixTime) -> String {
    let since_epoch = std::time::Duration::from_secs(time.as_secs());
    std::time::UNIX_EPOCH
        .checked_add(since_epoch)
        .map_or_else(String::new, |time| {
            humantime::format_rfc3339_seconds(time).to_string()
        })
}

#[cfg(test)]
mod tests {
    use rustls::OtherError;

    use super::*;

    /// The errors that the tests over sockets do not bring about.
    #[test]
    fn sentences() {
        let other = |error: webpki::Error| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        };
        for (error, part) in [
            (other(webpki::Error::UnsupportedCertVersion), "no subjectAltName"),
            (other(webpki::Error::CaUsedAsEndEntity), "CA:TRUE"),
            (other(webpki::Error::MaximumPathDepthExceeded), "not valid"),
            (
                rustls::Error::AlertReceived(AlertDescription::UnrecognisedName),
                "does not know the name hook.ns",
            ),
        ] {
            let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
            let failure = handshake_failure(&nested, "hook.ns:8443", "hook.ns");
            assert_eq!(failure.kind, FailureKind::Tls);
            assert!(failure.message.contains(part), "{}", failure.message);
            assert!(failure.message.contains("hook.ns:8443"), "{}", failure.message);
        }
    }

    #[test]
    fn a_bundle_must_hold_certificates() {
        assert!(matches!(client_config(Some(&[])), Err(Error::CaBundleEmpty)));
        let broken = [CertificateDer::from(vec![1, 2, 3])];
        assert!(matches!(
            client_config(Some(&broken)),
            Err(Error::CaBundle { index: 1, .. })
        ));
    }
}
