//! Requests that the gateway itself sends to the API server of a cluster.

use std::time::Duration;

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    KubernetesProxy,
    identity::{SUPER_USER_AND_MASTERS_GROUPS, SUPER_USER_GROUPS},
    routes::ClusterRoute,
    send,
};
use crate::accounts::RegisteredCluster;

const LARGEST_REPLY: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which an API server is asked again whether the agent may impersonate `system:masters`. The answer
/// changes if somebody changes the role bindings of the agent.
const REVIEW_LIFETIME: Duration = Duration::from_secs(60);
const REVIEW_PAUSE: Duration = Duration::from_secs(5);
/// The timeout of the request that asks an API server whether the agent may impersonate `system:masters`. It is short,
/// because a user's request waits for the answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why a request that the gateway itself sent got no reply from the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    NotConnected(String),
    #[error("the API server did not reply within {TIMEOUT:?}")]
    Timeout,
    #[error("the request or its reply cannot be read: {0}")]
    Invalid(String),
}

impl KubernetesProxy {
    /// Sends a request to the API server with the agent's rights. PATCH sends an object as server-side apply.
    pub(crate) async fn call(
        &self,
        cluster: &RegisteredCluster,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), CallError> {
        let lookup = self.0.routes.route_to(cluster, &self.0.accounts);
        let route = lookup.map_err(|error| CallError::NotConnected(error.to_string()))?;
        route.call(method, path, body).await
    }
}

impl ClusterRoute {
    /// Returns the groups that super users have in this cluster. They include `system:masters` if the agent may use it.
    pub(super) async fn super_user_groups(&self) -> &'static [&'static str] {
        let mut last = self.impersonation_check.lock().await;
        let is_allowed = match *last {
            Some((is_allowed, until)) if Instant::now() < until => is_allowed,
            _ => {
                let reviewed = self.review_impersonation().await;
                let lifetime = if reviewed.is_some() {
                    REVIEW_LIFETIME
                } else {
                    REVIEW_PAUSE
                };
                let is_allowed = reviewed.unwrap_or_default();
                *last = Some((is_allowed, Instant::now() + lifetime));
                is_allowed
            }
        };
        if is_allowed {
            SUPER_USER_AND_MASTERS_GROUPS
        } else {
            SUPER_USER_GROUPS
        }
    }

    /// Asks the API server whether the agent may impersonate `system:masters`. Returns `None` if no answer comes in
    /// time.
    async fn review_impersonation(&self) -> Option<bool> {
        let attributes = json!({"verb": "impersonate", "resource": "groups", "name": "system:masters"});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        match timeout(REVIEW_TIMEOUT, self.call(&Method::POST, path, Some(&review))).await {
            Ok(Ok((status, reply))) if status.is_success() => {
                Some(reply.pointer("/status/allowed") == Some(&Value::Bool(true)))
            }
            failed => {
                tracing::debug!(?failed, "the API server did not say whom the agent may impersonate");
                None
            }
        }
    }

    async fn call(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value), CallError> {
        let mut request = Request::new(body.map_or_else(Body::empty, |body| body.to_string().into()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path
            .parse::<Uri>()
            .map_err(|error| CallError::Invalid(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let content_type = match *method {
            // The body is JSON, but this type of YAML fits, because every JSON object is valid YAML.
            Method::PATCH => "application/apply-patch+yaml",
            _ => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let replied = async {
            let reply = send(&self.upstream, request).await.unwrap_or_else(|reply| reply);
            let (head, body) = reply.into_parts();
            let reply_body = Limited::new(body, LARGEST_REPLY).collect().await;
            let bytes = reply_body
                .map_err(|error| CallError::Invalid(error.to_string()))?
                .to_bytes();
            let reply =
                serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
            Ok((head.status, reply))
        };
        let replied = tokio::time::timeout(TIMEOUT, replied).await;
        replied.map_err(|_| CallError::Timeout)?
    }
}
