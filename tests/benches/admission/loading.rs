//! Measures how long it takes to serve new modules, after a start of the program and after a change.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use admittance_tests::{Admittance, Client, FakeUpstream, Serve, Versions, replace, repository};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    measure::MeasuredTable,
    setting::{Setting, TOKEN},
};

const CONFIG: &str = "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: [\"http://127.0.0.1:1\"] }
definitions: [definitions]
";

/// The number of settings of each plugin in the configuration with many chains.
const SETTINGS_COUNT: u32 = 200;
const CHAINS: u32 = 2000;

const CONSTRAINTS: u32 = 50;

struct LoadingScene {
    directory: TempDir,
    upstream: FakeUpstream,
    versions: Versions,
    client: Client,
}

impl LoadingScene {
    async fn new() -> Self {
        let scene = Self {
            directory: tempfile::tempdir().unwrap(),
            upstream: FakeUpstream::start_forgetful().await.unwrap(),
            versions: Versions::find().unwrap(),
            client: Client::new().unwrap(),
        };
        fs::create_dir(scene.path("definitions")).unwrap();
        fs::write(scene.path("admittance.yaml"), CONFIG).unwrap();
        scene
    }

    /// Creates a scene with this number of plugins. Each has its own module and chain, and each request calls all.
    async fn with_plugins(plugins: u32) -> Self {
        let scene = Self::new().await;
        for plugin in 1..=plugins {
            scene.put(plugin, plugin);
        }
        let chains = (1..=plugins).map(|plugin| chain(plugin, "application", &scene.module(plugin), plugin));
        scene.write("chains", chains);
        scene
    }

    async fn with_constraints() -> Self {
        let scene = Self::with_plugins(1).await;
        let template = repository().join("docs/examples/gatekeeper/container-limits/template.yaml");
        let template = fs::read_to_string(template).unwrap();
        let constraints = (1..=CONSTRAINTS).map(|number| {
            format!(
                "---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: ContainerLimits
metadata: {{ name: limits-{number} }}
spec: {{ parameters: {{ cpu: \"{number}\" }} }}
"
            )
        });
        scene.write("policies", std::iter::once(template).chain(constraints));
        scene
    }

    fn write(&self, file: &str, chains: impl Iterator<Item = String>) {
        let path = self.path(&format!("definitions/{file}.yaml"));
        fs::write(path, chains.collect::<String>()).unwrap();
    }

    async fn measure_start(&self) -> (Admittance, Duration) {
        let started = Instant::now();
        let program = self.start().await;
        let duration = started.elapsed();
        self.wait_for_answer(&program, 1).await;
        (program, duration)
    }

    async fn measure_change(&self, program: &Admittance, plugin: u32, version: u32) -> Duration {
        let started = Instant::now();
        self.put(plugin, version);
        self.wait_for_answer(program, version).await;
        started.elapsed()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn module(&self, plugin: u32) -> PathBuf {
        self.path(&format!("definitions/{plugin}.wasm"))
    }

    fn put(&self, plugin: u32, version: u32) {
        replace(&self.module(plugin), self.versions.module(version)).unwrap();
    }

    async fn start(&self) -> Admittance {
        Serve::with_program(&crate::program(), &self.path("admittance.yaml"))
            .upstream(&self.upstream.url())
            .store(self.path("store"))
            .start()
            .await
            .unwrap()
    }

    async fn wait_for_answer(&self, program: &Admittance, version: u32) {
        let url = program.url("/mesosdriver/v4/namespaces/bench/applications");
        let object = json!({
            "apiVersion": "v4",
            "kind": "application",
            "metadata": {"name": "web", "namespace": "bench"},
        })
        .to_string();
        let name = Versions::name(version);
        let mut turns = tokio::time::interval(Duration::from_millis(1));
        loop {
            turns.tick().await;
            let reply = self.client.send_bcs(Method::POST, &url, object.clone()).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
            let annotations = &reply.json().unwrap()["data"]["metadata"]["annotations"];
            if annotations["version.admittance.dev/1"] == name.as_str() {
                return;
            }
        }
    }
}

fn chain(number: u32, kind: &str, module: &Path, settings: u32) -> String {
    format!("---\n{}\n", resource(number, kind, module, settings))
}

fn resource(number: u32, kind: &str, module: &Path, settings: u32) -> Value {
    let source = format!("file:{}", module.display());
    let plugin = json!({"source": source, "settings": {"name": settings.to_string()}});
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": format!("chain-{number}")},
        "spec": {
            "rules": [{"operations": ["CREATE"], "kinds": [kind]}],
            "stages": [{"name": "stage", "plugin": plugin}],
        },
    })
}

pub(crate) async fn measure(rounds: u32, plugins: u32) {
    let size = Versions::find().unwrap().size() / 1000;
    let mut table = MeasuredTable::new(&format!(
        "what is new is served: modules of {size} kB each, {rounds} rounds"
    ));
    measure_starts(
        &mut table,
        rounds,
        &format!("{plugins} plugins"),
        &LoadingScene::with_plugins(plugins).await,
    )
    .await;
    let scene = LoadingScene::new().await;
    scene.put(1, 1);
    let chains = (1..=SETTINGS_COUNT).map(|number| chain(number, "application", &scene.module(1), number));
    scene.write("chains", chains);
    let name = format!("{SETTINGS_COUNT} settings of one module");
    measure_starts(&mut table, 3, &name, &scene).await;
    let name = format!("{CONSTRAINTS} constraints of one template in Rego");
    measure_starts(&mut table, 3, &name, &LoadingScene::with_constraints().await).await;
    measure_changes(&mut table, rounds).await;
    measure_many_chains(&mut table, rounds).await;
    measure_many_resources(&mut table, rounds).await;
    table.print();
}

/// Measures starts with an empty store, and with all plugins compiled in the store.
async fn measure_starts(table: &mut MeasuredTable, rounds: u32, description: &str, scene: &LoadingScene) {
    let (_, cold_time) = scene.measure_start().await;
    table.add(
        &format!("a start with {description}, nothing in the store"),
        None,
        vec![cold_time],
    );
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(scene.measure_start().await.1);
    }
    table.add(
        &format!("a start with {description}, compiled forms in the store"),
        None,
        times,
    );
}

async fn measure_changes(table: &mut MeasuredTable, rounds: u32) {
    let scene = LoadingScene::with_plugins(1).await;
    let program = scene.start().await;
    let mut times = Vec::new();
    for version in 2..2 + rounds {
        times.push(scene.measure_change(&program, 1, version).await);
    }
    table.add("a change, to a module that was never seen", None, times);
    let mut times = Vec::new();
    for round in 0..rounds {
        // In each round, the module changes from one of its two newest versions to the other. The store already has the
        // compiled forms of both versions, so nothing is compiled.
        times.push(scene.measure_change(&program, 1, rounds + round % 2).await);
    }
    table.add("a change, to a module whose compiled form is in the store", None, times);
}

/// Measures how long a change of one chain takes if there are many more chains, which match other objects.
async fn measure_many_chains(table: &mut MeasuredTable, rounds: u32) {
    let scene = LoadingScene::new().await;
    scene.put(1, 1);
    scene.put(2, 1);
    let other_chains = (2..=CHAINS).map(|number| chain(number, "service", &scene.module(2), number % 10));
    scene.write("others", other_chains);
    scene.write("chain", [chain(1, "application", &scene.module(1), 1)].into_iter());
    let (program, _) = scene.measure_start().await;
    for version in [2, 1] {
        scene.measure_change(&program, 1, version).await;
    }
    let mut times = Vec::new();
    for round in 0..rounds {
        times.push(scene.measure_change(&program, 1, 2 - round % 2).await);
    }
    table.add(&format!("the same, beside {CHAINS} chains"), None, times);
    let resident = program.resident_memory().unwrap() / 1_000_000;
    table.note(format!(
        "resident memory with {CHAINS} chains, after these changes: {resident} MB"
    ));
}

/// Measures how long starts and changes take if an API server has many chains. Half of the chains have a plugin.
async fn measure_many_resources(table: &mut MeasuredTable, rounds: u32) {
    const PLURAL: &str = "admissionchains";
    let setting = Setting::new();
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let scene = LoadingScene::new().await;
    let config = CONFIG.replace("[definitions]", "[ { kubernetes: {} } ]");
    let config = format!("{config}cluster: {{ kubeconfig: {} }}\n", kubeconfig.display());
    fs::write(scene.path("admittance.yaml"), config).unwrap();
    for version in [1, 2] {
        scene.put(version, version);
    }
    let first_chain = |version| resource(1, "application", &scene.module(version), 1);
    setting.server.put(PLURAL, first_chain(1));
    for number in 2..=CHAINS {
        let settings = if number % 2 == 0 { 2 } else { number };
        let chain = resource(number, "service", &scene.module(2), settings);
        setting.server.put(PLURAL, chain);
    }
    let description = format!("{CHAINS} chains as resources");
    measure_starts(table, rounds, &description, &scene).await;
    let (program, _) = scene.measure_start().await;
    let mut times = Vec::new();
    for round in 0..=rounds {
        let version = 2 - round % 2;
        let started = Instant::now();
        setting.server.put(PLURAL, first_chain(version));
        scene.wait_for_answer(&program, version).await;
        times.push(started.elapsed());
    }
    // Drop the time of the first change, for which a module had to be compiled.
    times.remove(0);
    let name = format!("a change of one of {description}, to a module whose compiled form is in the store");
    table.add(&name, None, times);
}
