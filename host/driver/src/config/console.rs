use std::net::IpAddr;

use ipnet::IpNet;

/// Where consoles are: terminals in containers, which a program on each host of the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// On every host. Default: 8083.
    pub port: u16,
    /// Default: plain HTTP.
    pub scheme: ConsoleScheme,
    /// The hosts that may be asked, which clients name by their addresses. None: any host, as with
    /// bcs-mesos-driver; whoever may send requests for the cluster then reaches that port of every host that
    /// this program reaches.
    pub hosts: Option<Vec<IpNet>>,
}

/// How consoles are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleScheme {
    /// Plain HTTP.
    #[default]
    Http,
    /// With the TLS settings of the upstream.
    Https,
}

impl ConsoleConfig {
    /// See [`port`](Self::port).
    pub const DEFAULT_PORT: u16 = 8083;

    /// Whether the console on this host may be asked.
    pub fn allows(&self, host: IpAddr) -> bool {
        match &self.hosts {
            Some(hosts) => hosts.iter().any(|network| network.contains(&host)),
            None => true,
        }
    }
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self {
            port: Self::DEFAULT_PORT,
            scheme: ConsoleScheme::default(),
            hosts: None,
        }
    }
}

impl ConsoleScheme {
    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}
