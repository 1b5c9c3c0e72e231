//! The gateway to the drivers of one or many clusters, in the role of bcs-api.
//!
//! A request for `/bcsapi/v4/scheduler/mesos/{...}` goes to `/mesosdriver/v4/{...}` of a driver of the cluster
//! that its header `BCS-ClusterID` names, when its token allows it. YAML becomes JSON on the way.

use std::{net::SocketAddr, sync::Arc};

use admittance::{BodyLimits, Host, Passage, REQUEST_ID, request_span, request_uid, trace_context};
use admittance_bcs::{
    CLUSTER_HEADER, Ports, RegistrationError, gateways_node, upstream_end,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_dialect::{Dialect, End, KubernetesApi};
use admittance_net::{
    listener::is_loopback,
    status_class,
    tls::{CertificateStatus, ClientTls},
    upstream::Upstream,
};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::UPGRADE, request::Parts};
use metrics::{counter, histogram};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    GatewayConfig, Statuses,
    accounts::{Accounts, AccountsError},
    body::{self, CutOff},
    clusters::{Clusters, Drivers},
    error::GatewayError,
    kubernetes::{Kubernetes, OtherGateways},
    metric_names, path,
    permission::{self, PlainGroups},
    rest,
    status::{GatewayStatus, TokensStatus},
    tokens::{self, AccessRequest, Holder, Tokens},
};

/// The cluster label of requests for an unknown cluster, in metrics.
const UNKNOWN: &str = "unknown";

/// Forwards requests to the drivers of clusters. Cheap to clone; lives as long as the gateway's port.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clusters: Clusters,
    tokens: Option<Tokens>,
    accounts: Option<Accounts>,
    /// The way into Kubernetes clusters, if there are accounts.
    kubernetes: Option<Kubernetes>,
    plain_groups: PlainGroups,
    forward_token: bool,
    statuses: Statuses,
    limits: BodyLimits,
    tls: ClientTls,
}

/// The reason why a gateway cannot start.
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

/// The cluster and the user of a request.
#[derive(Clone, Debug)]
pub struct Recipient {
    /// None for the management API.
    pub cluster: Option<Arc<str>>,
    /// The name of the token's holder, if known.
    pub holder: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct Answer {
    pub response: Response<Body>,
    pub passage: Passage,
    /// None if the request ended before its cluster and token were checked.
    pub recipient: Option<Recipient>,
}

impl Gateway {
    /// A gateway with this configuration, on these ports. Requests for Kubernetes clusters pass the chains of `host`;
    /// `limits` are for bodies.
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
        let accounts = config.accounts.take();
        let accounts = match accounts {
            Some(config) => Some(Accounts::new(*config).await?),
            None => None,
        };
        let others = match (config.peers.take(), &config.registration) {
            (Some(peers), Some(registration)) => Some(OtherGateways {
                config: peers,
                own: registration.gateway(ports)?,
                zookeeper: service.ok_or(RegistrationError::NoEnsemble)?,
                path: gateways_node().map_err(RegistrationError::from)?,
            }),
            _ => None,
        };
        Ok(Self(Arc::new(Inner {
            clusters: Clusters::start(&config, service),
            tls: config.drivers.tls,
            tokens: config
                .tokens
                .map(|config| Tokens::new(config, accounts.as_ref()))
                .transpose()?,
            kubernetes: accounts
                .clone()
                .map(|accounts| Kubernetes::new(accounts, others, host, limits)),
            accounts,
            plain_groups: config.plain_groups,
            forward_token: config.forward_token,
            statuses: config.statuses,
            limits,
        })))
    }

    /// Warn if the port is reachable without authentication, or if tokens are sent unencrypted.
    pub fn warn_of_port(&self, address: SocketAddr, is_tls: bool) {
        let has_drivers = self.0.clusters.path().is_some() || !self.0.clusters.now().clusters.is_empty();
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

    pub async fn answer(&self, mut request: Request<Body>) -> Answer {
        let uid = request_uid(request.headers());
        let trace = trace_context(request.headers_mut());
        let span = request_span(&uid, trace.as_ref());
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

    /// The reply to a request for this path that ends before it is forwarded.
    pub fn reply(&self, path: &str, end: &End<'_>) -> Response<Bytes> {
        if self.0.kubernetes.is_some() && Kubernetes::takes(path) {
            return KubernetesApi.reply(end);
        }
        GatewayError::from(end).reply(self.0.statuses)
    }

    /// Reload files when they change. Never returns.
    pub async fn follow(&self) {
        let tokens = async {
            if let Some(tokens) = &self.0.tokens {
                tokens.follow().await;
            }
        };
        let accounts = async {
            if let Some(accounts) = &self.0.accounts {
                accounts.follow().await;
            }
        };
        let kubernetes = async {
            if let Some(kubernetes) = &self.0.kubernetes {
                kubernetes.follow().await;
            }
        };
        tokio::join!(tokens, accounts, kubernetes, self.0.tls.keep_fresh());
    }

    /// Users and clusters, if the gateway has them.
    pub fn accounts(&self) -> Option<&Accounts> {
        self.0.accounts.as_ref()
    }

    /// The status of the client certificate that drivers are sent.
    pub fn tls_status(&self) -> Option<CertificateStatus> {
        self.0.tls.status()
    }

    /// The current clusters and tokens.
    pub fn status(&self) -> GatewayStatus {
        let known = self.0.clusters.now();
        let problem = match (&known.lost, known.is_known) {
            (Some(lost), _) => Some(lost.clone()),
            (None, false) => Some("the clusters are not known yet".to_owned()),
            (None, true) => None,
        };
        let kubernetes = self.0.kubernetes.as_ref();
        GatewayStatus {
            clusters: known.clusters.values().map(|drivers| drivers.status()).collect(),
            discovery: self.0.clusters.path().map(ToString::to_string),
            problem,
            accounts: self.0.accounts.as_ref().map(Accounts::status),
            kubernetes: kubernetes.map(Kubernetes::clusters).unwrap_or_default(),
            peers: kubernetes.and_then(Kubernetes::peers),
            tokens: self.0.tokens.as_ref().map(|tokens| match tokens {
                Tokens::File(table) => TokensStatus {
                    source: "file".to_owned(),
                    count: Some(table.len()),
                    problem: table.problem(),
                },
                Tokens::Endpoint(endpoint) => TokensStatus {
                    source: endpoint.url().to_string(),
                    count: None,
                    problem: None,
                },
                Tokens::Accounts(_) => TokensStatus {
                    source: "accounts".to_owned(),
                    count: None,
                    problem: None,
                },
            }),
        }
    }

    /// The drivers and API servers of each cluster.
    pub fn upstreams(&self) -> Vec<Upstream> {
        let known = self.0.clusters.now();
        let drivers = known.clusters.values().map(|drivers| drivers.upstream.clone());
        let kubernetes = self.0.kubernetes.iter().flat_map(Kubernetes::upstreams);
        drivers.chain(kubernetes).collect()
    }

    /// Waits until no agent has a tunnel to this gateway.
    pub async fn agents_gone(&self) {
        if let Some(kubernetes) = &self.0.kubernetes {
            kubernetes.agents_gone().await;
        }
    }

    /// Begins to stop: the tunnels of agents end when no request uses them.
    pub fn stop(&self) {
        if let Some(kubernetes) = &self.0.kubernetes {
            kubernetes.stop();
        }
    }
}

impl Inner {
    async fn answer(&self, request: Request<Body>) -> Answer {
        let started = Instant::now();
        if let Some(kubernetes) = &self.kubernetes
            && Kubernetes::takes(request.uri().path())
        {
            return entered(kubernetes, request, started).await;
        }
        let (mut head, body) = request.into_parts();
        if let Some(accounts) = &self.accounts
            && rest::is_rest(head.uri.path())
        {
            return self.managed(accounts, &head, body, started).await;
        }
        let (recipient, forwarded) = match self.admit(&mut head).await {
            Ok((drivers, Holder { name, watched })) => {
                let cluster = drivers.id.as_str().into();
                if let Some(watched) = watched.as_ref().filter(|_| head.headers.contains_key(UPGRADE)) {
                    watched.guard_tunnel(&mut head.extensions);
                }
                let forwarded = self.forward(&mut head, body, &drivers).await;
                let forwarded = forwarded.map(|(response, passage)| match &watched {
                    Some(watched) => (response.map(|body| watched.body(body)), passage),
                    None => (response, passage),
                });
                let recipient = Recipient {
                    cluster: Some(cluster),
                    holder: name,
                };
                (Some(recipient), forwarded)
            }
            Err(error) => (None, Err(error)),
        };
        let (response, own_status, passage) = match forwarded {
            Ok((mut response, passage)) => {
                let own = response.status();
                *response.status_mut() = self.statuses.of_reply(own);
                (response, own, passage)
            }
            Err(error) => {
                let passage = error.as_str();
                tracing::info!(end = passage, "the request ends here: {error}");
                let response = error.reply(self.statuses).map(Body::from);
                (response, error.own_status(), Passage::Ended(passage))
            }
        };
        count(own_status, passage, recipient.as_ref(), started);
        Answer {
            response,
            passage,
            recipient,
        }
    }

    /// The answer to a request of the management API.
    async fn managed(&self, accounts: &Accounts, head: &Parts, body: Body, started: Instant) -> Answer {
        let answer = rest::answer(accounts, head, body, self.limits, self.statuses).await;
        let passage = Passage::Ended(answer.word);
        count(answer.response.status(), passage, None, started);
        Answer {
            response: answer.response,
            passage,
            recipient: Some(Recipient {
                cluster: None,
                holder: answer.holder,
            }),
        }
    }

    /// The drivers that a request may go to, and its user. Rewrites the head for a driver.
    async fn admit(&self, head: &mut Parts) -> Result<(Arc<Drivers>, Holder), GatewayError> {
        head.uri = path::driver_path(&head.uri)?.into();
        if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(&head.method) {
            return Err(GatewayError::Method);
        }
        let cluster = cluster(&head.headers)?.to_owned();
        let holder = match &self.tokens {
            None => Holder::default(),
            Some(tokens) => {
                let access = AccessRequest {
                    cluster: &cluster,
                    method: &head.method,
                    path: head.uri.path(),
                    needed: permission::needed(head, &self.plain_groups),
                };
                tokens.admit(&head.headers, access).await?
            }
        };
        if !self.forward_token {
            tokens::remove(&mut head.headers);
        }
        Ok((self.clusters.find(&cluster).await?, holder))
    }

    /// The driver's reply, and how the request passed.
    async fn forward(
        &self,
        head: &mut Parts,
        body: Body,
        drivers: &Drivers,
    ) -> Result<(Response<Body>, Passage), GatewayError> {
        let (body, cut_off, passage) = if body::is_yaml(head) {
            let body = body::converted(head, body, self.limits).await?;
            (body, CutOff::default(), Passage::Changed)
        } else {
            let (body, cut_off) = body::streamed(head, body, self.limits).await?;
            (body, cut_off, Passage::Untouched)
        };
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = std::mem::take(&mut head.headers);
        *request.extensions_mut() = std::mem::take(&mut head.extensions);
        match drivers.upstream.send(request).await {
            Ok(response) => Ok((response, passage)),
            Err(_) if cut_off.has_happened() => Err(GatewayError::TooLarge {
                limit: self.limits.size,
            }),
            Err(error) => Err(GatewayError::from(&upstream_end(error))),
        }
    }
}

/// The answer to a request for a Kubernetes cluster, or of its agent.
async fn entered(kubernetes: &Kubernetes, request: Request<Body>, started: Instant) -> Answer {
    let entered = kubernetes.answer(request).await;
    let recipient = entered.recipient.map(|(cluster, holder)| Recipient {
        cluster: Some(cluster),
        holder: Some(holder),
    });
    let response = entered.response;
    let passage = response.extensions().get().copied().unwrap_or(Passage::Untouched);
    count(response.status(), passage, recipient.as_ref(), started);
    Answer {
        response,
        passage,
        recipient,
    }
}

/// The cluster of a request.
fn cluster(headers: &HeaderMap) -> Result<&str, GatewayError> {
    // Check every value, so that a driver cannot read a different one.
    let mut values = headers.get_all(CLUSTER_HEADER).iter();
    let first = values.next().ok_or(GatewayError::NoCluster)?;
    if values.any(|value| value != first) {
        return Err(GatewayError::SeveralClusters);
    }
    match first.to_str() {
        Ok("") => Err(GatewayError::NoCluster),
        Ok(cluster) => Ok(cluster),
        Err(_) => Err(GatewayError::UnknownCluster {
            cluster: String::from_utf8_lossy(first.as_bytes()).into_owned(),
            reason: String::new(),
        }),
    }
}

/// Only known clusters become labels, so that clients cannot create an unbounded number of them.
fn count(own: StatusCode, passage: Passage, recipient: Option<&Recipient>, started: Instant) {
    let cluster = recipient.and_then(|to| to.cluster.as_deref());
    let cluster = cluster.unwrap_or(UNKNOWN).to_owned();
    counter!(
        metric_names::GATEWAY_REQUESTS,
        "cluster" => cluster.clone(), "status" => status_class(own), "passage" => passage.as_str()
    )
    .increment(1);
    histogram!(metric_names::GATEWAY_DURATION, "cluster" => cluster).record(started.elapsed());
}
