//! The front of the drivers of one or many clusters: what the API layer of BCS does for them.
//!
//! A request for `/bcsapi/v4/scheduler/mesos/{...}` goes to `/mesosdriver/v4/{...}` of a driver of the cluster
//! that its header `BCS-ClusterID` names, when its token allows it. YAML becomes JSON on the way.

mod body;
mod cluster_id;
mod clusters;
mod config;
pub(crate) mod metric_names;
mod path;
mod permission;
mod reply;
mod status;
mod tokens;
mod yaml;

use std::{net::SocketAddr, sync::Arc};

use admittance::{BodyLimits, Passage, REQUEST_ID, dialect::End, request_uid};
use admittance_net::tls::{CertificateStatus, ClientTls};
use admittance_zookeeper::ZooKeeper;
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request::Parts};
use metrics::{counter, histogram};
use tokio::time::Instant;
use tracing::Instrument;

use self::{
    body::CutOff,
    clusters::{Clusters, Drivers},
    reply::Ended,
    tokens::{AccessRequest, Tokens},
};
pub use self::{
    cluster_id::ClusterId,
    config::{EndpointConfig, GatewayConfig, TokensConfig},
    permission::{ApiGroup, InvalidApiGroup, Permission, PlainGroups},
    reply::Statuses,
    tokens::TokenTable,
};
use crate::{
    config::is_loopback,
    front::{status_class, upstream_end},
};

const CLUSTER_HEADER: &str = "BCS-ClusterID";
/// The cluster of requests for none that is known, in metrics.
const UNKNOWN: &str = "unknown";

/// Hands requests on to the drivers of clusters. Cheap to clone; lives as long as the gateway's port.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clusters: Clusters,
    tokens: Option<Tokens>,
    plain_groups: PlainGroups,
    forward_token: bool,
    statuses: Statuses,
    limits: BodyLimits,
    /// What all drivers are shown.
    tls: ClientTls,
}

/// For which cluster a request was, and who sent it, when that is known: an extension of its reply.
#[derive(Clone, Debug)]
pub(crate) struct For {
    pub(crate) cluster: ClusterId,
    pub(crate) holder: Option<Arc<str>>,
}

impl Gateway {
    /// As the configuration says. `service` is the ensemble of the services around; `limits` are for bodies.
    pub(crate) fn new(config: GatewayConfig, service: Option<&ZooKeeper>, limits: BodyLimits) -> Self {
        let statuses = config.statuses;
        Self(Arc::new(Inner {
            clusters: Clusters::start(&config, service),
            tls: config.drivers.tls,
            tokens: config.tokens.map(Tokens::new),
            plain_groups: config.plain_groups,
            forward_token: config.forward_token,
            statuses,
            limits,
        }))
    }

    /// Say what is to be known of the port that it is at.
    pub(crate) fn tell(&self, address: SocketAddr, is_tls: bool) {
        if self.0.tokens.is_some() && !is_tls && !is_loopback(address) {
            tracing::warn!(
                %address,
                "clients send their tokens in the clear: add `listen.tls`, unless something before this port \
                 decrypts"
            );
        }
        if self.0.tokens.is_none() && !is_loopback(address) {
            tracing::warn!(
                %address,
                "everybody who reaches this port may change every cluster: list who may in \
                 `dialect.gateway.tokens`, unless something before this port does"
            );
        }
    }

    /// Answer a request.
    pub(crate) async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let uid = request_uid(request.headers());
        let span = tracing::info_span!("request", uid = uid.as_str());
        let id = HeaderValue::from_str(uid.as_str()).ok();
        if let Some(id) = &id {
            request.headers_mut().insert(REQUEST_ID, id.clone());
        }
        let mut response = self.0.answer(request).instrument(span).await;
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }

    /// The reply to a request that ends before it is answered.
    pub(crate) fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        Ended::from(end).reply(self.0.statuses)
    }

    /// Read files again whenever they change. It does not end.
    pub(crate) async fn follow(&self) {
        let tokens = async {
            if let Some(tokens) = &self.0.tokens {
                tokens.follow().await;
            }
        };
        tokio::join!(tokens, self.0.tls.keep_fresh());
    }

    /// How the TLS files are that are shown to drivers.
    pub(crate) fn tls_status(&self) -> Option<CertificateStatus> {
        self.0.tls.status()
    }

    /// Wait for every tunnel to end.
    pub(crate) async fn tunnels_ended(&self) {
        let known = self.0.clusters.now();
        join_all(
            known
                .clusters
                .values()
                .map(|drivers| drivers.upstream.tunnels_ended()),
        )
        .await;
    }

    /// End every tunnel now.
    pub(crate) fn stop_tunnels(&self) {
        for drivers in self.0.clusters.now().clusters.values() {
            drivers.upstream.stop_tunnels();
        }
    }
}

impl Inner {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let (mut head, body) = request.into_parts();
        let passed = self.pass(&mut head, body).await;
        let (mut response, own_status, cluster) = match passed {
            Ok((mut response, cluster)) => {
                let own = response.status();
                *response.status_mut() = self.statuses.of_reply(response.status());
                (response, own, cluster)
            }
            Err((ended, cluster)) => {
                let passage = ended.as_str();
                tracing::info!(end = passage, "the request ends here: {ended}");
                let mut response = ended.reply(self.statuses).map(Body::from);
                response.extensions_mut().insert(Passage::Ended(passage));
                let own = ended.reply(Statuses::Driver).status();
                (response, own, cluster)
            }
        };
        count(&response, own_status, cluster.as_ref(), started);
        if let Some(cluster) = cluster {
            response.extensions_mut().insert(cluster);
        }
        response
    }

    /// The driver's reply, or why there is none.
    async fn pass(
        &self,
        head: &mut Parts,
        body: Body,
    ) -> Result<(Response<Body>, Option<For>), (Ended, Option<For>)> {
        let (drivers, holder) = self.admit(head).await.map_err(|ended| (ended, None))?;
        let to = For {
            cluster: drivers.id.clone(),
            holder,
        };
        match self.hand_on(head, body, &drivers).await {
            Ok(response) => Ok((response, Some(to))),
            Err(ended) => Err((ended, Some(to))),
        }
    }

    /// The drivers that a request may go to, and whose it is. Its head becomes one for a driver.
    async fn admit(&self, head: &mut Parts) -> Result<(Arc<Drivers>, Option<Arc<str>>), Ended> {
        let inner = path::inner(&head.uri)?;
        head.uri = inner.into();
        if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(&head.method) {
            return Err(Ended::Method);
        }
        let cluster = cluster(&head.headers)?.to_owned();
        let holder = match &self.tokens {
            None => None,
            Some(tokens) => {
                let asked = AccessRequest {
                    cluster: &cluster,
                    method: &head.method,
                    path: head.uri.path(),
                    needed: permission::needed(head, &self.plain_groups),
                };
                tokens.admit(&head.headers, asked).await?
            }
        };
        if !self.forward_token {
            tokens::remove(&mut head.headers);
        }
        Ok((self.clusters.find(&cluster).await?, holder))
    }

    async fn hand_on(
        &self,
        head: &mut Parts,
        body: Body,
        drivers: &Drivers,
    ) -> Result<Response<Body>, Ended> {
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
            Ok(mut response) => {
                response.extensions_mut().insert(passage);
                Ok(response)
            }
            Err(_) if cut_off.has_happened() => Err(Ended::TooLarge {
                limit: self.limits.size,
            }),
            Err(error) => Err(Ended::from(&upstream_end(error))),
        }
    }
}

/// The cluster that a request is for.
fn cluster(headers: &HeaderMap) -> Result<&str, Ended> {
    // Every value, so that a driver does not read another one.
    let mut values = headers.get_all(CLUSTER_HEADER).iter();
    let first = values.next().ok_or(Ended::NoCluster)?;
    if values.any(|value| value != first) {
        return Err(Ended::SeveralClusters);
    }
    match first.to_str() {
        Ok("") => Err(Ended::NoCluster),
        Ok(cluster) => Ok(cluster),
        Err(_) => Err(Ended::UnknownCluster {
            cluster: String::from_utf8_lossy(first.as_bytes()).into_owned(),
            reason: String::new(),
        }),
    }
}

/// A cluster is a label only when it is known, so that clients cannot make any number of them.
fn count(response: &Response<Body>, own: StatusCode, to: Option<&For>, started: Instant) {
    let cluster = to.map_or(UNKNOWN, |to| to.cluster.as_str()).to_owned();
    let passage = crate::front::passage(response);
    counter!(
        metric_names::REQUESTS,
        "cluster" => cluster.clone(), "status" => status_class(own.as_u16()), "passage" => passage
    )
    .increment(1);
    histogram!(metric_names::DURATION, "cluster" => cluster).record(started.elapsed());
}
