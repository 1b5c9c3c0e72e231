//! A node of one's own, for as long as one is there.

mod hold;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::zookeeper::ZooKeeper;

/// What is to be registered: an ephemeral node with a sequence number, which ZooKeeper removes with the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The node above it. It and those above are made if they are not there, to stay, and with no data.
    pub parent: String,
    /// What the node's name has between the part that is only this one's and the sequence: the node is
    /// `{parent}/_c_{32 hexadecimal digits}-{name}{sequence}`, as BCS names its own.
    pub name: String,
    pub data: Bytes,
}

/// Something that is registered. It is there until this is withdrawn or dropped: registered again after a
/// session was lost, and within 3 s after somebody else deleted it.
#[derive(Debug)]
pub struct Registered {
    state: watch::Receiver<RegistrationState>,
    stop: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationState {
    Registered {
        path: String,
    },
    /// It is not, or nobody can tell.
    Missing {
        reason: String,
    },
}

impl RegistrationState {
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered { .. })
    }
}

impl Registered {
    pub(crate) fn keep(zookeeper: ZooKeeper, registration: Registration) -> Self {
        let (show, state) = watch::channel(RegistrationState::Missing {
            reason: "not registered yet".to_owned(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(hold::keep(zookeeper, registration, show, stop.clone()));
        Self { state, stop }
    }

    pub fn state(&self) -> RegistrationState {
        self.state.borrow().clone()
    }

    /// Whether it is registered, to wait for that to change.
    pub fn states(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Remove the node. When this returns it is gone, or ZooKeeper has not answered for 2 s and the node goes
    /// with the session.
    pub async fn withdraw(&self) {
        self.stop.cancel();
        let mut states = self.state.clone();
        // An error: the task that kept it has ended.
        while states.changed().await.is_ok() {}
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
