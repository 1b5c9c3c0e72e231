//! Serves as a gateway in front of the clusters of BCS.

mod accounts;
mod roles;
mod section;

use std::sync::Arc;

use admittance_bcs::Registrar;
use admittance_dialect::EndReason;
use admittance_gateway::{Gateway, GatewayConfig, TokensConfig, accounts::Accounts};
use admittance_net::{
    tls::{CertificateState, ClientTls},
    upstream::{Upstream, UpstreamConfig, UpstreamServer},
};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use http::{Request, Response};

use super::{FrontConfig, FrontReply, FrontRow, FrontService, OpenedFront, StartContext, StartedFront, bcs};
use crate::{Error, handler::FrontEndHandler, status::DriverStatus};

pub(super) const ROW: FrontRow = FrontRow {
    key: "gateway",
    example: "gateway: { discover: {} }",
    admin_routes: admittance_gateway::admin::routes,
    read: |node, fields, sections| {
        let gateway = section::gateway(node, sections);
        let why = "a gateway finds drivers by their clusters";
        fields.refuse("upstream", why, "write `dialect.gateway.clusters` or `discover`");
        let registration = fields.get_optional("registration", |node| bcs::read_registration(node, None, sections));
        let mut gateway = gateway?;
        if gateway.accounts.is_none() {
            let why = "a gateway without `dialect.gateway.accounts` runs no chains";
            fields.refuse("definitions", why, "give them to the drivers behind it");
        }
        gateway.registration = registration;
        if gateway.peers.is_some() && !fields.has("registration") {
            let message = "other gateways find this one by its registration, which `dialect.gateway.peers` requires";
            fields
                .node()
                .add_mistake(message, "write `registration: { ip: 10.0.0.5 }`");
        }
        Some((Box::new(gateway), Vec::new()))
    },
};

#[async_trait]
impl FrontConfig for GatewayConfig {
    /// Returns `kubernetes`. A gateway forwards requests to clusters of other kinds too, but its chains are only for
    /// requests to Kubernetes clusters.
    fn dialect_name(&self) -> &str {
        "kubernetes"
    }

    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error> {
        let (ports, ensembles) = (context.ports, &context.connections.ensembles);
        let registration = self.registration.as_ref();
        let registrar = registration
            .map(|config| Registrar::for_gateway(config, ports, ensembles))
            .transpose()?;
        let gateway = Gateway::new(*self, ports, ensembles, context.host, context.body_limits).await?;
        gateway.warn_of_port(ports.address, ports.is_tls);
        Ok(StartedFront {
            front: Arc::new(gateway),
            registrar,
            drivers: None,
        })
    }

    fn upstream(&self) -> Option<&UpstreamConfig> {
        Some(&self.drivers)
    }

    fn client_tls(&self) -> Vec<&ClientTls> {
        let endpoint = match &self.tokens {
            Some(TokensConfig::Endpoint(endpoint)) => Some(&endpoint.tls),
            _ => None,
        };
        let peers = self.peers.as_ref().map(|peers| &peers.tls);
        [Some(&self.drivers.tls), endpoint, peers]
            .into_iter()
            .flatten()
            .collect()
    }

    fn set_servers(&mut self, _: Vec<UpstreamServer>) -> Result<(), &'static str> {
        Err("a gateway finds drivers by their clusters; list them in `dialect.gateway.clusters`")
    }
}

impl OpenedFront for Gateway {
    fn serve(&self, serving: FrontEndHandler) -> BoxFuture<'static, ()> {
        serving.run(self.clone()).boxed()
    }

    fn upstreams(&self) -> Vec<Upstream> {
        Gateway::upstreams(self)
    }

    fn report(&self, status: &mut DriverStatus) {
        status.gateway = Some(self.status());
    }

    fn tls_status(&self) -> Option<CertificateState> {
        Gateway::tls_status(self)
    }

    fn accounts(&self) -> Option<&Accounts> {
        Gateway::accounts(self)
    }

    fn not_ready_reason(&self) -> Option<&'static str> {
        let is_unread = self.accounts().is_some_and(|accounts| accounts.directory().is_err());
        is_unread.then_some("the database of users and clusters has not been read yet; the log and /v1/status say why")
    }

    fn becomes_ready(&self) -> Option<BoxFuture<'_, ()>> {
        let accounts = self.accounts()?;
        let is_read = async {
            // The wait ends with an error only if the sender of the changes is dropped. The gateway owns the sender, so
            // this does not happen.
            let _ = accounts.changes().wait_for(Option::is_some).await;
        };
        Some(is_read.boxed())
    }

    fn follow(&self) -> BoxFuture<'_, ()> {
        Gateway::follow(self).boxed()
    }

    fn wait_for_tunnels(&self) -> BoxFuture<'_, ()> {
        async {
            join_all(self.upstreams().iter().map(Upstream::wait_until_tunnels_end)).await;
            self.wait_until_agents_are_gone().await;
        }
        .boxed()
    }

    fn stop(&self) {
        Gateway::stop(self);
    }
}

impl FrontService for Gateway {
    async fn answer(&self, request: Request<Body>) -> FrontReply {
        let answer = Gateway::answer(self, request).await;
        FrontReply {
            response: answer.response,
            passage: Some(answer.passage),
            recipient: answer.recipient,
        }
    }

    fn reply_to_ended(&self, path: &str, end: &EndReason<'_>) -> Response<Body> {
        Gateway::reply(self, path, end).map(Body::from)
    }
}
