//! Reads the nodes of drivers and their parent node, and follows their changes.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream::FuturesUnordered};
use zookeeper_client::{Client, Error};

use super::{DriverNodes, ParentData};
use crate::zookeeper::{AtNode, NodeWatch, ZooKeeperError, join, sequence_number};

#[derive(Debug)]
enum WatchedNode {
    Existence,
    Target,
    Names,
    Driver(String),
}

/// Reads the nodes of the drivers, and watches them. Calls `show` with their content after the first read and after
/// every change. Returns the error when a request to ZooKeeper fails.
pub(super) async fn follow_session(client: &Client, path: &str, show: impl Fn(&DriverNodes)) -> ZooKeeperError {
    let mut reader = DriverReading {
        client,
        path,
        nodes: DriverNodes::default(),
    };
    let mut due = vec![WatchedNode::Names, WatchedNode::Target];
    let mut watches = FuturesUnordered::new();
    loop {
        while let Some(node) = due.pop() {
            match reader.read(&node, &mut due).await {
                Ok(None) => {}
                Ok(Some(watch)) => watches.push(async move { (node, watch.wait_until_fired().await) }),
                Err(error) => return error,
            }
        }
        show(&reader.nodes);
        match watches.next().await {
            Some((WatchedNode::Existence, Ok(()))) => {
                watches.clear();
                due.extend([WatchedNode::Names, WatchedNode::Target]);
            }
            Some((node, Ok(()))) => due.push(node),
            Some((_, Err(source))) => {
                return ZooKeeperError::Refused {
                    action: "following",
                    path: path.to_owned(),
                    source,
                };
            }
            None => return std::future::pending().await,
        }
    }
}

struct DriverReading<'a> {
    client: &'a Client,
    path: &'a str,
    nodes: DriverNodes,
}

impl DriverReading<'_> {
    /// Reads and watches a node. If the result shows that further nodes must be read, such as those of new drivers,
    /// adds them to `due_nodes`.
    async fn read(
        &mut self,
        node: &WatchedNode,
        due_nodes: &mut Vec<WatchedNode>,
    ) -> Result<Option<NodeWatch>, ZooKeeperError> {
        match node {
            WatchedNode::Existence => {
                let (stat, watch) = NodeWatch::node(self.client, self.path)
                    .await
                    .at_node("reading", self.path)?;
                if stat.is_some() {
                    due_nodes.extend([WatchedNode::Names, WatchedNode::Target]);
                    return Ok(None);
                }
                Ok(Some(watch))
            }
            WatchedNode::Target => match NodeWatch::data(self.client, self.path).await {
                Ok(((data, stat), watch)) => {
                    let published: Option<ParentData> = serde_json::from_slice(&data).ok();
                    self.nodes.parent = Some((stat.version, published.map(|published| published.target)));
                    Ok(Some(watch))
                }
                Err(Error::NoNode) => {
                    self.nodes = DriverNodes::default();
                    due_nodes.clear();
                    due_nodes.push(WatchedNode::Existence);
                    Ok(None)
                }
                Err(error) => Err(error).at_node("reading", self.path),
            },
            WatchedNode::Names => match NodeWatch::children(self.client, self.path).await {
                Ok((names, watch)) => {
                    self.update_drivers(names, due_nodes);
                    Ok(Some(watch))
                }
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(error).at_node("reading the children of", self.path),
            },
            WatchedNode::Driver(name) => {
                let path = join(self.path, name);
                match NodeWatch::data(self.client, &path).await {
                    Ok(((data, _), watch)) => {
                        let entry = serde_json::from_slice(&data).ok();
                        self.nodes.drivers.insert(name.clone(), entry);
                        Ok(Some(watch))
                    }
                    Err(Error::NoNode) => {
                        self.nodes.drivers.remove(name);
                        Ok(None)
                    }
                    Err(error) => Err(error).at_node("reading", &path),
                }
            }
        }
    }

    fn update_drivers(&mut self, names: Vec<String>, due: &mut Vec<WatchedNode>) {
        let mut before = std::mem::take(&mut self.nodes.drivers);
        let mut drivers = BTreeMap::new();
        for name in names.into_iter().filter(|name| sequence_number(name).is_some()) {
            match before.remove(&name) {
                Some(entry) => _ = drivers.insert(name, entry),
                None => due.push(WatchedNode::Driver(name)),
            }
        }
        self.nodes.drivers = drivers;
    }
}
