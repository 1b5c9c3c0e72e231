//! Lets several gateways share the tunnels of agents. Each gateway announces to the others which clusters' agents have
//! opened tunnels to it. The others then reach these clusters through it.
//!
//! A client may send its request to a gateway that has no tunnel to the cluster. This first gateway then uses the
//! tunnel of a second gateway. The TLS connection leads from the first gateway to the API server, so the second gateway
//! cannot read it. Therefore, the first gateway must authorize and inspect the request.

mod accepting;
mod secrets;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use admittance_bcs::discovery::{Discovery, ServerKind};
use admittance_net::{
    causes,
    listener::is_loopback_host,
    tls::ClientTls,
    upstream::{FollowedServers, UpstreamConnector, UpstreamServer, new_connector},
};
use bytes::Bytes;
use futures_util::SinkExt;
use http::Uri;
use metrics::gauge;
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_tungstenite::tungstenite::{Message, handshake::client::generate_key};

pub use self::secrets::PeerSecrets;
use self::secrets::{ConnectionContext, HandshakeStep};
use super::{
    KubernetesProxy, OtherGateways,
    agents::{STOPPING_REASON, encode_params},
    headers::{CHALLENGE_HEADER, GATEWAY_ID_HEADER, TOKEN_HEADER, TUNNEL_PATH},
    routes::ClusterRoute,
};
use crate::{
    metric_names,
    status::{Peer, PeersStatus},
    tunnel::{
        AllowedConnections, LARGEST_GATEWAY_MESSAGE, TunnelAnnouncement, TunnelSession,
        connect::{ConnectError, MAX_PAUSE, TIMEOUT, open_websocket, reconnect_backoff, uri_at_path},
    },
};

/// The settings with which gateways find and trust each other.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    pub secrets: PeerSecrets,
    /// The TLS settings with which this gateway verifies the certificates of other gateways.
    pub tls: ClientTls,
}

#[derive(Debug)]
pub(super) struct Peers {
    /// The random ID of this gateway, which it chooses at every start.
    id: String,
    own_server: UpstreamServer,
    secrets: PeerSecrets,
    tls: ClientTls,
    connector: UpstreamConnector,
    discovery: Discovery,
    /// The URLs of the other registered gateways, each with the reason why no tunnel to it is open.
    link_problems: Mutex<BTreeMap<String, Option<String>>>,
    /// The number of tunnels that other gateways have opened to this one.
    accepted_count: Arc<AtomicUsize>,
}

/// The reason why this gateway has no tunnel to another gateway, for the log and the status.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("it has no TLS: only gateways on the same machine may do without")]
    Plain,
    #[error("the secret cannot be read")]
    NoSecret,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("it does not know the secret")]
    Unproven,
}

impl Peers {
    /// Starts to discover the other gateways. No tunnel is opened yet. Must be called in a tokio runtime.
    pub(super) fn new(other_gateways: OtherGateways<'_>) -> Self {
        let OtherGateways {
            config,
            own_server,
            zookeeper,
            path,
        } = other_gateways;
        Self {
            id: uuid::Uuid::new_v4().simple().to_string(),
            own_server,
            connector: new_connector(config.tls.clone(), TIMEOUT),
            secrets: config.secrets,
            tls: config.tls,
            discovery: Discovery::start(zookeeper, path, ServerKind::Gateways),
            link_problems: Mutex::default(),
            accepted_count: Arc::default(),
        }
    }

    pub(super) fn status(&self) -> PeersStatus {
        let link_problems = self.link_problems.lock();
        PeersStatus {
            discovery: self.discovery.status(),
            gateways: link_problems
                .iter()
                .map(|(server, problem)| Peer {
                    server: server.clone(),
                    problem: problem.clone(),
                })
                .collect(),
            accepted: self.accepted_count.load(Ordering::Relaxed),
            problem: self.secrets.problem(),
        }
    }

    /// Keeps a tunnel to every registered gateway open. Never returns.
    pub(super) async fn follow(self: &Arc<Self>, kubernetes: &KubernetesProxy) {
        tokio::join!(
            self.secrets.follow(),
            self.tls.keep_fresh(),
            self.hold_links(kubernetes)
        );
    }

    async fn hold_links(self: &Arc<Self>, kubernetes: &KubernetesProxy) {
        let mut followed_servers = self.discovery.servers();
        let mut linked_servers: HashSet<String> = HashSet::new();
        let mut links = JoinSet::new();
        loop {
            let servers = followed_servers.borrow_and_update().servers.clone();
            let is_stopping = kubernetes.0.stop_token.is_cancelled();
            let other_servers = servers
                .into_iter()
                .map(|followed| followed.server)
                .filter(|server| !is_stopping && *server != self.own_server);
            for server in other_servers {
                let name = server.to_string();
                if linked_servers.insert(name.clone()) {
                    let (peers, kubernetes, followed_servers) =
                        (self.clone(), kubernetes.clone(), followed_servers.clone());
                    links.spawn(async move {
                        peers.hold_link(&server, &kubernetes, followed_servers).await;
                        name
                    });
                }
            }
            tokio::select! {
                changed = followed_servers.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                Some(outcome) = links.join_next() => if let Ok(name) = outcome {
                    linked_servers.remove(&name);
                },
            }
        }
    }

    /// Opens a tunnel to another gateway, and opens it again whenever it ends, as long as the other gateway is
    /// registered. The end of the registration does not end an open tunnel.
    async fn hold_link(
        &self,
        server: &UpstreamServer,
        kubernetes: &KubernetesProxy,
        mut followed_servers: watch::Receiver<Arc<FollowedServers>>,
    ) {
        let mut pauses = reconnect_backoff();
        while is_listed(server, &followed_servers.borrow()) && !kubernetes.0.stop_token.is_cancelled() {
            let start = Instant::now();
            let why = match self.run_link(server, kubernetes).await {
                Ok(why) => why,
                Err(error) => error.to_string(),
            };
            self.report(server, Some(why));
            if start.elapsed() > MAX_PAUSE {
                pauses.reset();
            }
            let unlisted = async {
                if followed_servers
                    .wait_for(|servers| !is_listed(server, servers))
                    .await
                    .is_err()
                {
                    // Not reached: `wait_for` fails only after its sender was dropped, and `self` owns the sender.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pauses.pause_after_failure()) => {}
                () = unlisted => {}
                () = kubernetes.0.stop_token.cancelled() => {}
            }
        }
        self.link_problems.lock().remove(&server.to_string());
    }

    /// Records why no tunnel to the other gateway is open, or with `None` that a tunnel is open.
    fn report(&self, server: &UpstreamServer, problem: Option<String>) {
        let mut links = self.link_problems.lock();
        let before = links.insert(server.to_string(), problem.clone());
        let connected = links.values().filter(|problem| problem.is_none()).count();
        gauge!(metric_names::GATEWAY_PEERS).set(u32::try_from(connected).unwrap_or(u32::MAX));
        drop(links);
        match problem {
            None => tracing::info!(%server, "the tunnel to another gateway is open"),
            Some(why) if before != Some(Some(why.clone())) => {
                tracing::warn!(%server, why, "there is no tunnel to another gateway; trying again");
            }
            Some(_) => {}
        }
    }

    /// Opens a tunnel to another gateway, and serves it until it ends. Returns why it ended.
    async fn run_link(&self, server: &UpstreamServer, kubernetes: &KubernetesProxy) -> Result<String, PeerError> {
        let text = server.to_string();
        let uri: Uri = text.parse().map_err(|_| ConnectError::Header)?;
        if !server.is_tls() && !is_loopback_host(&uri) {
            return Err(PeerError::Plain);
        }
        let secret = self.secrets.first_secret().ok_or(PeerError::NoSecret)?;
        let mut connection = ConnectionContext {
            id: self.id.clone(),
            key: generate_key(),
            server: text,
            challenge: String::new(),
        };
        let headers = vec![
            (GATEWAY_ID_HEADER, self.id.clone()),
            (TOKEN_HEADER, secret.proof(HandshakeStep::Opens, &connection)),
        ];
        let uri = uri_at_path(&uri, TUNNEL_PATH)?;
        let (mut socket, reply) =
            open_websocket(&self.connector, uri, &connection.key, headers, LARGEST_GATEWAY_MESSAGE).await?;
        let of_reply = |name| reply.get(name).and_then(|value| value.to_str().ok());
        connection.challenge = of_reply(CHALLENGE_HEADER).unwrap_or_default().to_owned();
        if !of_reply(TOKEN_HEADER).is_some_and(|proof| secret.accepts(proof, HandshakeStep::Accepts, &connection)) {
            return Err(PeerError::Unproven);
        }
        let answer = Message::text(secret.proof(HandshakeStep::Answers, &connection));
        let answered = tokio::time::timeout(TIMEOUT, socket.send(answer)).await;
        answered
            .map_err(|_| ConnectError::Timeout)?
            .map_err(|error| ConnectError::Unreachable(causes::chain(&error)))?;
        self.report(server, None);
        let (session, outgoing) = TunnelSession::new(kubernetes.0.memory.gateway.clone());
        let routes = kubernetes.0.routes.clone();
        let accepts = AllowedConnections::Through(Box::new(move |cluster| routes.tunnel_of_agent(cluster)));
        Ok(tokio::select! {
            why = session.run(socket, outgoing, &accepts) => why,
            () = announce_clusters(&session, kubernetes) => String::new(),
            () = kubernetes.wait_until_stopped_and_idle(|| !session.is_used()) => STOPPING_REASON.to_owned(),
            () = self.secrets.wait_until_removed(&secret) => REMOVED_REASON.to_owned(),
        })
    }
}

const REMOVED_REASON: &str = "the secret was changed";

fn is_listed(server: &UpstreamServer, followed_servers: &FollowedServers) -> bool {
    followed_servers
        .servers
        .iter()
        .any(|followed| followed.server == *server)
}

/// Announces the tunnels that agents have opened to this gateway, and their changes, to another gateway. Never returns.
async fn announce_clusters(session: &TunnelSession, kubernetes: &KubernetesProxy) {
    let routes = &kubernetes.0.routes;
    let mut changes = routes.changes();
    let mut announced: HashMap<String, Weak<ClusterRoute>> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let is_stopping = kubernetes.0.stop_token.is_cancelled();
        // A stopping gateway withdraws all announcements, so that other gateways no longer use its tunnels.
        let mut current = if is_stopping {
            HashMap::new()
        } else {
            routes.routes_of_agents()
        };
        let removed_clusters: Vec<_> = announced
            .keys()
            .filter(|cluster| !current.contains_key(*cluster))
            .cloned()
            .collect();
        for cluster in removed_clusters {
            announced.remove(&cluster);
            session.announce(TunnelAnnouncement::Removed(cluster)).await;
        }
        for (cluster, route) in current.drain() {
            let is_known = announced
                .get(&cluster)
                .is_some_and(|announced_route| Weak::as_ptr(announced_route) == Arc::as_ptr(&route));
            if !is_known {
                let text = format!("{cluster}\n{}", encode_params(&route.credentials));
                announced.insert(cluster, Arc::downgrade(&route));
                // While the route is held, its tunnel counts as used. To send the announcement can take long, so the
                // route is dropped before.
                drop(route);
                session.announce(TunnelAnnouncement::Added(Bytes::from(text))).await;
            }
        }
        tokio::select! {
            // `changed` fails only after its sender was dropped, and the sender lives as long as the gateway.
            _ = changes.changed() => {}
            () = kubernetes.0.stop_token.cancelled(), if !is_stopping => {}
        }
    }
}
