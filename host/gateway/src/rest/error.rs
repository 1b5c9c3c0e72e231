//! The reasons why a request of the management API is refused, and the replies in the format of bcs-api.

use admittance_bcs::reply::Code;
use admittance_dialect::json_reply;
use admittance_net::budget::NoBodyMemory;
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::json;

use crate::{
    Statuses,
    accounts::{AccountsError, TokenDenied},
};

const RETRY_SECONDS: u64 = 5;
/// The message to a client whose token is missing or not sufficient begins with this text. The leading space is not a
/// mistake: bcs-api sends the same message.
const UNAUTHENTICATED: &str = " anonymous requests is forbidden, please provide a valid token";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RestError {
    #[error("not found: see the table of routes below /rest in the documentation")]
    NoRoute,
    #[error("the path does not allow this method")]
    Method,
    #[error("{0}")]
    Body(String),
    #[error("{0}")]
    Overloaded(NoBodyMemory),
    #[error("{0}")]
    Validation(String),
    #[error("{0} is not a super user")]
    NotSuperUser(String),
    #[error("user {0} not found")]
    UserNotFound(String),
    #[error("user id {0} is invalid")]
    UserId(String),
    #[error("user {0} already exists")]
    UserExists(String),
    #[error("cluster {0} not found")]
    ClusterNotFound(String),
    #[error("cluster {0} already exists")]
    ClusterExists(String),
    #[error("cluster type {0} is invalid: write k8s, mesos or tke")]
    ClusterType(String),
    #[error(
        "cannot create register token: the cluster {0} has one; rotate it with `admittance register-tokens create`"
    )]
    RegisterTokenExists(String),
    #[error("register token of {0} not found")]
    RegisterTokenNotFound(String),
    #[error("credentials of {0} not found: its agent has not reported any")]
    CredentialsNotFound(String),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
}

impl From<TokenDenied> for RestError {
    fn from(denied: TokenDenied) -> Self {
        Self::Accounts(denied.into())
    }
}

impl RestError {
    /// Returns the parts of the reply to a refused request: its HTTP status, the code in its message, and the name of
    /// the error.
    #[rustfmt::skip]
    fn form(&self) -> (StatusCode, Code, &'static str) {
        use AccountsError as Why;
        match self {
            Self::NoRoute => (StatusCode::NOT_FOUND, Code::BadRequest, "NOT_FOUND"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "METHOD_NOT_ALLOWED"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, Code::ApiReadBody, "BODY_INVALID"),
            Self::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, Code::Internal, "UNAVAILABLE"),
            Self::Validation(_) | Self::Accounts(Why::Invalid(_)) => {
                (StatusCode::BAD_REQUEST, Code::BadRequest, "VALIDATION_ERROR")
            }
            Self::Accounts(Why::Quota(_)) => (StatusCode::FORBIDDEN, Code::Forbidden, "QUOTA_EXCEEDED"),
            Self::Accounts(Why::Denied(TokenDenied::Forbidden { .. })) => {
                (StatusCode::FORBIDDEN, Code::Forbidden, "FORBIDDEN")
            }
            Self::UserNotFound(_) => (StatusCode::NOT_FOUND, Code::BadRequest, "USER_NOT_FOUND"),
            Self::UserId(_) => (StatusCode::BAD_REQUEST, Code::BadRequest, "USER_ID_INVALID"),
            Self::UserExists(_) => (StatusCode::BAD_REQUEST, Code::BadRequest, "USER_ALREADY_EXISTS"),
            Self::ClusterNotFound(_) => (StatusCode::NOT_FOUND, Code::UnknownCluster, "CLUSTER_NOT_FOUND"),
            Self::ClusterExists(_) => (StatusCode::BAD_REQUEST, Code::BadRequest, "CLUSTER_ALREADY_EXISTS"),
            Self::ClusterType(_) => (StatusCode::BAD_REQUEST, Code::BadRequest, "CLUSTER_TYPE_INVALID"),
            Self::RegisterTokenExists(_) => (StatusCode::INTERNAL_SERVER_ERROR, Code::BadRequest, "CANNOT_CREATE_RTOKEN"),
            Self::RegisterTokenNotFound(_) | Self::Accounts(Why::Denied(TokenDenied::NoRegisterToken)) => (StatusCode::BAD_REQUEST, Code::BadRequest, "RTOKEN_NOT_FOUND"),
            Self::CredentialsNotFound(_) => (StatusCode::BAD_REQUEST, Code::BadRequest, "CREDENTIALS_NOT_FOUND"),
            Self::Accounts(Why::Denied(TokenDenied::RegisterToken)) => {
                (StatusCode::BAD_REQUEST, Code::BadRequest, "INVALID_RTOKEN")
            }
            // A user without the needed permission gets 401, too, because bcs-api never replies 403.
            Self::NotSuperUser(_) | Self::Accounts(Why::Denied(TokenDenied::Unknown | TokenDenied::Expired(_))) => {
                (StatusCode::UNAUTHORIZED, Code::Unauthorized, "UNAUTHORIZED")
            }
            Self::Accounts(Why::Unknown(..)) => (StatusCode::NOT_FOUND, Code::BadRequest, "NOT_FOUND"),
            Self::Accounts(Why::ForeignClusterId(_)) => {
                (StatusCode::BAD_REQUEST, Code::BadRequest, "CLUSTER_ALREADY_EXISTS")
            }
            Self::Accounts(Why::Exists(..) | Why::ImportConflicts(_)) => (StatusCode::BAD_REQUEST, Code::BadRequest, "ALREADY_EXISTS"),
            Self::Accounts(Why::TooSoon(_)) => (StatusCode::TOO_MANY_REQUESTS, Code::Internal, "TOO_MANY_REQUESTS"),
            Self::Accounts(Why::Unavailable(_) | Why::MissingKey { .. }) => (StatusCode::SERVICE_UNAVAILABLE, Code::Database, "UNAVAILABLE"),
        }
    }

    pub(super) fn label(&self) -> &'static str {
        match self.form().0 {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "no-route",
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "overloaded",
            _ => "rejected",
        }
    }

    pub(super) fn reply(&self, statuses: Statuses) -> Response<Bytes> {
        let (status, code, name) = self.form();
        let separator = if status == StatusCode::UNAUTHORIZED {
            "\u{ff1a}"
        } else {
            ": "
        };
        let message = match self {
            // This error can name servers and files, so it is only logged. The client gets a general message.
            Self::Accounts(AccountsError::Unavailable(_) | AccountsError::MissingKey { .. }) => {
                "the database of users and clusters cannot be used now".to_owned()
            }
            Self::Accounts(AccountsError::Denied(TokenDenied::Unknown)) => UNAUTHENTICATED.to_owned(),
            error if status == StatusCode::UNAUTHORIZED => format!("{UNAUTHENTICATED}: {error}"),
            error => error.to_string(),
        };
        let message = format!("errcode{separator}{}, {message}", code.number());
        let reply_status = match name {
            "VALIDATION_ERROR" => statuses.reply_status(status),
            _ => status,
        };
        let mut response = json_reply(reply_status, json!({"code_name": name, "message": message}).to_string());
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS.into());
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn error_replies_have_the_format_of_bcs_api() {
        // (error, HTTP status with `Statuses::Ok`, HTTP status with `Statuses::Driver`, name, beginning of the message)
        for (error, ok_status, driver_status, name, message) in [
            (RestError::Validation("x".to_owned()), 200, 400, "VALIDATION_ERROR", "errcode: 1405061, x"),
            (TokenDenied::Unknown.into(), 401, 401, "UNAUTHORIZED", "errcode\u{ff1a}1405059,  anonymous requests is forbidden, please provide a valid token"),
            (RestError::NotSuperUser("plain:a".to_owned()), 401, 401, "UNAUTHORIZED", "errcode\u{ff1a}1405059,  anonymous requests is forbidden, please provide a valid token: plain:a is not a super user"),
            (RestError::UserNotFound("plain:a".to_owned()), 404, 404, "USER_NOT_FOUND", "errcode: 1405061, user plain:a not found"),
            (TokenDenied::NoRegisterToken.into(), 400, 400, "RTOKEN_NOT_FOUND", "errcode: 1405061, "),
            (TokenDenied::RegisterToken.into(), 400, 400, "INVALID_RTOKEN", "errcode: 1405061, the register token"),
            (RestError::RegisterTokenExists("c".to_owned()), 500, 500, "CANNOT_CREATE_RTOKEN", "errcode: 1405061, "),
            (RestError::ClusterNotFound("c".to_owned()), 404, 404, "CLUSTER_NOT_FOUND", "errcode: 1405060, cluster c"),
            (AccountsError::Unavailable("10.0.0.1 secret".to_owned()).into(), 503, 503, "UNAVAILABLE", "errcode: 1405062, the database of users and clusters cannot be used now"),
        ] {
            for (statuses, status) in [(Statuses::Ok, ok_status), (Statuses::Driver, driver_status)] {
                let response = error.reply(statuses);
                assert_eq!(response.status(), status, "{error:?}");
                let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                assert_eq!(body["code_name"], name);
                let reply_message = body["message"].as_str().unwrap();
                assert!(reply_message.starts_with(message) && !reply_message.contains("secret"), "{reply_message}");
            }
        }
    }
}
