//! Reading all nodes as they are at one moment.

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use zookeeper_client::{Client, Error, OneshotWatcher};

/// How often nodes that change while they are read are read again.
const ATTEMPTS: usize = 10;

/// A node with data, or without.
pub(super) struct Node {
    pub(super) path: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// All nodes at one moment, and what tells when one is another, comes or goes. The session's end is told
/// by all of them.
pub(super) struct Snapshot {
    pub(super) nodes: Vec<Node>,
    pub(super) watches: Watches,
}

/// Each ends with the change that it waits for.
pub(super) type Watches = FuturesUnordered<BoxFuture<'static, ()>>;

/// What ZooKeeper said of which node.
pub(super) struct At(pub(super) String, pub(super) Error);

/// The nodes below `root`; none when they keep changing.
///
/// Every one is watched from when it is read. ZooKeeper tells a client of a change before it answers
/// anything later, so when no watch has fired by the last answer, all is as it was at that moment.
pub(super) async fn read(client: &Client, root: &str) -> Result<Option<Snapshot>, At> {
    // So that what another driver has written is there, whichever server answers.
    client
        .sync(root)
        .await
        .map_err(|error| At(root.to_owned(), error))?;
    for _ in 0..ATTEMPTS {
        if let Some((nodes, watchers)) = attempt(client, root).await? {
            let watches = watchers.into_iter();
            let mut watches: Watches = watches
                .map(|watcher| watcher.changed().map(drop).boxed())
                .collect();
            if watches.next().now_or_never().is_none() {
                return Ok(Some(Snapshot { nodes, watches }));
            }
        }
    }
    Ok(None)
}

/// Waits for the first of them.
pub(super) async fn first(mut watches: Watches) {
    if watches.next().await.is_none() {
        // Nothing is watched, so nothing will be seen.
        std::future::pending::<()>().await;
    }
}

/// None when a node goes meanwhile.
async fn attempt(client: &Client, root: &str) -> Result<Option<(Vec<Node>, Vec<OneshotWatcher>)>, At> {
    let mut watchers = Vec::new();
    let namespaces = match client.list_and_watch_children(root).await {
        Ok((namespaces, watcher)) => {
            watchers.push(watcher);
            namespaces
        }
        Err(Error::NoNode) => {
            let (stat, watcher) = client
                .check_and_watch_stat(root)
                .await
                .map_err(|error| At(root.to_owned(), error))?;
            watchers.push(watcher);
            return Ok(stat.is_none().then_some((Vec::new(), watchers)));
        }
        Err(error) => return Err(At(root.to_owned(), error)),
    };
    // All are asked for at once; the answers come in the same order.
    let lists = namespaces.into_iter().map(|namespace| {
        let path = format!("{root}/{namespace}");
        async move {
            let list = client.list_and_watch_children(&path).await;
            (path, namespace, list)
        }
    });
    let mut places = Vec::new();
    for (path, namespace, list) in join_all(lists).await {
        let (names, watcher) = match list {
            Ok(list) => list,
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(At(path, error)),
        };
        watchers.push(watcher);
        let place = |name| (format!("{path}/{name}"), namespace.clone(), name);
        places.extend(names.into_iter().map(place));
    }
    let nodes = places.into_iter().map(|(path, namespace, name)| async move {
        let data = client.get_and_watch_data(&path).await;
        (path, namespace, name, data)
    });
    let mut read = Vec::new();
    for (path, namespace, name, data) in join_all(nodes).await {
        let data = match data {
            Ok((data, _, watcher)) => {
                watchers.push(watcher);
                data
            }
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(At(path, error)),
        };
        read.push(Node {
            path,
            namespace,
            name,
            data,
        });
    }
    Ok(Some((read, watchers)))
}
