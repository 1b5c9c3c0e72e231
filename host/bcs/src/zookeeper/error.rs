//! What can be wrong.

use zookeeper_client::Error;

use crate::zookeeper::Servers;

/// Why something in ZooKeeper was not done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ZooKeeperError {
    #[error("ZooKeeper at {servers} is unavailable: {reason}")]
    Away { servers: Servers, reason: String },
    /// The servers were given with a node that paths are below, and nobody has made it.
    #[error("ZooKeeper at {servers}: the root node of the connection string does not exist; create it")]
    NoRoot { servers: Servers },
    /// ZooKeeper did not do what it was asked for.
    #[error("ZooKeeper, {action} {path}: {}", describe(.source))]
    Refused {
        /// What was asked for: `reading`, `creating`.
        action: &'static str,
        path: String,
        source: Error,
    },
}

impl ZooKeeperError {
    /// Whether it is the connection that failed, so that it is to be tried again when there is one.
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

/// Tells for which node something failed.
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

/// An error of the client's, and what to do about it where that is known.
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

/// Whether this can be the path of a node; if not, a sentence says why. ZooKeeper has the same rules.
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
