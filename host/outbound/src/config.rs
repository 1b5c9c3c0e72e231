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
    /// A PEM file of CAs that are trusted in addition to the CAs of the operating system.
    pub ca: Option<PathBuf>,
    /// The largest body of a response to a plugin's request, in bytes. Default: 1 MiB.
    pub response_limit: usize,
    /// The maximum size of the response cache, in bytes; 0 disables the cache. Default: 16 MiB.
    pub cache_size: u64,
    /// The credentials that grants may use, by name.
    pub credentials: BTreeMap<String, Credential>,
    /// The IP addresses of these host names are configured here, so the names are not looked up in DNS. A grant must
    /// allow such an address, in the same way as an address from DNS.
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

/// A secret that is added to a plugin's requests to some origins. It is in a file, which is read for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub file: PathBuf,
    /// The only origins to which the secret may be sent, even if a definition grants requests to others.
    pub origins: BTreeSet<HttpOrigin>,
    /// The header that contains the secret. Default: `Authorization`, with the secret as a bearer token.
    pub header: Option<HeaderName>,
}
