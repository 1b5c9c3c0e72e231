//! Making certificates, without touching a file.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::{CertificateDer, DnsName, pem::PemObject};
use time::{Duration, OffsetDateTime};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};

/// `NAME.NAMESPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    name: String,
    namespace: String,
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, namespace) = text.split_once('.').ok_or("write NAME.NAMESPACE")?;
        if namespace.contains('.') {
            return Err("write NAME.NAMESPACE, without .svc: the other names are added automatically");
        }
        if is_dns_name(text) {
            Ok(Self {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            })
        } else {
            Err("name and namespace must be made of letters, digits and `-`")
        }
    }
}

impl Service {
    /// Its names in the BCS driver, in Kubernetes, and in cluster DNS.
    pub(super) fn names(&self) -> [String; 3] {
        let Self { name, namespace } = self;
        [
            format!("{name}.{namespace}"),
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    }
}

/// A DNS name, perhaps with a wildcard, or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if is_dns_name(text.strip_prefix("*.").unwrap_or(text)) {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err("write a host name or an IP address, without port")
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    // A trailing dot does not change the name, but certificates do not include it.
    !text.ends_with('.') && DnsName::try_from(text).is_ok()
}

/// The name of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client(String);

impl FromStr for Client {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !text.is_empty() && text.len() <= LONGEST_COMMON_NAME && text.chars().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err("a client's name is 1 to 64 letters, digits, `-`, `_` and `.`")
        }
    }
}

/// The limit of X.520.
const LONGEST_COMMON_NAME: usize = 64;

const AUTHORITY_DAYS: i64 = 3650;

/// Certificates are backdated, for clients whose clock is slow.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// The subject of a certificate.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// A server with these names; at least one.
    Server(Vec<Host>),
    Client(Client),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Self::Server(hosts) => hosts.first().map(Host::to_string).unwrap_or_default(),
            Self::Client(Client(name)) => name.clone(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Client(_) => "client",
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Server(hosts) => hosts.iter().map(Host::to_string).collect(),
            Self::Client(Client(name)) => vec![name.clone()],
        }
    }

    /// The name of its files, without extension.
    pub(super) fn file_name(&self) -> String {
        let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        self.name()
            .chars()
            .map(|c| if keep(c) { c } else { '_' })
            .collect()
    }
}

/// A CA that can sign. Lives as long as one run.
pub(super) struct Authority {
    /// The trust bundle: its certificate, and possibly others.
    pub(super) pem: String,
    /// Its own certificate.
    der: CertificateDer<'static>,
    pub(super) not_after: OffsetDateTime,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) not_after: OffsetDateTime,
}

impl Authority {
    /// A new CA, which signs certificates and no further CAs.
    pub(super) fn new(now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.not_before = now - CLOCK_SKEW;
        params.not_after = now + Duration::days(AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // A unique name, so that two CAs are not confused.
        let id: String = key
            .subject_public_key_info()
            .iter()
            .rev()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
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

    /// Loads an existing CA: the certificate that matches this key. The error says why there is none.
    pub(super) fn from_pem(certificates: &str, key: &str, now: OffsetDateTime) -> Result<Self, String> {
        let (der, key) = pair(certificates, key)?;
        let not_after = not_after(&parse(&der)?)?;
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

    /// A new CA that replaces an existing one, which stays trusted until it expires. The inner error says
    /// what is wrong with the existing one.
    pub(super) fn succeeding(
        certificates: &str,
        key: &str,
        now: OffsetDateTime,
    ) -> Result<Result<Self, String>, rcgen::Error> {
        let mut new = Self::new(now)?;
        Ok(pair(certificates, key).and_then(|(previous, _)| {
            if not_after(&parse(&previous)?)? > now {
                new.pem.push_str(&pem(&previous));
            }
            Ok(new)
        }))
    }

    /// The expiry of an existing certificate that may stay in use for this subject; `None` if it must be
    /// replaced.
    pub(super) fn good_until(
        &self,
        certificate: &str,
        key: &str,
        subject: &Subject,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        let (leaf, authority) = (parse(&der).ok()?, parse(&self.der).ok()?);
        let key = KeyPair::from_pem(key).ok()?;
        let is_its_key = leaf.public_key().raw == key.subject_public_key_info();
        let ends = not_after(&leaf).ok()?;
        let begins = OffsetDateTime::from_unix_timestamp(leaf.validity().not_before.timestamp()).ok()?;
        let has_time = (ends - now) * 3 >= ends - begins;
        let is_good = is_its_key && has_time && is_signed(&leaf, &authority) && is_for(&leaf, subject);
        is_good.then_some(ends)
    }

    /// Signs a certificate for a new key.
    pub(super) fn issue(
        &self,
        subject: &Subject,
        days: u16,
        now: OffsetDateTime,
    ) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.not_before = now - CLOCK_SKEW;
        params.not_after = self.not_after.min(now + Duration::days(days.into()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name = DistinguishedName::new();
        let name = subject.name();
        if name.len() <= LONGEST_COMMON_NAME {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        match subject {
            Subject::Server(hosts) => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                for host in hosts {
                    params.subject_alt_names.push(match host {
                        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
                        Host::Address(address) => SanType::IpAddress(*address),
                    });
                }
            }
            Subject::Client(_) => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            not_after: params.not_after,
        })
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    x509_parser::parse_x509_certificate(der)
        .map(|(_, parsed)| parsed)
        .map_err(|error| format!("it is not a valid certificate: {error}"))
}

fn not_after(certificate: &X509Certificate<'_>) -> Result<OffsetDateTime, String> {
    OffsetDateTime::from_unix_timestamp(certificate.validity().not_after.timestamp())
        .map_err(|error| format!("its expiry date is not valid: {error}"))
}

/// The CA certificate that matches this key, and the key.
fn pair(certificates: &str, key: &str) -> Result<(CertificateDer<'static>, KeyPair), String> {
    let found: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("it is not PEM: {error}"))?;
    if found.is_empty() {
        return Err("it contains no certificate".into());
    }
    if certificates.matches("-----BEGIN").count() != found.len() {
        // The content is printed, so it must not contain a key.
        return Err("it contains more than certificates; put the key into a separate file".into());
    }
    for der in &found {
        if !parse(der)?.is_ca() {
            return Err("it is not a CA (basicConstraints CA:TRUE)".into());
        }
    }
    let key = KeyPair::from_pem(key).map_err(|error| format!("its key cannot be read: {error}"))?;
    for der in found {
        if parse(&der)?.public_key().raw == key.subject_public_key_info() {
            return Ok((der, key));
        }
    }
    Err("its key file does not match the certificate".into())
}

fn pem(der: &CertificateDer<'_>) -> String {
    let text = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.as_ref()), text)
}

/// Whether this CA is the issuer of the certificate, by its name, and by its key ID if both have one.
fn is_signed(leaf: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> bool {
    let wanted = leaf
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
            _ => None,
        });
    let own = authority
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    let is_key = wanted.zip(own).is_none_or(|(wanted, own)| wanted == own);
    leaf.issuer().as_raw() == authority.subject().as_raw() && is_key
}

/// Whether the certificate has exactly the names of this subject.
fn is_for(leaf: &X509Certificate<'_>, subject: &Subject) -> bool {
    let Ok(Some(usage)) = leaf.extended_key_usage() else {
        return false;
    };
    match subject {
        Subject::Server(hosts) => {
            let Ok(Some(names)) = leaf.subject_alternative_name() else {
                return false;
            };
            let held: BTreeSet<String> = names.value.general_names.iter().map(host).collect();
            let wanted = hosts.iter().map(Host::to_string).collect();
            usage.value.server_auth && held == wanted
        }
        Subject::Client(Client(name)) => {
            let mut names = leaf.subject().iter_common_name();
            usage.value.client_auth && names.any(|held| held.as_str().is_ok_and(|held| held == name))
        }
    }
}

/// In the format of [`Host`]; other kinds of names as a text that is not a host.
fn host(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6)
                .map_or_else(|_| name.to_string(), |address| address.to_string())
        }
        other => other.to_string(),
    }
}
