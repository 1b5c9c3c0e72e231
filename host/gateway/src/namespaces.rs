//! Restricts a token to some namespaces of a Mesos cluster. A request whose namespace is ambiguous is refused.

use std::{collections::BTreeSet, sync::Arc};

use admittance::BodyLimits;
use admittance_admission::Operation;
use admittance_bcs::{
    Bcs, ClusterId,
    routes::{ForwardedBody as RouteBody, RouteAction, RouteLookup, lookup},
};
use admittance_dialect::{BodyReading, Dialect, Inspection};
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;

use crate::{error::GatewayError, path};

#[derive(Clone, Debug)]
pub(super) struct GatewayNamespaces(pub(super) Arc<BTreeSet<String>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingCheck {
    Nothing,
    /// The namespace in the body must be checked, because drivers use it instead of the namespace in the path.
    Body,
}

impl GatewayNamespaces {
    pub(super) fn check_path(&self, head: &Parts) -> Result<RemainingCheck, GatewayError> {
        let refused = |reason: &str| {
            Err(GatewayError::Forbidden(format!(
                "the token is for some namespaces only, and {reason}"
            )))
        };
        let matched_route = match lookup(head) {
            RouteLookup::Found(matched_route) if path::has_one_reading(head.uri.path()) => matched_route,
            _ => return refused("it is not certain which one this request is for"),
        };
        let (RouteAction::Scheduler(call) | RouteAction::Definitions(call)) = matched_route.route.action else {
            return refused("consoles and custom resources of an API server are not for one");
        };
        let remaining = match call.body {
            RouteBody::Nothing | RouteBody::Message if call.target.contains("{ns}") => RemainingCheck::Nothing,
            RouteBody::Checked(_) | RouteBody::Version(_) | RouteBody::DeploymentDef | RouteBody::DaemonsetDef => {
                RemainingCheck::Body
            }
            RouteBody::Nothing | RouteBody::Message | RouteBody::AsIs => {
                return refused("this route is for the whole cluster");
            }
        };
        self.check_namespace(matched_route.parameter("ns"))?;
        Ok(remaining)
    }

    fn check_namespace(&self, namespace: &str) -> Result<(), GatewayError> {
        if self.0.contains(namespace) {
            Ok(())
        } else {
            Err(GatewayError::Forbidden(format!(
                "the token is not for the namespace {namespace:?}"
            )))
        }
    }

    /// Checks that the token may use the namespace in the body. Returns the body with its keys in the spelling that
    /// drivers document, so that every driver reads the namespace that was checked.
    pub(super) async fn check_body(
        &self,
        head: &mut Parts,
        body: Body,
        cluster: &ClusterId,
        limits: BodyLimits,
    ) -> Result<Body, GatewayError> {
        let collected = limits.collect(head, body).await;
        let bytes = collected.map_err(|error| GatewayError::from(&error.end_reason()))?;
        let reading = Bcs::new(cluster.clone())
            .read_body(head, &Inspection::new(Operation::Create), &bytes)
            .map_err(|rejection| GatewayError::Unreadable(rejection.message))?;
        let BodyReading::Admit { request, canonical } = reading else {
            return Err(GatewayError::Unreadable("it is not an object with a kind".to_owned()));
        };
        self.check_namespace(request.namespace.as_deref().unwrap_or_default())?;
        let bytes: Bytes = canonical.unwrap_or(bytes);
        head.headers.insert(http::header::CONTENT_LENGTH, bytes.len().into());
        head.headers.remove(http::header::TRANSFER_ENCODING);
        Ok(Body::from(bytes))
    }
}
