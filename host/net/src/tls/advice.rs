use std::{
    borrow::Cow,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rustls::{AlertDescription, CertificateError, Error};
use rustls_pki_types::UnixTime;

use super::short_key::ShortKey;
use crate::causes::without_link;

/// Advice that is appended to messages about failed TLS connections. Each kind of client gives its own advice. An empty
/// text is left out.
#[derive(Clone, Debug, Default)]
pub struct TlsAdvice<'a> {
    /// Advice on how to trust the CA of the server's certificate.
    pub trust: Cow<'a, str>,
    /// Advice on how to expect another name in the server's certificate.
    pub name: &'a str,
    /// Advice on how to configure a certificate for the client.
    pub identity: &'a str,
    /// Advice on how to connect without TLS.
    pub plain: &'a str,
}

impl TlsAdvice<'_> {
    /// Explains why a TLS connection to this host failed, and what to do about it.
    pub fn explain(&self, error: &Error, host: &str) -> String {
        match error {
            Error::InvalidCertificate(error) => self.explain_certificate(error, host),
            Error::InvalidMessage(_) => with_advice("the server does not speak TLS on this port", self.plain),
            Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate) => {
                with_advice("the server requires a client certificate", self.identity)
            }
            Error::AlertReceived(AlertDescription::UnrecognisedName) => {
                with_advice(&format!("the server does not know the name {host}"), self.name)
            }
            other => without_link(&other.to_string()),
        }
    }

    fn explain_certificate(&self, error: &CertificateError, host: &str) -> String {
        use CertificateError as E;
        let invalid = |error: &dyn std::fmt::Display| {
            format!("its certificate is not valid: {}", without_link(&error.to_string()))
        };
        let (problem, advice) = match error {
            E::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                return no_alternative_name(host);
            }
            E::NotValidForNameContext { presented, .. } => {
                let presented_names: Vec<_> = presented.iter().map(|name| bare_name(name)).collect();
                let names = presented_names.join(", ");
                (
                    format!("its certificate is for {names}; the subjectAltName must hold {host}"),
                    self.name,
                )
            }
            E::UnknownIssuer => ("its certificate is not signed by a trusted CA".to_owned(), &*self.trust),
            E::BadSignature => (
                "its certificate names a trusted CA but is not signed by it; the CA may have been replaced".to_owned(),
                &*self.trust,
            ),
            E::ExpiredContext { not_after, .. } => {
                (format!("its certificate expired at {}", date(*not_after)), "renew it")
            }
            E::NotValidYetContext { not_before, .. } => (
                format!("its certificate is not valid before {}", date(*not_before)),
                "compare the clocks",
            ),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => (
                "its certificate is not for TLS servers (extendedKeyUsage serverAuth)".to_owned(),
                "",
            ),
            E::Other(other) if other.0.is::<ShortKey>() => (
                other.to_string(),
                "make a new CA and certificate, for instance with `admittance certs`",
            ),
            E::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
                // A certificate of version 1 cannot have a subjectAltName. `openssl x509 -req` makes such certificates
                // if no extensions are requested.
                Some(webpki::Error::UnsupportedCertVersion) => return no_alternative_name(host),
                Some(webpki::Error::CaUsedAsEndEntity) => (
                    "its certificate is a CA certificate (basicConstraints CA:TRUE)".to_owned(),
                    "make a server certificate signed by that CA, with `admittance certs`",
                ),
                _ => (invalid(other), ""),
            },
            other => (invalid(other), ""),
        };
        with_advice(&problem, advice)
    }
}

fn with_advice(problem: &str, advice: &str) -> String {
    match advice {
        "" => problem.to_owned(),
        advice => format!("{problem}; {advice}"),
    }
}

fn no_alternative_name(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = match bare.unwrap_or(host).parse::<IpAddr>() {
        Ok(address) => format!("IP:{address}"),
        Err(_) => format!("DNS:{host}"),
    };
    format!(
        "its certificate has no subjectAltName, and the common name (CN) is not checked; make one with \
         subjectAltName {name}, as `admittance certs` does"
    )
}

fn bare_name(name: &str) -> &str {
    [("DnsName(\"", "\")"), ("IpAddress(", ")")]
        .into_iter()
        .find_map(|(prefix, suffix)| name.strip_prefix(prefix)?.strip_suffix(suffix))
        .unwrap_or(name)
}

fn date(time: UnixTime) -> String {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(time.as_secs()))
        .map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError};
    use rustls_pki_types::ServerName;

    use super::*;

    #[test]
    fn tls_errors_are_explained_with_advice() {
        let other =
            |error: webpki::Error| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))));
        let advice = TlsAdvice {
            trust: "use --ca".into(),
            identity: "use --key",
            plain: "use http://",
            ..TlsAdvice::default()
        };
        let presented = |names: &[&str]| {
            Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                expected: ServerName::try_from("hook.ns").unwrap(),
                presented: names.iter().map(|&name| name.to_owned()).collect(),
            })
        };
        let version_1 = || other(webpki::Error::UnsupportedCertVersion);
        for (host, error, part) in [
            ("hook.ns", version_1(), "no subjectAltName"),
            ("hook.ns", version_1(), "subjectAltName DNS:hook.ns,"),
            ("10.0.0.5", version_1(), "subjectAltName IP:10.0.0.5,"),
            ("[::1]", version_1(), "subjectAltName IP:::1,"),
            ("hook.ns", presented(&[]), "subjectAltName DNS:hook.ns,"),
            ("10.0.0.5", presented(&[]), "subjectAltName IP:10.0.0.5,"),
            ("[::1]", presented(&[]), "subjectAltName IP:::1,"),
            (
                "10.0.0.5",
                presented(&["DnsName(\"hook.ns\")", "IpAddress(10.0.0.6)"]),
                "is for hook.ns, 10.0.0.6; the subjectAltName must hold 10.0.0.5",
            ),
            ("hook.ns", other(webpki::Error::CaUsedAsEndEntity), "CA:TRUE"),
            (
                "hook.ns",
                Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(ShortKey::Server(1024))))),
                "the RSA key of its certificate has 1024 bits",
            ),
            ("hook.ns", other(webpki::Error::MaximumPathDepthExceeded), "not valid"),
            (
                "hook.ns",
                Error::AlertReceived(AlertDescription::UnrecognisedName),
                "does not know the name hook.ns",
            ),
            (
                "hook.ns",
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "requires a client certificate; use --key",
            ),
            (
                "hook.ns",
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "not signed by a trusted CA; use --ca",
            ),
            (
                "hook.ns",
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "does not speak TLS on this port; use http://",
            ),
        ] {
            let text = advice.explain(&error, host);
            assert!(text.contains(part), "{host}: {text}");
        }
    }
}
