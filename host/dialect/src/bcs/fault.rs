use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::json;

use super::{code::Code, envelope};

/// What the original puts before every message of its own: the name of its program.
pub(super) const PROGRAM: &str = "bcs-mesos-driver";

/// The sentence that begins every message about a parameter (bcs-common's).
const PARAMETERS: &str = "there is some error in the parameters";

/// Why a request cannot be put to the scheduler. As text: the message that clients of the original know, with
/// what the original leaves out after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The body does not say its kind.
    #[error("Unmarshal TypeMeta failed: {0}")]
    TypeMeta(String),
    /// The body is of another kind than its route.
    #[error("Kind {0} is invalid")]
    Kind(String),
    /// The body is not what its kind is.
    #[error("json decode failed!{0}")]
    Json(String),
    /// A quantity is no number that JSON has.
    #[error("json encode failed!encode version by json: {0}")]
    Encode(String),
    /// The name has a dot in it. The doubled word is the original's.
    #[error("Name can't contains contains '.'")]
    Name,
    /// No such restart policy.
    #[error("{PARAMETERS}restart policy error")]
    RestartPolicy,
    /// Nothing says what is to be run.
    #[error("{PARAMETERS} no template")]
    NoTemplate,
    /// The template has nothing to run.
    #[error("{PARAMETERS}no containers and processes")]
    NothingToRun,
    /// The template has both.
    #[error("{PARAMETERS}containers and processes cannot coexist")]
    ContainersAndProcesses,
    /// A value cannot stand in the scheduler's path.
    #[error("{PARAMETERS} {what} is `{value}`, which names nothing")]
    Unaddressable {
        /// Which value.
        what: &'static str,
        /// It.
        value: String,
    },
    /// The table has a target that is not in its notation. A test holds that there is none.
    #[error("mesos driver common error: `{0}` is no target")]
    NoTarget(&'static str),
    /// The scheduler's path is too long for HTTP.
    #[error("{PARAMETERS} {0}")]
    TooLong(String),
    /// No message of that type.
    #[error("unkown the message type")]
    MessageType,
    /// What must be a whole number is none.
    #[error("strconv.Atoi: parsing {text:?}: {reason}")]
    NoInteger {
        /// As it was written.
        text: String,
        /// As Go says it.
        reason: &'static str,
    },
    /// A request for a console does not say on which host.
    #[error("param host_ip must not be empty")]
    NoHost,
    /// What it says is no address, but perhaps the name of a host that is none of the cluster's.
    #[error("param host_ip must be an IP address, and `{0}` is none")]
    NoHostAddress(String),
    /// Custom resources cannot be watched.
    #[error("Not Found")]
    Watch,
}

/// How clients see a fault.
enum Shape {
    /// HTTP 200, and the envelope.
    Envelope(Code),
    /// This status, and the text alone.
    Plain(StatusCode),
}

impl Fault {
    fn shape(&self) -> Shape {
        match self {
            Self::TypeMeta(_) | Self::Kind(_) => Shape::Envelope(Code::RequestData),
            Self::Json(_) => Shape::Envelope(Code::JsonDecode),
            Self::Encode(_) => Shape::Envelope(Code::JsonEncode),
            Self::RestartPolicy
            | Self::NoTemplate
            | Self::NothingToRun
            | Self::ContainersAndProcesses
            | Self::Unaddressable { .. }
            | Self::TooLong(_) => Shape::Envelope(Code::Parameter),
            Self::NoTarget(_) => Shape::Envelope(Code::Driver),
            Self::MessageType => Shape::Envelope(Code::MessageType),
            Self::Name | Self::NoInteger { .. } => Shape::Plain(StatusCode::OK),
            Self::NoHost | Self::NoHostAddress(_) => Shape::Plain(StatusCode::BAD_REQUEST),
            Self::Watch => Shape::Plain(StatusCode::NOT_FOUND),
        }
    }

    /// The reply to the client.
    pub(super) fn reply(&self) -> Response<Bytes> {
        match self.shape() {
            Shape::Envelope(code) => failure(code, &self.to_string()),
            Shape::Plain(status) => {
                let mut response = Response::new(Bytes::from(self.to_string()));
                *response.status_mut() = status;
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static("text/plain; charset=utf-8"),
                );
                response
            }
        }
    }
}

/// An error of the driver itself as its handlers write it: HTTP 200, compact, the program's name before the
/// message, no data but an empty object.
pub(super) fn failure(code: Code, message: &str) -> Response<Bytes> {
    envelope(
        StatusCode::OK,
        json!({
            "result": false,
            "code": code.number(),
            "message": format!("({PROGRAM}):{message}"),
            "data": {},
        })
        .to_string(),
    )
}
