use bytes::Bytes;
use http::{Response, StatusCode};

use crate::reply::{Code, failure_reply, plain_text_reply};

/// The words with which the messages of bcs-common about a wrong parameter begin.
pub(crate) const PARAMETERS: &str = "there is some error in the parameters";

/// The reason why a request cannot be translated. `Display` writes the message of bcs-mesos-driver, with details added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TranslationFault {
    #[error("Unmarshal TypeMeta failed: {0}")]
    TypeMeta(String),
    #[error("Kind {0} is invalid")]
    Kind(String),
    #[error("json decode failed!{0}")]
    Json(String),
    /// An amount of a resource is infinite or not a number, which JSON cannot represent.
    #[error("json encode failed!encode version by json: {0}")]
    Encode(String),
    /// The message repeats a word, because the message of bcs-mesos-driver does.
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
    #[error("{PARAMETERS} {what} is `{value}`, which is not a valid value")]
    Unaddressable { what: &'static str, value: String },
    /// The template of a route's path at the scheduler is invalid. This never happens: a test checks all templates.
    #[error("mesos driver common error: `{0}` is no target")]
    NoTarget(&'static str),
    #[error("{PARAMETERS} {0}")]
    TooLong(String),
    #[error("unknown the message type")]
    MessageType,
    #[error("strconv.Atoi: parsing {text:?}: {reason}")]
    NoInteger {
        text: String,
        /// The reason, in the words of Go's `strconv`.
        reason: &'static str,
    },
    #[error("param host_ip must not be empty")]
    NoHost,
    /// A host name could lead to a host outside the cluster.
    #[error("param host_ip must be an IP address, and `{0}` is not one")]
    NoHostAddress(String),
    #[error("Not Found")]
    Watch,
}

impl TranslationFault {
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
            Self::Name | Self::NoInteger { .. } => return plain_text_reply(StatusCode::OK, message),
            Self::NoHost | Self::NoHostAddress(_) => return plain_text_reply(StatusCode::BAD_REQUEST, message),
            Self::Watch => return plain_text_reply(StatusCode::NOT_FOUND, message),
        };
        failure_reply(code, &message)
    }
}
