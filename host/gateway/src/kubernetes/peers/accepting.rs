//! Accepts the tunnels that other gateways open, and makes the clusters that they announce reachable.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use admittance_net::{
    listener::{ConnectedClient, is_loopback},
    upstream::TunnelGuard,
};
use axum::body::Body;
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header::SEC_WEBSOCKET_KEY};
use parking_lot::Mutex;
use tokio_tungstenite::tungstenite::{Error as WsError, Message, handshake::client::generate_key};

use super::{
    super::{
        KubernetesProxy, LoggedReply,
        agents::{
            CLOSED_REASON, STOPPING_REASON, TunnelSocket, parse_credentials, required_header, switch_to_websocket,
            wait_until_closed,
        },
        error::KubernetesError,
        headers::{CHALLENGE_HEADER, GATEWAY_ID_HEADER, TOKEN_HEADER},
        routes::{ClusterRoute, ConnectVia, OpenTunnel, Routes},
    },
    Peers, REMOVED_REASON,
    secrets::{ConnectionContext, HandshakeStep, PeerSecret},
};
use crate::tunnel::{
    AllowedConnections, Budget, LARGEST_GATEWAY_MESSAGE, TunnelAnnouncement, TunnelSession, connect::TIMEOUT,
};

/// The maximum number of clusters that one gateway may announce.
const MAX_CLUSTERS: usize = 16 * 1024;
/// The maximum number of open tunnels from other gateways. Each gateway has one tunnel, or two while it reconnects.
const MAX_GATEWAYS: usize = 256;

/// Counts a tunnel from another gateway until this value is dropped.
struct CountedTunnel(Arc<AtomicUsize>);

impl Drop for CountedTunnel {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KubernetesProxy {
    pub(in super::super) fn accept_gateway(&self, request: Request<Body>) -> Result<LoggedReply, KubernetesError> {
        let peers = self.0.peers.clone().ok_or_else(|| {
            let message = "this gateway knows no others: configure `dialect.gateway.peers`";
            KubernetesError::Tunnel(message.to_owned())
        })?;
        let client = request.extensions().get::<ConnectedClient>();
        if !client.is_some_and(|client| client.is_tls || is_loopback(client.address)) {
            let message = "gateways connect with TLS: configure `listen.tls`";
            return Err(KubernetesError::Tunnel(message.to_owned()));
        }
        let (secret, connection) = peers.authenticate_gateway(request.headers())?;
        let counted = CountedTunnel(peers.accepted_count.clone());
        if peers.accepted_count.fetch_add(1, Ordering::Relaxed) >= MAX_GATEWAYS {
            let message = "too many gateways have tunnels to this one";
            return Err(KubernetesError::Tunnel(message.to_owned()));
        }
        let headers = [
            (CHALLENGE_HEADER, connection.challenge.clone()),
            (TOKEN_HEADER, secret.proof(HandshakeStep::Accepts, &connection)),
        ];
        let kubernetes = self.clone();
        let mut response = switch_to_websocket(request, LARGEST_GATEWAY_MESSAGE, async move |mut socket, guard| {
            let _counted = counted;
            let is_answered = tokio::select! {
                is_answered = is_answered(&mut socket, &secret, &connection) => is_answered,
                () = wait_until_closed(guard.as_ref()) => return,
            };
            if is_answered {
                kubernetes
                    .serve_gateway_tunnel(&connection.id, &peers, &secret, socket, guard)
                    .await;
            } else {
                tracing::warn!(
                    gateway = connection.id,
                    "a gateway has opened a tunnel, but does not prove that it knows the secret"
                );
            }
        });
        let replied = headers.into_iter().filter_map(|(name, value)| {
            let value = HeaderValue::from_str(&value).ok()?;
            Some((HeaderName::from_static(name), value))
        });
        response.headers_mut().extend(replied);
        Ok(LoggedReply {
            response,
            recipient: None,
        })
    }

    async fn serve_gateway_tunnel(
        &self,
        id: &str,
        peers: &Peers,
        secret: &PeerSecret,
        socket: TunnelSocket,
        guard: Option<TunnelGuard>,
    ) {
        tracing::info!(gateway = id, "another gateway has opened a tunnel");
        let (session, outgoing) = TunnelSession::new(self.0.memory.gateway.clone());
        let announced = Arc::new(Mutex::new(HashMap::new()));
        let accepts = {
            let (inner, session, announced) = (self.0.clone(), session.clone(), announced.clone());
            AllowedConnections::Announcements(Box::new(move |announcement| {
                let memory = |cluster: &str| inner.memory.budget_of_owner(cluster, &inner.accounts);
                apply_announcement(announcement, &inner.routes, &session, memory, &mut announced.lock())
            }))
        };
        let is_idle = || announced.lock().values().all(OpenTunnel::is_idle);
        let why = tokio::select! {
            why = session.run(socket, outgoing, &accepts) => why,
            () = wait_until_closed(guard.as_ref()) => CLOSED_REASON.to_owned(),
            () = self.wait_until_stopped_and_idle(is_idle) => STOPPING_REASON.to_owned(),
            () = peers.secrets.wait_until_removed(secret) => REMOVED_REASON.to_owned(),
        };
        tracing::info!(gateway = id, why, "the tunnel of another gateway has ended");
    }
}

impl Peers {
    /// Checks the headers of a request with which another gateway opens a tunnel. Returns the secret with which the
    /// other gateway has proved its identity, and the context of the connection, which contains a new random challenge.
    fn authenticate_gateway(&self, headers: &HeaderMap) -> Result<(PeerSecret, ConnectionContext), KubernetesError> {
        let id = required_header(headers, GATEWAY_ID_HEADER)?;
        if id == self.id {
            let message = "this is the gateway that opens the tunnel";
            return Err(KubernetesError::Tunnel(message.to_owned()));
        }
        let key = headers.get(SEC_WEBSOCKET_KEY);
        let mut connection = ConnectionContext {
            id: id.to_owned(),
            key: key.and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned(),
            server: self.own_server.to_string(),
            challenge: String::new(),
        };
        let proof = required_header(headers, TOKEN_HEADER)?;
        let secret = self
            .secrets
            .secret_of_proof(proof, HandshakeStep::Opens, &connection)
            .ok_or_else(|| {
                let message = format!(
                    "the gateway does not know the secret, or connects to another address than {}, which is registered",
                    self.own_server
                );
                KubernetesError::Unauthenticated(message)
            })?;
        connection.challenge = generate_key();
        Ok((secret, connection))
    }
}

/// Returns whether the first message on the WebSocket proves that the other gateway has the secret. The proof must be
/// made for this connection, so a message that was recorded on another connection is not accepted.
async fn is_answered<S>(socket: &mut S, secret: &PeerSecret, connection: &ConnectionContext) -> bool
where
    S: Stream<Item = Result<Message, WsError>> + Unpin,
{
    match tokio::time::timeout(TIMEOUT, socket.next()).await {
        Ok(Some(Ok(Message::Text(answer)))) => secret.accepts(&answer, HandshakeStep::Answers, connection),
        _ => false,
    }
}

/// Applies an announcement from another gateway: adds or removes the route to a cluster through that gateway. If this
/// returns an error, the tunnel between the two gateways is closed.
fn apply_announcement(
    announcement: TunnelAnnouncement,
    routes: &Arc<Routes>,
    session: &TunnelSession,
    memory: impl FnOnce(&str) -> Arc<Budget>,
    open_tunnels: &mut HashMap<String, OpenTunnel>,
) -> Result<(), String> {
    let bytes = match announcement {
        TunnelAnnouncement::Removed(cluster) => {
            open_tunnels.remove(&cluster);
            return Ok(());
        }
        TunnelAnnouncement::Added(bytes) => bytes,
    };
    let text = std::str::from_utf8(&bytes).ok();
    let (cluster, params) = text
        .and_then(|text| text.split_once('\n'))
        .ok_or("it announced a tunnel in an unknown form")?;
    if open_tunnels.len() >= MAX_CLUSTERS && !open_tunnels.contains_key(cluster) {
        return Err(format!("it announced more than {MAX_CLUSTERS} clusters"));
    }
    let via = ConnectVia::Gateway(session.clone(), memory(cluster));
    let route = parse_credentials(params).and_then(|credentials| ClusterRoute::new(cluster, credentials.into(), via));
    match route {
        Ok(route) => {
            let open = routes.add_tunnel(cluster, route.into());
            open_tunnels.extend(open.map(|open| (cluster.to_owned(), open)));
        }
        Err(error) => tracing::warn!(cluster, "a tunnel of another gateway cannot be used: {error}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
