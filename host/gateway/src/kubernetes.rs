//! The proxy to Kubernetes clusters. A request for `/tunnels/clusters/{identifier}/{path}` passes the chains, and then
//! goes to `{path}` of a cluster's API server, with the rights that the user has in that cluster.

mod agents;
mod call;
mod error;
pub(crate) mod headers;
mod identity;
mod memory;
mod path;
mod peers;
mod routes;
mod state;
mod stream;

use std::{convert::Infallible, sync::Arc, time::Duration};

use admittance::{AdmissionService, BodyLimits, Host, Passage, admission::FrontEnd};
use admittance_admission::UserInfo;
use admittance_bcs::{
    routes::Permission,
    status::ServerHealth,
    zookeeper::{NodePath, ZooKeeper},
};
use admittance_dialect::{Dialect, EndReason, KubernetesApi};
use admittance_net::{
    bearer::bearer_token,
    header::only_value,
    upstream::{Upstream, UpstreamServer, is_upgrade},
};
use axum::body::Body;
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{AUTHORIZATION, UPGRADE},
};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, service_fn, util::BoxCloneSyncService};

pub use self::peers::{PeerSecrets, PeersConfig};
pub(crate) use self::{call::CallError, stream::WatchedRight};
use self::{
    error::KubernetesError,
    identity::ImpersonatedUser,
    memory::RequestMemory,
    path::TunnelPath,
    peers::Peers,
    routes::{ClusterRoute, Routes},
    state::StateRequest,
};
use crate::{
    accounts::{AccessTarget, Accounts, RegisteredCluster, UserSession},
    status::{KubernetesCluster, PeersStatus},
};

/// The key in `UserInfo.extra` under which chains find the ID of the cluster.
const CLUSTER_KEY: &str = "admittance.dev/cluster";

/// The interval at which the metrics of open tunnels are set again, even if their values are the same. The exporter
/// drops metrics that are not set for some time.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);

/// The proxy to Kubernetes clusters. Cheap to clone; lives as long as the gateway.
#[derive(Clone, Debug)]
pub(crate) struct KubernetesProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    accounts: Accounts,
    routes: Arc<Routes>,
    memory: RequestMemory,
    peers: Option<Arc<Peers>>,
    host: Host,
    limits: BodyLimits,
    /// A token that is cancelled when the gateway begins to stop. Then each tunnel ends as soon as no request uses it.
    stop_token: CancellationToken,
    admission_service: AdmissionService<BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>>,
}

pub(crate) struct OtherGateways<'a> {
    pub(crate) config: PeersConfig,
    pub(crate) own_server: UpstreamServer,
    pub(crate) zookeeper: &'a ZooKeeper,
    /// The ZooKeeper node below which all gateways register.
    pub(crate) path: NodePath,
}

struct AdmittedRequest {
    cluster: Arc<RegisteredCluster>,
    session: UserSession,
    target: AccessTarget,
    required_permission: Permission,
    route: Arc<ClusterRoute>,
}

#[derive(Debug)]
pub(crate) struct LoggedReply {
    pub(crate) response: Response<Body>,
    /// The ID of the cluster, and the name of the user who sent the request. It is `None` if the request ended before
    /// they were known.
    pub(crate) recipient: Option<(Arc<str>, Arc<str>)>,
}

impl KubernetesProxy {
    pub(crate) fn new(
        accounts: Accounts,
        other_gateways: Option<OtherGateways<'_>>,
        host: &Host,
        limits: BodyLimits,
    ) -> Self {
        let layer = host.layer(KubernetesApi).body_limits(limits);
        Self(Arc::new(Inner {
            accounts,
            routes: Arc::default(),
            memory: RequestMemory::default(),
            peers: other_gateways.map(|other_gateways| Arc::new(Peers::new(other_gateways))),
            host: host.clone(),
            limits,
            stop_token: CancellationToken::new(),
            admission_service: layer.layer(BoxCloneSyncService::new(service_fn(forward))),
        }))
    }

    pub(crate) fn is_cluster_or_tunnel_path(path: &str) -> bool {
        path.starts_with(path::PREFIX) || path == headers::TUNNEL_PATH
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> LoggedReply {
        if request.uri().path() == headers::TUNNEL_PATH {
            return self.accept_tunnel(request).await;
        }
        let inner = &*self.0;
        let is_known_upgrade = is_upgrade(&request) && has_known_upgrade(request.headers());
        let (mut head, body) = request.into_parts();
        let admitted_request = match inner.admit(&mut head, is_known_upgrade).await {
            Ok(admitted) => admitted,
            Err((error, recipient)) => {
                return LoggedReply {
                    response: error_reply(&error),
                    recipient,
                };
            }
        };
        let watched_right = WatchedRight::new(
            &inner.accounts,
            &admitted_request.session,
            admitted_request.target,
            admitted_request.required_permission,
            admitted_request.route.clone(),
        );
        if is_known_upgrade {
            watched_right.guard_tunnel(&mut head.extensions);
        }
        let state_request = StateRequest {
            upstream: &admitted_request.route.upstream,
            limits: inner.limits,
        };
        let table = inner.host.table();
        let settlement =
            state_request.add_stored_state(&mut head, body, |inspection| table.may_match(&inspection.outline()));
        let response = match settlement.await {
            Err(reply) => *reply,
            Ok(body) => {
                head.extensions.insert(admitted_request.route.clone());
                let front_end = head.extensions.get::<Arc<FrontEnd>>();
                head.extensions.insert(Arc::new(FrontEnd {
                    cluster: Some(admitted_request.cluster.id.as_str().into()),
                    ..front_end.map(|front| (**front).clone()).unwrap_or_default()
                }));
                match inner
                    .admission_service
                    .clone()
                    .call(Request::from_parts(head, body))
                    .await
                {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        LoggedReply {
            response: response.map(|body| watched_right.watch_body(body)),
            recipient: Some(recipient(&admitted_request.cluster, &admitted_request.session)),
        }
    }

    /// Begins to stop: each tunnel ends as soon as no request uses it.
    pub(crate) fn stop(&self) {
        self.0.stop_token.cancel();
    }

    /// Waits until no agent has a tunnel to this gateway. A tunnel stays open while other gateways use it.
    pub(crate) async fn wait_until_agents_are_gone(&self) {
        self.0.routes.wait_until_agents_are_gone().await;
    }

    pub(crate) fn tunnel_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.0.routes.changes()
    }

    pub(crate) fn peers(&self) -> Option<PeersStatus> {
        self.0.peers.as_ref().map(|peers| peers.status())
    }

    pub(crate) fn clusters(&self) -> Vec<KubernetesCluster> {
        let Ok(directory) = self.0.accounts.directory() else {
            return Vec::new();
        };
        let registered_clusters = directory.clusters().filter(|cluster| cluster.is_kubernetes());
        let clusters = registered_clusters.map(|cluster| {
            let state = self.0.routes.state(&cluster.id);
            let has_tunnel = state.tunnels + state.gateways > 0;
            let server_health = state.upstream.iter().flat_map(Upstream::health);
            let servers: Vec<ServerHealth> = server_health.map(Into::into).collect();
            let problem = match (&cluster.credentials, has_tunnel) {
                (None, false) => Some("its agent has not reported credentials, and has no tunnel open"),
                _ if !servers.is_empty() && servers.iter().all(|server| !server.is_up) => {
                    Some("none of its API servers can be reached")
                }
                _ => None,
            };
            KubernetesCluster {
                cluster: cluster.id.clone(),
                tunnels: state.tunnels,
                gateways: state.gateways,
                reported: cluster.credentials.as_ref().map(|credentials| credentials.reported_at),
                servers,
                problem: problem.map(str::to_owned),
            }
        });
        clusters.collect()
    }

    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        self.0.routes.upstreams()
    }

    /// Drops connections to removed clusters, and keeps the tunnels to other gateways open. Never returns.
    pub(crate) async fn follow(&self) {
        let peers = async {
            if let Some(peers) = &self.0.peers {
                peers.follow(self).await;
            }
        };
        let metrics = async {
            let mut ticks = tokio::time::interval(METRICS_INTERVAL);
            loop {
                ticks.tick().await;
                self.0.routes.renew_metrics();
            }
        };
        tokio::join!(peers, metrics, self.follow_clusters());
    }

    async fn follow_clusters(&self) {
        let mut changes = self.0.accounts.changes();
        while changes.changed().await.is_ok() {
            if let Some(directory) = changes.borrow_and_update().clone() {
                self.0.routes.retain(|id| directory.cluster(id).is_some());
            }
        }
        std::future::pending().await
    }
}

type Recipient = (Arc<str>, Arc<str>);

impl Inner {
    async fn admit(
        &self,
        head: &mut http::request::Parts,
        is_upgrade: bool,
    ) -> Result<AdmittedRequest, (KubernetesError, Option<Recipient>)> {
        let without_recipient = |error: KubernetesError| (error, None);
        let path = TunnelPath::parse(&head.uri).map_err(without_recipient)?;
        let directory = self
            .accounts
            .directory()
            .map_err(|error| without_recipient(error.into()))?;
        let token = token_of(&head.headers).map_err(without_recipient)?;
        let session = directory
            .authenticate(token)
            .map_err(|denied| without_recipient(denied.into()))?;
        // A user without access to the cluster gets the same reply as for a cluster that does not exist. Otherwise,
        // users could find out which identifiers exist.
        let (cluster, access) = directory
            .cluster_by_identifier(path.identifier)
            .and_then(|cluster| Some((cluster.clone(), directory.access(&session.user, cluster)?)))
            .ok_or_else(|| without_recipient(KubernetesError::NoCluster(path.identifier.to_owned())))?;
        let with_recipient = |error: KubernetesError| (error, Some(recipient(&cluster, &session)));
        let required_permission = path::needed_permission(&head.method, &path.target, is_upgrade);
        let target = AccessTarget::Cluster(cluster.id.clone());
        directory
            .check_access(&session.user, &target, required_permission)
            .map_err(|denied| with_recipient(denied.into()))?;
        let route = self.routes.route_to(&cluster, &self.accounts).map_err(with_recipient)?;
        let user = &session.user;
        let super_user_groups = if user.is_super_user {
            route.super_user_groups().await
        } else {
            &[]
        };
        let identity = ImpersonatedUser::new(user.name.impersonated_name(), &user.groups, access, super_user_groups);
        head.uri = path.rest;
        if !identity.replace_headers(&mut head.headers, &route.authorization, is_upgrade) {
            let message = format!(
                "{} cannot be impersonated: its name or a group has unusual characters",
                user.name
            );
            return Err(with_recipient(KubernetesError::Unavailable(message)));
        }
        let mut info = UserInfo {
            username: identity.user,
            groups: identity.groups,
            ..UserInfo::default()
        };
        info.extra.insert(CLUSTER_KEY.to_owned(), vec![cluster.id.clone()]);
        head.extensions.insert(info);
        Ok(AdmittedRequest {
            cluster,
            session,
            target,
            required_permission,
            route,
        })
    }
}

fn recipient(cluster: &RegisteredCluster, session: &UserSession) -> Recipient {
    (cluster.id.as_str().into(), session.user.name.as_str().into())
}

async fn forward(mut request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let Some(route) = request.extensions_mut().remove::<Arc<ClusterRoute>>() else {
        // This is not reached: every request that comes here has a route in its extensions, where `answer` has put it.
        return Ok(end_reply(&EndReason::NoRoute));
    };
    Ok(send(&route.upstream, request).await.unwrap_or_else(|reply| reply))
}

/// Sends a request to an API server, with the token of the cluster's agent. The error is a reply for the client.
async fn send(upstream: &Upstream, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
    let uri = request.uri().clone();
    let outcome = upstream.send(request).await;
    let reply = outcome.map_err(|error| end_reply(&EndReason::from(error)))?;
    // A 401 means that the API server rejects the agent's token, unless a container in the cluster sent the reply.
    if reply.status() == StatusCode::UNAUTHORIZED && !path::is_proxied(uri.path()) {
        return Err(error_reply(&KubernetesError::AgentToken));
    }
    Ok(reply)
}

fn end_reply(end: &EndReason<'_>) -> Response<Body> {
    Passage::Ended(end.as_str()).mark_response(KubernetesApi.reply(end).map(Body::from))
}

/// Returns whether a request switches to WebSocket or SPDY, the protocols of Kubernetes. A switch to another protocol,
/// such as `h2c`, is not forwarded, because requests in that protocol could evade the checks.
fn has_known_upgrade(headers: &HeaderMap) -> bool {
    let is_known = |name: &[u8]| name.eq_ignore_ascii_case(b"websocket") || name.eq_ignore_ascii_case(b"SPDY/3.1");
    only_value(headers, UPGRADE).is_some_and(|protocol| is_known(protocol.as_bytes()))
}

fn error_reply(error: &KubernetesError) -> Response<Body> {
    tracing::info!(end = error.as_str(), "the request ends here: {error}");
    Passage::Ended(error.as_str()).mark_response(error.reply().map(Body::from))
}

/// Returns the token in the headers of a request. Several are an error, because they could belong to several users.
fn token_of(headers: &HeaderMap) -> Result<&[u8], KubernetesError> {
    let token = only_value(headers, AUTHORIZATION).and_then(|value| bearer_token(value.as_bytes()));
    token.filter(|token| !token.is_empty()).ok_or_else(|| {
        let message = "anonymous requests is forbidden: send one `Authorization: Bearer TOKEN`";
        KubernetesError::Unauthenticated(message.to_owned())
    })
}
