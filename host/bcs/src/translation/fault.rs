use bytes::Bytes;
use http::{Response, StatusCode};

use crate::reply::{Code, failure, plain};

/// The words with which bcs-common begins every message about a parameter.
pub(crate) const PARAMETERS: &str = "there is some error in the parameters";

/// The reason why a request cannot be translated. `Display` is the message of bcs-mesos-driver, with details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The body has no kind.
    #[error("Unmarshal TypeMeta failed: {0}")]
    TypeMeta(String),
    /// The kind of the body does not match the route.
    #[error("Kind {0} is invalid")]
    Kind(String),
    #[error("json decode failed!{0}")]
    Json(String),
    /// A quantity is infinite or not a number, which JSON cannot represent.
    #[error("json encode failed!encode version by json: {0}")]
    Encode(String),
    /// The name contains a dot. The message repeats a word, as in bcs-mesos-driver.
    #[error("Name can't contains contains '.'")]
    Name,
    #[error("{PARAMETERS}restart policy error")]
    RestartPolicy,
    #[error("{PARAMETERS} no template")]
    NoTemplate,
    #[error("{PARAMETERS}no containers and processes")]
    NothingToRun,
    #[error("{PARAMETERS}containers and processes cannot coexist")]
    ContainersAndProcesses,
    /// A value is not allowed in the scheduler's path.
    #[error("{PARAMETERS} {what} is `{value}`, which is not a valid value")]
    Unaddressable { what: &'static str, value: String },
    /// The table of routes has an invalid target. A test checks that it has none.
    #[error("mesos driver common error: `{0}` is no target")]
    NoTarget(&'static str),
    /// The scheduler's path is too long for HTTP.
    #[error("{PARAMETERS} {0}")]
    TooLong(String),
    #[error("unknown the message type")]
    MessageType,
    #[error("strconv.Atoi: parsing {text:?}: {reason}")]
    NoInteger {
        text: String,
        /// The reason in the words of Go.
        reason: &'static str,
    },
    #[error("param host_ip must not be empty")]
    NoHost,
    /// The host is not an IP address. Names are refused, because a name could belong to a host outside the cluster.
    #[error("param host_ip must be an IP address, and `{0}` is not one")]
    NoHostAddress(String),
    /// Custom resources cannot be watched.
    #[error("Not Found")]
    Watch,
}

impl Fault {
    pub(crate) fn reply(&self) -> Response<Bytes> {
        let message = self.to_string();
        let code = match self {
            Self::TypeMeta(_) | Self::Kind(_) => Code::RequestData,
            Self::Json(_) => Code::JsonDecode,
            Self::Encode(_) => Code::JsonEncode,
            Self::RestartPolicy
            | Self::NoTemplate
            | Self::NothingToRun
            | Self::ContainersAndProcesses
            | Self::Unaddressable { .. }
            | Self::TooLong(_) => Code::Parameter,
            Self::NoTarget(_) => Code::Driver,
            Self::MessageType => Code::MessageType,
            Self::Name | Self::NoInteger { .. } => return plain(StatusCode::OK, message),
            Self::NoHost | Self::NoHostAddress(_) => return plain(StatusCode::BAD_REQUEST, message),
            Self::Watch => return plain(StatusCode::NOT_FOUND, message),
        };
        failure(code, &message)
    }
}
