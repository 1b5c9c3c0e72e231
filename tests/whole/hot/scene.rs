//! A directory of definitions, a module in several versions, and the program that serves them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use admittance_tests::{
    Admittance, Client, FakeUpstream, POLL_INTERVAL, Reply, Serve, TEST_TIMEOUT, Versions, replace,
};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The files of a program, with one chain whose only stage, `stage`, uses `modules/versioned.wasm`.
pub(super) struct HotScene {
    directory: TempDir,
    upstream: FakeUpstream,
    versions: Versions,
    pub(super) client: Client,
}

const CONFIG: &str = "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: [\"http://127.0.0.1:1\"] }
definitions: [definitions]
";

impl HotScene {
    pub(super) async fn new() -> Self {
        Self::new_with_additions("").await
    }

    /// Creates the files of a driver whose configuration is the usual one with `additions` appended.
    pub(super) async fn new_with_additions(additions: &str) -> Self {
        let hot = Self {
            directory: tempfile::tempdir().unwrap(),
            upstream: FakeUpstream::start_forgetful().await.unwrap(),
            versions: Versions::find().unwrap(),
            client: Client::new().unwrap(),
        };
        fs::create_dir(hot.path("definitions")).unwrap();
        fs::create_dir(hot.path("modules")).unwrap();
        fs::write(hot.path("admittance.yaml"), format!("{CONFIG}{additions}")).unwrap();
        fs::write(hot.chain_file(), hot.usual_chain()).unwrap();
        fs::write(hot.module_path(), hot.module_bytes(1)).unwrap();
        hot
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn chain_file(&self) -> PathBuf {
        self.path("definitions/chain.yaml")
    }

    pub(super) fn module_path(&self) -> PathBuf {
        self.path("modules/versioned.wasm")
    }

    pub(super) fn usual_chain(&self) -> String {
        chain("versioned", &self.plugin_fields("{ name: stage }"))
    }

    pub(super) fn plugin_fields(&self, settings: &str) -> String {
        let source = format!("file:{}", self.module_path().display());
        format!("{{ source: \"{source}\", settings: {settings} }}")
    }

    pub(super) fn module_bytes(&self, version: u32) -> Vec<u8> {
        self.versions.module(version)
    }

    pub(super) fn write_module(&self, version: u32) {
        replace(&self.module_path(), self.module_bytes(version)).unwrap();
    }

    /// Returns a command that starts the program. The store and the history of earlier starts are kept.
    pub(super) fn program_builder(&self) -> Serve {
        Serve::new(self.path("admittance.yaml"))
            .unwrap()
            .upstream(&self.upstream.url())
            .store(self.path("store"))
            .history(self.path("history"))
    }

    pub(super) async fn start(&self) -> Admittance {
        self.program_builder().start().await.unwrap()
    }

    pub(super) async fn fetch_annotations(&self, program: &Admittance) -> BTreeMap<String, String> {
        let object = json!({
            "apiVersion": "v4",
            "kind": "application",
            "metadata": {"name": "web", "namespace": "shop"},
        });
        let url = program.url("/mesosdriver/v4/namespaces/shop/applications");
        let reply = self
            .client
            .send_bcs(Method::POST, &url, object.to_string())
            .await
            .unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let annotations = reply.json().unwrap()["data"]["metadata"]["annotations"].take();
        serde_json::from_value(annotations).unwrap_or_default()
    }

    /// Returns the version of the module that the live stage `stage` uses. Returns `None` if there is no such stage.
    pub(super) async fn fetch_version(&self, program: &Admittance) -> Option<u32> {
        let annotations = self.fetch_annotations(program).await;
        Versions::number(annotations.get("version.admittance.dev/stage")?)
    }

    pub(super) async fn until_version(&self, program: &Admittance, event: &str, version: u32) {
        let has_version = async || self.fetch_version(program).await == Some(version);
        self.wait_until(program, event, has_version).await;
        self.until_idle(program).await;
    }

    /// Waits until no change is in progress, and returns the status. By then, the history has the live revision.
    pub(super) async fn until_idle(&self, program: &Admittance) -> Value {
        program
            .wait_for_status("no change is under way", |status| status["building"] == false)
            .await
            .unwrap()
    }

    pub(super) async fn wait_until(&self, program: &Admittance, event: &str, condition: impl AsyncFn() -> bool) {
        let mut turns = tokio::time::interval(POLL_INTERVAL);
        let wait = async {
            while !condition().await {
                turns.tick().await;
            }
        };
        if tokio::time::timeout(TEST_TIMEOUT, wait).await.is_err() {
            let log: Vec<_> = program.log().into_iter().map(|line| line.text).collect();
            panic!("{event}: never; the log:\n{}", log.join("\n"));
        }
    }

    pub(super) async fn post(&self, program: &Admittance, path: &str, body: &str) -> Reply {
        let request = Request::post(program.admin_url(path));
        self.client.send(request.body(body.to_owned()).unwrap()).await.unwrap()
    }

    pub(super) async fn roll_back(&self, program: &Admittance, revision: u64) {
        let body = json!({"revision": revision}).to_string();
        let reply = self.post(program, "/v1/rollback", &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    }

    pub(super) async fn is_table_current(&self, program: &Admittance) -> bool {
        let metrics = program.metrics().await.unwrap();
        metrics.sum("admittance_table_current", &[]) == Some(1.0)
    }
}

/// Kills the program, and waits until it has released the lock of its history.
pub(super) async fn kill_program(mut program: Admittance) {
    program.kill().await.unwrap();
}

pub(super) fn chain(name: &str, plugin: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: stage
      plugin: {plugin}
"
    )
}

/// Returns the mistakes in `/v1/status` as one text, which is empty if the newest definitions are live.
pub(super) fn mistakes_text(status: &Value) -> String {
    let mistakes = status["problem"]["mistakes"].as_array();
    let lines = mistakes.into_iter().flatten().filter_map(Value::as_str);
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn file_contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}
