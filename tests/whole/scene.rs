//! The program between a client and an upstream, with a test's chains.

use std::{
    fs,
    path::{Path, PathBuf},
};

use admittance_tests::{Admittance, Artifacts, Client, FakeUpstream, FinishedProgram, Reply, Serve};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct ProgramScene {
    pub(crate) directory: TempDir,
    pub(crate) upstream: FakeUpstream,
    pub(crate) program: Admittance,
    pub(crate) client: Client,
}

/// The configuration of a BCS driver, to which tests append further keys.
pub(crate) const BCS: &str = "
dialect:
  bcs: { cluster: BCS-MESOS-10001 }
upstream:
  servers: [\"http://127.0.0.1:1\"]
definitions: [chains.yaml]
";

pub(crate) async fn run_test_cases(chains: &Path, cases: &Path) -> FinishedProgram {
    let arguments = [
        "test".as_ref(),
        chains.as_os_str(),
        "--cases".as_ref(),
        cases.as_os_str(),
        "--store".as_ref(),
        store().as_os_str(),
    ];
    Admittance::run(arguments).await.unwrap()
}

impl ProgramScene {
    pub(crate) async fn start_bcs(chains: &str) -> Self {
        Self::start_with_config(BCS, chains).await
    }

    /// Starts a program with this configuration, and with these chains in the file `chains.yaml`.
    pub(crate) async fn start_with_config(config: &str, chains: &str) -> Self {
        Self::start_with_variables(config, chains, &[]).await
    }

    /// Starts a program with this configuration, these chains and these environment variables.
    pub(crate) async fn start_with_variables(config: &str, chains: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = write(&directory, "admittance.yaml", config);
        write(&directory, "chains.yaml", chains);
        let upstream = FakeUpstream::start().await.unwrap();
        let mut serve = Serve::new(config).unwrap().upstream(&upstream.url()).store(store());
        for (name, value) in variables {
            serve = serve.variable(name, value);
        }
        let program = serve.start().await.unwrap();
        Self {
            directory,
            upstream,
            program,
            client: Client::new().unwrap(),
        }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Reply {
        self.client
            .send_bcs(method, &self.program.url(path), body.to_string())
            .await
            .unwrap()
    }

    pub(crate) async fn create(&self, object: &Value) -> Reply {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap();
        self.send(
            Method::POST,
            &format!("/mesosdriver/v4/namespaces/{namespace}/{kind}s"),
            object,
        )
        .await
    }

    /// Returns the object with this namespace and name that the upstream server received, which must be at most one.
    pub(crate) fn stored_object(&self, namespace: &str, name: &str) -> Option<Value> {
        let requests = self.upstream.requests_for(namespace, name);
        assert!(requests.len() < 2, "{namespace}/{name} came {} times", requests.len());
        requests.first().map(|request| request.json().unwrap())
    }
}

pub(crate) fn write(directory: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Returns the directory in which programs store modules and compiled plugins. It is kept between test runs.
pub(crate) fn store() -> &'static Path {
    Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled"))
}

pub(crate) fn source(package: &str) -> String {
    format!(
        "file:{}",
        Artifacts::find().unwrap().component(package).unwrap().display()
    )
}

/// Returns a BCS application with this image, with the fields that BCS users write.
pub(crate) fn application(namespace: &str, name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "restartPolicy": {"policy": "Never", "interval": 5, "backoff": 10},
        "killPolicy": {"gracePeriod": 5},
        "constraint": {"intersectionItem": []},
        "spec": {"instance": 2, "template": {"spec": {
            "containers": [{
                "type": "MESOS",
                "image": image,
                "imagePullPolicy": "Always",
                "ports": [{"containerPort": 9999, "name": "test-port", "protocol": "HTTP"}],
                "resources": {"limits": {"cpu": "2", "memory": "100"}},
            }],
            "networkMode": "BRIDGE",
            "networkType": "BRIDGE",
        }}},
    })
}

pub(crate) fn bcs_message(reply: &Reply) -> String {
    reply.json().unwrap()["message"].as_str().unwrap().to_owned()
}
