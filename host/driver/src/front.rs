//! The services of the driver's port, one for each role.

use std::net::IpAddr;

use admittance::{BodyLimits, Host, Passage, ReviewService};
use admittance_bcs::{HealthInfo, MesosDriver, Ports};
use admittance_dialect::End;
use admittance_gateway::{Gateway, Recipient, accounts::Accounts};
use admittance_net::{tls::CertificateStatus, upstream::Upstream};
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use tower::Service;

use crate::{
    config::{FrontConfig, Limits},
    driver::{Connections, Error},
    proxy::Proxy,
};

/// The service of the driver's port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub(crate) enum Front {
    /// The chains, then a control plane.
    Proxy(Proxy),
    /// The same for a BCS cluster.
    Bcs(MesosDriver),
    /// The drivers of BCS clusters.
    Gateway(Gateway),
    /// Reviews of kube-apiserver, without an upstream.
    Reviews(ReviewService),
}

/// A reply and its fields for the access log.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    pub(crate) passage: Option<Passage>,
    /// At a gateway.
    pub(crate) recipient: Option<Recipient>,
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self {
            passage: response.extensions().get().copied(),
            response,
            recipient: None,
        }
    }
}

impl Front {
    pub(crate) async fn new(
        config: FrontConfig,
        ports: Ports,
        connections: &Connections,
        host: &Host,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let bodies = BodyLimits::new(limits.body, limits.body_timeout);
        let Connections {
            ensembles, cluster, ..
        } = connections;
        Ok(match config {
            FrontConfig::Proxy {
                dialect,
                servers,
                upstream,
            } => Self::Proxy(Proxy::new(dialect, servers, upstream, host, bodies)),
            FrontConfig::Bcs(bcs) => {
                Self::Bcs(MesosDriver::new(bcs, ensembles, cluster.clone(), host, bodies)?)
            }
            FrontConfig::Gateway(config) => {
                Self::Gateway(Gateway::new(config, ports, ensembles, host, bodies).await?)
            }
            FrontConfig::Reviews(_) => {
                let reviews = host
                    .reviews()
                    .body_limit(limits.body)
                    .body_timeout(limits.body_timeout);
                Self::Reviews(match connections.chains.clone() {
                    Some(chains) => reviews.definitions(move |object| chains.definition_of(object)),
                    None => reviews,
                })
            }
        })
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Answer {
        match self {
            Self::Proxy(proxy) => proxy.answer(request).await.into(),
            Self::Bcs(driver) => driver.answer(request).await.into(),
            Self::Gateway(gateway) => {
                let answer = gateway.answer(request).await;
                Answer {
                    response: answer.response,
                    passage: Some(answer.passage),
                    recipient: answer.recipient,
                }
            }
            Self::Reviews(service) => match service.clone().call(request).await {
                Ok(response) => response.into(),
                Err(never) => match never {},
            },
        }
    }

    /// The reply to a request for this path that was aborted.
    pub(crate) fn end(&self, path: &str, end: &End<'_>) -> Answer {
        let response: Response<Bytes> = match self {
            Self::Proxy(proxy) => proxy.reply(end),
            Self::Bcs(driver) => driver.reply(end),
            Self::Gateway(gateway) => gateway.reply(path, end),
            Self::Reviews(service) => service.reply(end),
        };
        Answer {
            response: response.map(Body::from),
            passage: Some(Passage::Ended(end.as_str())),
            recipient: None,
        }
    }

    /// The upstream; `None` for a gateway, which has one for each cluster, and behind kube-apiserver.
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match self {
            Self::Proxy(proxy) => Some(proxy.upstream()),
            Self::Bcs(driver) => Some(driver.upstream()),
            Self::Gateway(_) | Self::Reviews(_) => None,
        }
    }

    /// `/healthz` in the format of bcs-mesos-driver, if this replaces it. `ip` is the listen address.
    pub(crate) fn health(&self, ip: IpAddr) -> Option<HealthInfo> {
        match self {
            Self::Bcs(driver) => driver.health(ip),
            Self::Proxy(_) | Self::Gateway(_) | Self::Reviews(_) => None,
        }
    }

    /// The client certificate for the upstream.
    pub(crate) fn tls_status(&self) -> Option<CertificateStatus> {
        match self {
            Self::Gateway(gateway) => gateway.tls_status(),
            front => front.upstream()?.tls_status(),
        }
    }

    /// The users and clusters of a gateway.
    pub(crate) fn accounts(&self) -> Option<Accounts> {
        match self {
            Self::Gateway(gateway) => gateway.accounts().cloned(),
            Self::Proxy(_) | Self::Bcs(_) | Self::Reviews(_) => None,
        }
    }

    /// Checks the health of servers and reloads changed files, until this future is dropped.
    pub(crate) async fn follow(&self) {
        match self {
            Self::Gateway(gateway) => gateway.follow().await,
            front => {
                if let Some(upstream) = front.upstream() {
                    tokio::join!(upstream.check_health(), upstream.keep_tls_fresh());
                }
            }
        }
    }

    /// Waits until all tunnels are closed.
    pub(crate) async fn tunnels_ended(&self) {
        join_all(self.upstreams().iter().map(Upstream::tunnels_ended)).await;
        if let Self::Gateway(gateway) = self {
            gateway.agents_gone().await;
        }
    }

    /// Begins to stop, while requests in flight go on.
    pub(crate) fn stop(&self) {
        if let Self::Gateway(gateway) = self {
            gateway.stop();
        }
    }

    /// Closes all tunnels.
    pub(crate) fn stop_tunnels(&self) {
        self.upstreams().iter().for_each(Upstream::stop_tunnels);
    }

    fn upstreams(&self) -> Vec<Upstream> {
        match self {
            Self::Gateway(gateway) => gateway.upstreams(),
            front => front.upstream().cloned().into_iter().collect(),
        }
    }
}
