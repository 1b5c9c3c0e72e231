use std::time::Duration;

use crate::zookeeper::Servers;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleConfig {
    /// The servers, and the root node below which all paths start.
    pub servers: Servers,
    /// The user to whom created nodes belong. Default: none, so everyone may change the nodes.
    pub digest: Option<Digest>,
    /// The session timeout, after which the ensemble removes a silent session and its ephemeral nodes. The
    /// ensemble enforces its own bounds. Default: 10 s.
    pub session_timeout: Duration,
}

impl EnsembleConfig {
    /// Creates the configuration of an ensemble, with defaults for everything else.
    pub fn new(servers: Servers) -> Self {
        Self {
            servers,
            digest: None,
            session_timeout: Duration::from_secs(10),
        }
    }
}

/// A user and a password, for ZooKeeper's scheme `digest`.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Leaves out the password, so that it is never logged.
#[debug("Digest {{ user: {user:?}, .. }}")]
pub struct Digest {
    user: String,
    password: String,
}

impl Digest {
    /// Creates the credentials of a user. The name must not contain a colon, which separates it from the password. Both
    /// may be empty, as in a BCS that was built without them.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn credentials(&self) -> Vec<u8> {
        format!("{}:{}", self.user, self.password).into_bytes()
    }
}
