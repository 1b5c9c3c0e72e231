//! The data with which servers of BCS register in ZooKeeper.

use std::net::IpAddr;

use admittance_net::upstream::{InvalidServer, UpstreamServer};
use serde::{Deserialize, Serialize};

/// The JSON data in the node with which a server of BCS, such as a scheduler or a driver, registers. Every key may be
/// missing, because older programs write fewer keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// The internal IPv4 address; empty if the server has only an IPv6 address.
    pub ip: String,
    pub ipv6: String,
    pub port: u16,
    /// The port for gRPC; 0 if there is none.
    pub grpc_port: u16,
    /// The port for health and metrics; 0 if there is none.
    pub metric_port: u16,
    pub hostname: String,
    /// The scheme of the server's URL: `http` or `https`.
    pub scheme: String,
    pub version: String,
    /// The ID of the cluster to which the server belongs.
    pub cluster: String,
    pub pid: u32,
    /// The external IPv4 address; empty if the server has none.
    pub external_ip: String,
    /// The external IPv6 address; empty if the server has none.
    pub external_ipv6: String,
    /// The port at the external address; 0 if the server has no external address.
    pub external_port: u16,
}

impl ServerInfo {
    pub fn server(&self) -> Result<UpstreamServer, InvalidServer> {
        self.url_at(first_non_empty(&self.ip, &self.ipv6), self.port)
    }

    /// Returns the external URL if the server has registered one, and otherwise the internal URL.
    pub fn external_server(&self) -> Result<UpstreamServer, InvalidServer> {
        match first_non_empty(&self.external_ip, &self.external_ipv6) {
            "" => self.server(),
            _ if self.external_port == 0 => self.server(),
            ip => self.url_at(ip, self.external_port),
        }
    }

    fn url_at(&self, ip: &str, port: u16) -> Result<UpstreamServer, InvalidServer> {
        let scheme = match self.scheme.as_str() {
            "" => "http",
            scheme => scheme,
        };
        let text = if ip.contains(':') {
            format!("{scheme}://[{ip}]:{port}")
        } else {
            format!("{scheme}://{ip}:{port}")
        };
        if ip.is_empty() || port == 0 {
            return Err(InvalidServer(text));
        }
        text.parse()
    }

    /// Returns the values for two fields: one for IPv4 addresses, and one for IPv6 addresses. The field that does not
    /// suit `ip` is empty.
    pub(crate) fn address_fields(ip: IpAddr) -> (String, String) {
        match ip {
            IpAddr::V4(ip) => (ip.to_string(), String::new()),
            IpAddr::V6(ip) => (String::new(), ip.to_string()),
        }
    }
}

fn first_non_empty<'a>(ip: &'a str, ipv6: &'a str) -> &'a str {
    if ip.is_empty() { ipv6 } else { ip }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn server_info_is_written_in_the_json_format_of_bcs() {
        let info = ServerInfo {
            ip: "127.0.0.1".into(),
            port: 8090,
            metric_port: 8091,
            hostname: "h".into(),
            scheme: "https".into(),
            version: "1.2.3".into(),
            cluster: "BCS-MESOS-10001".into(),
            pid: 1234,
            ..ServerInfo::default()
        };
        let text = r#"{"ip":"127.0.0.1","ipv6":"","port":8090,"grpc_port":0,"metric_port":8091,"hostname":"h","scheme":"https","version":"1.2.3","cluster":"BCS-MESOS-10001","pid":1234,"external_ip":"","external_ipv6":"","external_port":0}"#;
        assert_eq!(serde_json::to_string(&info).unwrap(), text);
        assert_eq!(serde_json::from_str::<ServerInfo>(text).unwrap(), info);
    }

    #[test]
    #[rustfmt::skip]
    fn registered_addresses_become_urls() {
        let v4 = json!({"ip": "10.0.0.1", "port": 1, "scheme": "http"});
        // (fields to add or replace, expected internal URL, expected external URL)
        for (more, internal, external) in [
            (json!({}), Some("http://10.0.0.1:1"), Some("http://10.0.0.1:1")),
            (json!({"scheme": "https", "unknown": [1]}), Some("https://10.0.0.1:1"), Some("https://10.0.0.1:1")),
            (json!({"scheme": ""}), Some("http://10.0.0.1:1"), Some("http://10.0.0.1:1")),
            (json!({"external_ip": "1.2.3.4", "external_port": 2}), Some("http://10.0.0.1:1"), Some("http://1.2.3.4:2")),
            (json!({"external_ip": "1.2.3.4"}), Some("http://10.0.0.1:1"), Some("http://10.0.0.1:1")),
            (json!({"external_port": 2}), Some("http://10.0.0.1:1"), Some("http://10.0.0.1:1")),
            (json!({"external_ipv6": "::2", "external_port": 2}), Some("http://10.0.0.1:1"), Some("http://[::2]:2")),
            (json!({"ip": "", "ipv6": "::1"}), Some("http://[::1]:1"), Some("http://[::1]:1")),
            (json!({"ip": "::1"}), Some("http://[::1]:1"), Some("http://[::1]:1")),
            (json!({"ip": ""}), None, None),
            (json!({"port": 0}), None, None),
            (json!({"scheme": "ftp"}), None, None),
            (json!({"ip": "a/b"}), None, None),
        ] {
            let mut value = v4.clone();
            for (key, said) in more.as_object().unwrap() {
                value[key] = said.clone();
            }
            let info: ServerInfo = serde_json::from_value(value).unwrap();
            let text = |server: Result<UpstreamServer, InvalidServer>| server.ok().map(|server| server.to_string());
            assert_eq!(text(info.server()).as_deref(), internal, "{more}");
            assert_eq!(text(info.external_server()).as_deref(), external, "{more}");
        }
    }
}
