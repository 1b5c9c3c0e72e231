//! Writes several nodes in one transaction.

use std::collections::HashSet;

use zookeeper_client::{Acls, Client, CreateMode, MultiWriteError};

use crate::zookeeper::{AtNode, ZooKeeperError};

pub(super) struct NodeWrite {
    pub(super) path: String,
    pub(super) version: Option<i32>,
    /// The new data of the node; `None` to delete the node.
    pub(super) data: Option<Vec<u8>>,
}

/// Makes all of these writes in one transaction, so that either all of them succeed or none. ZooKeeper 3.4 does not
/// support the operation with which newer versions create nodes in a transaction. New nodes are therefore created
/// before the transaction, without data. The transaction then writes their data.
pub(super) async fn transact(
    client: &Client,
    writes: &mut [NodeWrite],
    acls: Acls<'_>,
) -> Result<(), ZooKeeperError> {
    let options = CreateMode::Persistent.with_acls(acls);
    for write in writes.iter().filter(|write| write.version.is_none()) {
        if let Some((namespace, _)) = write.path.rsplit_once('/') {
            let result = client.mkdir(namespace, &options).await;
            result.at("creating", namespace)?;
        }
    }
    if let [write] = writes {
        let done = match (write.version, &write.data) {
            (None, None) => Ok(()),
            (None, Some(data)) => client.create(&write.path, data, &options).await.map(|_| ()),
            (Some(version), Some(data)) => {
                let written = client.set_data(&write.path, data, Some(version)).await;
                written.map(|_| ())
            }
            (Some(version), None) => client.delete(&write.path, Some(version)).await,
        };
        return done.at("writing", &write.path);
    }
    let mut created = HashSet::new();
    let mut done = Ok(());
    for write in writes.iter_mut().filter(|write| write.version.is_none()) {
        match client.create(&write.path, &[], &options).await {
            Ok(_) => {
                write.version = Some(0);
                created.insert(write.path.clone());
            }
            Err(error) => {
                done = Err(error).at("creating", &write.path);
                break;
            }
        }
    }
    if done.is_ok() {
        done = commit(client, writes).await;
    }
    if done.is_err() {
        for path in created {
            // If this request fails too, the new node stays without data. That does no harm, because a node without
            // data is not a definition.
            let _ = client.delete(&path, Some(0)).await;
        }
    }
    done
}

async fn commit(client: &Client, writes: &[NodeWrite]) -> Result<(), ZooKeeperError> {
    let mut writer = client.new_multi_writer();
    for write in writes {
        let added = match &write.data {
            Some(data) => writer.add_set_data(&write.path, data, write.version),
            None => writer.add_delete(&write.path, write.version),
        };
        added.at("writing", &write.path)?;
    }
    let (index, error) = match writer.commit().await {
        Ok(_) => return Ok(()),
        Err(MultiWriteError::OperationFailed { index, source }) => (index, source),
        Err(MultiWriteError::RequestFailed { source }) => (0, source),
    };
    Err(error).at("writing", writes.get(index).map_or("", |write| &write.path))
}
