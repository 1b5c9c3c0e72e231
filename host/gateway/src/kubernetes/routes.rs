//! Routes to Kubernetes clusters: directly to reported addresses, or through a tunnel of an agent or another gateway.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use admittance_net::{
    tls::{self, ClientTls, Trust},
    upstream::{
        AnyConnection, Choice, Dial, HealthCheck, Servers, Upstream, UpstreamConfig, UpstreamServer, tcp_connector_with,
    },
};
use http::{HeaderValue, Uri, uri::PathAndQuery};
use hyper_util::client::legacy::connect::dns::Name;
use metrics::gauge;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::error::KubernetesError;
use crate::{
    accounts::{Accounts, ClusterCredentials, RegisteredCluster},
    metric_names,
    tunnel::{Budget, Guard, TunnelDestination, TunnelSession},
};

/// The name in the certificate of every API server.
const SERVER_NAME: &str = "kubernetes";
/// The maximum number of tunnels that the agents of one cluster may have open to this gateway.
const MAX_TUNNELS_OF_CLUSTER: usize = 8;

/// The timeout for connecting to an API server, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) enum ConnectVia {
    /// A TCP connection. The accounts decide which addresses are allowed.
    Direct(Accounts),
    Tunnel(TunnelSession),
    /// A tunnel to another gateway, which passes connections on to the tunnels of its agents. The memory of the
    /// connections is charged to the budget of the cluster's owner.
    Gateway(TunnelSession, Arc<Budget>),
}

/// The connections to the API servers of a cluster, with the cluster's credentials. If the credentials change, a new
/// route replaces this one, but requests that use this route keep it alive until they end.
#[derive(Debug)]
pub(super) struct ClusterRoute {
    pub(super) credentials: Arc<ClusterCredentials>,
    pub(super) upstream: Upstream,
    pub(super) authorization: HeaderValue,
    connect_via: ConnectVia,
    /// The answer whether the agent may impersonate `system:masters`, and the time until which the answer is used.
    pub(super) impersonation_check: tokio::sync::Mutex<Option<(bool, Instant)>>,
    /// Whether new requests use this route. If they do not, the API servers of the route are not checked any more.
    is_newest: watch::Sender<bool>,
    _check_task: AbortOnDropHandle<()>,
}

impl ClusterRoute {
    pub(super) fn new(
        cluster: &str,
        credentials: Arc<ClusterCredentials>,
        via: ConnectVia,
    ) -> Result<Self, KubernetesError> {
        let unusable = |reason: String| KubernetesError::Credentials {
            cluster: cluster.to_owned(),
            reason,
        };
        let certificates =
            tls::certificates_in(credentials.ca.as_bytes()).map_err(|error| unusable(format!("its CA: {error}")))?;
        let client = tls::client_config(Trust::Only(&certificates), None)
            .map_err(|error| unusable(format!("its CA: {error}")))?;
        let tls = ClientTls::from(client)
            .with_server_name(SERVER_NAME)
            .map_err(|error| unusable(error.to_string()))?;
        let addresses = credentials.server_addresses.iter().cloned().map(UpstreamServer::new);
        let servers: Vec<_> = addresses
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(error.to_string()))?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", credentials.user_token.0))
            .map_err(|_| unusable("its token cannot be sent in a header".to_owned()))?;
        authorization.set_sensitive(true);
        let config = UpstreamConfig {
            tls,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
            // If the API servers are reached through another gateway, this gateway does not check their health, because
            // the other gateway does so.
            health: (!matches!(via, ConnectVia::Gateway(..))).then(|| HealthCheck {
                path: PathAndQuery::from_static("/readyz"),
                interval: HealthCheck::DEFAULT_INTERVAL,
                timeout: HealthCheck::DEFAULT_TIMEOUT,
                authorization: Some(authorization.clone()),
            }),
        };
        let servers = Servers::Listed(servers);
        let upstream = Upstream::with_dial(Some(dial(&via, cluster)), servers, Choice::LeastLoaded, config);
        let is_newest = watch::Sender::new(false);
        let check_task = tokio::spawn(check_health_while_newest(is_newest.subscribe(), upstream.clone()));
        Ok(Self {
            credentials,
            upstream,
            authorization,
            connect_via: via,
            impersonation_check: tokio::sync::Mutex::default(),
            is_newest,
            _check_task: AbortOnDropHandle::new(check_task),
        })
    }
}

/// Checks the API servers of a route, but only while new requests use the route. To check the older routes as well
/// would cost too much.
async fn check_health_while_newest(mut is_newest: watch::Receiver<bool>, upstream: Upstream) {
    while is_newest.wait_for(|is_newest| *is_newest).await.is_ok() {
        tokio::select! {
            () = upstream.check_health() => return,
            _ = is_newest.wait_for(|is_newest| !is_newest) => {}
        }
    }
}

fn dial(via: &ConnectVia, cluster: &str) -> Dial {
    let (session, budget, cluster) = match via {
        ConnectVia::Direct(accounts) => return direct_dial(accounts.clone()),
        ConnectVia::Tunnel(session) => (session.clone(), session.budget().clone(), None),
        ConnectVia::Gateway(session, budget) => (session.clone(), budget.clone(), Some(cluster.to_owned())),
    };
    BoxCloneSyncService::new(service_fn(move |server: Uri| {
        let (session, budget, cluster) = (session.clone(), budget.clone(), cluster.clone());
        async move {
            let host = server.host().unwrap_or_default();
            let port = server.port_u16().unwrap_or(443);
            let address = format!("{host}:{port}");
            let stream = session.open(TunnelDestination { cluster, address }, &budget).await?;
            Ok::<_, BoxError>(AnyConnection::new(stream))
        }
    }))
}

/// Returns a connector for TCP. The connector checks the addresses of a host name after every lookup, because the name
/// may get other addresses later.
fn direct_dial(accounts: Accounts) -> Dial {
    let resolver = service_fn(move |name: Name| {
        let accounts = accounts.clone();
        async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = addresses.filter(|address| accounts.may_connect(address.ip())).collect();
            if allowed.is_empty() {
                Err(io::Error::other(format!(
                    "{name} has only addresses of the gateway's own machine or link: list them in \
                     `accounts.localServers` if an API server is there"
                )))
            } else {
                Ok(allowed.into_iter())
            }
        }
    });
    let tcp = tcp_connector_with(resolver);
    BoxCloneSyncService::new(service_fn(move |server: Uri| {
        let connecting = tcp.clone().oneshot(server);
        async move { Ok::<_, BoxError>(AnyConnection::new(connecting.await?.into_inner())) }
    }))
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    direct_routes: Mutex<HashMap<String, Arc<ClusterRoute>>>,
    tunnel_routes: Mutex<TunnelRoutes>,
    change_sender: watch::Sender<()>,
}

/// The open tunnels by the ID of the cluster. Requests use the newest tunnel of a cluster.
#[derive(Debug, Default)]
struct TunnelRoutes {
    agent_routes: HashMap<String, Vec<Arc<ClusterRoute>>>,
    gateway_routes: HashMap<String, Vec<Arc<ClusterRoute>>>,
}

impl TunnelRoutes {
    fn table_for(&mut self, via: &ConnectVia) -> &mut HashMap<String, Vec<Arc<ClusterRoute>>> {
        match via {
            ConnectVia::Gateway(..) => &mut self.gateway_routes,
            ConnectVia::Direct(_) | ConnectVia::Tunnel(_) => &mut self.agent_routes,
        }
    }

    /// Returns the tunnel of the cluster's agent to this gateway, or else a tunnel through another gateway.
    fn newest_route(&self, cluster: &str) -> Option<&Arc<ClusterRoute>> {
        let agent_route = self.agent_routes.get(cluster).and_then(|routes| routes.last());
        agent_route.or_else(|| self.gateway_routes.get(cluster)?.last())
    }

    /// Lets the servers of the cluster's current route be checked, and stops the checks for the cluster's other routes.
    fn update_newest(&self, cluster: &str, direct: &HashMap<String, Arc<ClusterRoute>>) {
        let newest = self.newest_route(cluster).or_else(|| direct.get(cluster));
        let agent_routes = self.agent_routes.get(cluster).into_iter().flatten();
        for route in agent_routes.chain(direct.get(cluster)) {
            let is_newest = newest.is_some_and(|newest| Arc::ptr_eq(newest, route));
            route
                .is_newest
                .send_if_modified(|was| std::mem::replace(was, is_newest) != is_newest);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RouteState {
    /// The number of tunnels that the cluster's agents have open to this gateway.
    pub(super) tunnels: usize,
    /// The number of tunnels that the cluster's agents have open to other gateways.
    pub(super) gateways: usize,
    pub(super) upstream: Option<Upstream>,
}

impl Routes {
    /// Returns the route to this cluster: through a tunnel if there is one, or directly to the reported addresses.
    pub(super) fn route_to(
        &self,
        cluster: &RegisteredCluster,
        accounts: &Accounts,
    ) -> Result<Arc<ClusterRoute>, KubernetesError> {
        let tunnels = self.tunnel_routes.lock();
        if let Some(route) = tunnels.newest_route(&cluster.id) {
            return Ok(route.clone());
        }
        let Some(credentials) = &cluster.credentials else {
            return Err(KubernetesError::NotConnected(cluster.id.clone()));
        };
        let mut direct = self.direct_routes.lock();
        if let Some(route) = direct.get(&cluster.id)
            && (Arc::ptr_eq(&route.credentials, credentials) || route.credentials == *credentials)
        {
            return Ok(route.clone());
        }
        let route = Arc::new(ClusterRoute::new(
            &cluster.id,
            credentials.clone(),
            ConnectVia::Direct(accounts.clone()),
        )?);
        // The new route replaces the previous one. Long requests, such as watches, continue on the previous route. No
        // new request will use it, so the servers of the previous route are not checked any more.
        if let Some(previous) = direct.insert(cluster.id.clone(), route.clone()) {
            previous.is_newest.send_replace(false);
        }
        tunnels.update_newest(&cluster.id, &direct);
        Ok(route)
    }

    pub(super) fn retain(&self, cluster_exists: impl Fn(&str) -> bool) {
        self.direct_routes.lock().retain(|id, route| {
            let exists = cluster_exists(id);
            if !exists {
                route.is_newest.send_replace(false);
            }
            exists
        });
    }

    /// Makes a tunnel available to requests until the returned value is dropped. Returns `None` if the agents of the
    /// cluster already have [`MAX_TUNNELS_OF_CLUSTER`] tunnels to this gateway.
    pub(super) fn add_tunnel(self: &Arc<Self>, cluster: &str, route: Arc<ClusterRoute>) -> Option<OpenTunnel> {
        let mut tunnels = self.tunnel_routes.lock();
        let is_limited = matches!(route.connect_via, ConnectVia::Tunnel(_));
        let routes_of_cluster = tunnels
            .table_for(&route.connect_via)
            .entry(cluster.to_owned())
            .or_default();
        if is_limited && routes_of_cluster.len() >= MAX_TUNNELS_OF_CLUSTER {
            return None;
        }
        routes_of_cluster.push(route.clone());
        let count = routes_of_cluster.len();
        let open_tunnel = OpenTunnel {
            routes: self.clone(),
            cluster: cluster.to_owned(),
            route,
        };
        open_tunnel.report_count(&tunnels, count);
        Some(open_tunnel)
    }

    /// Returns the newest tunnel to this gateway for each cluster whose agents have one.
    pub(super) fn routes_of_agents(&self) -> HashMap<String, Arc<ClusterRoute>> {
        let tunnels = self.tunnel_routes.lock();
        let newest = tunnels.agent_routes.iter();
        newest
            .filter_map(|(cluster, routes)| Some((cluster.clone(), routes.last()?.clone())))
            .collect()
    }

    /// Sets the metrics of open tunnels again, because the exporter drops metrics that are not set for some time.
    pub(super) fn renew_metrics(&self) {
        for (cluster, routes) in &self.tunnel_routes.lock().agent_routes {
            set_tunnel_gauge(cluster, routes.len());
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.change_sender.subscribe()
    }

    /// Returns the tunnel that the cluster's agent has opened to this gateway, and a guard that marks the tunnel as
    /// used. A tunnel through another gateway is not returned, so that no connection passes more than two gateways.
    pub(super) fn tunnel_of_agent(&self, cluster: &str) -> Option<(TunnelSession, Guard)> {
        let tunnels = self.tunnel_routes.lock();
        let route = tunnels.agent_routes.get(cluster)?.last()?;
        match &route.connect_via {
            ConnectVia::Tunnel(session) => Some((session.clone(), route.clone())),
            ConnectVia::Direct(_) | ConnectVia::Gateway(..) => None,
        }
    }

    pub(super) async fn wait_until_agents_are_gone(&self) {
        let mut changes = self.changes();
        while !self.tunnel_routes.lock().agent_routes.is_empty() {
            // `changed` fails only after its sender was dropped, and the sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    pub(super) fn state(&self, cluster: &str) -> RouteState {
        let tunnels = self.tunnel_routes.lock();
        let count = |routes: &HashMap<String, Vec<Arc<ClusterRoute>>>| routes.get(cluster).map_or(0, Vec::len);
        let newest = tunnels.newest_route(cluster).map(|route| route.upstream.clone());
        let direct = || {
            self.direct_routes
                .lock()
                .get(cluster)
                .map(|route| route.upstream.clone())
        };
        RouteState {
            tunnels: count(&tunnels.agent_routes),
            gateways: count(&tunnels.gateway_routes),
            upstream: newest.or_else(direct),
        }
    }

    pub(super) fn upstreams(&self) -> Vec<Upstream> {
        // Every function that needs both locks takes first `tunnel_routes` and then `direct_routes`. With different
        // orders, two threads could wait for each other.
        let (tunnels, direct) = (self.tunnel_routes.lock(), self.direct_routes.lock());
        let tunnel_routes = tunnels.agent_routes.values().chain(tunnels.gateway_routes.values());
        direct
            .values()
            .chain(tunnel_routes.flatten())
            .map(|route| route.upstream.clone())
            .collect()
    }
}

fn set_tunnel_gauge(cluster: &str, tunnels: usize) {
    let count = u32::try_from(tunnels).unwrap_or(u32::MAX);
    gauge!(metric_names::GATEWAY_TUNNELS, "cluster" => cluster.to_owned()).set(count);
}

/// Makes a tunnel available to requests. When this value is dropped, new requests no longer use the tunnel.
#[derive(Debug)]
pub(super) struct OpenTunnel {
    routes: Arc<Routes>,
    cluster: String,
    route: Arc<ClusterRoute>,
}

impl OpenTunnel {
    /// Returns whether no request uses the tunnel. Each request holds a reference to the route. Only two other
    /// references exist: one in the table of tunnels, and one in this value.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.route) <= 2
    }

    fn report_count(&self, tunnels: &TunnelRoutes, count: usize) {
        tunnels.update_newest(&self.cluster, &self.routes.direct_routes.lock());
        if let ConnectVia::Tunnel(_) = self.route.connect_via {
            self.routes.change_sender.send_replace(());
            set_tunnel_gauge(&self.cluster, count);
        }
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        let mut tunnels = self.routes.tunnel_routes.lock();
        self.route.is_newest.send_replace(false);
        let table = tunnels.table_for(&self.route.connect_via);
        // Only this tunnel is removed. The cluster can have other tunnels, such as a newer one.
        if let Some(routes_of_cluster) = table.get_mut(&self.cluster) {
            routes_of_cluster.retain(|route| !Arc::ptr_eq(route, &self.route));
            let count = routes_of_cluster.len();
            if count == 0 {
                table.remove(&self.cluster);
            }
            self.report_count(&tunnels, count);
        }
    }
}

#[cfg(test)]
pub(super) fn test_credentials() -> Arc<ClusterCredentials> {
    use crate::accounts::Secret;

    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    Arc::new(ClusterCredentials {
        server_addresses: vec!["https://10.0.0.1:6443".parse().unwrap()],
        ca: certificate.pem(),
        user_token: Secret("token".to_owned()),
        cluster_domain: String::new(),
        reported_at: admittance::Moment::now(),
    })
}

#[cfg(test)]
mod tests;
