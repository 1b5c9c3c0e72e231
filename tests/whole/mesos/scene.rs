//! The program in front of a scheduler, and clients of the driver's API.

use std::{net::SocketAddr, path::PathBuf};

use admittance_tests::{Admittance, Client, MesosCluster, Reply, Scheduler, Serve};
use http::Method;
use serde_json::Value;
use tempfile::TempDir;

use super::zookeeper::ZooKeeperNode;
use crate::scene::{store, write};

pub(super) const CLUSTER: &str = "BCS-MESOS-10001";

/// A driver and a scheduler. The driver's configuration has the address of the scheduler, so all requests go to this
/// scheduler.
pub(super) struct MesosScene {
    _directory: TempDir,
    pub(super) cluster: MesosCluster,
    pub(super) scheduler: Scheduler,
    pub(super) program: Admittance,
    pub(super) client: Client,
}

impl MesosScene {
    /// Starts a driver with this text as definitions, or without any if it is empty. `resolve` maps host names to
    /// addresses.
    pub(super) async fn new(definitions: &str, resolve: &[(&str, SocketAddr)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cluster = MesosCluster::default();
        let scheduler = Scheduler::start(&cluster).await.unwrap();
        std::fs::create_dir(directory.path().join("definitions")).unwrap();
        if !definitions.is_empty() {
            write(&directory, "definitions/definitions.yaml", definitions);
        }
        let mut config = format!(
            "dialect: {{ bcs: {{ cluster: {CLUSTER}, behind: scheduler }} }}\n\
             upstream: {{ servers: [\"{}\"] }}\n\
             definitions: [definitions]\n",
            scheduler.url()
        );
        if !resolve.is_empty() {
            config += "webhooks:\n  resolve:\n";
        }
        for (host, address) in resolve {
            config += &format!("    {host}: \"{address}\"\n");
        }
        let program = Serve::new(write(&directory, "admittance.yaml", config))
            .unwrap()
            .store(store())
            .start()
            .await
            .unwrap();
        Self {
            _directory: directory,
            cluster,
            scheduler,
            program,
            client: Client::new().unwrap(),
        }
    }

    /// Sends a request with the headers of a BCS client to the driver. `path` is relative to `/mesosdriver/v4`.
    pub(super) async fn send(&self, method: Method, path: &str, body: impl Into<bytes::Bytes>) -> Reply {
        let url = self.program.url(&format!("/mesosdriver/v4{path}"));
        self.client.send_bcs(method, &url, body).await.unwrap()
    }
}

/// Returns the configuration of a driver that registers itself and finds the scheduler in ZooKeeper. Appends
/// `additions`.
pub(super) fn driver_config(zookeeper: &ZooKeeperNode, additions: &str) -> String {
    let ensemble = zookeeper.config();
    let definitions = if additions.contains("definitions:") {
        ""
    } else {
        "definitions: []\n"
    };
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}\n\
         dialect: {{ bcs: {{ cluster: {CLUSTER} }} }}\n\
         zookeeper: {{ cluster: {ensemble} }}\n\
         upstream: {{ discover: {{}} }}\n\
         {definitions}{additions}"
    )
}

/// A running driver or gateway, and the directory in which it runs.
pub(super) struct Front {
    _directory: TempDir,
    pub(super) program: Admittance,
}

impl Front {
    /// Starts a driver or gateway with this configuration, on ports that the kernel chooses.
    pub(super) async fn start(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = write(&directory, "admittance.yaml", config);
        let program = program_builder(&directory, config).start().await.unwrap();
        Self {
            _directory: directory,
            program,
        }
    }

    pub(super) fn routes_url(&self) -> String {
        self.program.url("/mesosdriver/v4")
    }
}

fn program_builder(directory: &TempDir, config: PathBuf) -> Serve {
    Serve::new(config)
        .unwrap()
        .store(store())
        .history(directory.path().join("history"))
}

pub(super) fn code_and_message(reply: &Reply) -> (u64, String) {
    let envelope: Value = reply.json().unwrap();
    let message = envelope["message"].as_str().unwrap().to_owned();
    (envelope["code"].as_u64().unwrap(), message)
}
