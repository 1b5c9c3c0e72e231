//! Creates the node of a registration, watches it, and removes it.

use std::time::Duration;

use admittance_net::Backoff;
use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zookeeper_client::{Client, CreateMode, Error, SessionId};

use super::{NodeGoal, NodeRegistration, RegistrationState};
use crate::zookeeper::{
    NodeWatch, ZooKeeper, ZooKeeperError, check_path, error::AtNode, path::join, session::RECONNECT_PAUSE,
};

/// Each pause is twice as long as the previous one, and half of each is random.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts. BCS's own programs usually pause for this long.
const MAX_PAUSE: Duration = Duration::from_secs(3);
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

struct PendingNode {
    session: SessionId,
    /// The beginning of the node's name, which is unique. If the connection is lost before ZooKeeper has confirmed the
    /// creation of the node, the node is found by this prefix.
    prefix: String,
    /// `None` until the response to the node's creation has arrived.
    path: Option<String>,
    data: Bytes,
}

struct Keeper {
    zookeeper: ZooKeeper,
    registration: NodeRegistration,
    goal: watch::Receiver<NodeGoal>,
    state: watch::Sender<RegistrationState>,
    node: Option<PendingNode>,
    pauses: Backoff,
}

/// Keeps the node registered until `stop` is cancelled, and then removes it.
pub(super) async fn keep_registered(
    zookeeper: ZooKeeper,
    registration: NodeRegistration,
    goal: watch::Receiver<NodeGoal>,
    state: watch::Sender<RegistrationState>,
    stop: CancellationToken,
) {
    let mut keeper = Keeper {
        zookeeper,
        registration,
        goal,
        state,
        node: None,
        pauses: Backoff::new(FIRST_PAUSE / 2, MAX_PAUSE / 2),
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        never = keeper.run() => match never {},
    }
    keeper.withdraw().await;
}

impl Keeper {
    async fn run(&mut self) -> std::convert::Infallible {
        if let Err(reason) = check_node_path(&self.registration) {
            let NodeRegistration { parent, name, .. } = &self.registration;
            let reason = format!("{name:?} below {parent:?} is not a valid node name: {reason}");
            self.publish_missing(reason, false);
            return std::future::pending().await;
        }
        let zookeeper = self.zookeeper.clone();
        loop {
            let client = zookeeper.wait_for_client(|error| self.publish_failure(&error)).await;
            match zookeeper.run_while_connected(self.keep_in_session(&client)).await {
                None => self.publish_failure(&zookeeper.unavailable_error()),
                Some(error) => {
                    self.publish_failure(&error);
                    if error.is_disconnected() {
                        sleep(RECONNECT_PAUSE).await;
                    } else {
                        self.pause().await;
                    }
                }
            }
        }
    }

    async fn keep_in_session(&mut self, client: &Client) -> ZooKeeperError {
        loop {
            if let Err(error) = self.keep_once(client).await {
                return error;
            }
        }
    }

    async fn keep_once(&mut self, client: &Client) -> Result<(), ZooKeeperError> {
        if !self.goal.borrow_and_update().is_present {
            return self.stay_away(client).await;
        }
        let path = self.find_or_create_node(client).await?;
        let (data, watch) = match NodeWatch::data(client, &path).await {
            Ok(((data, stat), watch)) if stat.ephemeral_owner == client.session_id().0 => (data, watch),
            Ok(_) | Err(Error::NoNode) => {
                self.node = None;
                self.publish_missing(format!("{path} was deleted"), false);
                self.pause().await;
                return Ok(());
            }
            Err(error) => return Err(error).at_node("reading", &path),
        };
        let goal_data = self.goal.borrow_and_update().data.clone();
        if data != goal_data {
            if self.node.as_ref().is_some_and(|node| node.data != data) {
                tracing::warn!(path, "the registration was overwritten, and is restored");
            }
            let response = client.set_data(&path, &goal_data, None).await;
            if response != Err(Error::NoNode) {
                response.at_node("writing", &path)?;
            }
        }
        let is_current = data == goal_data;
        if let Some(node) = &mut self.node {
            node.data = goal_data;
        }
        if !is_current {
            return Ok(());
        }
        self.publish_registered(&path);
        tokio::select! {
            fired = watch.wait_until_fired() => fired.at_node("following", &path),
            Ok(()) = self.goal.changed() => Ok(()),
        }
    }

    async fn stay_away(&mut self, client: &Client) -> Result<(), ZooKeeperError> {
        let node = self.node.as_ref();
        if let Some(node) = node.filter(|node| node.session == client.session_id()) {
            remove_node(client, &self.registration.parent, node).await?;
        }
        let was_registered = self.node.take().is_some();
        self.publish(RegistrationState::Missing {
            reason: "this driver does not serve the table that the others serve".to_owned(),
            is_refused: false,
        });
        if was_registered {
            tracing::warn!(
                parent = self.registration.parent,
                name = self.registration.name,
                "withdrawn from ZooKeeper until this driver serves the table that the others serve"
            );
        }
        let _ = self.goal.changed().await;
        Ok(())
    }

    async fn pause(&mut self) {
        sleep(self.pauses.pause_after_failure()).await;
    }

    async fn find_or_create_node(&mut self, client: &Client) -> Result<String, ZooKeeperError> {
        let session = client.session_id();
        let parent = self.registration.parent.clone();
        let node = match self.node.as_mut() {
            Some(node) if node.session == session => {
                if let Some(path) = &node.path {
                    return Ok(path.clone());
                }
                // An earlier attempt may have created the node and lost the response.
                if let Some(path) = find_node(client, &parent, &node.prefix).await? {
                    return Ok(node.path.insert(path).clone());
                }
                node
            }
            _ => self.node.insert(PendingNode {
                session,
                prefix: format!("_c_{}-", Uuid::new_v4().simple()),
                path: None,
                data: Bytes::new(),
            }),
        };
        let begin = join(&parent, &format!("{}{}", node.prefix, self.registration.name));
        let acls = self.zookeeper.acls();
        let options = CreateMode::EphemeralSequential.with_acls(acls);
        node.data = self.goal.borrow().data.clone();
        let creation = client.create(&begin, &node.data, &options).await;
        let (_, sequence) = match creation {
            Err(Error::NoNode) => {
                let options = CreateMode::Persistent.with_acls(acls);
                match client.mkdir(&parent, &options).await {
                    Err(Error::NoNode) => {
                        let servers = self.zookeeper.servers().clone();
                        return Err(ZooKeeperError::NoRoot { servers });
                    }
                    result => result.at_node("creating", &parent)?,
                }
                let options = CreateMode::EphemeralSequential.with_acls(acls);
                client.create(&begin, &node.data, &options).await
            }
            created => created,
        }
        .at_node("creating", &begin)?;
        Ok(node.path.insert(format!("{begin}{sequence}")).clone())
    }

    /// Removes the node, even if it is unknown whether its creation was completed.
    async fn withdraw(&mut self) {
        let Some(node) = self.node.take() else {
            return;
        };
        self.publish(RegistrationState::Missing {
            reason: "withdrawn".to_owned(),
            is_refused: false,
        });
        let zookeeper = self.zookeeper.clone();
        let parent = &self.registration.parent;
        let removal = async {
            loop {
                let client = zookeeper.wait_for_client(drop).await;
                if client.session_id() != node.session {
                    return Ok(());
                }
                match zookeeper.run_while_connected(remove_node(&client, parent, &node)).await {
                    None => {}
                    Some(Err(error)) if error.is_disconnected() => sleep(RECONNECT_PAUSE).await,
                    Some(result) => return result,
                }
            }
        };
        let result = timeout(WITHDRAW_TIMEOUT, removal).await;
        let reason = match result {
            Ok(Ok(())) => {
                tracing::info!(parent, name = self.registration.name, "withdrawn from ZooKeeper");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => self.zookeeper.unavailable_error().to_string(),
        };
        tracing::warn!(
            parent,
            name = self.registration.name,
            reason,
            "the registration could not be removed; it disappears when the session ends"
        );
    }

    fn publish_registered(&mut self, path: &str) {
        self.pauses.reset();
        let state = RegistrationState::Registered { path: path.to_owned() };
        if self.publish(state) {
            tracing::info!(path, "registered in ZooKeeper");
        }
    }

    fn publish_failure(&self, error: &ZooKeeperError) {
        self.publish_missing(error.to_string(), error.is_refused());
    }

    fn publish_missing(&self, reason: String, is_refused: bool) {
        let warning = reason.clone();
        if self.publish(RegistrationState::Missing { reason, is_refused }) {
            tracing::warn!(
                parent = self.registration.parent,
                name = self.registration.name,
                reason = warning,
                "not registered in ZooKeeper"
            );
        }
    }

    fn publish(&self, state: RegistrationState) -> bool {
        self.state.send_if_modified(|current| {
            let is_new = *current != state;
            *current = state;
            is_new
        })
    }
}

fn check_node_path(registration: &NodeRegistration) -> Result<(), &'static str> {
    let NodeRegistration { parent, name, .. } = registration;
    if name.is_empty() || name.contains('/') {
        return Err("a name must be one segment of a path");
    }
    check_path(parent)?;
    check_path(&join(parent, name))
}

async fn find_node(client: &Client, parent: &str, prefix: &str) -> Result<Option<String>, ZooKeeperError> {
    // The server of this session may lag behind other servers of the ensemble. `sync` makes it catch up with them.
    match client.sync(parent).await {
        Ok(()) => {}
        Err(Error::NoNode) => return Ok(None),
        Err(error) => return Err(error).at_node("reading the children of", parent),
    }
    match client.list_children(parent).await {
        Ok(names) => Ok(names
            .iter()
            .find(|name| name.starts_with(prefix))
            .map(|name| join(parent, name))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error).at_node("reading the children of", parent),
    }
}

async fn remove_node(client: &Client, parent: &str, node: &PendingNode) -> Result<(), ZooKeeperError> {
    let path = match &node.path {
        Some(path) => Some(path.clone()),
        None => find_node(client, parent, &node.prefix).await?,
    };
    let Some(path) = path else {
        return Ok(());
    };
    match client.delete(&path, None).await {
        Ok(()) | Err(Error::NoNode) => Ok(()),
        Err(error) => Err(error).at_node("deleting", &path),
    }
}
