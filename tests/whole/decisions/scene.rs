use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use admittance_tests::{Admittance, FinishedProgram, Reply};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use crate::{
    kubernetes::server::{POD, ReviewVerdict, Server, certificates, review_request},
    scene::source,
};

pub(super) const CONFIG: &str = "
dialect: { kubernetes: {} }
definitions: [chains.yaml]
";

/// Returns chains that add a sidecar and an annotation to Pods and deny images with the tag `latest`.
pub(super) fn chains() -> String {
    format!(
        "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: pods }}
spec:
  rules: [{{ operations: [CREATE], resources: [pods, secrets] }}]
  stages:
    - name: mark
      plugin: {{ source: \"{}\", settings: {{ behaviour: well-behaved }} }}
    - name: images
      plugin: {{ source: \"{}\", settings: {{ refuseLatest: true }} }}
",
        source("guest-misbehaves"),
        source("image-policy"),
    )
}

pub(super) struct DecisionsScene(pub(super) Server);

impl DecisionsScene {
    pub(super) async fn start(additions: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), additions).await
    }

    pub(super) async fn start_in(directory: TempDir, additions: &str) -> Self {
        // When a test starts the server again in its directory, the certificates exist and are kept.
        if !directory.path().join("ca.pem").exists() {
            certificates(&directory, &[]).await;
        }
        let config = format!("{CONFIG}{additions}");
        Self(Server::start_in(directory, &config, &chains()).await)
    }

    /// Sends an AdmissionReview about the creation of a Pod with this image.
    pub(super) async fn create(&self, uid: &str, image: &str) -> ReviewVerdict {
        let mut review = POD.review(uid);
        review["request"]["object"]["spec"]["containers"][0]["image"] = image.into();
        self.review(&review).await
    }

    pub(super) async fn review(&self, review: &Value) -> ReviewVerdict {
        let request = review_request(&self.0.program.url("/admit"), review);
        let reply = self.0.client.send(request).await.unwrap();
        ReviewVerdict::parse(review, &reply)
    }

    pub(super) async fn run_command(&self, arguments: &[&str]) -> FinishedProgram {
        let server = self.0.program.admin_url("");
        let arguments = [arguments, &["--server", &server]].concat();
        Admittance::run(arguments).await.unwrap()
    }

    pub(super) async fn stdout_of(&self, arguments: &[&str]) -> String {
        let finished = self.run_command(arguments).await;
        assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    pub(super) async fn json_of(&self, arguments: &[&str]) -> Value {
        let text = self.stdout_of(&[arguments, &["--output", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the uids of the requests in the decisions that the command `decisions` prints.
    pub(super) async fn list_uids(&self, arguments: &[&str]) -> Vec<String> {
        let list = self.json_of(&[&["decisions"], arguments].concat()).await;
        uids(list["decisions"].as_array().unwrap())
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.0.client.get(&self.0.program.admin_url(path)).await.unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.directory.path().join(name)
    }
}

pub(super) fn uids(decisions: &[Value]) -> Vec<String> {
    let uids = decisions.iter().map(|decision| decision["uid"].as_str().unwrap());
    uids.map(str::to_owned).collect()
}

pub(super) async fn until_lines(path: &Path, count: usize) -> String {
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count && text.ends_with('\n') {
            return text;
        }
        tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
    }
}

/// Writes the files of two tokens for the admin API. Returns the configuration that names them.
pub(super) fn write_tokens(directory: &TempDir) -> String {
    for (name, token) in [
        ("reader", "reader-token-0123456789"),
        ("admin", "admin-token-0123456789"),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, token).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    "admin: { address: \"127.0.0.1:0\", tokens: [{ name: reader, role: Read, file: reader }, { name: boss, role: Admin, file: admin }] }"
        .to_owned()
}

pub(super) struct EventClient(pub(super) BufReader<TcpStream>);

impl EventClient {
    pub(super) async fn open(scene: &DecisionsScene, path: &str, headers: &str) -> Self {
        let url = scene.0.program.admin_url("");
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    pub(super) async fn read_until(&mut self, begin: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.0.read_line(&mut line).await.unwrap();
            assert!(length > 0, "the stream ended before a line with {begin}");
            if line.starts_with(begin) {
                return line.trim_end().to_owned();
            }
        }
    }
}
