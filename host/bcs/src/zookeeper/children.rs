//! Keeps lists of a node's children up to date in the background.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use zookeeper_client::{Client, Error};

use super::{NodeWatch, ZooKeeper, ZooKeeperError, check_path, error::AtNode, path::join};

/// The number of digits of the sequence number that ZooKeeper appends to the name of a registered node.
const SEQUENCE_LENGTH: usize = 10;

/// A list of the children of a node: either of registered members, or of the names of all children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildList<T> {
    /// The children of the node: members in the order of their registration, or names in alphabetical order.
    pub children: Vec<T>,
    /// Whether the children have been read at least once. Until then, they are unknown.
    pub is_read: bool,
    /// The reason why the list may be out of date. If there is a reason, the list contains the last known children.
    pub stale_reason: Option<String>,
}

pub trait Child: Clone + PartialEq + Send + Sync + Sized + 'static {
    /// Reads the children with these names. A child that has been deleted since the names were read is left out.
    fn read(
        client: &Client,
        path: &str,
        names: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Self>, ZooKeeperError>> + Send;
}

/// A child of a node, created with a sequence number. As in BCS, the last 10 characters of its name are this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredMember {
    /// The name of the member's node, which is the last part of its path.
    pub name: String,
    /// The sequence number, by which members are sorted: members that registered earlier have smaller numbers.
    pub sequence: i64,
    /// The data of the member's node at the time when the list of members was last read.
    pub data: Bytes,
}

impl Child for RegisteredMember {
    async fn read(client: &Client, path: &str, names: Vec<String>) -> Result<Vec<Self>, ZooKeeperError> {
        let requests: Vec<_> = members_in_order(names)
            .into_iter()
            .map(|(sequence, name)| {
                let path = join(path, &name);
                let data = client.get_data(&path);
                (sequence, name, path, data)
            })
            .collect();
        let mut members = Vec::with_capacity(requests.len());
        for (sequence, name, path, data) in requests {
            match data.await {
                Ok((data, _)) => members.push(Self {
                    name,
                    sequence,
                    data: data.into(),
                }),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error).at_node("reading", &path),
            }
        }
        Ok(members)
    }
}

impl Child for String {
    async fn read(_client: &Client, _path: &str, mut names: Vec<Self>) -> Result<Vec<Self>, ZooKeeperError> {
        names.sort_unstable();
        Ok(names)
    }
}

fn members_in_order(names: Vec<String>) -> Vec<(i64, String)> {
    let mut members: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((sequence_number(&name)?, name)))
        .collect();
    members.sort_unstable();
    members
}

/// Returns the sequence number at the end of the name of a registered node; `None` if it has none.
pub(crate) fn sequence_number(name: &str) -> Option<i64> {
    let begin = name.len().checked_sub(SEQUENCE_LENGTH).filter(|begin| *begin > 0)?;
    name.get(begin..)?.parse().ok()
}

/// Follows the children of a node: their list is kept up to date in the background until this value is dropped.
#[derive(Debug)]
pub struct FollowedChildren<T> {
    list_receiver: watch::Receiver<Arc<ChildList<T>>>,
    _task: AbortOnDropHandle<()>,
}

impl<T: Child> FollowedChildren<T> {
    pub(super) fn start(zookeeper: ZooKeeper, path: &str) -> Self {
        let (sender, list) = watch::channel(Arc::new(ChildList {
            children: Vec::new(),
            is_read: false,
            stale_reason: None,
        }));
        let path = path.to_owned();
        let task = tokio::spawn(async move { follow(&zookeeper, &path, &sender).await });
        Self {
            list_receiver: list,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub fn borrow(&self) -> Arc<ChildList<T>> {
        self.list_receiver.borrow().clone()
    }

    /// Waits until the list has changed since the last call, or has become stale.
    pub async fn changed(&mut self) {
        if self.list_receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns a receiver of the list. The list is kept up to date only until `self` is dropped.
    pub fn receiver(&self) -> watch::Receiver<Arc<ChildList<T>>> {
        self.list_receiver.clone()
    }
}

async fn follow<T: Child>(zookeeper: &ZooKeeper, path: &str, sender: &watch::Sender<Arc<ChildList<T>>>) {
    if let Err(reason) = check_path(path) {
        publish_loss(sender, &format!("{path:?} is not a valid node path: {reason}"));
        return std::future::pending().await;
    }
    let lose = |error: ZooKeeperError| publish_loss(sender, &error.to_string());
    let follow = |client| async move { follow_session(&client, path, sender).await };
    zookeeper.follow_in_sessions(lose, follow).await;
}

async fn follow_session<T: Child>(
    client: &Client,
    path: &str,
    sender: &watch::Sender<Arc<ChildList<T>>>,
) -> ZooKeeperError {
    loop {
        if let Err(error) = follow_once(client, path, sender).await {
            return error;
        }
    }
}

async fn follow_once<T: Child>(
    client: &Client,
    path: &str,
    sender: &watch::Sender<Arc<ChildList<T>>>,
) -> Result<(), ZooKeeperError> {
    let watch = match NodeWatch::children(client, path).await {
        Ok((names, watch)) => {
            publish(sender, T::read(client, path, names).await?);
            watch
        }
        // The node does not exist. The watch then waits until the node is created.
        Err(Error::NoNode) => {
            let (node, watch) = NodeWatch::node(client, path).await.at_node("reading", path)?;
            if node.is_some() {
                return Ok(());
            }
            publish(sender, Vec::new());
            watch
        }
        Err(error) => return Err(error).at_node("reading the children of", path),
    };
    watch.wait_until_fired().await.at_node("following", path)
}

fn publish<T: Child>(sender: &watch::Sender<Arc<ChildList<T>>>, children: Vec<T>) {
    let list = ChildList {
        children,
        is_read: true,
        stale_reason: None,
    };
    sender.send_if_modified(|current| {
        let is_new = **current != list;
        if is_new {
            *current = Arc::new(list);
        }
        is_new
    });
}

fn publish_loss<T: Child>(sender: &watch::Sender<Arc<ChildList<T>>>, reason: &str) {
    sender.send_if_modified(|current| {
        let is_new = current.stale_reason.as_deref() != Some(reason);
        if is_new {
            Arc::make_mut(current).stale_reason = Some(reason.to_owned());
        }
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_whose_names_end_with_a_sequence_number_are_members() {
        for (name, expected) in [
            ("_c_0123456789abcdef0123456789abcdef-10.0.0.1:30100000000007", Some(7)),
            ("x0000000000", Some(0)),
            ("x2147483647", Some(2_147_483_647)),
            ("x9999999999", Some(9_999_999_999)),
            ("x-000000001", Some(-1)),
            ("0000000001", None),
            ("BCS-MESOS-10001", None),
            ("x000000000a", None),
            ("0001", None),
            ("", None),
            ("路径路径路径路径", None),
        ] {
            assert_eq!(sequence_number(name), expected, "{name}");
        }
    }

    #[test]
    fn members_are_ordered_by_sequence_number_and_not_by_name() {
        let names = ["a0000000010", "z0000000002", "cluster", "m0000000009"];
        let ordered = members_in_order(names.map(str::to_owned).to_vec());
        assert_eq!(
            ordered,
            [(2, "z0000000002"), (9, "m0000000009"), (10, "a0000000010")]
                .map(|(sequence, name)| (sequence, name.to_owned()))
        );
    }
}
