//! Following the children of a node.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::watch, task::AbortHandle, time::sleep};
use zookeeper_client::{Client, Error};

use crate::zookeeper::{Watch, ZooKeeper, ZooKeeperError, check_path, error::At};

/// The pause before a retry after an error other than of the connection.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a request without a connection, which the session also reports.
pub(crate) const SOON: Duration = Duration::from_millis(20);

/// A list of children.
pub trait List: Clone + Default + PartialEq + Send + Sync + 'static {
    /// Reads these children. Children that are gone meanwhile are left out.
    fn read(
        client: &Client,
        path: &str,
        names: Vec<String>,
    ) -> impl Future<Output = Result<Self, ZooKeeperError>> + Send;

    /// Set the reason why the list may be stale.
    fn lose(&mut self, reason: String);
}

/// The children of a node, followed in the background until this is dropped.
#[derive(Debug)]
pub struct Followed<L> {
    list: watch::Receiver<Arc<L>>,
    task: AbortHandle,
}

impl<L: List> Followed<L> {
    pub(crate) fn start(zookeeper: ZooKeeper, path: &str) -> Self {
        let (show, list) = watch::channel(Arc::new(L::default()));
        let path = path.to_owned();
        let task = tokio::spawn(async move { follow(&zookeeper, &path, &show).await }).abort_handle();
        Self { list, task }
    }

    /// The last known list.
    pub fn borrow(&self) -> Arc<L> {
        self.list.borrow().clone()
    }

    /// Wait until the list or its state has changed since the last call.
    pub async fn changed(&mut self) {
        if self.list.changed().await.is_err() {
            // The task has ended with the runtime: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// A receiver of the list. It no longer changes once this is dropped.
    pub fn receiver(&self) -> watch::Receiver<Arc<L>> {
        self.list.clone()
    }
}

impl<L> Drop for Followed<L> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow<L: List>(zookeeper: &ZooKeeper, path: &str, show: &watch::Sender<Arc<L>>) {
    if let Err(reason) = check_path(path) {
        lose(show, format!("{path:?} is not a valid node path: {reason}"));
        return std::future::pending().await;
    }
    loop {
        let client = zookeeper.connected(|away| lose(show, away.to_string())).await;
        match zookeeper.while_connected(in_session(&client, path, show)).await {
            None => lose(show, zookeeper.away().to_string()),
            Some(error) => {
                lose(show, error.to_string());
                sleep(if error.is_away() { SOON } else { PAUSE }).await;
            }
        }
    }
}

/// Follow the children until something fails.
async fn in_session<L: List>(client: &Client, path: &str, show: &watch::Sender<Arc<L>>) -> ZooKeeperError {
    loop {
        if let Err(error) = once(client, path, show).await {
            return error;
        }
    }
}

/// Publish the current children, and wait until they change.
async fn once<L: List>(
    client: &Client,
    path: &str,
    show: &watch::Sender<Arc<L>>,
) -> Result<(), ZooKeeperError> {
    let watch = match Watch::children(client, path).await {
        Ok((names, watch)) => {
            let list = L::read(client, path, names).await?;
            publish(show, list);
            watch
        }
        // The node does not exist yet. The watch fires when it is created.
        Err(Error::NoNode) => {
            let (node, watch) = Watch::node(client, path).await.at("reading", path)?;
            if node.is_some() {
                return Ok(());
            }
            publish(show, L::read(client, path, Vec::new()).await?);
            watch
        }
        Err(error) => return Err(error).at("reading the children of", path),
    };
    watch.fired().await.at("following", path)
}

fn publish<L: List>(show: &watch::Sender<Arc<L>>, list: L) {
    show.send_if_modified(|shown| {
        let is_new = **shown != list;
        if is_new {
            *shown = Arc::new(list);
        }
        is_new
    });
}

fn lose<L: List>(show: &watch::Sender<Arc<L>>, reason: String) {
    let mut list = L::clone(&show.borrow());
    list.lose(reason);
    publish(show, list);
}
