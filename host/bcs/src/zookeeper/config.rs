//! What a session is made of.

use std::{fmt, time::Duration};

use crate::zookeeper::Servers;

/// Where an ensemble is and how it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleConfig {
    /// The servers, and the node that paths are below.
    pub servers: Servers,
    /// Who the session is. Nodes that are made then belong to this user alone. Default: nobody, and nodes are
    /// open to anyone.
    pub digest: Option<Digest>,
    /// How long the ensemble keeps a session, and the ephemeral nodes in it, that it does not hear of. The
    /// ensemble has bounds of its own for it. Default: 10 s.
    pub session_timeout: Duration,
}

impl EnsembleConfig {
    /// An ensemble with the defaults of everything else.
    pub fn new(servers: Servers) -> Self {
        Self {
            servers,
            digest: None,
            session_timeout: Duration::from_secs(10),
        }
    }
}

/// A user and a password, for ZooKeeper's scheme `digest`.
#[derive(Clone, PartialEq, Eq)]
pub struct Digest {
    user: String,
    password: String,
}

impl Digest {
    /// This user. A user's name has no colon: the password begins after the first. Both may be empty, as they are in
    /// BCS when it is built without them.
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

/// Without the password.
impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Digest")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
