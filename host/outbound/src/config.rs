use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use admittance_admission::HttpOrigin;
use http::HeaderName;

/// The configuration of the requests that plugins send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundConfig {
    /// A PEM file of CAs that are trusted in addition to the operating system's.
    pub ca: Option<PathBuf>,
    /// The largest body of a response, in bytes. Default: 1 MiB.
    pub response_limit: usize,
    /// The size of the response cache in bytes; 0 disables it. Default: 16 MiB.
    pub cache_size: u64,
    /// The credentials that grants may name.
    pub credentials: BTreeMap<String, Credential>,
    /// The addresses of host names, used instead of DNS. Grants limit them like addresses from DNS.
    pub resolve: BTreeMap<String, IpAddr>,
}

impl Default for OutboundConfig {
    fn default() -> Self {
        Self {
            ca: None,
            response_limit: 1 << 20,
            cache_size: 16 << 20,
            credentials: BTreeMap::new(),
            resolve: BTreeMap::new(),
        }
    }
}

/// A secret in a file, which is added to requests to some origins. The file is read for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub file: PathBuf,
    /// The only origins that may get the secret, even if a definition grants others.
    pub origins: BTreeSet<HttpOrigin>,
    /// The header whose value is the content of the file. Default: `Authorization` with the content as a bearer
    /// token.
    pub header: Option<HeaderName>,
}
