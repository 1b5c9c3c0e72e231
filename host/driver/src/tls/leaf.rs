use std::{
    fmt,
    time::{Duration, SystemTime},
};

use rustls_pki_types::CertificateDer;
use x509_parser::{error::X509Error, parse_x509_certificate};

/// From when on an end is spoken of.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// What an operator wants to know of the certificate that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Until when it is valid.
    pub(super) not_after: SystemTime,
    /// Whether it says for which names it is, as a subjectAltName.
    pub(super) has_names: bool,
}

/// That a certificate is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Ended,
    EndsSoon,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the certificate has expired, and nobody should accept it; replace it",
            Self::EndsSoon => "the certificate expires within 7 days; replace it",
        })
    }
}

impl Leaf {
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Self, X509Error> {
        let (_, parsed) = parse_x509_certificate(certificate)?;
        // Nobody has a certificate from before 1970; if so, it has ended.
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
        Ok(Self {
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            has_names: parsed
                .subject_alternative_name()?
                .is_some_and(|names| !names.value.general_names.is_empty()),
        })
    }

    pub(super) fn ending(&self, now: SystemTime) -> Option<Ending> {
        match self.not_after.duration_since(now) {
            Err(_) => Some(Ending::Ended),
            Ok(left) => (left < SOON).then_some(Ending::EndsSoon),
        }
    }

    /// Since 1970, as Prometheus has it.
    pub(super) fn not_after_seconds(&self) -> f64 {
        self.not_after
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn what_a_certificate_says() {
        for (names, has_names) in [(vec!["localhost".to_owned()], true), (vec![], false)] {
            let mut params = CertificateParams::new(names).unwrap();
            params.not_after = date_time_ymd(2030, 1, 1);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let leaf = Leaf::read(certificate.der()).unwrap();
            assert_eq!(leaf.has_names, has_names);
            // date -d 2030-01-01T00:00:00Z +%s
            assert_eq!(leaf.not_after_seconds(), 1_893_456_000.0);
        }
        assert!(Leaf::read(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }

    #[test]
    fn when_an_end_is_spoken_of() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let second = Duration::from_secs(1);
        for (not_after, expected) in [
            (now + SOON, None),
            (now + SOON - second, Some(Ending::EndsSoon)),
            (now, Some(Ending::EndsSoon)),
            (now - second, Some(Ending::Ended)),
            (SystemTime::UNIX_EPOCH, Some(Ending::Ended)),
        ] {
            let leaf = Leaf {
                not_after,
                has_names: true,
            };
            assert_eq!(leaf.ending(now), expected, "{not_after:?}");
        }
    }
}
