//! Registers this program in ZooKeeper by creating an ephemeral node.

mod keeper;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::zookeeper::ZooKeeper;

/// An ephemeral node with a sequence number. ZooKeeper removes the node when the session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRegistration {
    /// The path of the parent node. Missing nodes on this path are created as persistent nodes without data.
    pub parent: String,
    /// The middle part of the node's name. As in BCS, the path of the node is `{parent}/_c_{32 hexadecimal
    /// digits}-{name}{sequence}`.
    pub name: String,
    pub data: Bytes,
}

/// Keeps a node registered until this is withdrawn or dropped. If the session is lost, or the node is deleted, creates
/// the node again.
#[derive(Debug)]
pub struct HeldRegistration {
    state: watch::Receiver<RegistrationState>,
    goal: watch::Sender<NodeGoal>,
    stop: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeGoal {
    data: Bytes,
    is_present: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationState {
    Registered {
        path: String,
    },
    /// The node is not registered, or it is unknown whether it is.
    Missing {
        reason: String,
        /// Whether the node was not created because an access list forbids it.
        is_refused: bool,
    },
}

impl RegistrationState {
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered { .. })
    }
}

impl HeldRegistration {
    pub(crate) fn start(zookeeper: ZooKeeper, registration: NodeRegistration, is_present: bool) -> Self {
        let (sender, state) = watch::channel(RegistrationState::Missing {
            reason: "not registered yet".to_owned(),
            is_refused: false,
        });
        let goal = watch::Sender::new(NodeGoal {
            data: registration.data.clone(),
            is_present,
        });
        let stop = CancellationToken::new();
        tokio::spawn(keeper::keep_registered(
            zookeeper,
            registration,
            goal.subscribe(),
            sender,
            stop.clone(),
        ));
        Self { state, goal, stop }
    }

    /// Sets the data of the node. If the node has to be created again later, it gets this data.
    pub fn update(&self, data: Bytes) {
        self.change_goal(|goal| goal.data = data);
    }

    /// Creates the node if `is_present` is true, or else removes it, as soon as possible.
    pub fn set_present(&self, is_present: bool) {
        self.change_goal(|goal| goal.is_present = is_present);
    }

    fn change_goal(&self, change: impl FnOnce(&mut NodeGoal)) {
        self.goal.send_if_modified(|goal| {
            let before = goal.clone();
            change(goal);
            *goal != before
        });
    }

    pub fn state(&self) -> RegistrationState {
        self.state.borrow().clone()
    }

    pub fn states(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Removes the node. Without a response for 2 s, returns; ZooKeeper then removes the node when the session ends.
    pub async fn withdraw(&self) {
        self.stop.cancel();
        let mut states = self.state.clone();
        // This loop waits until the node is removed. The task that keeps the node then ends and drops the sender of the
        // states, so `changed` returns an error.
        while states.changed().await.is_ok() {}
    }
}

impl Drop for HeldRegistration {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
