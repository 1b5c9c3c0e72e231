use bytes::Bytes;
use http::{Response, StatusCode};

use crate::reply::{Code, failure, plain};

/// The sentence that begins every message about a parameter (bcs-common's).
pub(crate) const PARAMETERS: &str = "there is some error in the parameters";

/// Why a request cannot be put to the scheduler. As text: the message that clients of the original know, with
/// what the original leaves out after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
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
    #[error("{PARAMETERS} {what} is `{value}`, which is not a valid value")]
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
    #[error("param host_ip must be an IP address, and `{0}` is not one")]
    NoHostAddress(String),
    /// Custom resources cannot be watched.
    #[error("Not Found")]
    Watch,
}

impl Fault {
    /// The reply to the client.
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
