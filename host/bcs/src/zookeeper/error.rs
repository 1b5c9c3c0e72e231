use zookeeper_client::Error;

use crate::zookeeper::EnsembleAddress;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ZooKeeperError {
    #[error("ZooKeeper at {servers} is unavailable: {reason}")]
    Unavailable { servers: EnsembleAddress, reason: String },
    #[error("ZooKeeper at {servers}: the root node of the connection string does not exist; create it")]
    NoRoot { servers: EnsembleAddress },
    #[error("ZooKeeper, {action} {path}: {}", describe(.source))]
    Refused {
        /// A word that is followed by the path in the message, such as `reading` or `creating`.
        action: &'static str,
        path: String,
        source: Error,
    },
}

impl ZooKeeperError {
    /// Returns whether the request was refused because the access list of a node forbids it.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                source: Error::NoAuth,
                ..
            }
        )
    }

    /// Returns whether the request failed because of the connection, so that it can be retried with a new connection.
    pub fn is_disconnected(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::NoRoot { .. } => false,
            Self::Refused { source, .. } => matches!(
                source,
                Error::ConnectionLoss
                    | Error::SessionExpired
                    | Error::SessionMoved
                    | Error::ClientClosed
                    | Error::Timeout
                    | Error::NoHosts
            ),
        }
    }
}

pub(crate) trait AtNode<T> {
    fn at_node(self, action: &'static str, path: &str) -> Result<T, ZooKeeperError>;
}

impl<T> AtNode<T> for Result<T, Error> {
    fn at_node(self, action: &'static str, path: &str) -> Result<T, ZooKeeperError> {
        self.map_err(|source| ZooKeeperError::Refused {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// Adds a hint at the cause to some errors of the client library.
pub(super) fn describe(error: &Error) -> String {
    match error {
        Error::NoAuth => {
            "not allowed by the node's access list; is this the user and the password of the scheme `digest` \
             that the other programs of the cluster have?"
                .to_owned()
        }
        Error::AuthFailed => "authentication failed: check the user and the password".to_owned(),
        Error::NoNode => "the node does not exist".to_owned(),
        Error::ConnectionLoss => "the connection was lost".to_owned(),
        Error::SessionExpired => "the session has expired".to_owned(),
        Error::ClientClosed => "the session was closed".to_owned(),
        error => error.to_string(),
    }
}
