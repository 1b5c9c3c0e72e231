//! Serves as a webhook server that answers kube-apiserver's AdmissionReviews. It has no upstream.

mod section;

use std::time::Duration;

use admittance::ReviewService;
use admittance_dialect::EndReason;
use admittance_fleet::{WebhooksConfig, audit::AuditConfig};
use admittance_net::upstream::{Upstream, UpstreamServer};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use tower::Service;

use super::{
    FrontConfig, FrontReply, FrontRow, FrontService, OpenedFront, StartContext, StartedFront, refuse_registration,
};
use crate::{Error, Limits, handler::FrontEndHandler};

const NO_UPSTREAM: &str = "the dialect `kubernetes` answers kube-apiserver and has no upstream";

#[derive(Clone, Debug, Default)]
pub struct ReviewsConfig {
    /// The webhook configurations that the leader of the replicas writes. If this is `None`, the leader writes no
    /// webhook configurations.
    pub webhooks: Option<WebhooksConfig>,
    /// The cluster audits that the leader of the replicas runs; `None` for none.
    pub audit: Option<AuditConfig>,
}

pub(super) const ROW: FrontRow = FrontRow {
    key: "kubernetes",
    example: "kubernetes: {}",
    admin_routes: Vec::new,
    read: |node, fields, sections| {
        let reviews = section::reviews(node, sections);
        refuse_registration(fields);
        fields.refuse("upstream", NO_UPSTREAM, "remove it");
        Some((Box::new(reviews?), Vec::new()))
    },
};

#[async_trait]
impl FrontConfig for ReviewsConfig {
    fn dialect_name(&self) -> &str {
        "kubernetes"
    }

    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error> {
        let reviews = context.host.reviews().body_limits(context.body_limits);
        Ok(StartedFront::without_registration(
            match context.connections.chain_store.clone() {
                Some(chains) => reviews.definitions(move |object| chains.definition_of(object)),
                None => reviews,
            },
        ))
    }

    fn set_servers(&mut self, _: Vec<UpstreamServer>) -> Result<(), &'static str> {
        Err(NO_UPSTREAM)
    }

    fn webhooks(&self) -> Option<&WebhooksConfig> {
        self.webhooks.as_ref()
    }

    fn audit(&self) -> Option<&AuditConfig> {
        self.audit.as_ref()
    }

    fn default_limits(&self) -> Limits {
        Limits {
            // A node learns with a delay that a terminating Pod was removed from the endpoints of its Service, and
            // sends it requests until then. So new connections are accepted for some seconds more.
            shutdown_delay: Duration::from_secs(5),
            ..Limits::default()
        }
    }
}

impl OpenedFront for ReviewService {
    fn serve(&self, serving: FrontEndHandler) -> BoxFuture<'static, ()> {
        serving.run(self.clone()).boxed()
    }

    fn upstreams(&self) -> Vec<Upstream> {
        Vec::new()
    }
}

impl FrontService for ReviewService {
    async fn answer(&self, request: Request<Body>) -> FrontReply {
        match self.clone().call(request).await {
            Ok(response) => response.into(),
            Err(never) => match never {},
        }
    }

    fn reply_to_ended(&self, _: &str, end: &EndReason<'_>) -> Response<Body> {
        ReviewService::end_reply(self, end).map(Body::from)
    }
}
