use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use admittance_admission::HttpOrigin;
use http::HeaderName;

/// The settings of the requests of plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundConfig {
    /// A PEM file of CAs that are trusted in addition to the operating system's.
    pub ca: Option<PathBuf>,
    /// The largest body of a response, in bytes. Default: 1 MiB.
    pub response_limit: usize,
    /// The size of the cache in bytes; 0 for none. Default: 16 MiB.
    pub cache_size: u64,
    /// The credentials that grants may name.
    pub credentials: BTreeMap<String, Credential>,
    /// Addresses of host names, used instead of DNS. They are checked like those from DNS.
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

/// A secret in a file, for requests to some origins. The file is read for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub file: PathBuf,
    /// The origins that may get the secret, whatever a definition grants.
    pub origins: BTreeSet<HttpOrigin>,
    /// The header whose value is the content of the file. Default: `Authorization` with the content as a bearer
    /// token.
    pub header: Option<HeaderName>,
}
