use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, error::X509Error, extensions::GeneralName, parse_x509_certificate};

const EXPIRY_LOG_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CertificateValidity {
    pub(super) not_after: SystemTime,
    pub(super) has_names: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateExpiry {
    Expired,
    Soon,
}

impl CertificateValidity {
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Self, X509Error> {
        let (_, parsed) = parse_x509_certificate(certificate)?;
        Ok(Self {
            not_after: end_of_validity(&parsed),
            has_names: parsed
                .subject_alternative_name()?
                .is_some_and(|names| !names.value.general_names.is_empty()),
        })
    }

    pub(super) fn expiry(&self, now: SystemTime) -> Option<CertificateExpiry> {
        match self.not_after.duration_since(now) {
            Err(_) => Some(CertificateExpiry::Expired),
            Ok(remaining) => (remaining < EXPIRY_LOG_PERIOD).then_some(CertificateExpiry::Soon),
        }
    }

    /// Returns the end of the certificate's validity in seconds since 1970, as Prometheus expects times.
    pub(super) fn not_after_seconds(&self) -> f64 {
        self.not_after
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    }
}

fn end_of_validity(certificate: &X509Certificate<'_>) -> SystemTime {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns the time at which a certificate expires, or `None` if the certificate cannot be parsed.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(end_of_validity(&parsed))
}

/// Returns the common names, and the alternative DNS names and URIs, of a certificate's subject. The list is empty if
/// the certificate cannot be parsed.
pub fn subject_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let common = parsed
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let extension = parsed.subject_alternative_name().ok().flatten();
    let alternative_general_names = extension.iter().flat_map(|names| &names.value.general_names);
    let alternative = alternative_general_names.filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some(*name),
        _ => None,
    });
    common.chain(alternative).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn the_validity_of_a_certificate_is_read() {
        for (names, has_names) in [(vec!["localhost".to_owned()], true), (vec![], false)] {
            let mut params = CertificateParams::new(names).unwrap();
            params.not_after = date_time_ymd(2030, 1, 1);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let validity = CertificateValidity::read(certificate.der()).unwrap();
            assert_eq!(validity.has_names, has_names);
            // The expected number comes from `date -d 2030-01-01T00:00:00Z +%s`.
            assert_eq!(validity.not_after_seconds(), 1_893_456_000.0);
        }
        assert!(CertificateValidity::read(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }

    #[test]
    fn a_certificate_that_will_expire_soon_is_reported() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let second = Duration::from_secs(1);
        for (not_after, expected) in [
            (now + EXPIRY_LOG_PERIOD, None),
            (now + EXPIRY_LOG_PERIOD - second, Some(CertificateExpiry::Soon)),
            (now, Some(CertificateExpiry::Soon)),
            (now - second, Some(CertificateExpiry::Expired)),
            (SystemTime::UNIX_EPOCH, Some(CertificateExpiry::Expired)),
        ] {
            let validity = CertificateValidity {
                not_after,
                has_names: true,
            };
            assert_eq!(validity.expiry(now), expected, "{not_after:?}");
        }
    }

    #[test]
    fn the_subject_names_of_a_certificate_are_read() {
        let mut params = CertificateParams::new(vec!["ci.example.com".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ci");
        params.distinguished_name.push(DnType::OrganizationName, "builders");
        let uri = "spiffe://example.com/ci";
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        let mail = "ci@example.com".try_into().unwrap();
        params.subject_alt_names.push(SanType::Rfc822Name(mail));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(subject_names(certificate.der()), ["ci", "ci.example.com", uri]);
        assert!(subject_names(&CertificateDer::from(vec![1, 2, 3])).is_empty());
    }
}
