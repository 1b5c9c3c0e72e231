//! The reasons why a request does not reach a cluster, and the `Status` that kubectl shows.

use admittance_dialect::{status_reply, status_with_reason};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::WWW_AUTHENTICATE};

use crate::accounts::{AccountsError, TokenDenied};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KubernetesError {
    #[error("there is no such path: write /tunnels/clusters/IDENTIFIER/ before the path of the cluster's API")]
    NoRoute,
    /// The path of the request is ambiguous: different servers could read it differently.
    #[error("{0}")]
    Path(String),
    #[error("{0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Forbidden(TokenDenied),
    #[error("there is no cluster with the identifier {0:?}")]
    NoCluster(String),
    #[error("no cluster session of {0}: its agent has not reported credentials, and has no tunnel open")]
    NotConnected(String),
    #[error("the credentials of {cluster} cannot be used: {reason}")]
    Credentials { cluster: String, reason: String },
    #[error(
        "the API server does not accept the token of the cluster's agent: check that the agent runs and that its \
         service account was not deleted"
    )]
    AgentToken,
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Tunnel(String),
}

impl KubernetesError {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::NoRoute | Self::Path(_) => "no-route",
            Self::Unauthenticated(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::NoCluster(_) => "unknown-cluster",
            Self::NotConnected(_) => "not-connected",
            Self::Credentials { .. } => "credentials",
            Self::AgentToken => "agent-token",
            Self::Unavailable(_) => "accounts-unavailable",
            Self::Tunnel(_) => "rejected",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoRoute | Self::NoCluster(_) => StatusCode::NOT_FOUND,
            Self::Path(_) | Self::Tunnel(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotConnected(_) | Self::Credentials { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::AgentToken => StatusCode::BAD_GATEWAY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn reply(&self) -> Response<Bytes> {
        let (status, message) = (self.status(), self.to_string());
        let mut reply = match self {
            // If bcs-api cannot reach a cluster, it replies with the reason `CREATE_TUNNEL_ERROR`. So does the gateway.
            Self::NotConnected(_) | Self::Credentials { .. } => {
                status_with_reason(status, "CREATE_TUNNEL_ERROR", &message)
            }
            _ => status_reply(status, &message),
        };
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        reply
    }
}

impl From<TokenDenied> for KubernetesError {
    fn from(denied: TokenDenied) -> Self {
        match denied {
            TokenDenied::Forbidden { .. } => Self::Forbidden(denied),
            denied => Self::Unauthenticated(denied.to_string()),
        }
    }
}

impl From<AccountsError> for KubernetesError {
    fn from(error: AccountsError) -> Self {
        match error {
            AccountsError::Denied(denied) => denied.into(),
            error => Self::Unavailable(error.to_string()),
        }
    }
}
