//! Real servers of ZooKeeper.

use zookeeper_client::{Acls, Client, CreateMode};

#[path = "../../../host/bcs/tests/zookeeper/ensemble.rs"]
mod ensemble;

pub(super) use ensemble::{Ensemble, Server};

/// Where a test has its nodes.
#[derive(Clone)]
pub(super) struct Place {
    /// `host:port,host:port`
    pub(super) servers: String,
    /// What its paths are below; empty when that is the root.
    folder: String,
}

impl Place {
    /// The root of an ensemble.
    pub(super) fn root(servers: &str) -> Self {
        Self {
            servers: servers.to_owned(),
            folder: String::new(),
        }
    }

    /// A folder of its own in the server that the tests share.
    pub(super) async fn shared(test: &str) -> Self {
        // It blocks while the server starts.
        let address = blocking(ensemble::shared).await;
        let folder = format!("/{test}-{:016x}", fastrand::u64(..));
        let client = Client::connect(address).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(&folder, b"", &options).await.unwrap();
        Self {
            servers: address.to_owned(),
            folder,
        }
    }

    /// As clients of ZooKeeper write it.
    pub(super) fn connection(&self) -> String {
        format!("{}{}", self.servers, self.folder)
    }

    /// As it stands in the configuration.
    pub(super) fn config(&self) -> String {
        let servers: Vec<String> = self
            .servers
            .split(',')
            .map(|server| format!("\"{server}\""))
            .collect();
        let chroot = match self.folder.as_str() {
            "" => String::new(),
            folder => format!(", chroot: {folder}"),
        };
        format!(
            "{{ servers: [{}]{chroot}, sessionTimeout: 2s }}",
            servers.join(", ")
        )
    }
}

/// Do what blocks.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}
