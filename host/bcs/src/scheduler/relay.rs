//! Converts the scheduler's replies for clients of the driver.

use admittance_admission::shortened;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::Relay;
use crate::reply::{Code, failure_reply};

/// The maximum number of characters that are quoted from a reply that is not an envelope.
const MAX_QUOTED: usize = 300;

/// The version in which definitions of custom resources are first requested from the kube-apiserver.
pub(crate) const DEFINITIONS_VERSION: &str = "apiextensions.k8s.io/v1beta1";
/// The version of definitions in Kubernetes 1.22 and later, where `v1beta1` no longer exists.
pub(crate) const NEWER_DEFINITIONS_VERSION: &str = "apiextensions.k8s.io/v1";
/// The version of definitions that clients of the driver expect in a reply.
const DRIVER_VERSION: &str = "v4";

/// Replaces the first API version in a kube-apiserver's reply about definitions by the version that clients expect.
pub fn definitions_reply(body: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(body) else {
        return body.clone();
    };
    // `v1beta1` must come first, since a search for `v1` would also find `v1beta1`.
    let versions = [DEFINITIONS_VERSION, NEWER_DEFINITIONS_VERSION];
    let version = versions.into_iter().find(|version| text.contains(version));
    match version {
        Some(version) => text.replacen(version, DRIVER_VERSION, 1).into(),
        None => body.clone(),
    }
}

/// Decides from the beginning of a reply's body how the scheduler's reply is passed on.
///
/// Whatever the scheduler's status is, the client gets HTTP 200 and the scheduler's body unchanged. Clients expect an
/// envelope with result, code, message and data, so any other body is replaced by one.
///
/// A scheduler that is not the master does not process requests, and replies with an empty body.
pub fn relay(status: StatusCode, start: &[u8]) -> Relay {
    if status == StatusCode::OK && start.is_empty() {
        return Relay::NotProcessed(invalid_reply(status, start));
    }
    let start = start.trim_ascii_start();
    if start.starts_with(b"{") {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Relay::Unchanged {
            status: StatusCode::OK,
            headers,
        };
    }
    Relay::Reply(invalid_reply(status, start))
}

fn invalid_reply(status: StatusCode, start: &[u8]) -> Response<Bytes> {
    let text = String::from_utf8_lossy(start);
    let text = shortened(text.trim(), MAX_QUOTED);
    let reason = if text.is_empty() {
        // A scheduler that is not the master replies without a body.
        format!("the scheduler replied {status} without a body; it may not be the master")
    } else {
        format!("the scheduler replied {status} without JSON: {text}")
    };
    failure_reply(Code::HttpDo, &format!("do http request failed!{reason}"))
}
