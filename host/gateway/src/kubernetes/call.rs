//! Requests of the gateway itself to the API server of a cluster.

use std::time::Duration;

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Kubernetes,
    identity::{MASTERS, SUPER_USERS},
    routes::Route,
    send,
};
use crate::accounts::Cluster;

/// The largest reply in bytes.
const LARGEST_REPLY: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which an answer about the rights of an agent is used. They change when somebody edits its bindings.
const REVIEW_LIFETIME: Duration = Duration::from_secs(60);

/// The reason why a request of the gateway got no reply of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    NotConnected(String),
    #[error("the API server did not reply within {TIMEOUT:?}")]
    Timeout,
    #[error("the request or its reply cannot be read: {0}")]
    Invalid(String),
}

impl Kubernetes {
    /// Sends a request with the rights of the cluster's agent, and returns the reply. Objects are sent with PATCH as
    /// server-side apply.
    pub(crate) async fn call(
        &self,
        cluster: &Cluster,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), CallError> {
        let route = self.0.routes.to(cluster, &self.0.accounts);
        let route = route.map_err(|error| CallError::NotConnected(error.to_string()))?;
        route.call(method, path, body).await
    }
}

impl Route {
    /// Returns the groups of super users. The API server is asked whether the agent may impersonate `system:masters`, as
    /// a service account with the role `cluster-admin` may.
    pub(super) async fn groups_of_super_users(&self) -> &'static [&'static str] {
        let groups = |impersonates_all| if impersonates_all { MASTERS } else { SUPER_USERS };
        let known = *self.impersonates_all.lock();
        if let Some((known, _)) = known.filter(|(_, since)| since.elapsed() < REVIEW_LIFETIME) {
            return groups(known);
        }
        let attributes = json!({"verb": "impersonate", "resource": "groups", "name": "system:masters"});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        match self.call(&Method::POST, path, Some(&review)).await {
            Ok((status, reply)) if status.is_success() => {
                let is_allowed = reply.pointer("/status/allowed") == Some(&Value::Bool(true));
                *self.impersonates_all.lock() = Some((is_allowed, Instant::now()));
                groups(is_allowed)
            }
            // The request of the user will most likely fail too, and the next one asks again.
            failed => {
                tracing::debug!(
                    ?failed,
                    "the API server did not say whom the agent may impersonate"
                );
                SUPER_USERS
            }
        }
    }

    async fn call(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), CallError> {
        let body = body.map_or_else(Body::empty, |body| body.to_string().into());
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = path
            .parse::<Uri>()
            .map_err(|error| CallError::Invalid(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let content_type = match *method {
            // A JSON object is valid YAML.
            Method::PATCH => "application/apply-patch+yaml",
            _ => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let replied = async {
            // If the request fails, the gateway's own reply takes the place of the API server's.
            let reply = send(&self.upstream, request).await.unwrap_or_else(|reply| reply);
            let (head, body) = reply.into_parts();
            let bytes = Limited::new(body, LARGEST_REPLY).collect().await;
            let bytes = bytes
                .map_err(|error| CallError::Invalid(error.to_string()))?
                .to_bytes();
            let reply = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
            Ok((head.status, reply))
        };
        let replied = tokio::time::timeout(TIMEOUT, replied).await;
        replied.map_err(|_| CallError::Timeout)?
    }
}
