//! Forwards requests for custom resources to the kube-apiserver that belongs to a Mesos cluster.

use admittance::{BodyError, BodyLimits};
use admittance_cluster::{Cluster, ForwardError};
use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
    uri::PathAndQuery,
};
use serde::Deserialize;

use super::{definition_v1, plain_reply};
use crate::scheduler::{NextBody, definitions_reply};

/// The maximum size in bytes of a reply that is rewritten. Even a list of all definitions is smaller.
const REPLY_LIMIT: usize = 64 << 20;

/// Forwards a request for definitions of custom resources to the kube-apiserver. The request uses the API version
/// `v1beta1`. If the kube-apiserver does not serve `v1beta1`, the request is sent again with `v1`.
pub(super) async fn forward_definitions(
    cluster: &Cluster,
    limits: BodyLimits,
    target: PathAndQuery,
    new_body: NextBody,
    mut head: Parts,
    body: Body,
) -> Result<Response<Body>, BodyError> {
    let body = match new_body {
        NextBody::Nothing => Bytes::new(),
        NextBody::AsIs => limits.collect(&head, body).await?,
        NextBody::New(body) => body,
    };
    // The reply must not be compressed, because it is rewritten.
    head.headers.remove(ACCEPT_ENCODING);
    let extensions = head.extensions.clone();
    let newer =
        definition_v1::path_in_v1(&target).map(|to| request_to(head.clone(), to, definition_v1::convert_to_v1(&body)));
    let mut replied = cluster.forward(request_to(head, target, body)).await;
    let is_newer_needed = replied.as_ref().is_ok_and(is_not_served);
    if let Some(newer) = newer.filter(|_| is_newer_needed) {
        replied = cluster.forward(newer).await;
    }
    let reply = match replied {
        Ok(reply) => reply,
        Err(error) => return Ok(unreachable_reply(&error)),
    };
    let (mut head, body) = reply.into_parts();
    let limits = BodyLimits::new(REPLY_LIMIT, limits.time);
    match limits.receive(&extensions, &head.headers, body).await {
        Ok(collected) => {
            head.headers.remove(CONTENT_LENGTH);
            let body = definitions_reply(&collected);
            Ok(Response::from_parts(head, Body::from(body)))
        }
        Err(error @ BodyError::NoMemory(_)) => Err(error),
        Err(error) => {
            let error = error.end_reason().to_string();
            tracing::warn!(error, "a reply of the kube-apiserver cannot be read");
            Ok(plain_reply(
                StatusCode::BAD_GATEWAY,
                "the reply of the kube-apiserver cannot be read",
                "upstream-invalid",
            ))
        }
    }
}

pub(super) async fn forward_custom_resources(
    cluster: &Cluster,
    limits: BodyLimits,
    target: PathAndQuery,
    head: Parts,
    body: Body,
) -> Result<Response<Body>, BodyError> {
    let body = limits.collect(&head, body).await?;
    if head.method == Method::POST
        && let Some(namespace) = namespace_of(&body)
        && let Err(error) = cluster.ensure_namespace(&namespace).await
    {
        // The error is only logged, and the custom resource is sent nevertheless. If the namespace does not exist, the
        // reply of the kube-apiserver says so.
        tracing::warn!(%error, "the namespace of a custom resource could not be created");
    }
    match cluster.forward(request_to(head, target, body)).await {
        Ok(reply) => Ok(reply.map(Body::new)),
        Err(error) => Ok(unreachable_reply(&error)),
    }
}

fn request_to(head: Parts, to: PathAndQuery, body: Bytes) -> Request<Bytes> {
    let mut request = Request::from_parts(head, body);
    *request.uri_mut() = Uri::from(to);
    request
}

/// Returns whether the kube-apiserver does not serve the API version of the request. It then replies with a 404 whose
/// body is not JSON, whereas the body of any other 404 is JSON.
fn is_not_served<B>(reply: &Response<B>) -> bool {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    reply.status() == StatusCode::NOT_FOUND && !reply.headers().get(CONTENT_TYPE).is_some_and(is_json)
}

fn namespace_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct KubernetesObject {
        metadata: KubernetesMetadata,
    }
    #[derive(Deserialize)]
    struct KubernetesMetadata {
        namespace: Option<String>,
    }
    let object: KubernetesObject = serde_json::from_slice(body).ok()?;
    object.metadata.namespace
}

fn unreachable_reply(error: &ForwardError) -> Response<Body> {
    tracing::warn!(%error, "a request could not be forwarded to the kube-apiserver");
    plain_reply(
        StatusCode::BAD_GATEWAY,
        "the kube-apiserver does not respond",
        "upstream-unreachable",
    )
}
