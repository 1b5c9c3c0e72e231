use std::{ffi::OsString, fs, path::PathBuf};

use admittance_tests::{Admittance, Client, FakeUpstream, FinishedProgram, Reply, Serve, Versions, replace};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{BCS, application, store, write};

/// A driver with a directory of definitions, and a plugin in several versions. The methods run commands such as
/// `admittance rollback` against this driver.
pub(super) struct OperatorSetup {
    pub(super) directory: TempDir,
    pub(super) program: Admittance,
    pub(super) versions: Versions,
    upstream: FakeUpstream,
    client: Client,
}

impl OperatorSetup {
    pub(super) async fn start_with_chain(chain: &str) -> Self {
        Self::start(BCS, chain, |_| None).await
    }

    pub(super) async fn start_with_config(config: &str, chain: &str) -> Self {
        Self::start(config, chain, |_| None).await
    }

    /// Starts a driver with this configuration. `sign` returns the signature of a module.
    pub(super) async fn start_signed(config: &str, chain: &str, sign: impl Fn(&[u8]) -> String) -> Self {
        Self::start(config, chain, |module| Some(sign(module))).await
    }

    async fn start(config: &str, chain: &str, sign: impl Fn(&[u8]) -> Option<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let versions = Versions::find().unwrap();
        fs::create_dir(directory.path().join("chains")).unwrap();
        write(&directory, "chains/versions.yaml", chain);
        for (name, version) in [("one.wasm", 1), ("two.wasm", 2)] {
            let module = versions.module(version);
            write(&directory, name, &module);
            if let Some(signature) = sign(&module) {
                write(&directory, &format!("{name}.sig"), signature);
            }
        }
        let config = config.replace("definitions: [chains.yaml]", "definitions: [chains/]");
        write(&directory, "admittance.yaml", config);
        let upstream = FakeUpstream::start().await.unwrap();
        let program = program_builder(&directory, &upstream).start().await.unwrap();
        Self {
            directory,
            program,
            versions,
            upstream,
            client: Client::new().unwrap(),
        }
    }

    /// Kills the driver, and starts it again with the same files and history.
    pub(super) async fn restart(&mut self) {
        self.program.kill().await.unwrap();
        self.program = program_builder(&self.directory, &self.upstream).start().await.unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(super) fn replace_module(&self, name: &str, version: u32) {
        replace(&self.path(name), self.versions.module(version)).unwrap();
    }

    pub(super) async fn run_command<A: Into<OsString>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> FinishedProgram {
        let server = self.program.admin_url("");
        let arguments = arguments.into_iter().map(Into::into);
        let connection = ["--server".into(), OsString::from(server)];
        Admittance::run(arguments.chain(connection)).await.unwrap()
    }

    pub(super) async fn stdout_of<A: Into<OsString>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let finished = self.run_command(arguments).await;
        assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    pub(super) async fn json_of(&self, arguments: &[&str]) -> Value {
        let text = self.stdout_of([arguments, &["--output", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap()
    }

    /// Creates an application, and returns the annotations in which the stages wrote their versions.
    pub(super) async fn versions_of(&self, name: &str) -> Value {
        let reply = self.create(name).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let requests = self.upstream.requests_for("shop", name);
        let object: Value = requests.first().unwrap().json().unwrap();
        object["metadata"]["annotations"].clone()
    }

    pub(super) async fn create(&self, name: &str) -> Reply {
        let mut object = application("shop", name, "nginx:1");
        object["metadata"]["annotations"] = json!({});
        let url = self.program.url("/mesosdriver/v4/namespaces/shop/applications");
        self.client
            .send_bcs(Method::POST, &url, object.to_string())
            .await
            .unwrap()
    }
}

fn program_builder(directory: &TempDir, upstream: &FakeUpstream) -> Serve {
    let config = directory.path().join("admittance.yaml");
    Serve::new(config)
        .unwrap()
        .upstream(&upstream.url())
        .store(store())
        .history(directory.path().join("history"))
}

/// Returns a chain with one stage. The stage has the plugin in the file `module`, and the fields in `stage_fields`.
pub(super) fn chain(module: &str, stage_fields: &str) -> String {
    format!(
        "# Which version runs.
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: versions
spec:
  rules:
    - operations: [CREATE]
      kinds: [application]
  stages:
    - name: version
      plugin:
        source: file:../{module} # here
        settings: {{ name: a }}
{stage_fields}"
    )
}

pub(super) fn annotations_by(version: u32) -> Value {
    json!({ "version.admittance.dev/a": Versions::name(version) })
}
