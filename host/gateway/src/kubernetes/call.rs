//! Requests of the gateway itself to the API server of a cluster.

use std::time::Duration;

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use super::{Kubernetes, send};
use crate::accounts::Cluster;

/// The largest reply in bytes.
const LARGEST_REPLY: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

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
        let body = body.map_or_else(Body::empty, |body| body.to_string().into());
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = path
            .parse::<Uri>()
            .map_err(|error| CallError::Invalid(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, route.authorization.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let content_type = match *method {
            // JSON is YAML.
            Method::PATCH => "application/apply-patch+yaml",
            _ => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let replied = async {
            // If the request fails, the gateway's own reply takes the place of the API server's.
            let reply = send(&route.upstream, request).await.unwrap_or_else(|reply| reply);
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
