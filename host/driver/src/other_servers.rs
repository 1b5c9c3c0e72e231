//! What other servers answer than those of the upstream: consoles on the hosts of a cluster, and the
//! kube-apiserver.

mod console;
mod kubernetes;

use std::sync::OnceLock;

use admittance::{BodyError, BodyLimits, dialect::OtherServer};
use admittance_cluster::Cluster;
use admittance_net::upstream::Upstream;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts};

use self::{
    console::Consoles,
    kubernetes::{custom_resources, definitions},
};
use crate::{config::ConsoleConfig, front::EndedUpstream};

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The way to other servers than those of the upstream. Lives as long as the driver.
#[derive(Debug)]
pub(crate) struct OtherServers {
    consoles: Option<Consoles>,
    /// The cluster that clients may ask for custom resources; none: they may not.
    cluster: Option<OnceLock<Cluster>>,
    limits: BodyLimits,
}

/// Why there is no reply of another server.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// There is no such server in this configuration.
    NoRoute,
    /// The body of the request was not had.
    Body(BodyError),
}

impl OtherServers {
    /// `upstream` says how consoles are reached, `custom_resources` whether clients may ask the cluster that is
    /// [reached](Self::reach) for them; `limits` are for bodies that the kube-apiserver gets.
    pub(crate) fn new(
        consoles: Option<ConsoleConfig>,
        custom_resources: bool,
        upstream: &Upstream,
        limits: BodyLimits,
    ) -> Self {
        Self {
            consoles: consoles.map(|config| Consoles::new(config, upstream.clone())),
            cluster: custom_resources.then(OnceLock::new),
            limits,
        }
    }

    /// Ask this cluster for custom resources. Only the first one counts.
    pub(crate) fn reach(&self, cluster: Cluster) {
        if let Some(own) = &self.cluster {
            // A second one is not asked: the requests of a driver are for one cluster.
            let _ = own.set(cluster);
        }
    }

    fn cluster(&self) -> Result<&Cluster, Unanswered> {
        let cluster = self.cluster.as_ref().and_then(OnceLock::get);
        cluster.ok_or(Unanswered::NoRoute)
    }

    /// The reply of the other server, or of this program in its place.
    pub(crate) async fn send(
        &self,
        to: OtherServer,
        head: Parts,
        body: Body,
    ) -> Result<Response<Body>, Unanswered> {
        match to {
            OtherServer::Console { host, path_and_query } => {
                let consoles = self.consoles.as_ref().ok_or(Unanswered::NoRoute)?;
                Ok(consoles
                    .send(host, path_and_query, Request::from_parts(head, body))
                    .await)
            }
            OtherServer::CustomResourceDefinitions {
                path_and_query,
                body: next,
            } => {
                let cluster = self.cluster()?;
                definitions(cluster, self.limits, path_and_query, next, head, body)
                    .await
                    .map_err(Unanswered::Body)
            }
            OtherServer::CustomResources { path_and_query } => {
                let cluster = self.cluster()?;
                custom_resources(cluster, self.limits, path_and_query, head, body)
                    .await
                    .map_err(Unanswered::Body)
            }
        }
    }
}

/// A reply in plain text, as Go's servers write errors, and how the request ended.
fn plain(status: StatusCode, text: &str, how: &'static str) -> Response<Body> {
    let mut reply = Response::new(Body::from(format!("{text}\n")));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, PLAIN);
    reply.extensions_mut().insert(EndedUpstream(how));
    reply
}
