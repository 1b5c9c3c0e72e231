//! Stores definitions as nodes of ZooKeeper, where the scheduler of BCS stores them.

mod nodes;
mod writes;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError};
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use zookeeper_client::{Client, CreateMode, Error};

use self::{
    nodes::{NodeReader, Snapshot, StoreNode},
    writes::NodeWrite,
};
use crate::{
    definition_name::DefinitionName,
    stores::document::{self, OperationAndKind},
    zookeeper::{AtNode, ZooKeeper, ZooKeeperError, check_path},
};

const SCHEME: &str = "zookeeper";
/// The longest duration of a read or commit. Both make several ZooKeeper requests, which must all be done in this time.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed read, if the session with ZooKeeper still exists.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of attempts to commit a change while other programs write to the same nodes.
const MAX_COMMIT_ATTEMPTS: usize = 20;
/// The maximum size of a node's data in bytes, a little less than ZooKeeper's default `jute.maxbuffer`.
const MAX_NODE_BYTES: usize = 1_000_000;

/// A store of definitions in ZooKeeper, each the data of a node `{root}/{namespace}/{name}`. Lives as long as the host.
///
/// A node without data is not a definition. A program that is killed while it creates a definition may leave such a
/// node.
#[derive(Debug)]
pub struct ZooKeeperStore {
    zookeeper: ZooKeeper,
    root: String,
    reader: NodeReader,
    last_read: Mutex<LastNodeRead>,
}

#[derive(Debug)]
enum LastNodeRead {
    None,
    Failed,
    Watched {
        /// Becomes true when one of the nodes is changed after it was read.
        watch_end: watch::Receiver<bool>,
        _task: AbortOnDropHandle<()>,
    },
}

impl ZooKeeperStore {
    pub const DEFAULT_ROOT: &'static str = "/blueking/admissionwebhook";

    /// Creates a store of the definitions below the node `root`, which need not exist. No request is sent yet.
    pub fn new(zookeeper: ZooKeeper, root: impl Into<String>) -> Result<Self, &'static str> {
        let root = root.into();
        check_path(&root)?;
        if root == "/" {
            return Err("definitions need a node of their own, not the root `/`");
        }
        Ok(Self {
            zookeeper,
            root,
            reader: NodeReader::default(),
            last_read: Mutex::new(LastNodeRead::None),
        })
    }

    fn lock_last_read(&self) -> MutexGuard<'_, LastNodeRead> {
        self.last_read.lock()
    }

    fn parse_node_path<'a>(&self, path: &'a Path) -> Option<(DefinitionName, &'a str)> {
        let node = path.to_str()?.strip_prefix(SCHEME)?.strip_prefix(':')?;
        let name = DefinitionName::parse(node.strip_prefix(&self.root)?.strip_prefix('/')?)?;
        Some((name, node))
    }

    async fn client(&self) -> Result<Client, StoreError> {
        self.zookeeper.client().await.map_err(|error| self.store_error(&error))
    }

    /// Fails after a timeout or when the connection is lost.
    async fn with_timeout<T>(&self, action: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match tokio::time::timeout(TIMEOUT, self.zookeeper.run_while_connected(action)).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(self.unreachable_error("the connection was lost".to_owned())),
            Err(_) => Err(self.unreachable_error("no response in time".to_owned())),
        }
    }

    async fn take_snapshot(&self) -> Result<Snapshot, StoreError> {
        let client = self.client().await?;
        let reading = async {
            let outcome = self.reader.read(&client, &self.root).await;
            match outcome.map_err(|error| self.store_error(&error))? {
                Some(snapshot) => Ok(snapshot),
                None => Err(self.unreachable_error("it kept changing while it was being read".to_owned())),
            }
        };
        self.with_timeout(reading).await
    }

    fn watch_snapshot(snapshot: &mut Snapshot) -> LastNodeRead {
        let (end_sender, is_over) = watch::channel(false);
        let watches = std::mem::take(&mut snapshot.watches);
        let task = tokio::spawn(async move {
            nodes::wait_until_first_change(watches).await;
            end_sender.send_replace(true);
            // A receiver may begin to wait only after a node has changed, and needs the sender even then. The sender is
            // therefore kept until all receivers are dropped.
            end_sender.closed().await;
        });
        LastNodeRead::Watched {
            watch_end: is_over,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Invalid UTF-8 is replaced, as in Go.
    fn definition_file(node: &StoreNode) -> Option<DefinitionFile> {
        if node.data.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&node.data).into_owned();
        let path = format!("{SCHEME}:{}", node.path);
        let text = document::with_defaults(text, &node.name);
        Some(DefinitionFile::entry(path, text, node.name.id()))
    }

    /// Checks that the changed definitions do not take an operation and kind that another definition already has.
    /// Returns a write of the root node, to be made together with the changes. That write fails if another program has
    /// changed an operation or kind since this check. Returns `None` if the changes set no new operation or kind.
    async fn check_conflicts(&self, client: &Client, changes: &[FileChange]) -> Result<Option<NodeWrite>, StoreError> {
        if changes
            .iter()
            .all(|change| OperationAndKind::added_by_change(change).is_none())
        {
            return Ok(None);
        }
        let reading = async {
            let options = CreateMode::Persistent.with_acls(self.zookeeper.acls());
            client
                .mkdir(&self.root, &options)
                .await
                .at_node("creating", &self.root)?;
            let (data, stat) = client.get_data(&self.root).await.at_node("reading", &self.root)?;
            Ok::<_, ZooKeeperError>((data, stat, nodes::read_all(client, &self.root).await?))
        };
        let (data, stat, nodes) = reading.await.map_err(|error| self.store_error(&error))?;
        for file in nodes.iter().filter_map(Self::definition_file) {
            let is_changed = changes.iter().any(|change| change.path == file.path);
            let rival = OperationAndKind::parse(&file.text).filter(|_| !is_changed);
            let change = changes
                .iter()
                .find(|change| rival.is_some() && OperationAndKind::added_by_change(change) == rival);
            if let Some(change) = change {
                return Err(StoreError::Conflict {
                    path: change.path.clone(),
                    other: file.path,
                });
            }
        }
        Ok(Some(NodeWrite {
            path: self.root.clone(),
            version: Some(stat.version),
            data: Some(data),
        }))
    }

    async fn prepare(&self, client: &Client, change: &FileChange) -> Result<Option<NodeWrite>, StoreError> {
        let Some((name, path)) = self.parse_node_path(&change.path) else {
            let reason = format!("{} is not a node of this store", change.path.display());
            return Err(self.refused_error(reason));
        };
        let data = match &change.after {
            Some(text) => {
                document::parse_for_write(&change.path, text)?;
                Some(text.clone().into_bytes())
            }
            None => None,
        };
        if data.as_ref().is_some_and(|data| data.len() > MAX_NODE_BYTES) {
            let path = change.path.display();
            return Err(self.refused_error(format!(
                "{path} has more than {MAX_NODE_BYTES} bytes, the limit for a node"
            )));
        }
        let (node_data, version) = match client.get_data(path).await {
            Ok((bytes, stat)) => (bytes, Some(stat.version)),
            Err(Error::NoNode) => (Vec::new(), None),
            Err(source) => {
                return Err(source)
                    .at_node("reading", path)
                    .map_err(|error| self.store_error(&error));
            }
        };
        let text = (!node_data.is_empty())
            .then(|| document::with_defaults(String::from_utf8_lossy(&node_data).into_owned(), &name));
        if !document::are_equal_documents(text.as_deref(), change.before.as_deref()) {
            return Err(StoreError::ChangedMeanwhile {
                path: change.path.clone(),
            });
        }
        let is_absent = version.is_none() && data.is_none();
        Ok((!is_absent).then(|| NodeWrite {
            path: path.to_owned(),
            version,
            data,
        }))
    }

    /// Writes changes to the nodes. `is_sent` becomes true before the first write, and tells the caller that a failed
    /// commit may still have changed something.
    async fn write(&self, changes: &[FileChange], is_sent: &AtomicBool) -> Result<(), StoreError> {
        let client = &self.client().await?;
        self.with_timeout(self.write_in_session(client, changes, is_sent)).await
    }

    async fn write_in_session(
        &self,
        client: &Client,
        changes: &[FileChange],
        is_sent: &AtomicBool,
    ) -> Result<(), StoreError> {
        // The server of this session may lag behind other servers of the ensemble. `sync` makes it catch up with them.
        let synced = client.sync(&self.root).await.at_node("writing", &self.root);
        synced.map_err(|error| self.store_error(&error))?;
        for _ in 0..MAX_COMMIT_ATTEMPTS {
            let mut writes = Vec::from_iter(self.check_conflicts(client, changes).await?);
            for change in changes {
                writes.extend(self.prepare(client, change).await?);
            }
            is_sent.store(true, Ordering::Relaxed);
            match writes::transact(client, &mut writes, self.zookeeper.acls()).await {
                Ok(()) => return Ok(()),
                // Another program has changed one of the nodes in the meantime, so everything is read and tried again.
                Err(ZooKeeperError::Refused {
                    source: Error::BadVersion | Error::NoNode | Error::NodeExists,
                    ..
                }) => {}
                Err(error) => return Err(self.store_error(&error)),
            }
        }
        let path = changes.iter().map(|change| change.path.clone()).next();
        Err(StoreError::ChangedMeanwhile {
            path: path.unwrap_or_default(),
        })
    }

    async fn are_written(&self, changes: &[FileChange]) -> bool {
        let Ok(client) = self.client().await else {
            return false;
        };
        let check = async {
            for change in changes {
                let mut identity_change = change.clone();
                identity_change.before.clone_from(&change.after);
                self.prepare(&client, &identity_change).await?;
            }
            Ok(())
        };
        self.with_timeout(check).await.is_ok()
    }

    fn store_error(&self, error: &ZooKeeperError) -> StoreError {
        match error {
            ZooKeeperError::Refused {
                source: Error::NotEmpty,
                path,
                ..
            } => self.refused_error(format!("{path} has nodes below it, so it cannot be deleted")),
            error if error.is_disconnected() => self.unreachable_error(error.to_string()),
            error => self.refused_error(error.to_string()),
        }
    }

    fn refused_error(&self, reason: String) -> StoreError {
        StoreError::Refused {
            store: self.location(),
            reason,
        }
    }

    fn unreachable_error(&self, reason: String) -> StoreError {
        StoreError::Unreachable {
            store: self.location(),
            reason,
        }
    }
}

#[async_trait]
impl DefinitionStore for ZooKeeperStore {
    fn location(&self) -> String {
        format!("{SCHEME}:{}", self.root)
    }

    fn owns(&self, path: &Path) -> bool {
        self.parse_node_path(path).is_some()
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        let node = format!("{}/{}", self.root, DefinitionName::from_id(id)?);
        check_path(&node).ok()?;
        Some(PathBuf::from(format!("{SCHEME}:{node}")))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let mut snapshot = match self.take_snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                *self.lock_last_read() = LastNodeRead::Failed;
                return Err(error);
            }
        };
        *self.lock_last_read() = Self::watch_snapshot(&mut snapshot);
        let mut files: Vec<_> = snapshot.nodes.iter().filter_map(Self::definition_file).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        let is_sent = AtomicBool::new(false);
        match self.write(changes, &is_sent).await {
            Err(StoreError::Unreachable { reason, .. }) if is_sent.load(Ordering::Relaxed) => {
                if self.are_written(changes).await {
                    return Ok(());
                }
                Err(self.unreachable_error(format!(
                    "{reason}; it is unknown whether the change was written: check it before you retry"
                )))
            }
            other => other,
        }
    }

    async fn wait_for_change(&self) {
        loop {
            let is_over = match &*self.lock_last_read() {
                LastNodeRead::None => return,
                LastNodeRead::Failed => None,
                LastNodeRead::Watched { watch_end, .. } => Some(watch_end.clone()),
            };
            let mut states = self.zookeeper.states();
            match is_over {
                Some(mut is_over) => {
                    tokio::select! {
                        over = is_over.wait_for(|is_over| *is_over) => {
                            if over.is_ok() {
                                return;
                            }
                        }
                        _ = states.wait_for(|state| !state.is_connected()) => return,
                    }
                }
                None => {
                    let _ = states.wait_for(|state| state.is_connected()).await;
                    if self.take_snapshot().await.is_ok() {
                        return;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}
