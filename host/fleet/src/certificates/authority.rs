//! Issues CAs and certificates in memory.

use std::{collections::BTreeSet, net::IpAddr};

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use time::{Duration, OffsetDateTime};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};

use super::{CertificateSubject, ClientName, Service, SubjectHost, subject::MAX_COMMON_NAME_LENGTH};

/// The validity of a CA whose key is stored, in days.
const AUTHORITY_DAYS: u16 = 3650;

/// Certificates are backdated by this time, for clients whose clock is slow.
const CLOCK_SKEW: Duration = Duration::hours(1);

#[derive(derive_more::Debug)]
// The debug output omits the key, because logs must not contain it.
#[debug("Authority {{ not_after: {not_after:?}, .. }}")]
pub struct Authority {
    /// The trust bundle in PEM: first the certificate of this CA, then the certificates of other trusted CAs, if any.
    pub pem: String,
    der: CertificateDer<'static>,
    pub not_after: OffsetDateTime,
    issuer: Issuer<'static, KeyPair>,
}

#[derive(derive_more::Debug)]
// The debug output omits the key, because logs must not contain it.
#[debug("IssuedCertificate {{ not_after: {not_after:?}, .. }}")]
pub struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
    pub not_after: OffsetDateTime,
}

impl Authority {
    /// Creates a CA, which may sign certificates but no further CAs.
    pub fn new(now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        Self::with_validity_days(AUTHORITY_DAYS, now)
    }

    fn with_validity_days(days: u16, now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.not_before = now - CLOCK_SKEW;
        params.not_after = now + Duration::days(days.into());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The name of the CA ends with some digits of its key. Two CAs therefore have different names, and clients
        // cannot confuse them.
        let bytes = key.subject_public_key_info().into_iter().rev();
        let id: String = bytes.take(4).map(|byte| format!("{byte:02x}")).collect();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("Admittance CA {id}"));
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            not_after: params.not_after,
            issuer: Issuer::new(params, key),
        })
    }

    /// Loads the CA whose certificate matches this key. The error says why the CA cannot be loaded.
    pub fn from_pem(certificates: &str, key: &str, now: OffsetDateTime) -> Result<Self, String> {
        let (der, key) = matching_pair(certificates, key)?;
        let not_after = parse_expiry(&parse(&der)?)?;
        if not_after <= now {
            return Err(format!(
                "it expired on {}; make a new CA with --new-ca",
                not_after.date()
            ));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| error.to_string())?;
        Ok(Self {
            pem: certificates.to_owned(),
            der,
            not_after,
            issuer,
        })
    }

    /// Creates a CA that replaces an existing one. The existing CA remains in the trust bundle until it expires. The
    /// error says what is wrong with the existing CA.
    pub fn new_successor(certificates: &str, key: &str, now: OffsetDateTime) -> Result<Self, String> {
        let (previous, _) = matching_pair(certificates, key)?;
        let mut successor = Self::new(now).map_err(|error| format!("its successor cannot be made: {error}"))?;
        if parse_expiry(&parse(&previous)?)? > now {
            successor.pem.push_str(&encode_pem(&previous));
        }
        Ok(successor)
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Returns the time at which the certificate expires. Returns `None` if it does not fit the subject, key or CA, or
    /// is due for renewal.
    pub fn expiry_if_valid(
        &self,
        certificate: &str,
        key: &str,
        subject: &CertificateSubject,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let validity = IssuedValidity::check(certificate, key, subject, std::slice::from_ref(&self.der))?;
        (!validity.is_due(now)).then_some(validity.ends)
    }

    /// Issues a certificate for this subject with a new key.
    pub fn issue(
        &self,
        subject: &CertificateSubject,
        days: u16,
        now: OffsetDateTime,
    ) -> Result<IssuedCertificate, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.not_before = now - CLOCK_SKEW;
        params.not_after = self.not_after.min(now + Duration::days(days.into()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name = DistinguishedName::new();
        let name = subject.name();
        if name.len() <= MAX_COMMON_NAME_LENGTH {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        match subject {
            CertificateSubject::Server(hosts) => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                for host in hosts {
                    params.subject_alt_names.push(match host {
                        SubjectHost::Name(name) => SanType::DnsName(name.as_str().try_into()?),
                        SubjectHost::Address(address) => SanType::IpAddress(*address),
                    });
                }
            }
            CertificateSubject::Client(_) => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
        Ok(IssuedCertificate {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
            not_after: params.not_after,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedValidity {
    pub begins: OffsetDateTime,
    pub ends: OffsetDateTime,
}

impl IssuedValidity {
    /// Returns the validity period of a certificate, or `None` if it is not for this subject and key, or none of these
    /// CAs signed it.
    pub fn check(
        certificate: &str,
        key: &str,
        subject: &CertificateSubject,
        authorities: &[CertificateDer<'_>],
    ) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        let leaf = parse(&der).ok()?;
        let key = KeyPair::from_pem(key).ok()?;
        let is_its_key = leaf.public_key().raw == key.subject_public_key_info();
        let is_signed = authorities
            .iter()
            .any(|authority| parse(authority).is_ok_and(|authority| is_signed_by(&leaf, &authority)));
        let validity = Self {
            begins: OffsetDateTime::from_unix_timestamp(leaf.validity().not_before.timestamp()).ok()?,
            ends: parse_expiry(&leaf).ok()?,
        };
        (is_its_key && is_signed && is_for_subject(&leaf, subject)).then_some(validity)
    }

    /// Returns whether less than a third of the validity is left, so that the certificate must be replaced.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        (self.ends - now) * 3 < self.ends - self.begins
    }
}

/// Returns the PEM of those CAs that have not expired, each of them once.
pub fn unexpired_authorities(authorities: &str, now: OffsetDateTime) -> String {
    let mut valid_certificates: Vec<CertificateDer<'_>> = Vec::new();
    for der in CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten() {
        let is_valid = parse(&der)
            .and_then(|certificate| parse_expiry(&certificate))
            .is_ok_and(|end| end > now);
        if is_valid && !valid_certificates.contains(&der) {
            valid_certificates.push(der);
        }
    }
    to_pem(&valid_certificates)
}

pub fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    certificates.iter().map(encode_pem).collect()
}

/// Issues a certificate for a Service, signed by a new CA. The CA is valid as long as the certificate, and its key is
/// discarded.
pub fn for_service(
    service: &Service,
    days: u16,
    now: OffsetDateTime,
) -> Result<(String, IssuedCertificate), rcgen::Error> {
    let authority = Authority::with_validity_days(days, now)?;
    let certificate = authority.issue(&service.subject(), days, now)?;
    Ok((authority.pem, certificate))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    x509_parser::parse_x509_certificate(der)
        .map(|(_, certificate)| certificate)
        .map_err(|error| format!("it is not a valid certificate: {error}"))
}

fn parse_expiry(certificate: &X509Certificate<'_>) -> Result<OffsetDateTime, String> {
    OffsetDateTime::from_unix_timestamp(certificate.validity().not_after.timestamp())
        .map_err(|error| format!("its expiry date is not valid: {error}"))
}

/// Finds the CA certificate that matches this key, and returns the certificate and the key.
fn matching_pair(certificates: &str, key: &str) -> Result<(CertificateDer<'static>, KeyPair), String> {
    let ders: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("it is not PEM: {error}"))?;
    if ders.is_empty() {
        return Err("it contains no certificate".into());
    }
    if certificates.matches("-----BEGIN").count() != ders.len() {
        // The file is published as a trust bundle, so it must not contain a key.
        return Err("it contains more than certificates; put the key into a separate file".into());
    }
    for der in &ders {
        if !parse(der)?.is_ca() {
            return Err("it is not a CA (basicConstraints CA:TRUE)".into());
        }
    }
    let key = KeyPair::from_pem(key).map_err(|error| format!("its key cannot be read: {error}"))?;
    for der in ders {
        if parse(&der)?.public_key().raw == key.subject_public_key_info() {
            return Ok((der, key));
        }
    }
    Err("its key file does not match the certificate".into())
}

fn encode_pem(der: &CertificateDer<'_>) -> String {
    let text = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.as_ref()), text)
}

/// Returns whether this CA issued the certificate, by its name and key ID.
fn is_signed_by(leaf: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> bool {
    let issuer_key_id = leaf
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
            _ => None,
        });
    let authority_key_id = authority
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    let is_key = issuer_key_id
        .zip(authority_key_id)
        .is_none_or(|(issuer_id, authority_id)| issuer_id == authority_id);
    leaf.issuer().as_raw() == authority.subject().as_raw() && is_key
}

fn is_for_subject(leaf: &X509Certificate<'_>, subject: &CertificateSubject) -> bool {
    let Ok(Some(usage)) = leaf.extended_key_usage() else {
        return false;
    };
    match subject {
        CertificateSubject::Server(hosts) => {
            let Ok(Some(names)) = leaf.subject_alternative_name() else {
                return false;
            };
            let certificate_hosts: BTreeSet<String> = names.value.general_names.iter().map(host_text).collect();
            let expected_hosts = hosts.iter().map(SubjectHost::to_string).collect();
            usage.value.server_auth && certificate_hosts == expected_hosts
        }
        CertificateSubject::Client(ClientName(name)) => {
            let mut names = leaf.subject().iter_common_name();
            usage.value.client_auth && names.any(|common_name| common_name.as_str().is_ok_and(|text| text == name))
        }
    }
}

/// Formats a name in a certificate for comparison with [`SubjectHost`].
fn host_text(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or(<[u8; 16]>::try_from(*bytes).map(IpAddr::from))
                .map_or_else(|_| name.to_string(), |address| address.to_string())
        }
        other => other.to_string(),
    }
}
