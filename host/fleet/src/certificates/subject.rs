use std::{net::IpAddr, str::FromStr};

use rustls_pki_types::DnsName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service(String);

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (_, namespace) = text.split_once('.').ok_or("write NAME.NAMESPACE")?;
        if namespace.contains('.') {
            return Err("write NAME.NAMESPACE, without .svc: the other names are added automatically");
        }
        if !is_dns_name(text) {
            return Err("name and namespace must be made of letters, digits and `-`");
        }
        Ok(Self(text.to_owned()))
    }
}

impl Service {
    /// Creates a Service from two DNS labels.
    pub fn new(name: &str, namespace: &str) -> Self {
        Self(format!("{name}.{namespace}"))
    }

    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('.').unwrap_or((&self.0, ""))
    }

    /// Returns the host names by which BCS's driver, Kubernetes and the cluster DNS reach the Service.
    pub fn hosts(&self) -> [SubjectHost; 3] {
        let Self(name) = self;
        let names = [name.clone(), format!("{name}.svc"), format!("{name}.svc.cluster.local")];
        names.map(SubjectHost::Name)
    }

    pub fn subject(&self) -> CertificateSubject {
        CertificateSubject::Server(self.hosts().into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum SubjectHost {
    Name(String),
    Address(IpAddr),
}

impl FromStr for SubjectHost {
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

fn is_dns_name(text: &str) -> bool {
    // A trailing dot is valid in a host name, but certificates omit it.
    !text.ends_with('.') && DnsName::try_from(text).is_ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName(pub String);

impl FromStr for ClientName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.is_empty() && text.len() <= MAX_COMMON_NAME_LENGTH && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err("a client's name is 1 to 64 letters, digits, `-`, `_` and `.`")
        }
    }
}

/// The maximum length of a certificate's common name, as X.520 defines it.
pub(super) const MAX_COMMON_NAME_LENGTH: usize = 64;

#[derive(Clone, Debug)]
pub enum CertificateSubject {
    /// The certificate is for a server with these host names, at least one.
    Server(Vec<SubjectHost>),
    Client(ClientName),
}

impl CertificateSubject {
    pub fn name(&self) -> String {
        self.names().into_iter().next().unwrap_or_default()
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Client(_) => "client",
        }
    }

    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Server(hosts) => hosts.iter().map(SubjectHost::to_string).collect(),
            Self::Client(ClientName(name)) => vec![name.clone()],
        }
    }

    /// Returns the name of the certificate's files, without extension.
    pub fn file_name(&self) -> String {
        self.name().replace(|c| !is_plain(c), "_")
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}
