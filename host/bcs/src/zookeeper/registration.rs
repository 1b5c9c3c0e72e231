//! Registration: an ephemeral node of this program.

mod keeper;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::zookeeper::ZooKeeper;

/// A node to register: ephemeral, with a sequence number. ZooKeeper removes it with the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The parent node. It and its ancestors are created if missing, persistent and without data.
    pub parent: String,
    /// The part of the node's name between the unique prefix and the sequence number: the node is
    /// `{parent}/_c_{32 hexadecimal digits}-{name}{sequence}`, as BCS names its own.
    pub name: String,
    pub data: Bytes,
}

/// A registered node. It exists until this is withdrawn or dropped: it is registered again after a
/// session is lost, and within 3 s if it is deleted.
#[derive(Debug)]
pub struct Registered {
    state: watch::Receiver<RegistrationState>,
    data: watch::Sender<Bytes>,
    stop: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationState {
    Registered {
        path: String,
    },
    /// It is not registered, or its state is unknown.
    Missing {
        reason: String,
        /// Whether an access list forbids it.
        is_refused: bool,
    },
}

impl RegistrationState {
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered { .. })
    }
}

impl Registered {
    pub(crate) fn keep(zookeeper: ZooKeeper, registration: Registration) -> Self {
        let (sender, state) = watch::channel(RegistrationState::Missing {
            reason: "not registered yet".to_owned(),
            is_refused: false,
        });
        let data = watch::Sender::new(registration.data.clone());
        let stop = CancellationToken::new();
        tokio::spawn(keeper::keep(
            zookeeper,
            registration,
            data.subscribe(),
            sender,
            stop.clone(),
        ));
        Self { state, data, stop }
    }

    /// The data of the node from now on, also when it is created again.
    pub fn update(&self, data: Bytes) {
        self.data.send_if_modified(|known| {
            let is_new = *known != data;
            *known = data;
            is_new
        });
    }

    pub fn state(&self) -> RegistrationState {
        self.state.borrow().clone()
    }

    /// The state, to wait for changes.
    pub fn states(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Remove the node. When this returns it is gone, or ZooKeeper has not responded for 2 s and the node is removed
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
