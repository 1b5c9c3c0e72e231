//! The addresses of an ensemble's servers.

use std::{fmt, str::FromStr};

use crate::zookeeper::check_path;

const DEFAULT_PORT: u16 = 2181;

/// A server of an ensemble, written as `host`, `host:port` or `[2001:db8::1]:port`. The default port is 2181.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnsembleServer {
    host: String,
    port: u16,
}

/// The addresses of an ensemble's servers (at least one), and its root node. All paths begin below the root node.
///
/// The text form is ZooKeeper's connection string, such as `10.0.0.1:2181,10.0.0.2:2181` without a root node, or
/// `10.0.0.1:2181/below/this/node` with one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnsembleAddress {
    servers: Vec<EnsembleServer>,
    /// The root node below which all paths start; `None` if it is `/`.
    root: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServersError {
    /// The text contains no server.
    #[error("no server is given; write `host:port`, with commas between several")]
    Empty,
    #[error("{text:?} is not a valid ZooKeeper server: {reason}; write `host:port`")]
    Server { text: String, reason: &'static str },
    #[error("{path:?} is not a valid node path: {reason}")]
    Root { path: String, reason: &'static str },
}

impl EnsembleServer {
    /// Returns the host name or IP address of the server. An IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl EnsembleAddress {
    /// Creates the address of an ensemble. `/` as the root node is the same as `None`.
    pub fn new(servers: impl IntoIterator<Item = EnsembleServer>, root: Option<String>) -> Result<Self, ServersError> {
        let servers: Vec<_> = servers.into_iter().collect();
        if servers.is_empty() {
            return Err(ServersError::Empty);
        }
        if let Some(path) = &root
            && let Err(reason) = check_path(path)
        {
            return Err(ServersError::Root {
                path: path.clone(),
                reason,
            });
        }
        Ok(Self {
            servers,
            root: root.filter(|path| path != "/"),
        })
    }

    /// Returns the servers in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &EnsembleServer> {
        self.servers.iter()
    }

    /// Returns the root node below which all paths start; `None` if it is `/`.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }
}

impl FromStr for EnsembleServer {
    type Err = ServersError;

    fn from_str(text: &str) -> Result<Self, ServersError> {
        let wrong = |reason| ServersError::Server {
            text: text.to_owned(),
            reason,
        };
        if text.contains("://") {
            return Err(wrong("a server must not have a scheme"));
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("its bracket is not closed"))?;
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(wrong("brackets must hold an IPv6 address"));
                }
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(wrong("a colon must follow the bracket")),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        if host.contains(|character: char| character.is_whitespace() || "/,@?#".contains(character)) {
            return Err(wrong("its host is not a valid name or address"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) if port.contains(':') => return Err(wrong("IPv6 addresses must be in brackets")),
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(wrong("its port is not a number from 1 to 65535")),
                Ok(port) => port,
            },
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl FromStr for EnsembleAddress {
    type Err = ServersError;

    fn from_str(text: &str) -> Result<Self, ServersError> {
        if text.contains("://") {
            return Err(ServersError::Server {
                text: text.to_owned(),
                reason: "a server must not have a scheme",
            });
        }
        let (servers, root) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        if servers.trim().is_empty() {
            return Err(ServersError::Empty);
        }
        let servers: Result<Vec<_>, _> = servers.split(',').map(|server| server.trim().parse()).collect();
        Self::new(servers?, (!root.is_empty()).then(|| root.to_owned()))
    }
}

impl fmt::Display for EnsembleServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for EnsembleAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.servers.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            server.fmt(formatter)?;
        }
        formatter.write_str(self.root.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_round_trip_through_text() {
        for (text, written) in [
            ("10.0.0.1", "10.0.0.1:2181"),
            ("zk-1:2182", "zk-1:2182"),
            ("10.0.0.1:2181,10.0.0.2", "10.0.0.1:2181,10.0.0.2:2181"),
            ("a, b:7", "a:2181,b:7"),
            ("a,b:7/bcs/one", "a:2181,b:7/bcs/one"),
            ("a/", "a:2181"),
            ("[::1]", "[::1]:2181"),
            ("[2001:db8::1]:7,a", "[2001:db8::1]:7,a:2181"),
        ] {
            let servers: EnsembleAddress = text.parse().unwrap();
            assert_eq!(servers.to_string(), written, "{text}");
            assert_eq!(servers.to_string().parse(), Ok(servers), "{text}");
        }
    }

    #[test]
    fn an_invalid_connection_string_is_refused_with_a_reason() {
        for (text, part) in [
            ("", "no server is given"),
            (" ", "no server is given"),
            ("/bcs", "no server is given"),
            ("a,,b", "has no host"),
            (":2181", "has no host"),
            ("a:", "not a number from 1 to 65535"),
            ("a:0", "not a number from 1 to 65535"),
            ("a:65536", "not a number from 1 to 65535"),
            ("a:x", "not a number from 1 to 65535"),
            ("::1", "has no host"),
            ("2001:db8::1", "must be in brackets"),
            ("[::1", "not closed"),
            ("[a]:2181", "an IPv6 address"),
            ("[::1]2181", "a colon must follow"),
            ("a b:2181", "not a valid name or address"),
            ("tcp+tls://a:2181", "must not have a scheme"),
            ("a/bcs/", "must not end with `/`"),
        ] {
            let error = text.parse::<EnsembleAddress>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
