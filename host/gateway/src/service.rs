//! The gateway to the drivers of one or many clusters, in the role of bcs-api.
//!
//! A request for `/bcsapi/v4/scheduler/mesos/{...}` goes to `/mesosdriver/v4/{...}` of a driver of the cluster that its
//! header `BCS-ClusterID` names, if the token of the request allows it. YAML becomes JSON on the way.

mod answer;

use std::{net::SocketAddr, sync::Arc};

use admittance::{BodyLimits, Host, Passage, REQUEST_ID, request_span, request_uid, trace_context};
use admittance_bcs::{
    Ports, RegistrationError, gateways_node,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_dialect::{Dialect, EndReason, KubernetesApi};
use admittance_net::{
    listener::is_loopback,
    tls::{CertificateState, ClientTls},
    upstream::Upstream,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::OptionFuture;
use http::{HeaderValue, Request, Response};
use tracing::Instrument;

use crate::{
    GatewayConfig, Statuses,
    accounts::{Accounts, AccountsError},
    clusters::Clusters,
    error::GatewayError,
    kubernetes::{KubernetesProxy, OtherGateways},
    permission::PlainGroups,
    roles::RoleSync,
    services::Services,
    status::{GatewayStatus, TokensStatus},
    tokens::TokenProvider,
};

/// Forwards requests to the drivers of clusters. Cheap to clone; lives as long as the gateway's port.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clusters: Clusters,
    services: Option<Services>,
    tokens: Option<TokenProvider>,
    accounts: Option<Accounts>,
    /// The proxy to Kubernetes clusters; `None` without accounts.
    kubernetes: Option<KubernetesProxy>,
    roles: Option<RoleSync>,
    plain_groups: PlainGroups,
    forward_token: bool,
    statuses: Statuses,
    limits: BodyLimits,
    tls: ClientTls,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayStartError {
    #[error(transparent)]
    NoEnsemble(#[from] NoEnsemble),
    #[error("dialect.gateway.accounts: {0}")]
    Accounts(#[from] AccountsError),
    #[error("dialect.gateway.tokens: there are no users without `dialect.gateway.accounts`")]
    NoAccounts,
    #[error("registration: {0}")]
    Registration(#[from] RegistrationError),
}

#[derive(Clone, Debug)]
pub struct ServiceRecipient {
    /// The cluster to which the request went; `None` for the management API.
    pub cluster: Option<Arc<str>>,
    /// The name of the holder of the request's token, if it is known.
    pub holder: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct ServiceReply {
    pub response: Response<Body>,
    pub passage: Passage,
    /// The cluster and user of the request; `None` if the request ended before they were checked.
    pub recipient: Option<ServiceRecipient>,
}

impl Gateway {
    /// Creates a gateway. Requests for Kubernetes clusters use the chains of `host`. `limits` apply to all bodies.
    pub async fn new(
        mut config: GatewayConfig,
        ports: Ports,
        ensembles: &Ensembles,
        host: &Host,
        limits: BodyLimits,
    ) -> Result<Self, GatewayStartError> {
        let service = ensembles.service();
        if config.discovery.is_some() && service.is_none() {
            return Err(NoEnsemble {
                setting: "dialect.gateway.discover",
                ensemble: "zookeeper.service",
            }
            .into());
        }
        let services = match (config.services, service) {
            (false, _) => None,
            (true, Some(service)) => Some(Services::start(&config.drivers, service)),
            (true, None) => {
                return Err(NoEnsemble {
                    setting: "dialect.gateway.services",
                    ensemble: "zookeeper.service",
                }
                .into());
            }
        };
        let accounts = config.accounts.take();
        let accounts = match accounts {
            Some(config) => Some(Accounts::new(*config).await?),
            None => None,
        };
        let other_gateways = match (config.peers.take(), &config.registration) {
            (Some(peers), Some(registration)) => Some(OtherGateways {
                config: peers,
                own_server: registration.gateway_url(ports)?,
                zookeeper: service.ok_or(RegistrationError::NoEnsemble)?,
                path: gateways_node().map_err(RegistrationError::from)?,
            }),
            _ => None,
        };
        let kubernetes = accounts
            .clone()
            .map(|accounts| KubernetesProxy::new(accounts, other_gateways, host, limits));
        let roles = config.roles.take().zip(accounts.clone()).zip(kubernetes.clone());
        Ok(Self(Arc::new(Inner {
            clusters: Clusters::start(&config, service),
            services,
            tls: config.drivers.tls,
            tokens: config
                .tokens
                .map(|config| TokenProvider::new(config, accounts.as_ref()))
                .transpose()?,
            roles: roles.map(|((config, accounts), kubernetes)| RoleSync::new(config, accounts, kubernetes)),
            kubernetes,
            accounts,
            plain_groups: config.plain_groups,
            forward_token: config.forward_token,
            statuses: config.statuses,
            limits,
        })))
    }

    /// Logs a warning if clients can use the port without authentication, or send tokens unencrypted.
    pub fn warn_of_port(&self, address: SocketAddr, is_tls: bool) {
        let has_drivers = self.0.clusters.path().is_some() || !self.0.clusters.current_clusters().clusters.is_empty();
        let has_tokens = self.0.tokens.is_some() || self.0.accounts.is_some();
        if has_tokens && !is_tls && !is_loopback(address) {
            tracing::warn!(
                %address,
                "clients send their tokens unencrypted: add `listen.tls`, unless something before this port \
                 decrypts"
            );
        }
        if self.0.tokens.is_none() && has_drivers && !is_loopback(address) {
            tracing::warn!(
                %address,
                "every client that reaches this port can change every cluster: list who may in \
                 `dialect.gateway.tokens`, unless something before this port does"
            );
        }
    }

    pub async fn answer(&self, mut request: Request<Body>) -> ServiceReply {
        let uid = request_uid(request.headers());
        let span = request_span(&uid, trace_context(request.headers_mut()).as_ref());
        let id = HeaderValue::from_str(uid.as_str()).ok();
        if let Some(id) = &id {
            request.headers_mut().insert(REQUEST_ID, id.clone());
        }
        let mut answer = self.0.answer(request).instrument(span).await;
        if let Some(id) = id {
            answer.response.headers_mut().insert(REQUEST_ID, id);
        }
        answer
    }

    /// Returns the gateway's reply to a request for this path that ended before it was forwarded.
    pub fn reply(&self, path: &str, end: &EndReason<'_>) -> Response<Bytes> {
        if self.0.kubernetes.is_some() && KubernetesProxy::is_cluster_or_tunnel_path(path) {
            return KubernetesApi.reply(end);
        }
        GatewayError::from(end).reply(self.0.statuses)
    }

    pub async fn follow(&self) {
        let Self(parts) = self;
        let tokens = OptionFuture::from(parts.tokens.as_ref().map(TokenProvider::follow));
        let accounts = OptionFuture::from(parts.accounts.as_ref().map(Accounts::follow));
        let kubernetes = OptionFuture::from(parts.kubernetes.as_ref().map(KubernetesProxy::follow));
        let roles = OptionFuture::from(parts.roles.as_ref().map(RoleSync::follow));
        tokio::join!(tokens, accounts, kubernetes, roles, parts.tls.keep_fresh());
    }

    pub fn accounts(&self) -> Option<&Accounts> {
        self.0.accounts.as_ref()
    }

    pub fn tls_status(&self) -> Option<CertificateState> {
        self.0.tls.status()
    }

    pub fn status(&self) -> GatewayStatus {
        let known_clusters = self.0.clusters.current_clusters();
        let problem = match (&known_clusters.stale_reason, known_clusters.is_known) {
            (Some(reason), _) => Some(reason.clone()),
            (None, false) => Some("the clusters are not known yet".to_owned()),
            (None, true) => None,
        };
        let kubernetes = self.0.kubernetes.as_ref();
        GatewayStatus {
            clusters: known_clusters
                .clusters
                .values()
                .map(|drivers| drivers.status())
                .collect(),
            discovery: self.0.clusters.path().map(ToString::to_string),
            problem,
            accounts: self.0.accounts.as_ref().map(Accounts::status),
            kubernetes: kubernetes.map(KubernetesProxy::clusters).unwrap_or_default(),
            peers: kubernetes.and_then(KubernetesProxy::peers),
            roles: self.0.roles.as_ref().map(RoleSync::status),
            tokens: self.0.tokens.as_ref().map(|tokens| match tokens {
                TokenProvider::File(table) => TokensStatus {
                    source: "file".to_owned(),
                    count: Some(table.len()),
                    problem: table.problem(),
                },
                TokenProvider::Endpoint(endpoint) => TokensStatus {
                    source: endpoint.url().to_string(),
                    count: None,
                    problem: None,
                },
                TokenProvider::Accounts(_) => TokensStatus {
                    source: "accounts".to_owned(),
                    count: None,
                    problem: None,
                },
            }),
        }
    }

    /// Returns the connections to the drivers and API servers of each cluster.
    pub fn upstreams(&self) -> Vec<Upstream> {
        let known_clusters = self.0.clusters.current_clusters();
        let drivers = known_clusters.clusters.values().map(|drivers| drivers.upstream.clone());
        let kubernetes = self.0.kubernetes.iter().flat_map(KubernetesProxy::upstreams);
        let services = self.0.services.iter().flat_map(Services::upstreams);
        drivers.chain(kubernetes).chain(services).collect()
    }

    pub async fn wait_until_agents_are_gone(&self) {
        if let Some(kubernetes) = &self.0.kubernetes {
            kubernetes.wait_until_agents_are_gone().await;
        }
    }

    /// Begins to stop: each tunnel of an agent ends as soon as no request uses it.
    pub fn stop(&self) {
        if let Some(kubernetes) = &self.0.kubernetes {
            kubernetes.stop();
        }
    }
}
