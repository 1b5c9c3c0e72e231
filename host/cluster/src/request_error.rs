//! Errors of requests to the API server.

use std::error::Error as StdError;

use admittance_admission::ClusterError;
use admittance_net::causes::chain;
use kube::{Error, error::DiscoveryError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    NotFound(String),
    Conflict(String),
    Forbidden(String),
    Refused(String),
    Unavailable(String),
    Timeout,
}

impl RequestError {
    pub(crate) fn from_client(error: &Error) -> Self {
        match error {
            Error::Api(status) => {
                let words = match (status.message.is_empty(), status.reason.is_empty()) {
                    (false, _) => status.message.clone(),
                    (true, false) => format!("{} ({})", status.reason, status.code),
                    (true, true) => format!("status {}", status.code),
                };
                match status.code {
                    401 => Self::Forbidden(format!("{words}: the API server does not accept the credentials")),
                    403 => Self::Forbidden(words),
                    404 => Self::NotFound(words),
                    409 => Self::Conflict(words),
                    408 | 425 | 429 | 500.. => Self::Unavailable(words),
                    _ => Self::Refused(words),
                }
            }
            Error::Discovery(DiscoveryError::MissingKind(_)) => {
                Self::NotFound("the API server has no such kind".to_owned())
            }
            other => Self::Unavailable(causes(other)),
        }
    }

    pub(crate) fn result_label(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::Conflict(_) => "conflict",
            Self::Forbidden(_) => "forbidden",
            Self::Refused(_) => "refused",
            Self::Unavailable(_) => "unavailable",
            Self::Timeout => "timeout",
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::NotFound(words)
            | Self::Conflict(words)
            | Self::Forbidden(words)
            | Self::Refused(words)
            | Self::Unavailable(words) => words.clone(),
            Self::Timeout => "the API server did not answer in time".to_owned(),
        }
    }

    /// Returns the error's message. If the account lacks a permission, the message says that `permission` is needed.
    pub(crate) fn advice(&self, permission: &str) -> String {
        match self {
            Self::Forbidden(words) => format!("{words}; {permission}"),
            other => other.sentence(),
        }
    }

    /// Converts the error into one that a plugin receives.
    pub(crate) fn to_plugin_error(&self, permission: &str) -> ClusterError {
        match self {
            Self::Unavailable(words) => ClusterError::Unavailable(words.clone()),
            Self::Timeout => ClusterError::Timeout,
            refused => ClusterError::Refused(refused.advice(permission)),
        }
    }
}

pub(crate) fn permission(verbs: &str, plural: &str, group: &str) -> String {
    let group = match group {
        "" => "the core API group".to_owned(),
        group => format!("the API group `{group}`"),
    };
    format!("give this program's account {verbs} on `{plural}` of {group}")
}

/// Returns an error and its causes in one line. kube's own message says nothing about the cause, so it is left out.
pub(crate) fn causes(error: &(dyn StdError + 'static)) -> String {
    let cause = error.source().filter(|_| error.is::<Error>());
    chain(cause.unwrap_or(error))
}
