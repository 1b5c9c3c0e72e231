//! Writes replies that contain a `Status` of Kubernetes instead of a review.

use admittance_admission::{RefusalStatus, RequestRefusal};
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::json_reply;

/// Writes a `Status` as the reply to a caller that sent no valid review. kube-apiserver passes the message on.
pub fn status_reply(status: StatusCode, message: &str) -> http::Response<Bytes> {
    let reason = match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    };
    status_with_reason(status, reason, message)
}

/// Writes a `Status` like [`status_reply`], but with `reason` instead of the usual reason for the HTTP status.
pub fn status_with_reason(status: StatusCode, reason: &str, message: &str) -> http::Response<Bytes> {
    reply(RefusalStatus::new(status.as_u16(), reason, message.to_owned()))
}

pub(crate) fn refusal_reply(refusal: &RequestRefusal) -> http::Response<Bytes> {
    reply(RefusalStatus::from_refusal(refusal))
}

fn reply(status: RefusalStatus<'_>) -> http::Response<Bytes> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct StatusObject<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: Map<String, Value>,
        #[serde(flatten)]
        status: RefusalStatus<'a>,
    }
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::FORBIDDEN);
    let object = StatusObject {
        kind: "Status",
        api_version: "v1",
        metadata: Map::new(),
        status,
    };
    // Serializing a `Status` cannot fail, so the default is never used.
    json_reply(code, serde_json::to_vec(&object).unwrap_or_default())
}
