//! Accepts the tunnels that the agents of clusters, and other gateways, open at `/bcsapi/v1/websocket/connect`.

use std::{sync::Arc, time::Duration};

use admittance::Passage;
use admittance_net::{
    header::only_value,
    upstream::{TunnelGuard, is_upgrade},
};
use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};
use tracing::{Instrument, info_span};

use super::{
    KubernetesProxy, LoggedReply,
    error::KubernetesError,
    error_reply,
    headers::{
        AGENT_MODULES, CLUSTER_ID_HEADER, GATEWAY_ID_HEADER, MODULE_HEADER, PARAMS_HEADER, TOKEN_HEADER, TUNNEL_PATH,
    },
    routes::{ClusterRoute, ConnectVia, OpenTunnel},
};
use crate::{
    accounts::{AgentReport, ClusterCredentials, RegisteredCluster, Secret},
    tunnel::{AllowedConnections, LARGEST_AGENT_MESSAGE, OutgoingFrames, TunnelSession, websocket_config},
};

const IDLE_POLL: Duration = Duration::from_millis(50);

pub(super) type TunnelSocket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The credentials of a cluster that an agent sends when it opens a tunnel. A header contains them as JSON in base64.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialParams {
    address: String,
    user_token: String,
    /// The PEM of the API servers' CA, as base64.
    ca_cert: String,
}

struct TunnelRequest {
    cluster: String,
    token: Vec<u8>,
    params: String,
}

impl TunnelRequest {
    fn parse(request: &Request<Body>) -> Result<Self, KubernetesError> {
        let headers = request.headers();
        let module = required_header(headers, MODULE_HEADER)?;
        if !AGENT_MODULES.contains(&module) {
            let message = format!("{MODULE_HEADER}: {module:?} has no tunnels here: only kube-agent does");
            return Err(KubernetesError::Tunnel(message));
        }
        Ok(Self {
            cluster: required_header(headers, CLUSTER_ID_HEADER)?.to_owned(),
            token: required_header(headers, TOKEN_HEADER)?.as_bytes().to_vec(),
            params: required_header(headers, PARAMS_HEADER)?.to_owned(),
        })
    }
}

struct PendingTunnel {
    cluster: Arc<RegisteredCluster>,
    token: Vec<u8>,
    session: TunnelSession,
    outgoing: OutgoingFrames,
    open_tunnel: OpenTunnel,
}

impl KubernetesProxy {
    /// Returns the reply to an agent or another gateway that opens a tunnel.
    pub(crate) async fn accept_tunnel(&self, request: Request<Body>) -> LoggedReply {
        let is_from_gateway = request.headers().contains_key(GATEWAY_ID_HEADER);
        let outcome = match check_websocket(&request) {
            Ok(()) if is_from_gateway => self.accept_gateway(request),
            Ok(()) => self.accept_agent(request).await,
            Err(error) => Err(error),
        };
        outcome.unwrap_or_else(|error| LoggedReply {
            response: error_reply(&error),
            recipient: None,
        })
    }

    async fn accept_agent(&self, request: Request<Body>) -> Result<LoggedReply, KubernetesError> {
        let pending_tunnel = self.prepare_tunnel(TunnelRequest::parse(&request)?).await?;
        let id: Arc<str> = pending_tunnel.cluster.id.as_str().into();
        let kubernetes = self.clone();
        let carry = async move |socket, guard| kubernetes.run_tunnel(pending_tunnel, socket, guard).await;
        Ok(LoggedReply {
            response: switch_to_websocket(request, LARGEST_AGENT_MESSAGE, carry),
            recipient: Some((id, "agent".into())),
        })
    }

    async fn prepare_tunnel(&self, request: TunnelRequest) -> Result<PendingTunnel, KubernetesError> {
        let TunnelRequest { cluster, token, params } = request;
        // The token is checked before the parameters are parsed. So the parser gets no input without a valid token.
        let cluster = self.0.accounts.use_register_token(&cluster, &token).await?;
        let credentials = parse_credentials(&params)?;
        let memory = self
            .0
            .memory
            .budget_of_tunnel(&cluster.id, &self.0.accounts)
            .ok_or_else(|| {
                KubernetesError::Tunnel(format!(
                    "no memory is left for another tunnel of {}, or of other clusters of the user who created it",
                    cluster.id
                ))
            })?;
        let (session, outgoing) = TunnelSession::new(memory);
        let route = ClusterRoute::new(&cluster.id, Arc::new(credentials), ConnectVia::Tunnel(session.clone()))?;
        let open_tunnel = self.0.routes.add_tunnel(&cluster.id, Arc::new(route)).ok_or_else(|| {
            KubernetesError::Tunnel(format!("the agents of {} have too many tunnels open", cluster.id))
        })?;
        Ok(PendingTunnel {
            cluster,
            token,
            session,
            outgoing,
            open_tunnel,
        })
    }

    async fn run_tunnel(&self, pending_tunnel: PendingTunnel, socket: TunnelSocket, guard: Option<TunnelGuard>) {
        let PendingTunnel {
            cluster,
            token,
            session,
            outgoing,
            open_tunnel,
        } = pending_tunnel;
        let cluster = cluster.id.as_str();
        tracing::info!(cluster, "the agent of a cluster has opened a tunnel");
        let why = tokio::select! {
            why = session.run(socket, outgoing, &AllowedConnections::Nothing).instrument(info_span!("tunnel", cluster)) => why,
            denied = self.0.accounts.wait_until_agent_denied(cluster, &token) => denied.to_string(),
            () = wait_until_closed(guard.as_ref()) => CLOSED_REASON.to_owned(),
            () = self.wait_until_stopped_and_idle(|| open_tunnel.is_idle()) => STOPPING_REASON.to_owned(),
        };
        tracing::info!(cluster, why, "the tunnel of a cluster's agent has ended");
    }

    /// Waits until the gateway is stopping and `is_idle` says that no request uses the tunnel.
    pub(super) async fn wait_until_stopped_and_idle(&self, is_idle: impl Fn() -> bool) {
        self.0.stop_token.cancelled().await;
        while !is_idle() {
            tokio::time::sleep(IDLE_POLL).await;
        }
    }
}

pub(super) const CLOSED_REASON: &str = "its connection was closed";
pub(super) const STOPPING_REASON: &str = "the gateway stops";

/// Waits until the connection to the client that carries a tunnel has to end.
pub(super) async fn wait_until_closed(guard: Option<&TunnelGuard>) {
    match guard {
        Some(guard) => guard.connection_end_token.cancelled().await,
        None => std::future::pending().await,
    }
}

fn check_websocket(request: &Request<Body>) -> Result<(), KubernetesError> {
    let headers = request.headers();
    let has_header = |name: HeaderName, expected: &str| {
        let value = headers.get(name).map(HeaderValue::as_bytes);
        value.is_some_and(|value| value.eq_ignore_ascii_case(expected.as_bytes()))
    };
    if is_upgrade(request)
        && has_header(UPGRADE, "websocket")
        && has_header(SEC_WEBSOCKET_VERSION, "13")
        && headers.contains_key(SEC_WEBSOCKET_KEY)
    {
        return Ok(());
    }
    let message = format!("{TUNNEL_PATH} is for WebSockets of agents: start `admittance agent` in the cluster");
    Err(KubernetesError::Tunnel(message))
}

/// Replies to a request that opens a WebSocket. Once the connection has switched, `carry` is called with the WebSocket.
pub(super) fn switch_to_websocket<F>(
    mut request: Request<Body>,
    largest_message: usize,
    carry: impl FnOnce(TunnelSocket, Option<TunnelGuard>) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let accept_key = derive_accept_key(key.map(HeaderValue::as_bytes).unwrap_or_default());
    let guard = request.extensions_mut().remove::<TunnelGuard>();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let config = Some(websocket_config(largest_message));
                let stream = TokioIo::new(upgraded);
                let socket = WebSocketStream::from_raw_socket(stream, Role::Server, config).await;
                carry(socket, guard).await;
            }
            Err(error) => tracing::debug!(%error, "a tunnel could not be established"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::from_str(&accept_key).ok();
    headers.extend(accept.map(|accept| (SEC_WEBSOCKET_ACCEPT, accept)));
    Passage::Untouched.mark_response(response)
}

pub(super) fn required_header<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, KubernetesError> {
    let text = only_value(headers, name).and_then(|value| value.to_str().ok());
    text.filter(|text| !text.is_empty())
        .ok_or_else(|| KubernetesError::Tunnel(format!("send one header {name}")))
}

pub(super) fn parse_credentials(params: &str) -> Result<ClusterCredentials, KubernetesError> {
    let invalid = |why: String| KubernetesError::Tunnel(format!("{PARAMS_HEADER}: {why}"));
    let json = BASE64_STANDARD
        .decode(params)
        .map_err(|_| invalid("it is not base64".to_owned()))?;
    // The error of the parser is dropped, because its message could contain the token.
    let params: CredentialParams = serde_json::from_slice(&json)
        .map_err(|_| invalid("it is not JSON with `address`, `userToken` and `caCert`".to_owned()))?;
    let ca = BASE64_STANDARD
        .decode(&params.ca_cert)
        .ok()
        .and_then(|ca| String::from_utf8(ca).ok());
    let report = AgentReport {
        server_addresses: params.address,
        ca: ca.ok_or_else(|| invalid("`caCert` is not base64 of PEM".to_owned()))?,
        user_token: Secret(params.user_token),
        cluster_domain: String::new(),
    };
    report.credentials().map_err(|error| invalid(error.to_string()))
}

pub(super) fn encode_params(credentials: &ClusterCredentials) -> String {
    let params = serde_json::json!({
        "address": credentials.servers().collect::<Vec<_>>().join(";"),
        "userToken": credentials.user_token.0,
        "caCert": BASE64_STANDARD.encode(&credentials.ca),
    });
    BASE64_STANDARD.encode(params.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credentials_header_of_an_agent_can_be_read() {
        let encode = |address: &str, token: &str, ca: &str| {
            let ca = BASE64_STANDARD.encode(ca);
            let json = serde_json::json!({"address": address, "userToken": token, "caCert": ca});
            BASE64_STANDARD.encode(json.to_string())
        };
        let pem = "-----BEGIN CERTIFICATE-----";
        let parsed_credentials = parse_credentials(&encode("https://10.0.0.1:443;https://10.0.0.2", "t", pem)).unwrap();
        assert_eq!(
            (parsed_credentials.ca.as_str(), parsed_credentials.user_token.0.as_str()),
            (pem, "t")
        );
        assert_eq!(parsed_credentials.server_addresses.len(), 2);
        let reparsed_credentials = parse_credentials(&encode_params(&parsed_credentials)).unwrap();
        assert_eq!(
            (
                &reparsed_credentials.server_addresses,
                &reparsed_credentials.ca,
                &reparsed_credentials.user_token
            ),
            (
                &parsed_credentials.server_addresses,
                &parsed_credentials.ca,
                &parsed_credentials.user_token
            )
        );
        let addresses: Vec<_> = (0..17).map(|number| format!("https://10.0.0.{number}")).collect();
        let servers = "https://10.0.0.1;".repeat(1000);
        for (params, expected) in [
            ("?".to_owned(), "not base64"),
            (BASE64_STANDARD.encode("{"), "not JSON"),
            (encode("http://a", "secret", pem), "is not https"),
            (encode("", "secret", pem), "is empty"),
            (encode("https://a", "secret", "?"), "no certificate as PEM"),
            (
                encode(&addresses.join(";"), "secret", pem),
                "has 17 addresses, and at most 16",
            ),
            (encode(&servers, "secret", pem), "has 17000 bytes, and at most 2048"),
            (
                encode(&format!("https://{}", "a".repeat(93)), "secret", pem),
                "more than 92 bytes",
            ),
            (
                encode("https://a", &"secret".repeat(2000), pem),
                "user_token has 12000 bytes",
            ),
            (
                encode("https://a", "secret", &pem.repeat(3000)),
                "cacert_data has 81000 bytes",
            ),
        ] {
            let error = parse_credentials(&params).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }
}
