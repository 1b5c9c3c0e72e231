use std::time::Duration;

use admittance_admission::{RequestRefusal, path};
use admittance_net::upstream::UpstreamError;
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
    uri::PathAndQuery,
};

/// The reason why the front end replies to a request itself, instead of with a reply from the upstream.
#[derive(Clone, Copy, Debug, derive_more::Display)]
#[non_exhaustive]
pub enum EndReason<'a> {
    /// The chains refused the request.
    Refused(&'a RequestRefusal),
    /// The dialect refuses the request, for example because the body is malformed.
    Rejected(&'a Rejection),
    /// The front end must read the body of this request, but the body is larger than the front end allows.
    #[display("the request's body is larger than the {limit} bytes that are allowed here")]
    BodyTooLarge {
        /// The maximum size of the body in bytes.
        limit: usize,
    },
    /// The front end must read the body of this request, but the body did not arrive in time.
    #[display("the request's body did not arrive within {limit:?}")]
    BodyTimeout {
        /// The time within which the body must arrive.
        limit: Duration,
    },
    /// The client stopped sending the body, or sent it too slowly.
    #[display("the request's body did not arrive: {reason}")]
    BodyStalled {
        /// A sentence that says that the body stalled or was too slow.
        reason: &'a str,
    },
    /// The body was cut off, or its HTTP framing is malformed.
    #[display("the request's body cannot be read: {reason}")]
    BodyUnreadable {
        /// A sentence that says why the body cannot be read.
        reason: &'a str,
    },
    /// The front end must read the body of this request, but the body is compressed.
    #[display("the request's body has the Content-Encoding `{encoding}`; send it uncompressed")]
    BodyEncoded {
        /// The value of the header `Content-Encoding`.
        encoding: &'a str,
    },
    /// No route in the configuration matches the path of the request.
    #[display("404: Page Not Found")]
    NoRoute,
    /// The front end already handles its maximum number of requests, or has no memory left for the body.
    #[display("{reason}")]
    Overloaded {
        /// The time after which the client may send the request again.
        retry_after: Duration,
        /// A sentence that says which limit is reached.
        reason: &'a str,
    },
    /// The chains need the object that the upstream has stored, but the upstream did not send it.
    #[display("the stored object, which the chains need for this request, is not known: {reason}")]
    StoredUnknown {
        /// A sentence that says why the stored object is missing.
        reason: &'a str,
    },
    /// No connection to the upstream could be made, or it broke before the head of the reply arrived.
    #[display("{reason}")]
    UpstreamUnreachable {
        /// A sentence that says why the connection failed.
        reason: &'a str,
    },
    /// The upstream did not send the head of its reply in time.
    #[display("the upstream did not reply within {limit:?}")]
    UpstreamTimeout {
        /// The time within which the head of the reply must arrive.
        limit: Duration,
    },
}

impl From<UpstreamError> for EndReason<'_> {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Timeout(limit) => Self::UpstreamTimeout { limit },
            error => Self::UpstreamUnreachable { reason: error.reason() },
        }
    }
}

impl EndReason<'_> {
    /// Returns the name of this reason in logs and metrics, such as `body-too-large`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Rejected(_) => "rejected",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::BodyTimeout { .. } | Self::BodyStalled { .. } => "body-timeout",
            Self::BodyUnreadable { .. } => "body-unreadable",
            Self::BodyEncoded { .. } => "body-encoded",
            Self::NoRoute => "no-route",
            Self::Overloaded { .. } => "overloaded",
            Self::StoredUnknown { .. } => "stored-unknown",
            Self::UpstreamUnreachable { .. } => "upstream-unreachable",
            Self::UpstreamTimeout { .. } => "upstream-timeout",
        }
    }

    /// Returns the HTTP status of the reply to a request that ended for this reason.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::FORBIDDEN),
            Self::Rejected(rejection) => match rejection.kind {
                RejectionKind::Unmatched => StatusCode::FORBIDDEN,
                RejectionKind::WrongCluster | RejectionKind::Malformed | RejectionKind::Ambiguous => {
                    StatusCode::BAD_REQUEST
                }
                RejectionKind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                RejectionKind::Unchangeable | RejectionKind::PatchFailed => StatusCode::UNPROCESSABLE_ENTITY,
                RejectionKind::Precondition => StatusCode::PRECONDITION_FAILED,
            },
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout { .. } | Self::BodyStalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyUnreadable { .. } => StatusCode::BAD_REQUEST,
            Self::BodyEncoded { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::StoredUnknown { .. } | Self::UpstreamUnreachable { .. } => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Adds `Retry-After`, with at least one second, if the front end is overloaded. Returns other replies unchanged.
    #[must_use]
    pub fn with_retry_after(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        if let Self::Overloaded { retry_after, .. } = self {
            let seconds = retry_after.as_secs().max(1);
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Returns a reply with this JSON as its body.
pub fn json_reply(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The reason why a dialect does not accept a request. `Display` writes a sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// The kind of the rejection, from which the HTTP status follows.
    pub kind: RejectionKind,
    /// The sentence that tells the client what is wrong.
    pub message: String,
}

impl Rejection {
    /// Returns a rejection of this kind, with a sentence for the client.
    pub fn new(kind: RejectionKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// Returns the rejection of a request that servers could read in several ways. `reason` says why they could.
pub fn ambiguous_rejection(reason: &str) -> Rejection {
    Rejection::new(RejectionKind::Ambiguous, format!("the request is ambiguous: {reason}"))
}

/// Returns a rejection if a header or query parameter names another method or path for the request, such as
/// `X-HTTP-Method-Override: DELETE`.
pub fn override_rejection(head: &Parts) -> Option<Rejection> {
    let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let header_pairs = head.headers.iter();
    let headers = header_pairs.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let name = path::find_override(head.method.as_str(), target, headers)?;
    Some(ambiguous_rejection(&format!(
        "{name} names another method or path than the request's own; remove it"
    )))
}

/// The reasons why a dialect does not accept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionKind {
    /// The request is for another cluster.
    WrongCluster,
    /// The body, or a part of the head, is not valid for the route of the request.
    Malformed,
    /// Servers could read the request in several ways.
    Ambiguous,
    /// No route matches the request, and the configuration refuses such requests.
    Unmatched,
    /// The body has a media type that cannot be inspected.
    MediaType,
    /// A chain would change the object, but the request cannot express that change.
    Unchangeable,
    /// The patch does not apply to the stored object.
    PatchFailed,
    /// The client requires a version of the object other than the stored one.
    Precondition,
}
