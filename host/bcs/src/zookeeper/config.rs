use std::time::Duration;

use crate::zookeeper::EnsembleAddress;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleConfig {
    /// The servers of the ensemble, and the root node below which all paths start.
    pub servers: EnsembleAddress,
    /// The user who may change the nodes that this program creates. Default: none, so everyone may change them.
    pub digest: Option<ZooKeeperDigest>,
    /// The time after which the ensemble ends a silent session and removes its ephemeral nodes. Default: 10 s.
    pub session_timeout: Duration,
}

impl EnsembleConfig {
    /// Creates the configuration of the ensemble with these servers, with default values for all other settings.
    pub fn new(servers: EnsembleAddress) -> Self {
        Self {
            servers,
            digest: None,
            session_timeout: Duration::from_secs(10),
        }
    }
}

/// A user and a password for authentication in ZooKeeper, by the scheme `digest`.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// The `Debug` of this type must not print the password.
#[debug("ZooKeeperDigest {{ user: {user:?}, .. }}")]
pub struct ZooKeeperDigest {
    user: String,
    password: String,
}

impl ZooKeeperDigest {
    /// Creates the user with this name and password. The name must not contain a colon. The name and the password may
    /// be empty, because a BCS that was built without them uses empty ones.
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
