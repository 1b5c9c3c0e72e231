//! Making certificates, without touching a file.

use std::{fmt, net::IpAddr, str::FromStr};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::{CertificateDer, DnsName, pem::PemObject};
use time::{Duration, OffsetDateTime};

/// `NAME.NAMESPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    name: String,
    namespace: String,
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, namespace) = text.split_once('.').ok_or("write NAME.NAMESPACE")?;
        if namespace.contains('.') {
            return Err("write NAME.NAMESPACE, without .svc: its other names come by themselves");
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
    /// What the BCS driver calls it, what Kubernetes does, and what DNS in a cluster does.
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
    // A name with a full stop at its end is the same name, and no certificate holds it so.
    !text.ends_with('.') && DnsName::try_from(text).is_ok()
}

/// The name that a server sees of a client.
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

/// X.520 sets it.
const LONGEST_COMMON_NAME: usize = 64;

const AUTHORITY_DAYS: i64 = 3650;

/// Certificates are valid from a little before now, for whoever's clock is behind.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// Whom a certificate is for.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// Whoever answers at these names; there is at least one.
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

    /// The name of its files, without ending.
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
    /// Its certificate.
    pub(super) pem: String,
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
        // A name of its own, so that two CAs are not taken for one another.
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
            not_after: params.not_after,
            issuer: Issuer::new(params, key),
        })
    }

    /// A CA that was made before. The error says why it is none.
    pub(super) fn from_pem(certificate: &str, key: &str, now: OffsetDateTime) -> Result<Self, String> {
        let not_pem = |error: rustls_pki_types::pem::Error| format!("it is not PEM: {error}");
        let found: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(not_pem)?;
        let [der] = found.as_slice() else {
            return Err(format!("it holds {} certificates and must hold one", found.len()));
        };
        if certificate.matches("-----BEGIN").count() != 1 {
            // It is about to be printed.
            return Err("it holds more than a certificate; put the key into a file of its own".into());
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(der)
            .map_err(|error| format!("it is no certificate: {error}"))?;
        if !parsed.is_ca() {
            return Err("it is not a CA (basicConstraints CA:TRUE)".into());
        }
        let not_after = OffsetDateTime::from_unix_timestamp(parsed.validity().not_after.timestamp())
            .map_err(|error| format!("it ends at no date: {error}"))?;
        if not_after <= now {
            return Err(format!(
                "it expired on {}; move it and its key away to make a new CA",
                not_after.date()
            ));
        }
        let key = KeyPair::from_pem(key).map_err(|error| format!("its key cannot be read: {error}"))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err("the key beside it is not its key".into());
        }
        let issuer = Issuer::from_ca_cert_der(der, key).map_err(|error| error.to_string())?;
        Ok(Self {
            pem: certificate.to_owned(),
            not_after,
            issuer,
        })
    }

    /// Sign a certificate for a new key.
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
