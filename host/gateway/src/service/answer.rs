//! Answers a request: sends it to the API server of a cluster or to a driver, or lets the management API answer it.

use std::sync::Arc;

use admittance::Passage;
use admittance_bcs::{CLUSTER_HEADER, routes::Permission, upstream_end};
use admittance_net::status_class;
use axum::body::Body;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE},
    request::Parts,
};
use metrics::{counter, histogram};
use tokio::time::Instant;

use super::{Inner, ServiceRecipient, ServiceReply};
use crate::{
    Statuses,
    accounts::Accounts,
    body::{self, CutOff},
    clusters::ClusterDrivers,
    consoles,
    error::GatewayError,
    kubernetes::KubernetesProxy,
    metric_names,
    namespaces::{GatewayNamespaces, RemainingCheck},
    path, permission, rest,
    services::{EVERY_CLUSTER, ServiceTarget, Services},
    tokens::{self, AccessRequest, TokenHolder},
    websocket_tokens,
};

/// The value of the label `cluster` for requests to unknown clusters.
const UNKNOWN_CLUSTER: &str = "unknown";

struct ForwardableRequest {
    drivers: Arc<ClusterDrivers>,
    holder: TokenHolder,
    is_mesos: bool,
}

impl Inner {
    pub(super) async fn answer(&self, request: Request<Body>) -> ServiceReply {
        let started = Instant::now();
        if let Some(kubernetes) = &self.kubernetes
            && KubernetesProxy::is_cluster_or_tunnel_path(request.uri().path())
        {
            return answer_kubernetes(kubernetes, request, started).await;
        }
        let (mut head, body) = request.into_parts();
        if let Some(accounts) = &self.accounts
            && rest::is_rest_path(head.uri.path())
        {
            return self.answer_management(accounts, &head, body, started).await;
        }
        let services = self.services.as_ref();
        let is_service = services.is_some_and(|services| services.find(head.uri.path()).is_some());
        let protocol = websocket_tokens::bearer_token(&head.headers)
            .is_some()
            .then(|| websocket_tokens::first_other_protocol(&head.headers))
            .flatten();
        let (recipient, forwarded) = match self.admit(&mut head).await {
            Ok(ForwardableRequest {
                drivers,
                holder,
                is_mesos,
            }) => {
                let TokenHolder {
                    name,
                    watched_right,
                    namespaces,
                } = holder;
                let cluster = drivers.id.as_str().into();
                if let Some(watched_right) = watched_right.as_ref().filter(|_| head.headers.contains_key(UPGRADE)) {
                    watched_right.guard_tunnel(&mut head.extensions);
                }
                let forwarded =
                    self.forward(&mut head, body, &drivers, namespaces, is_mesos)
                        .await
                        .map(|(response, passage)| match &watched_right {
                            Some(watched_right) => (response.map(|body| watched_right.watch_body(body)), passage),
                            None => (response, passage),
                        });
                let recipient = ServiceRecipient {
                    cluster: Some(cluster),
                    holder: name,
                };
                (Some(recipient), forwarded)
            }
            Err(error) => (None, Err(error)),
        };
        let statuses = if is_service { Statuses::Driver } else { self.statuses };
        let (response, own_status, passage) = match forwarded {
            Ok((mut response, passage)) => {
                let driver_status = response.status();
                *response.status_mut() = statuses.reply_status(driver_status);
                if let Some(protocol) = protocol.filter(|_| driver_status == StatusCode::SWITCHING_PROTOCOLS) {
                    response.headers_mut().entry(SEC_WEBSOCKET_PROTOCOL).or_insert(protocol);
                }
                (response, driver_status, passage)
            }
            Err(error) => {
                let passage = error.as_str();
                tracing::info!(end = passage, "the request ends here: {error}");
                let response = error.reply(statuses).map(Body::from);
                (response, error.own_status(), Passage::Ended(passage))
            }
        };
        record_metrics(own_status, passage, recipient.as_ref(), started);
        ServiceReply {
            response,
            passage,
            recipient,
        }
    }

    async fn answer_management(&self, accounts: &Accounts, head: &Parts, body: Body, started: Instant) -> ServiceReply {
        let answer = rest::answer(accounts, head, body, self.limits, self.statuses).await;
        let passage = Passage::Ended(answer.word);
        record_metrics(answer.response.status(), passage, None, started);
        ServiceReply {
            response: answer.response,
            passage,
            recipient: Some(ServiceRecipient {
                cluster: None,
                holder: answer.holder,
            }),
        }
    }

    async fn admit(&self, head: &mut Parts) -> Result<ForwardableRequest, GatewayError> {
        if let Some(services) = &self.services
            && let Some(target) = services.find(head.uri.path())
        {
            return self.admit_to_service(services, target, head).await;
        }
        head.uri = path::driver_path(&head.uri)?.into();
        if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(&head.method) {
            return Err(GatewayError::Method);
        }
        consoles::set_cluster_header(head);
        let cluster = requested_cluster(&head.headers)?.to_owned();
        let holder = self
            .find_holder(head, &cluster, || {
                permission::needed_permission(head, &self.plain_groups)
            })
            .await?;
        if !self.forward_token {
            tokens::remove_tokens(&mut head.headers);
        }
        let drivers = self.clusters.find(&cluster).await?;
        if consoles::is_console(head) {
            consoles::check_host(head, &drivers, self.limits).await?;
        }
        Ok(ForwardableRequest {
            drivers,
            holder,
            is_mesos: true,
        })
    }

    async fn admit_to_service(
        &self,
        services: &Services,
        target: ServiceTarget<'_>,
        head: &mut Parts,
    ) -> Result<ForwardableRequest, GatewayError> {
        let required_permission = target.rewrite(head)?;
        let name = match target {
            ServiceTarget::Service(..) => EVERY_CLUSTER.to_owned(),
            ServiceTarget::KubernetesDriver => requested_cluster(&head.headers)?.to_owned(),
        };
        let holder = self.find_holder(head, &name, || required_permission).await?;
        if !self.forward_token {
            tokens::remove_tokens(&mut head.headers);
        }
        let drivers = match target {
            ServiceTarget::Service(route, drivers) => Services::registered_drivers(route, drivers)?,
            ServiceTarget::KubernetesDriver => services.kubernetes_driver(&name).await?,
        };
        Ok(ForwardableRequest {
            drivers,
            holder,
            is_mesos: false,
        })
    }

    /// Returns the holder of the request's token, or an error if the holder does not have the needed permission.
    async fn find_holder(
        &self,
        head: &Parts,
        cluster: &str,
        required_permission: impl FnOnce() -> Permission,
    ) -> Result<TokenHolder, GatewayError> {
        let Some(tokens) = &self.tokens else {
            return Ok(TokenHolder::default());
        };
        let access = AccessRequest {
            cluster,
            method: &head.method,
            path: head.uri.path(),
            required_permission: required_permission(),
        };
        tokens.admit(&head.headers, access).await
    }

    /// Forwards a request to a driver. Returns the reply, and how the request was handled, for the access log.
    async fn forward(
        &self,
        head: &mut Parts,
        body: Body,
        drivers: &ClusterDrivers,
        namespaces: Option<GatewayNamespaces>,
        is_mesos: bool,
    ) -> Result<(Response<Body>, Passage), GatewayError> {
        let remaining = match &namespaces {
            None => RemainingCheck::Nothing,
            Some(namespaces) => namespaces.check_path(head)?,
        };
        let (body, cut_off, passage) = if is_mesos && body::is_yaml(head) {
            let body = body::convert_yaml(head, body, self.limits).await?;
            (body, CutOff::default(), Passage::Changed)
        } else {
            let (body, cut_off) = body::stream_body(head, body, self.limits).await?;
            (body, cut_off, Passage::Untouched)
        };
        let body = match namespaces.filter(|_| remaining == RemainingCheck::Body) {
            Some(namespaces) => namespaces.check_body(head, body, &drivers.id, self.limits).await?,
            None => body,
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

async fn answer_kubernetes(kubernetes: &KubernetesProxy, request: Request<Body>, started: Instant) -> ServiceReply {
    let reply = kubernetes.answer(request).await;
    let recipient = reply.recipient.map(|(cluster, holder)| ServiceRecipient {
        cluster: Some(cluster),
        holder: Some(holder),
    });
    let response = reply.response;
    let passage = response.extensions().get().copied().unwrap_or(Passage::Untouched);
    record_metrics(response.status(), passage, recipient.as_ref(), started);
    ServiceReply {
        response,
        passage,
        recipient,
    }
}

fn requested_cluster(headers: &HeaderMap) -> Result<&str, GatewayError> {
    // If the header has several values, they must be equal, because a driver could read any of them.
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

/// Counts a request in the metrics. All unknown clusters share one label. Otherwise, a client could create any number
/// of labels with requests for clusters that do not exist.
fn record_metrics(own_status: StatusCode, passage: Passage, recipient: Option<&ServiceRecipient>, started: Instant) {
    let cluster_name = recipient.and_then(|to| to.cluster.as_deref());
    let cluster = cluster_name.unwrap_or(UNKNOWN_CLUSTER).to_owned();
    counter!(
        metric_names::GATEWAY_REQUESTS,
        "cluster" => cluster.clone(), "status" => status_class(own_status), "passage" => passage.as_str()
    )
    .increment(1);
    histogram!(metric_names::GATEWAY_DURATION, "cluster" => cluster).record(started.elapsed());
}
