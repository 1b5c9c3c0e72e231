use std::{fmt::Display, path::PathBuf};

use super::TokenDenied;

/// The reason why users and clusters cannot be read or changed. `Display` is the message for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountsError {
    #[error(transparent)]
    Denied(#[from] TokenDenied),
    #[error("{0}")]
    Invalid(String),
    /// No object of this kind (such as `user` or `cluster`) has this name.
    #[error("there is no {0} `{1}`")]
    Unknown(&'static str, String),
    #[error("the {0} `{1}` already exists")]
    Exists(&'static str, String),
    /// A user wants to create a cluster with an ID of the platform, such as `BCS-K8S-15091`, but another project has
    /// registered this ID first.
    #[error(
        "the cluster ID `{0}` belongs to the project that registered it first: use the cluster of that project, or have \
         an administrator delete it with `admittance clusters delete`"
    )]
    ForeignClusterId(String),
    /// The rows of bcs-api that cannot be imported because their IDs or names are in use, each with the reason.
    #[error(
        "nothing was imported, because these rows conflict: {}; delete or replace what is in the way here: \
         `admittance users import --replace USER` deletes a user of this gateway with its tokens, in favour of bcs-api's",
        .0.join("; ")
    )]
    ImportConflicts(Vec<String>),
    /// A user has reached a limit, such as a number of clusters. The text names the limit and says what to do.
    #[error("{0}")]
    Quota(String),
    #[error(
        "the key file {file} does not exist, and the tokens of clusters in the database are encrypted with its keys \
         ({sealed}): restore the file from a backup, or write a new key with `openssl rand -base64 32`; with a new one, \
         every agent has to report again before its cluster can be reached",
        file = file.display()
    )]
    MissingKey { file: PathBuf, sealed: i64 },
    #[error("the cluster reported a change less than {0:?} ago; try again later")]
    TooSoon(std::time::Duration),
    /// The database is unavailable, or contains an invalid value.
    #[error("the database of users and clusters cannot be used: {0}")]
    Unavailable(String),
}

impl From<sqlx::Error> for AccountsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Returns a function that explains why an INSERT violates a constraint: either `name` is already in use, or the row to
/// which the new row refers, such as a user, was deleted. `parent` is the kind of that other row.
pub(super) fn violation_error(
    kind: &'static str,
    parent: &'static str,
    name: impl Display,
) -> impl FnOnce(sqlx::Error) -> AccountsError {
    move |error| match error.as_database_error() {
        Some(violation) if violation.is_unique_violation() => AccountsError::Exists(kind, name.to_string()),
        Some(violation) if violation.is_foreign_key_violation() => AccountsError::Unknown(parent, name.to_string()),
        _ => error.into(),
    }
}
