//! Requests of clients that are forwarded to the API server.

use std::{error::Error, time::Duration};

use admittance_admission::is_dns_label;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, Request, Response, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use tokio::time::{Instant, timeout};

use crate::{
    connection::Connection,
    metrics::{self, Verb},
    request_error::{RequestError, causes, permission},
};

/// The timeout for the head of a reply. The API server itself aborts a request after a minute, and reports that.
const REPLY_LIMIT: Duration = Duration::from_secs(65);
const NAMESPACE_LIMIT: Duration = Duration::from_secs(10);

/// The client's headers that are forwarded to the API server. Other headers could carry the client's credentials, or
/// ask to act as another user.
const FORWARDED_HEADERS: [HeaderName; 3] = [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE];
const CONNECTION_HEADERS: [HeaderName; 4] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The reason why a request was not forwarded or a namespace was not created. It names the server, so it is only
/// logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{server}: {reason}")]
pub struct ForwardError {
    server: String,
    reason: String,
}

impl Connection {
    fn not_forwarded(&self, reason: impl Into<String>) -> ForwardError {
        ForwardError {
            server: self.url().to_owned(),
            reason: reason.into(),
        }
    }
}

pub(crate) async fn forward(
    connection: &Connection,
    request: Request<Bytes>,
) -> Result<
    Response<impl Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static + use<>>,
    ForwardError,
> {
    let (head, body) = request.into_parts();
    let mut next = Request::new(kube::client::Body::from(body));
    *next.method_mut() = head.method;
    *next.uri_mut() = head.uri;
    *next.headers_mut() = forwarded_headers(&head.headers);
    let (result, answer) = match timeout(REPLY_LIMIT, connection.client().send(next)).await {
        Ok(Ok(mut response)) => {
            for name in CONNECTION_HEADERS {
                response.headers_mut().remove(name);
            }
            (result_label(response.status()), Ok(response))
        }
        Ok(Err(error)) => ("unavailable", Err(connection.not_forwarded(causes(&error)))),
        Err(_) => (
            "timeout",
            Err(connection.not_forwarded("the API server did not answer in time")),
        ),
    };
    metrics::count_request(Verb::Forward, result);
    answer
}

fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    for name in FORWARDED_HEADERS {
        for value in headers.get_all(&name) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    forwarded
}

fn result_label(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "forbidden",
        404 => "not-found",
        408 | 425 | 429 | 500.. => "unavailable",
        400.. => "refused",
        _ => "ok",
    }
}

pub(crate) async fn ensure_namespace(connection: &Connection, name: &str) -> Result<(), ForwardError> {
    if !is_dns_label(name) {
        return Ok(());
    }
    let until = Instant::now() + NAMESPACE_LIMIT;
    let namespaces: Api<Namespace> = Api::all(connection.client());
    let lookup = connection
        .ask(Verb::Get, until, namespaces.get_metadata_opt(name))
        .await;
    let creation = match lookup {
        Ok(Some(_)) => Ok(()),
        Ok(None) => create_namespace(connection, name, &PostParams::default(), until).await,
        Err(failure) => Err(failure),
    };
    creation.map_err(|failure| {
        let reason = failure.advice(&permission("`get` and `create`", "namespaces", ""));
        connection.not_forwarded(format!("the namespace {name} could not be found or created: {reason}"))
    })
}

pub(crate) async fn create_namespace(
    connection: &Connection,
    name: &str,
    params: &PostParams,
    deadline: Instant,
) -> Result<(), RequestError> {
    let namespaces: Api<Namespace> = Api::all(connection.client());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let creation = namespaces.create(params, &namespace);
    match connection.ask(Verb::Create, deadline, creation).await {
        Ok(_) | Err(RequestError::Conflict(_)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_client_headers_are_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "application/json"),
            ("accept-encoding", "gzip"),
            ("content-type", "application/json"),
            ("content-length", "7"),
            ("authorization", "Bearer x"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("x-remote-user", "admin"),
            ("cookie", "a=b"),
            ("connection", "upgrade"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let mut header_names: Vec<String> = forwarded_headers(&headers).keys().map(ToString::to_string).collect();
        header_names.sort_unstable();
        assert_eq!(header_names, ["accept", "accept-encoding", "content-type"]);
    }
}
