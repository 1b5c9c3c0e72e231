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
pub(super) async fn transact(client: &Client, writes: &mut [NodeWrite], acls: Acls<'_>) -> Result<(), ZooKeeperError> {
    let options = CreateMode::Persistent.with_acls(acls);
    for write in writes.iter().filter(|write| write.version.is_none()) {
        if let Some((namespace, _)) = write.path.rsplit_once('/') {
            let result = client.mkdir(namespace, &options).await;
            result.at_node("creating", namespace)?;
        }
    }
    if let [write] = writes {
        let outcome = match (write.version, &write.data) {
            (None, None) => Ok(()),
            (None, Some(data)) => client.create(&write.path, data, &options).await.map(|_| ()),
            (Some(version), Some(data)) => {
                let response = client.set_data(&write.path, data, Some(version)).await;
                response.map(|_| ())
            }
            (Some(version), None) => client.delete(&write.path, Some(version)).await,
        };
        return outcome.at_node("writing", &write.path);
    }
    let mut created_paths = HashSet::new();
    let mut transaction_result = Ok(());
    for write in writes.iter_mut().filter(|write| write.version.is_none()) {
        match client.create(&write.path, &[], &options).await {
            Ok(_) => {
                write.version = Some(0);
                created_paths.insert(write.path.clone());
            }
            Err(error) => {
                transaction_result = Err(error).at_node("creating", &write.path);
                break;
            }
        }
    }
    if transaction_result.is_ok() {
        transaction_result = commit(client, writes).await;
    }
    if transaction_result.is_err() {
        for path in created_paths {
            // If this request fails too, the new node stays without data. That does no harm, because a node without
            // data is not a definition.
            let _ = client.delete(&path, Some(0)).await;
        }
    }
    transaction_result
}

async fn commit(client: &Client, writes: &[NodeWrite]) -> Result<(), ZooKeeperError> {
    let mut writer = client.new_multi_writer();
    for write in writes {
        let addition = match &write.data {
            Some(data) => writer.add_set_data(&write.path, data, write.version),
            None => writer.add_delete(&write.path, write.version),
        };
        addition.at_node("writing", &write.path)?;
    }
    let (index, error) = match writer.commit().await {
        Ok(_) => return Ok(()),
        Err(MultiWriteError::OperationFailed { index, source }) => (index, source),
        Err(MultiWriteError::RequestFailed { source }) => (0, source),
    };
    Err(error).at_node("writing", writes.get(index).map_or("", |write| &write.path))
}
