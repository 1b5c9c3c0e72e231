use std::net::{IpAddr, SocketAddr};

use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

/// An upstream server: its scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{scheme}://{authority}")]
pub struct UpstreamServer {
    scheme: Scheme,
    authority: Authority,
    /// The host and port of the server, as the value of the header `Host`.
    host: HeaderValue,
}

/// The text is not a valid URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid server: write http:// or https://, a host and a port, such as http://127.0.0.1:8081")]
pub struct InvalidServer(pub String);

impl std::str::FromStr for UpstreamServer {
    type Err = InvalidServer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri = text.parse().map_err(|_| InvalidServer(text.to_owned()))?;
        Self::new(uri)
    }
}

impl UpstreamServer {
    /// Returns the server at this URL.
    ///
    /// # Errors
    ///
    /// Fails if the scheme is not `http` or `https`, or if the URL has more than a scheme, host and port.
    pub fn new(uri: Uri) -> Result<Self, InvalidServer> {
        let text = uri.to_string();
        let error = || InvalidServer(text.clone());
        let parts = uri.into_parts();
        let scheme = parts
            .scheme
            .filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let authority = parts
            .authority
            .filter(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
        let bare = parts.path_and_query.is_none_or(|path| path == "/");
        match (scheme, authority) {
            (Some(scheme), Some(authority)) if bare => Ok(Self {
                host: HeaderValue::from_str(authority.as_str()).map_err(|_| error())?,
                scheme,
                authority,
            }),
            _ => Err(error()),
        }
    }

    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns whether this server is the same as a listener on this machine. Only IP addresses and `localhost` are
    /// compared; other names are not resolved.
    pub fn is_at(&self, listener: SocketAddr) -> bool {
        let (ip, port) = (listener.ip(), if self.is_tls() { 443 } else { 80 });
        let is_local = match self.authority.host().trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => {
                address == ip || address.is_loopback() && ip.is_unspecified() && address.is_ipv4() == ip.is_ipv4()
            }
            Err(_) => self.authority.host() == "localhost" && (ip.is_loopback() || ip.is_unspecified()),
        };
        is_local && self.authority.port_u16().unwrap_or(port) == listener.port()
    }

    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(super) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_servers_are_parsed() {
        for (text, expected) in [
            ("http://127.0.0.1:8081", Some("http://127.0.0.1:8081")),
            ("https://scheduler/", Some("https://scheduler")),
            ("http://[::1]:80", Some("http://[::1]:80")),
            ("127.0.0.1:8081", None),
            ("ftp://a", None),
            ("http://user@a", None),
            ("http://a/path", None),
            ("http://a?x", None),
            ("/a", None),
            ("", None),
        ] {
            let server = text.parse::<UpstreamServer>().ok().map(|server| server.to_string());
            assert_eq!(server.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_upstream_server_that_is_this_program_itself_is_recognized() {
        for (server, listener, expected) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://127.0.0.1:8080", "0.0.0.0:8080", true),
            ("http://localhost:8080", "127.0.0.1:8080", true),
            ("http://localhost", "0.0.0.0:80", true),
            ("https://[::1]", "[::]:443", true),
            ("http://10.0.0.5:8080", "10.0.0.5:8080", true),
            ("http://10.0.0.5:8080", "0.0.0.0:8080", false),
            ("http://127.0.0.1:8081", "127.0.0.1:8080", false),
            ("http://127.0.0.2:8080", "127.0.0.1:8080", false),
            ("http://[::1]:8080", "0.0.0.0:8080", false),
            ("http://api:8080", "127.0.0.1:8080", false),
        ] {
            let is_at = server
                .parse::<UpstreamServer>()
                .unwrap()
                .is_at(listener.parse().unwrap());
            assert_eq!(is_at, expected, "{server} at {listener}");
        }
    }
}
