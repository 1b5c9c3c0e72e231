//! Errors of ZooKeeper.

use zookeeper_client::Error;

use crate::zookeeper::Servers;

/// Why a request to ZooKeeper failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ZooKeeperError {
    #[error("ZooKeeper at {servers} is unavailable: {reason}")]
    Away { servers: Servers, reason: String },
    /// The root node of the connection string does not exist.
    #[error("ZooKeeper at {servers}: the root node of the connection string does not exist; create it")]
    NoRoot { servers: Servers },
    /// ZooKeeper refused the request.
    #[error("ZooKeeper, {action} {path}: {}", describe(.source))]
    Refused {
        /// The action: `reading`, `creating`.
        action: &'static str,
        path: String,
        source: Error,
    },
}

impl ZooKeeperError {
    /// Whether the connection failed, so that the request can be retried with a new one.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away { .. } => true,
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

/// Adds the node to an error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, ZooKeeperError>;
}

impl<T> At<T> for Result<T, Error> {
    fn at(self, action: &'static str, path: &str) -> Result<T, ZooKeeperError> {
        self.map_err(|source| ZooKeeperError::Refused {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// The text of a client error, with a hint where there is one.
fn describe(error: &Error) -> String {
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

/// Checks whether this is a valid path of a node; the error is a sentence. ZooKeeper has the same rules.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err("a ZooKeeper path must begin with `/`");
    };
    if rest.is_empty() {
        return Ok(());
    }
    for name in rest.split('/') {
        match name {
            "" => return Err("a ZooKeeper path must not end with `/` or contain `//`"),
            "." | ".." => return Err("a ZooKeeper path must not contain `.` or `..` as a name"),
            _ => {}
        }
    }
    let is_refused = |character: char| matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}');
    if rest.contains(is_refused) {
        return Err("a ZooKeeper path must not contain control characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_zookeeper_takes_them() {
        for (path, is_good) in [
            ("/", true),
            ("/bcs/services/endpoints/scheduler", true),
            ("/路径/.a./..b", true),
            ("", false),
            ("bcs", false),
            ("/bcs/", false),
            ("/bcs//services", false),
            ("/bcs/./services", false),
            ("/bcs/..", false),
            ("/bcs/\u{7}", false),
        ] {
            assert_eq!(check_path(path).is_ok(), is_good, "{path:?}");
        }
    }
}
