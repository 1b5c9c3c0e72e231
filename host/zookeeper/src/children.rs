//! The names of a node's children.

use std::sync::Arc;

use tokio::sync::watch;
use zookeeper_client::Client;

use crate::{
    ZooKeeper, ZooKeeperError,
    follow::{Followed, List},
};

/// The names of a node's children, followed in the background until this is dropped.
#[derive(Debug)]
pub struct Children {
    followed: Followed<ChildList>,
}

/// The names of a node's children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildList {
    /// The names, sorted.
    pub names: Vec<String>,
    /// Whether they were ever read: if not, nobody knows whether there are any.
    pub is_read: bool,
    /// Why they may be old. They are what was read last.
    pub lost: Option<String>,
}

impl Children {
    pub(crate) fn follow(zookeeper: ZooKeeper, path: &str) -> Self {
        Self {
            followed: Followed::start(zookeeper, path),
        }
    }

    /// The names as they are known now.
    pub fn borrow(&self) -> Arc<ChildList> {
        self.followed.borrow()
    }

    /// Wait until the names, or what is known of them, have changed since this was last awaited.
    pub async fn changed(&mut self) {
        self.followed.changed().await;
    }

    /// The names, to be followed by somebody else. Nothing comes any more when this is dropped.
    pub fn receiver(&self) -> watch::Receiver<Arc<ChildList>> {
        self.followed.receiver()
    }
}

impl List for ChildList {
    async fn read(_client: &Client, _path: &str, mut names: Vec<String>) -> Result<Self, ZooKeeperError> {
        names.sort_unstable();
        Ok(Self {
            names,
            is_read: true,
            lost: None,
        })
    }

    fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
    }
}
