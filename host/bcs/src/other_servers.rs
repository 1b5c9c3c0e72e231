//! Sends requests to servers besides the upstream: to consoles on the hosts of a cluster, and to the kube-apiserver.

mod console;
mod definition_v1;
mod kubernetes;

use admittance::{BodyError, BodyLimits, Passage};
use admittance_cluster::Cluster;
use admittance_net::upstream::Upstream;
use axum::body::Body;
use http::{Request, Response, StatusCode, request::Parts};

pub use self::console::{ConsoleConfig, ConsoleScheme};
use self::{
    console::Consoles,
    kubernetes::{forward_custom_resources, forward_definitions},
};
use crate::{reply, scheduler::OtherServer};

#[derive(Debug)]
pub(crate) struct OtherServers {
    consoles: Consoles,
    cluster: Option<Cluster>,
    limits: BodyLimits,
}

impl OtherServers {
    /// `upstream` has the timeouts and TLS settings of connections to consoles.
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

    /// Sends a request to a console or to the kube-apiserver, and returns its reply. If that fails, returns a reply
    /// with the error. Returns `None` if the request is for a kube-apiserver but none is configured.
    pub(crate) async fn send(
        &self,
        server: OtherServer,
        head: Parts,
        body: Body,
    ) -> Result<Option<Response<Body>>, BodyError> {
        let reply = match (server, &self.cluster) {
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
            ) => forward_definitions(cluster, self.limits, path_and_query, next, head, body).await?,
            (OtherServer::CustomResources { path_and_query }, Some(cluster)) => {
                forward_custom_resources(cluster, self.limits, path_and_query, head, body).await?
            }
            (_, None) => return Ok(None),
        };
        Ok(Some(reply))
    }
}

/// Returns a reply as servers in Go write errors. `how` is the name of the error in the access log.
fn plain_reply(status: StatusCode, text: &str, how: &'static str) -> Response<Body> {
    Passage::Ended(how).mark_response(reply::plain_text_reply(status, format!("{text}\n")).map(Body::from))
}
