//! Reads the nodes of all definitions as a consistent snapshot.

use std::collections::{HashMap, HashSet};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared, join_all},
    stream::FuturesUnordered,
};
use tokio::sync::Mutex;
use zookeeper_client::{Client, Error, SessionId};

use crate::{
    definition_name::DefinitionName,
    zookeeper::{AtNode, NodeWatch, ZooKeeperError},
};

/// The maximum number of attempts to read all nodes while they change.
const MAX_READ_ATTEMPTS: usize = 10;

pub(super) struct StoreNode {
    pub(super) path: String,
    pub(super) name: DefinitionName,
    pub(super) data: Vec<u8>,
}

/// All nodes of a store at one moment, and watches that fire when a node changes or when the session ends.
pub(super) struct Snapshot {
    pub(super) nodes: Vec<StoreNode>,
    pub(super) watches: Watches,
}

pub(super) type Watches = FuturesUnordered<Change>;

type Change = Shared<BoxFuture<'static, ()>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WatchKey {
    Existence(String),
    Children(String),
    Data(String),
}

/// Reads the nodes below a root node. ZooKeeper 3.4 cannot remove a watch, so the reader keeps the watches of a read
/// and uses them again in the next read.
#[derive(Debug, Default)]
pub(super) struct NodeReader(Mutex<SessionWatches>);

#[derive(Debug, Default)]
struct SessionWatches {
    session: Option<SessionId>,
    watches: HashMap<WatchKey, Change>,
}

impl NodeReader {
    /// Returns the nodes below `root`; `None` if nodes change during every attempt.
    ///
    /// Every node is watched before it is read. The nodes are consistent if no watch fires before the last response.
    pub(super) async fn read(&self, client: &Client, root: &str) -> Result<Option<Snapshot>, ZooKeeperError> {
        let mut session_watches = self.0.lock().await;
        let session = Some(client.session_id());
        if session_watches.session != session {
            let watches = HashMap::new();
            *session_watches = SessionWatches { session, watches };
        }
        // The server of this session may lag behind other servers of the ensemble. `sync` makes it catch up with them.
        client.sync(root).await.at_node("reading", root)?;
        for _ in 0..MAX_READ_ATTEMPTS {
            let is_waiting = |change: &Change| change.clone().now_or_never().is_none();
            session_watches.watches.retain(|_, change| is_waiting(change));
            let mut attempt = TreeRead {
                client,
                watches: &mut session_watches.watches,
                used_keys: HashSet::new(),
            };
            let Some(nodes) = attempt.read_nodes(root).await? else {
                continue;
            };
            let used_keys = attempt.used_keys;
            session_watches.watches.retain(|key, _| used_keys.contains(key));
            let mut watches: Watches = session_watches.watches.values().cloned().collect();
            if watches.next().now_or_never().is_none() {
                return Ok(Some(Snapshot { nodes, watches }));
            }
        }
        Ok(None)
    }
}

/// Does not watch the nodes. Concurrent changes may be missed.
pub(super) async fn read_all(client: &Client, root: &str) -> Result<Vec<StoreNode>, ZooKeeperError> {
    let mut nodes = Vec::new();
    for namespace in child_names(client, root).await? {
        let parent = format!("{root}/{namespace}");
        for name in child_names(client, &parent).await? {
            let path = format!("{parent}/{name}");
            match client.get_data(&path).await {
                Ok((data, _)) => nodes.push(StoreNode {
                    name: DefinitionName::new(&namespace, &name),
                    path,
                    data,
                }),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error).at_node("reading", &path),
            }
        }
    }
    Ok(nodes)
}

async fn child_names(client: &Client, path: &str) -> Result<Vec<String>, ZooKeeperError> {
    match client.list_children(path).await {
        Ok(names) => Ok(names),
        Err(Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error).at_node("reading the children of", path),
    }
}

pub(super) async fn wait_until_first_change(mut watches: Watches) {
    if watches.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}

struct TreeRead<'a> {
    client: &'a Client,
    watches: &'a mut HashMap<WatchKey, Change>,
    used_keys: HashSet<WatchKey>,
}

impl TreeRead<'_> {
    /// Returns `None` if a node is deleted during the read.
    async fn read_nodes(&mut self, root: &str) -> Result<Option<Vec<StoreNode>>, ZooKeeperError> {
        let children_key = WatchKey::Children(root.to_owned());
        let namespaces = match read_children(self.client, root, self.has_watch(&children_key)).await {
            Ok((namespaces, watch)) => {
                self.keep_watch(children_key, watch);
                namespaces
            }
            Err(Error::NoNode) => {
                let existence_key = WatchKey::Existence(root.to_owned());
                let is_kept = self.has_watch(&existence_key);
                let (is_there, watch) = check_existence(self.client, root, is_kept)
                    .await
                    .at_node("reading", root)?;
                self.keep_watch(existence_key, watch);
                return Ok((!is_there).then(Vec::new));
            }
            Err(error) => return Err(error).at_node("reading the children of", root),
        };
        // All requests are sent before the first response is awaited, to save time.
        let lists = namespaces.into_iter().map(|namespace| {
            let path = format!("{root}/{namespace}");
            let is_kept = self.has_watch(&WatchKey::Children(path.clone()));
            let client = self.client;
            async move {
                let list = read_children(client, &path, is_kept).await;
                (path, namespace, list)
            }
        });
        let lists = join_all(lists).await;
        let mut locations = Vec::new();
        let mut is_gone = false;
        for (path, namespace, list) in lists {
            let (names, watch) = match list {
                Ok(list) => list,
                Err(Error::NoNode) => {
                    is_gone = true;
                    continue;
                }
                Err(error) => return Err(error).at_node("reading the children of", &path),
            };
            let node_location = |name: String| (format!("{path}/{name}"), DefinitionName::new(&namespace, &name));
            locations.extend(names.into_iter().map(node_location));
            self.keep_watch(WatchKey::Children(path), watch);
        }
        let nodes = locations.into_iter().map(|(path, name)| {
            let is_kept = self.has_watch(&WatchKey::Data(path.clone()));
            let client = self.client;
            async move {
                let data = read_data(client, &path, is_kept).await;
                (path, name, data)
            }
        });
        let nodes = join_all(nodes).await;
        let mut store_nodes = Vec::new();
        for (path, name, data) in nodes {
            let (data, watch) = match data {
                Ok(data) => data,
                Err(Error::NoNode) => {
                    is_gone = true;
                    continue;
                }
                Err(error) => return Err(error).at_node("reading", &path),
            };
            self.keep_watch(WatchKey::Data(path.clone()), watch);
            store_nodes.push(StoreNode { path, name, data });
        }
        Ok((!is_gone).then_some(store_nodes))
    }

    fn has_watch(&self, key: &WatchKey) -> bool {
        self.watches.contains_key(key)
    }

    fn keep_watch(&mut self, key: WatchKey, watch: Option<NodeWatch>) {
        if let Some(watch) = watch {
            let change = watch.map(drop).boxed().shared();
            self.watches.insert(key.clone(), change);
        }
        self.used_keys.insert(key);
    }
}

async fn read_children(
    client: &Client,
    path: &str,
    is_watched: bool,
) -> Result<(Vec<String>, Option<NodeWatch>), Error> {
    if is_watched {
        return Ok((client.list_children(path).await?, None));
    }
    let (names, watch) = NodeWatch::children(client, path).await?;
    Ok((names, Some(watch)))
}

async fn read_data(client: &Client, path: &str, is_watched: bool) -> Result<(Vec<u8>, Option<NodeWatch>), Error> {
    if is_watched {
        return Ok((client.get_data(path).await?.0, None));
    }
    let ((data, _), watch) = NodeWatch::data(client, path).await?;
    Ok((data, Some(watch)))
}

async fn check_existence(client: &Client, path: &str, is_watched: bool) -> Result<(bool, Option<NodeWatch>), Error> {
    if is_watched {
        return Ok((client.check_stat(path).await?.is_some(), None));
    }
    let (stat, watch) = NodeWatch::node(client, path).await?;
    Ok((stat.is_some(), Some(watch)))
}
