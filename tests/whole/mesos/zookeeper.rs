//! Real ZooKeeper servers, in which each test has a root node of its own.

use zookeeper_client::{Acls, Client, CreateMode};

#[path = "../../../host/bcs/tests/zookeeper/ensemble.rs"]
mod ensemble;

pub(super) use ensemble::{Ensemble, TestZooKeeper};

/// A ZooKeeper ensemble, and the node in it that serves as the root for a test.
#[derive(Clone)]
pub(crate) struct ZooKeeperNode {
    /// The addresses of the ZooKeeper servers, separated by commas, such as `127.0.0.1:2181,127.0.0.1:2182`.
    pub(super) servers: String,
    /// The path of the node that serves as the root for a test. The path is empty if the test uses the root of the
    /// whole ensemble.
    folder: String,
}

impl ZooKeeperNode {
    pub(super) fn root(servers: &str) -> Self {
        Self {
            servers: servers.to_owned(),
            folder: String::new(),
        }
    }

    /// Creates a root node for this test in the ZooKeeper server that all tests share.
    pub(crate) async fn create_shared(test: &str) -> Self {
        let address = run_blocking(ensemble::shared_server_address).await;
        let folder = format!("/{test}-{:016x}", fastrand::u64(..));
        let client = Client::connect(address).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(&folder, b"", &options).await.unwrap();
        Self {
            servers: address.to_owned(),
            folder,
        }
    }

    pub(super) fn connection(&self) -> String {
        format!("{}{}", self.servers, self.folder)
    }

    pub(crate) fn config(&self) -> String {
        let servers: Vec<String> = self.servers.split(',').map(|server| format!("\"{server}\"")).collect();
        let chroot = match self.folder.as_str() {
            "" => String::new(),
            folder => format!(", chroot: {folder}"),
        };
        format!("{{ servers: [{}]{chroot}, sessionTimeout: 2s }}", servers.join(", "))
    }
}

pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}
