//! What other servers answer than those of the upstream: consoles on the hosts of a cluster, and the
//! kube-apiserver.

mod console;
mod kubernetes;

use admittance::{BodyError, BodyLimits};
use admittance_cluster::Cluster;
use admittance_net::upstream::Upstream;
use axum::body::Body;
use http::{Request, Response, StatusCode, request::Parts};

pub use self::console::{ConsoleConfig, ConsoleScheme};
use self::{
    console::Consoles,
    kubernetes::{custom_resources, definitions},
};
use crate::{
    reply,
    scheduler::{OtherServer, ended},
};

/// The way to other servers than those of the upstream. Lives as long as the driver.
#[derive(Debug)]
pub(crate) struct OtherServers {
    consoles: Consoles,
    /// The cluster that clients may ask for custom resources; none: they may not.
    cluster: Option<Cluster>,
    limits: BodyLimits,
}

impl OtherServers {
    /// `upstream` says how consoles are reached; `limits` are for bodies that the kube-apiserver gets.
    pub(crate) fn new(
        consoles: ConsoleConfig,
        cluster: Option<Cluster>,
        upstream: Upstream,
        limits: BodyLimits,
    ) -> Self {
        Self {
            consoles: Consoles::new(consoles, upstream),
            cluster,
            limits,
        }
    }

    /// The reply of the other server, or of this program in its place; none when there is no such server in this
    /// configuration.
    pub(crate) async fn send(
        &self,
        to: OtherServer,
        head: Parts,
        body: Body,
    ) -> Result<Option<Response<Body>>, BodyError> {
        let reply = match (to, &self.cluster) {
            (OtherServer::Console { host, path_and_query }, _) => {
                let request = Request::from_parts(head, body);
                self.consoles.send(host, path_and_query, request).await
            }
            (
                OtherServer::CustomResourceDefinitions {
                    path_and_query,
                    body: next,
                },
                Some(cluster),
            ) => definitions(cluster, self.limits, path_and_query, next, head, body).await?,
            (OtherServer::CustomResources { path_and_query }, Some(cluster)) => {
                custom_resources(cluster, self.limits, path_and_query, head, body).await?
            }
            (_, None) => return Ok(None),
        };
        Ok(Some(reply))
    }
}

/// A reply in plain text, as Go's servers write errors, and how the request ended.
fn plain(status: StatusCode, text: &str, how: &'static str) -> Response<Body> {
    ended(reply::plain(status, format!("{text}\n")).map(Body::from), how)
}
