//! Tests that `admittance kubernetes manifests` prints complete manifests whose Pods can serve, and that `admittance
//! kubernetes chart` installs the same objects.

mod access;
mod chart;
mod content;
mod files;
mod pod;
mod static_pod;
mod strict;

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use admittance_tests::{Admittance, Client, ClientTrust, FinishedProgram, Serve, repository};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{source, store, write};

fn chains() -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: sidecar }}
spec:
  phase: Mutating
  rules:
    - {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: log-agent   # stays where it is
      plugin:
        source: {sidecar}
        settings:
          containers: [ {{ name: log-agent, image: \"registry.example.com/log-agent:2.1\" }} ]
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  phase: Validating
  rules:
    - {{ operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers] }}
    - {{ operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments], scope: Namespaced }}
  stages:
    - name: images
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
      failurePolicy: Ignore
",
        sidecar = source("sidecar-injector"),
        images = source("image-policy"),
    )
}

/// Runs `admittance kubernetes manifests` with these arguments, which are separated by spaces.
async fn run_manifests(arguments: &str) -> FinishedProgram {
    let words = ["kubernetes", "manifests"]
        .into_iter()
        .chain(arguments.split_whitespace());
    Admittance::run(words).await.unwrap()
}

/// The output of `admittance kubernetes manifests`, and the directory with the files from which it was made.
struct PrintedManifests {
    directory: TempDir,
    objects: Vec<Value>,
    stderr: String,
}

impl PrintedManifests {
    async fn from_definitions(definitions: &str, arguments: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = write(&directory, "pods.yaml", definitions);
        Self::in_directory(directory, &format!("--definitions {} {arguments}", file.display())).await
    }

    async fn in_directory(directory: TempDir, arguments: &str) -> Self {
        let finished = run_manifests(arguments).await;
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        Self {
            directory,
            objects: parse_objects(&finished.stdout),
            stderr: finished.stderr,
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap())
            .collect()
    }

    /// Returns the only object of this kind whose name ends with `name`. Panics if there is none or more than one.
    fn object(&self, kind: &str, name: &str) -> &Value {
        let is_wanted =
            |object: &&Value| object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(name);
        let matching_objects: Vec<_> = self.objects.iter().filter(is_wanted).collect();
        assert_eq!(matching_objects.len(), 1, "{kind} {name}");
        matching_objects[0]
    }

    fn config(&self) -> Value {
        let text = self.object("ConfigMap", "-config")["data"]["admittance.yaml"].as_str();
        parse_objects(text.unwrap()).remove(0)
    }

    fn pod(&self) -> &Value {
        &self.object("Deployment", "")["spec"]["template"]["spec"]
    }

    /// Writes the files of all volumes that the Pod mounts into directories below `root`.
    fn write_volumes(&self, root: &Path) {
        let volumes = self.pod()["volumes"].as_array().unwrap();
        for mount in self.pod()["containers"][0]["volumeMounts"].as_array().unwrap() {
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let folder = root.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
            fs::create_dir_all(&folder).unwrap();
            for (name, bytes) in self.volume_files(volume) {
                fs::write(folder.join(name), bytes).unwrap();
            }
        }
    }

    fn volume_files(&self, volume: &Value) -> BTreeMap<String, Vec<u8>> {
        let mut sources = vec![volume];
        sources.extend(volume["projected"]["sources"].as_array().into_iter().flatten());
        let mut files = BTreeMap::new();
        for source in sources {
            if let Some(name) = source["configMap"]["name"].as_str() {
                let map = self.object("ConfigMap", name);
                for (key, text) in map["data"].as_object().into_iter().flatten() {
                    files.insert(key.clone(), text.as_str().unwrap().as_bytes().to_vec());
                }
                files.extend(decode_fields(&map["binaryData"]));
            }
            if let Some(name) = source["secret"]["secretName"].as_str() {
                files.extend(decode_fields(&self.object("Secret", name)["data"]));
            }
        }
        files
    }
}

/// Creates certificates for the Service, and returns the argument of `kubernetes manifests` that names their directory.
async fn create_certs(directory: &Path) -> String {
    let certs = directory.join("certs");
    let service = "admittance.admittance-system";
    let certs_output = Admittance::run(["certs", "--service", service, "--out", certs.to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    format!("--certs {}", certs.display())
}

/// Starts the program with the files of a Pod below `root`. The program does not register webhooks.
async fn serve_pod(root: &Path) -> Admittance {
    let path = root.join("etc/admittance/config/admittance.yaml");
    let mut config = parse_objects(&fs::read_to_string(&path).unwrap()).remove(0);
    assert_eq!(config.as_object_mut().unwrap().remove("cluster"), Some(json!({})));
    config["dialect"]["kubernetes"] = json!({});
    fs::write(&path, config.to_string()).unwrap();
    Serve::new(path).unwrap().store(store()).start().await.unwrap()
}

fn decode_fields(data: &Value) -> impl Iterator<Item = (String, Vec<u8>)> {
    let fields = data.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.clone(), BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()))
}

/// Parses the YAML documents of a text with the program's own parser.
fn parse_objects(text: &str) -> Vec<Value> {
    use admittance_definitions::{Mistakes, document};
    let parts = text
        .split("\n---\n")
        .map(|part| part.strip_prefix("---\n").unwrap_or(part))
        // The text may begin with a part that contains only comments, which is not a document.
        .filter(|part| part.lines().any(|line| !line.starts_with('#')));
    let parse = |part: &str| {
        let mut mistakes = Mistakes::new();
        let documents = document::read_text("printed.yaml", &format!("{part}\n"), &mut mistakes);
        assert!(mistakes.is_empty(), "{mistakes}");
        assert_eq!(documents.len(), 1);
        documents[0].root_ignoring_mistakes().json()
    };
    // Each document is parsed by itself, because all documents together exceed the parser's size limit.
    parts.map(parse).collect()
}
