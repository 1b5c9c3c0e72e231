//! Lets the drivers of a cluster switch to a new table of chains at the same time.
//!
//! Each driver has an ephemeral node in ZooKeeper. There, it reports which table it serves, and which table it has
//! prepared. The driver that registered first is the leader. It decides on the next table, and writes the digest of
//! that table, called the target, into the parent node of the drivers' nodes.

mod follow;

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance::{
    Digest,
    agreement::{KnownReplica, TableReport},
    replicas::{Membership, Transport},
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;
use zookeeper_client::Error;

use crate::{
    ClusterId, Ports,
    registration::{RegistrationConfig, hostname},
    zookeeper::{
        AtNode, HeldRegistration, NodeRegistration, RegistrationState, ZooKeeper, ZooKeeperError, sequence_number,
    },
};

/// The node below which each cluster has a node for its drivers. No program of BCS uses it.
const CLUSTERS_NODE: &str = "/admittance/drivers";
/// The characters that are not escaped in names of nodes.
const UNESCAPED_CHARACTERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// The longest time to write the digest of the next table, called the target, into ZooKeeper.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The drivers of a cluster, as far as this driver knows them. Lives as long as this driver.
#[derive(Debug)]
pub struct Drivers {
    zookeeper: ZooKeeper,
    path: String,
    name: String,
    own_registration: OnceLock<HeldRegistration>,
    nodes: Mutex<DriverNodes>,
    changes: watch::Sender<u64>,
    /// Whether the last attempt to write the target failed. If the next attempt fails too, that failure is not logged.
    has_failed: AtomicBool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct DriverNodes {
    /// The parent node of the drivers' nodes: its version, and the target in it. `None` if the node does not exist.
    parent: Option<(i32, Option<Digest>)>,
    /// The reports by the names of the drivers' nodes; `None` for a report that cannot be parsed.
    drivers: BTreeMap<String, Option<DriverEntry>>,
    stale_reason: Option<String>,
    is_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DriverEntry {
    name: String,
    #[serde(flatten)]
    report: TableReport,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ParentData {
    target: Digest,
}

impl Drivers {
    /// Prepares this driver to agree with the other drivers of its cluster on the table of chains to serve. `ports` are
    /// the ports of this driver.
    pub fn new(
        zookeeper: &ZooKeeper,
        cluster: &ClusterId,
        registration: Option<&RegistrationConfig>,
        ports: Ports,
    ) -> Self {
        let cluster = utf8_percent_encode(cluster.as_str(), UNESCAPED_CHARACTERS);
        let id = Uuid::new_v4().simple().to_string();
        Self {
            zookeeper: zookeeper.clone(),
            path: format!("{CLUSTERS_NODE}/{cluster}"),
            name: replica_name(
                &hostname(registration),
                ports.address.port(),
                id.get(..8).unwrap_or(&id),
            ),
            own_registration: OnceLock::new(),
            nodes: Mutex::new(DriverNodes {
                stale_reason: Some("the other drivers are not read yet".to_owned()),
                ..DriverNodes::default()
            }),
            changes: watch::Sender::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    fn notify_changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn update(&self, nodes: &DriverNodes) {
        let mut stored_nodes = self.nodes.lock();
        if *stored_nodes != *nodes {
            stored_nodes.clone_from(nodes);
            drop(stored_nodes);
            self.notify_changed();
        }
    }

    fn mark_stale(&self, error: &ZooKeeperError) {
        let mut nodes = self.nodes.lock().clone();
        nodes.stale_reason = Some(error.to_string());
        nodes.is_refused = error.is_refused();
        self.update(&nodes);
    }

    async fn follow_drivers(&self) {
        let follow =
            |client| async move { follow::follow_session(&client, &self.path, |nodes| self.update(nodes)).await };
        self.zookeeper
            .follow_in_sessions(|error| self.mark_stale(&error), follow)
            .await;
    }

    async fn follow_own_registration(&self) {
        if let Some(registration) = self.own_registration.get() {
            let mut states = registration.states();
            while states.changed().await.is_ok() {
                self.notify_changed();
            }
        }
        std::future::pending().await
    }

    /// Writes the target into the parent node, unless another driver has changed the node since it was read.
    async fn write_target(&self, version: i32, target: Digest) -> Result<(), ZooKeeperError> {
        let client = self.zookeeper.client().await?;
        let data = serde_json::to_vec(&ParentData { target }).unwrap_or_default();
        let write = client.set_data(&self.path, &data, Some(version));
        let outcome = timeout(WRITE_TIMEOUT, self.zookeeper.run_while_connected(write)).await;
        match outcome {
            Ok(Some(Ok(_) | Err(Error::BadVersion))) => Ok(()),
            Ok(Some(Err(error))) => Err(error).at_node("writing", &self.path),
            Ok(None) => Err(self.zookeeper.unavailable_error()),
            Err(_) => Err(Error::Timeout).at_node("writing", &self.path),
        }
    }
}

#[async_trait]
impl Transport for Drivers {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self, report: &TableReport) {
        let entry = DriverEntry {
            name: self.name.clone(),
            report: report.clone(),
        };
        let data: Bytes = serde_json::to_vec(&entry).unwrap_or_default().into();
        let register = || {
            self.zookeeper.register(NodeRegistration {
                parent: self.path.clone(),
                name: self.name.clone(),
                data: data.clone(),
            })
        };
        self.own_registration.get_or_init(register).update(data.clone());
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn membership(&self) -> Membership {
        let own_state = self.own_registration.get().map(HeldRegistration::state);
        membership(&self.nodes.lock(), own_state.as_ref(), &self.name)
    }

    async fn publish(&self, target: Digest) {
        let Some((version, _)) = self.nodes.lock().parent else {
            return;
        };
        let outcome = self.write_target(version, target).await;
        let has_failed = self.has_failed.swap(outcome.is_err(), Ordering::Relaxed);
        if let Err(error) = outcome
            && !has_failed
        {
            tracing::warn!("this driver leads the others, and cannot tell them what to serve: {error}");
        }
    }

    async fn take_part(&self) {
        tokio::join!(self.follow_drivers(), self.follow_own_registration());
    }

    async fn leave(&self) {
        if let Some(registration) = self.own_registration.get() {
            registration.withdraw().await;
        }
    }
}

fn membership(nodes: &DriverNodes, own_state: Option<&RegistrationState>, name: &str) -> Membership {
    let mut entries: Vec<(i64, &DriverEntry)> = nodes
        .drivers
        .iter()
        .filter_map(|(node, entry)| Some((sequence_number(node)?, entry.as_ref()?)))
        .collect();
    entries.sort_by_key(|(sequence, _)| *sequence);
    let is_newest = |index: usize, entry: &DriverEntry| {
        let mut later = entries.iter().skip(index + 1);
        later.all(|(_, other)| other.name != entry.name)
    };
    // A driver that lost its session has two nodes until ZooKeeper removes the old node. Only the node that was created
    // last counts, which is the one with the higher sequence number.
    let newest = entries
        .iter()
        .enumerate()
        .filter(|(index, (_, entry))| is_newest(*index, entry));
    let replicas: Vec<KnownReplica> = newest
        .enumerate()
        .map(|(rank, (_, (_, entry)))| KnownReplica {
            name: entry.name.clone(),
            is_alive: true,
            is_leader: rank == 0,
            report: entry.report.clone(),
        })
        .collect();
    let (is_registered, missing_reason, is_refused) = match own_state {
        Some(RegistrationState::Registered { .. }) => (true, None, false),
        Some(RegistrationState::Missing { reason, is_refused }) => (false, Some(reason.as_str()), *is_refused),
        None => (false, None, false),
    };
    let missing = missing_reason.map(|reason| format!("they are not told what this driver has: {reason}"));
    let leads = is_registered && replicas.first().is_some_and(|first| first.name == name);
    Membership {
        target: nodes.parent.and_then(|(_, target)| target),
        leads,
        is_led: !leads && !replicas.is_empty(),
        replicas,
        is_refused: nodes.is_refused || is_refused,
        problem: nodes.stale_reason.clone().or(missing),
    }
}

fn replica_name(host: &str, port: u16, id: &str) -> String {
    let sanitize = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_') => letter,
        _ => '-',
    };
    let host: String = host.chars().take(200).map(sanitize).collect();
    format!("{host}:{port}-{id}")
}

#[cfg(test)]
mod tests;
