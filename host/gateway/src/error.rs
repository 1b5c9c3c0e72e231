//! The reasons why the gateway does not forward a request, and their replies.

use admittance_admission::keywords;
use admittance_bcs::reply::{API_NAME, Code, filter_error, handler_error};
use admittance_dialect::EndReason;
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE},
};

use super::yaml::InvalidYaml;

const RETRY_SECONDS: u64 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statuses {
    /// The HTTP status of the reply is always 200, as in bcs-api. The code in the body says what happened.
    #[default]
    Ok,
    /// The client gets the HTTP status of the driver's reply. If the gateway itself refuses a request, the status fits
    /// the error.
    Driver,
}

keywords!(Statuses, "value of `statuses`": Ok = "ok", Driver = "driver");

impl Statuses {
    /// Returns the HTTP status that the client gets if the driver replies with `status`. With `Self::Ok`, this is
    /// always 200, unless the driver switches to another protocol: then the client gets the status 101.
    pub(super) fn reply_status(self, status: StatusCode) -> StatusCode {
        match self {
            Self::Driver => status,
            Self::Ok if status.is_informational() => status,
            Self::Ok => StatusCode::OK,
        }
    }
}

/// The reason why the gateway does not forward a request. `Display` is the message, which begins like bcs-api's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GatewayError {
    #[error("not found: paths begin with /bcsapi/v4/scheduler/mesos/ or /bcsapi/v1/")]
    NoRoute,
    /// The path has a segment that a driver could resolve, so the gateway would have checked the wrong permission.
    #[error("the path has a segment `.` or `..`, or an empty one; write it without")]
    DotSegment,
    #[error("the path is too long")]
    PathTooLong,
    #[error("method not allowed: drivers accept only GET, POST, PUT and DELETE")]
    Method,
    #[error("http header BCS-ClusterID can't be empty")]
    NoCluster,
    #[error("http header BCS-ClusterID is set several times, with different values")]
    SeveralClusters,
    /// The cluster is unknown, or has no driver. `reason` says more, or is empty.
    #[error("mesos cluster {cluster} not found{}", after_colon(.reason))]
    UnknownCluster { cluster: String, reason: String },
    #[error("no server is registered: {0}")]
    NoService(String),
    #[error("request mesos apiserver failed: {0}")]
    Unreachable(String),
    #[error("request mesos apiserver failed: {0}")]
    Timeout(String),
    #[error("request yaml convert to json error: {0}")]
    Yaml(#[from] InvalidYaml),
    #[error("request yaml convert to json error: its Content-Encoding is `{0}`; send it uncompressed")]
    Encoded(String),
    #[error("read http body failed: it is larger than the {limit} bytes that are allowed here")]
    TooLarge { limit: usize },
    #[error("read http body failed: {0}")]
    BodyTimeout(String),
    #[error("read http body failed: {0}")]
    Unreadable(String),
    #[error("anonymous requests is forbidden, please provide a valid token: {0}")]
    Unauthorized(&'static str),
    #[error("bcs auth check no authority: {0}")]
    Forbidden(String),
    #[error("bcs auth check no authority: {0}")]
    Host(String),
    #[error("bcs auth check error: {0}")]
    AuthUnavailable(&'static str),
    #[error("bcs apiserver internal error: {0}")]
    Overloaded(String),
}

fn after_colon(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

/// The part of bcs-api whose error replies are imitated. Each part formats the JSON of its replies differently.
#[derive(Clone, Copy, Debug)]
enum EnvelopeWriter {
    /// An error from a handler of bcs-api: compact JSON, with a message that contains the name of the program.
    Handler,
    /// An error from a filter of bcs-api: indented JSON. Handlers of bcs-api can report an error with the status 200,
    /// but filters never do.
    Filter,
}

struct ErrorReplyForm {
    word: &'static str,
    code: Code,
    writer: EnvelopeWriter,
    /// The HTTP status of the reply, unless a handler replies 200 because of [`Statuses::Ok`].
    status: StatusCode,
}

impl GatewayError {
    fn form(&self) -> ErrorReplyForm {
        use EnvelopeWriter::{Filter, Handler};
        #[rustfmt::skip]
        let (word, code, writer, status) = match self {
            Self::NoRoute => ("no-route", Code::BadRequest, Filter, StatusCode::NOT_FOUND),
            Self::DotSegment | Self::PathTooLong => ("no-route", Code::BadRequest, Filter, StatusCode::BAD_REQUEST),
            Self::Method => ("no-route", Code::BadRequest, Filter, StatusCode::METHOD_NOT_ALLOWED),
            Self::NoCluster | Self::SeveralClusters => ("no-cluster", Code::NoCluster, Handler, StatusCode::BAD_REQUEST),
            Self::UnknownCluster { .. } => ("unknown-cluster", Code::ClusterNotFound, Handler, StatusCode::NOT_FOUND),
            Self::NoService(_) => ("unknown-service", Code::Internal, Filter, StatusCode::BAD_GATEWAY),
            Self::Unreachable(_) => ("upstream-unreachable", Code::DriverUnreachable, Handler, StatusCode::BAD_GATEWAY),
            Self::Timeout(_) => ("upstream-timeout", Code::DriverUnreachable, Handler, StatusCode::GATEWAY_TIMEOUT),
            Self::Yaml(_) => ("yaml", Code::Yaml, Handler, StatusCode::BAD_REQUEST),
            Self::Unreadable(_) => ("body-unreadable", Code::ApiReadBody, Handler, StatusCode::BAD_REQUEST),
            // bcs-api never replies with the next three errors, because it does not limit the encoding, size or
            // duration of bodies.
            Self::Encoded(_) => ("body-encoded", Code::Yaml, Filter, StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::TooLarge { .. } => ("body-too-large", Code::ApiReadBody, Filter, StatusCode::PAYLOAD_TOO_LARGE),
            Self::BodyTimeout(_) => ("body-timeout", Code::ApiReadBody, Filter, StatusCode::REQUEST_TIMEOUT),
            Self::Unauthorized(_) => ("unauthorized", Code::Unauthorized, Filter, StatusCode::UNAUTHORIZED),
            Self::Forbidden(_) | Self::Host(_) => ("forbidden", Code::Forbidden, Filter, StatusCode::BAD_REQUEST),
            Self::AuthUnavailable(_) => ("undecided", Code::AuthError, Filter, StatusCode::SERVICE_UNAVAILABLE),
            Self::Overloaded(_) => ("overloaded", Code::Internal, Filter, StatusCode::SERVICE_UNAVAILABLE),
        };
        ErrorReplyForm {
            word,
            code,
            writer,
            status,
        }
    }

    pub(super) fn as_str(&self) -> &'static str {
        self.form().word
    }

    /// Returns the HTTP status that describes this error. The reply to the client may have another one: with
    /// [`Statuses::Ok`], some errors are sent with the status 200.
    pub(super) fn own_status(&self) -> StatusCode {
        self.form().status
    }

    pub(super) fn reply(&self, statuses: Statuses) -> Response<Bytes> {
        let ErrorReplyForm {
            code, writer, status, ..
        } = self.form();
        let message = self.to_string();
        let mut response = match writer {
            EnvelopeWriter::Handler => handler_error(Some(API_NAME), statuses.reply_status(status), code, &message),
            EnvelopeWriter::Filter => filter_error(status, code, &message),
        };
        let headers = response.headers_mut();
        match self {
            Self::Method => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, POST, PUT, DELETE"));
            }
            Self::Unauthorized(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::AuthUnavailable(_) | Self::Overloaded(_) => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS.into());
            }
            _ => {}
        }
        response
    }
}

impl From<&EndReason<'_>> for GatewayError {
    fn from(end: &EndReason<'_>) -> Self {
        match end {
            EndReason::UpstreamTimeout { .. } => Self::Timeout(end.to_string()),
            EndReason::Overloaded { .. } => Self::Overloaded(end.to_string()),
            EndReason::BodyTooLarge { limit } => Self::TooLarge { limit: *limit },
            EndReason::BodyTimeout { limit } => Self::BodyTimeout(format!("it did not arrive within {limit:?}")),
            EndReason::BodyStalled { reason } => Self::BodyTimeout((*reason).to_owned()),
            EndReason::BodyUnreadable { reason } => Self::Unreadable((*reason).to_owned()),
            EndReason::BodyEncoded { encoding } => Self::Encoded((*encoding).to_owned()),
            end => Self::Unreachable(end.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn each_error_has_its_status_and_code() {
        let unknown = |reason: &str| GatewayError::UnknownCluster { cluster: "BCS-X".to_owned(), reason: reason.to_owned() };
        // (error, HTTP status with `Statuses::Ok`, HTTP status with `Statuses::Driver`, code, message)
        for (error, ok, own, code, message) in [
            (GatewayError::NoCluster, 200, 400, 1_405_007, "(bcs-api):http header BCS-ClusterID can't be empty"),
            (unknown(""), 200, 404, 1_405_051, "(bcs-api):mesos cluster BCS-X not found"),
            (unknown("no driver"), 200, 404, 1_405_051, "(bcs-api):mesos cluster BCS-X not found: no driver"),
            (GatewayError::Unreachable("x".to_owned()), 200, 502, 1_405_053, "(bcs-api):request mesos apiserver failed: x"),
            (GatewayError::Timeout("x".to_owned()), 200, 504, 1_405_053, "(bcs-api):request mesos apiserver failed: x"),
            (GatewayError::Unreadable("x".to_owned()), 200, 400, 1_405_006, "(bcs-api):read http body failed: x"),
            (GatewayError::TooLarge { limit: 7 }, 413, 413, 1_405_006, "read http body failed: it is larger than the 7 bytes that are allowed here"),
            (GatewayError::Unauthorized("x"), 401, 401, 1_405_059, "anonymous requests is forbidden, please provide a valid token: x"),
            (GatewayError::Forbidden("x".to_owned()), 400, 400, 1_405_058, "bcs auth check no authority: x"),
            (GatewayError::AuthUnavailable("x"), 503, 503, 1_405_057, "bcs auth check error: x"),
            (GatewayError::DotSegment, 400, 400, 1_405_061, "the path has a segment `.` or `..`, or an empty one; write it without"),
        ] {
            for (statuses, status) in [(Statuses::Ok, ok), (Statuses::Driver, own)] {
                let response = error.reply(statuses);
                assert_eq!(response.status(), status, "{error:?} {statuses:?}");
                let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                assert_eq!(body["code"], code, "{error:?}");
                assert_eq!(body["message"], message, "{error:?}");
                assert_eq!(body["result"], false);
            }
        }
    }

    #[test]
    fn envelopes_have_the_format_of_bcs_api() {
        let text = |error: GatewayError| String::from_utf8(error.reply(Statuses::Ok).body().to_vec()).unwrap();
        // Only parts of the JSON are compared, because the order of its members is not fixed: it depends on a feature
        // of serde_json, which any crate in the build can turn on.
        let handler = text(GatewayError::NoCluster);
        assert!(handler.contains("\"data\":{}") && !handler.contains('\n'), "{handler}");
        let filter = text(GatewayError::Forbidden("x".to_owned()));
        assert!(filter.contains("\n \"data\": null"), "{filter}");
    }

    #[test]
    fn driver_statuses_become_200_if_configured() {
        for (status, ok) in [(200, 200), (201, 200), (400, 200), (404, 200), (500, 200), (101, 101)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Statuses::Ok.reply_status(status), ok);
            assert_eq!(Statuses::Driver.reply_status(status), status);
        }
    }
}
