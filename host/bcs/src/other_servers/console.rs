//! Forwards requests to consoles: terminals in containers, served by a program on each host of the cluster.

use std::net::IpAddr;

use admittance_admission::keywords;
use admittance_dialect::EndReason;
use admittance_net::upstream::{Upstream, UpstreamServer};
use axum::body::Body;
use http::{
    Request, Response, StatusCode, Uri,
    header::UPGRADE,
    uri::{Authority, PathAndQuery},
};
use ipnet::IpNet;

use super::plain_reply;
use crate::scheduler::upstream_end;

/// The message of bcs-mesos-driver when it cannot open a WebSocket to a console.
const WEBSOCKET_FAILED: &str = "errcode: 1405064, couldn't dial to remote backend url";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// The port of the program that serves consoles, on every host. Default: 8083.
    pub port: u16,
    /// The scheme of the URLs of consoles. Default: plain HTTP.
    pub scheme: ConsoleScheme,
    /// The networks of the hosts whose consoles clients may open. `None` allows any host, as bcs-mesos-driver does.
    /// Clients can then reach the port of consoles on every host that this program can reach.
    pub hosts: Option<Vec<IpNet>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleScheme {
    #[default]
    Http,
    /// HTTPS, with the TLS settings of the connections to the upstream.
    Https,
}

impl ConsoleConfig {
    pub const DEFAULT_PORT: u16 = 8083;

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

keywords!(ConsoleScheme, "scheme": Http = "http", Https = "https");

#[derive(Debug)]
pub(super) struct Consoles {
    config: ConsoleConfig,
    upstream: Upstream,
}

impl Consoles {
    pub(super) fn new(config: ConsoleConfig, upstream: Upstream) -> Self {
        Self { config, upstream }
    }

    pub(super) async fn send(
        &self,
        host: IpAddr,
        path_and_query: PathAndQuery,
        mut request: Request<Body>,
    ) -> Response<Body> {
        // An IPv4 address can also be written as an IPv6 address, such as `::ffff:10.0.0.1`. It is converted, so that
        // the allowed networks apply to it too.
        let host = host.to_canonical();
        let Some(server) = self.config.allows(host).then(|| self.server(host)).flatten() else {
            tracing::info!(%host, "a console was requested on a host that is not listed");
            let text = format!("host_ip {host} is not one of the hosts on which consoles are allowed");
            return plain_reply(StatusCode::FORBIDDEN, &text, "rejected");
        };
        let is_websocket = request.headers().contains_key(UPGRADE);
        *request.uri_mut() = Uri::from(path_and_query);
        let reply = self.upstream.for_server(server).send(request).await;
        reply.unwrap_or_else(|error| error_reply(is_websocket, &upstream_end(error)))
    }

    fn server(&self, host: IpAddr) -> Option<UpstreamServer> {
        let port = self.config.port;
        let authority: Authority = match host {
            IpAddr::V4(host) => format!("{host}:{port}"),
            IpAddr::V6(host) => format!("[{host}]:{port}"),
        }
        .parse()
        .ok()?;
        let uri = Uri::builder()
            .scheme(self.config.scheme.as_str())
            .authority(authority)
            .path_and_query("/")
            .build()
            .ok()?;
        UpstreamServer::new(uri).ok()
    }
}

fn error_reply(is_websocket: bool, end: &EndReason<'_>) -> Response<Body> {
    let (status, text) = if is_websocket {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{WEBSOCKET_FAILED} {end}"))
    } else {
        (StatusCode::BAD_GATEWAY, format!("the console cannot be reached: {end}"))
    };
    plain_reply(status, &text, end.as_str())
}
