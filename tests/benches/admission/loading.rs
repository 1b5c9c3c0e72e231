//! How long it takes until new modules are served: after a start and after a change of the whole program.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use admittance_tests::{Admittance, Client, Serve, Upstream, Versions, replace};
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::measure::Table;

const CONFIG: &str = "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: [\"http://127.0.0.1:1\"] }
definitions: [definitions]
";

/// The files of the program.
struct Scene {
    directory: TempDir,
    upstream: Upstream,
    versions: Versions,
    client: Client,
}

impl Scene {
    /// With this number of plugins, each with its own module and chain, all called for the same request.
    async fn new(plugins: u32) -> Self {
        let scene = Self {
            directory: tempfile::tempdir().unwrap(),
            upstream: Upstream::forgetful().await.unwrap(),
            versions: Versions::find().unwrap(),
            client: Client::new().unwrap(),
        };
        fs::create_dir(scene.path("definitions")).unwrap();
        fs::write(scene.path("admittance.yaml"), CONFIG).unwrap();
        let mut chains = String::new();
        for plugin in 1..=plugins {
            scene.put(plugin, plugin);
            chains += &chain(plugin, &scene.module(plugin));
        }
        fs::write(scene.path("definitions/chains.yaml"), chains).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The module of a plugin.
    fn module(&self, plugin: u32) -> PathBuf {
        self.path(&format!("definitions/{plugin}.wasm"))
    }

    /// Sets the version of a plugin.
    fn put(&self, plugin: u32, version: u32) {
        replace(&self.module(plugin), self.versions.module(version)).unwrap();
    }

    async fn start(&self) -> Admittance {
        Serve::new(self.path("admittance.yaml"))
            .unwrap()
            .upstream(&self.upstream.url())
            .store(self.path("store"))
            .start()
            .await
            .unwrap()
    }

    /// Polls until the first plugin answers with this version.
    async fn until_answered(&self, program: &Admittance, version: u32) {
        let url = program.url("/mesosdriver/v4/namespaces/bench/applications");
        let object = json!({
            "apiVersion": "v4",
            "kind": "application",
            "metadata": {"name": "web", "namespace": "bench"},
        });
        let object = object.to_string();
        let name = Versions::name(version);
        let mut turns = tokio::time::interval(Duration::from_millis(1));
        loop {
            turns.tick().await;
            let reply = self.client.bcs(Method::POST, &url, object.clone()).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
            let annotations = &reply.json().unwrap()["data"]["metadata"]["annotations"];
            if annotations["version.admittance.dev/1"] == name.as_str() {
                return;
            }
        }
    }
}

fn chain(plugin: u32, module: &Path) -> String {
    format!(
        "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: chain-{plugin} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: stage
      plugin: {{ source: \"file:{}\", settings: {{ name: \"{plugin}\" }} }}
",
        module.display()
    )
}

pub(crate) async fn measure(rounds: u32, plugins: u32) {
    let size = Versions::find().unwrap().size() / 1000;
    let mut table = Table::new(&format!(
        "what is new is served: modules of {size} kB each, {rounds} rounds"
    ));
    starts(&mut table, rounds, plugins).await;
    changes(&mut table, rounds).await;
    table.print();
}

/// From the start of the program until it serves.
async fn starts(table: &mut Table, rounds: u32, plugins: u32) {
    let scene = Scene::new(plugins).await;
    let start = async || {
        let started = Instant::now();
        let program = scene.start().await;
        let took = started.elapsed();
        scene.until_answered(&program, 1).await;
        took
    };
    let first = start().await;
    let name = format!("a start with {plugins} plugins, nothing in the store");
    table.add(&name, None, vec![first]);
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(start().await);
    }
    let name = format!("a start with {plugins} plugins, compiled forms in the store");
    table.add(&name, None, times);
}

/// From the rename of a module to its first answer.
async fn changes(table: &mut Table, rounds: u32) {
    let scene = Scene::new(1).await;
    let program = scene.start().await;
    let change = async |version| {
        let started = Instant::now();
        scene.put(1, version);
        scene.until_answered(&program, version).await;
        started.elapsed()
    };
    let mut times: Vec<Duration> = Vec::new();
    for version in 2..2 + rounds {
        times.push(change(version).await);
    }
    table.add("a change, to a module that was never seen", None, times);
    let mut times = Vec::new();
    for round in 0..rounds {
        // The newest two, and the newest is live.
        times.push(change(rounds + round % 2).await);
    }
    table.add(
        "a change, to a module whose compiled form is in the store",
        None,
        times,
    );
}
