//! Sends requests that kube-apiserver 1.36 sent to a webhook, with the same request lines, headers and bodies.

use std::fs;

use admittance_tests::{Client, Reply, repository};
use http::{Request, Version};
use serde_json::{Value, json};

use super::server::{ReviewVerdict, Server};
use crate::scene::source;

struct RecordedCall {
    file: String,
    query: String,
    headers: Vec<(String, String)>,
    review: Value,
}

fn read_recorded_calls() -> Vec<RecordedCall> {
    let folder = repository().join("tests/whole/kubernetes/reviews");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    let mut exchanges = Vec::new();
    for path in files {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let calls: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for call in calls.as_array().unwrap() {
            assert_eq!(call["http"], "HTTP/1.1", "{file}");
            let (_, query) = call["path"].as_str().unwrap().split_once('?').unwrap();
            let headers = call["headers"].as_object().unwrap();
            // When the test sends the recorded request again, its client sets `Host` and `Content-Length` itself.
            let sent_headers = headers
                .iter()
                .filter(|(name, _)| !["Host", "Content-Length"].contains(&name.as_str()));
            exchanges.push(RecordedCall {
                file: file.clone(),
                query: query.to_owned(),
                headers: sent_headers
                    .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                    .collect(),
                review: call["review"].clone(),
            });
        }
    }
    exchanges
}

impl RecordedCall {
    fn into_v1beta1(mut self) -> Self {
        self.review["apiVersion"] = json!("admission.k8s.io/v1beta1");
        self
    }

    async fn send(&self, client: &Client, server: &Server, path: &str) -> Reply {
        let url = server.program.tls_url(&format!("{path}?{}", self.query));
        let mut request = Request::post(url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        client
            .send(request.body(self.review.to_string()).unwrap())
            .await
            .unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordedChange {
    None,
    /// The Pod gets a sidecar container, and the image of its own container is now taken from a mirror registry.
    Pod,
    /// In the Pod template of a Deployment, a sidecar container is added, and the image is now taken from a mirror
    /// registry.
    Template,
    /// The object gets the annotation that the guest `misbehaves` writes.
    Mark,
}

/// The verdict of the validating chain about an object. If a mutating chain has changed the object, the validating
/// chain always allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageVerdict {
    Good,
    Refused,
}

/// (file with recorded calls, number of calls in the file, what the mutating chains change, verdict of the validating
/// chain). kube-apiserver sets other fields in each kind of request, so there is a file for each kind.
const FILES: [(&str, usize, RecordedChange, ImageVerdict); 22] = [
    ("apply-create", 1, RecordedChange::Mark, ImageVerdict::Good),
    ("apply-update", 1, RecordedChange::Mark, ImageVerdict::Good),
    // This request has no namespace, because a ClusterRole belongs to none.
    ("clusterrole-create", 1, RecordedChange::Mark, ImageVerdict::Good),
    // The review of this deletion has no `object`.
    ("cm-delete", 1, RecordedChange::None, ImageVerdict::Good),
    // These requests delete all objects of a collection, so they name none.
    ("cm-deletecollection", 3, RecordedChange::None, ImageVerdict::Good),
    // The image in this Deployment has no tag, so the validating chain refuses it.
    ("deploy-create", 1, RecordedChange::Template, ImageVerdict::Refused),
    ("deploy-scale", 1, RecordedChange::None, ImageVerdict::Good),
    // The object is a Namespace, and the request's namespace is its own name.
    ("ns-create", 1, RecordedChange::Mark, ImageVerdict::Good),
    ("ns-delete", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-binding", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-create", 1, RecordedChange::Pod, ImageVerdict::Good),
    ("pod-create-dryrun", 1, RecordedChange::Pod, ImageVerdict::Good),
    // The Pod has no name yet, because the API server generates it after calling webhooks.
    ("pod-create-generateName", 1, RecordedChange::Pod, ImageVerdict::Good),
    ("pod-eviction", 1, RecordedChange::None, ImageVerdict::Good),
    // The request connects to a Pod (CONNECT). Its object is the connection's options, which have no metadata.
    ("pod-exec", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-patch-merge", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-patch-noop", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-status-patch", 1, RecordedChange::None, ImageVerdict::Good),
    ("pod-update", 1, RecordedChange::None, ImageVerdict::Good),
    // With a SubjectAccessReview, a client asks for the permissions of a user. From version 1.37 on, kube-apiserver
    // does not send such reviews to webhooks.
    ("sar-create", 1, RecordedChange::None, ImageVerdict::Good),
    ("token-create", 1, RecordedChange::Mark, ImageVerdict::Good),
    ("token-request", 1, RecordedChange::None, ImageVerdict::Good),
];

/// Returns two mutating chains, one for all resources and one for a few simple resources, and a validating chain.
fn chains() -> String {
    let (injector, images) = (source("sidecar-injector"), source("image-policy"));
    let guest = source("guest-misbehaves");
    format!(
        "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: inject }}
spec:
  rules: [{{ operations: [CREATE, UPDATE, DELETE, CONNECT], resources: [\"*/*\"] }}]
  stages:
    - name: sidecar
      plugin:
        source: \"{injector}\"
        settings: {{ containers: [{{ name: proxy, image: registry.example.com/proxy:1 }}] }}
    - name: mirror
      plugin:
        source: \"{images}\"
        settings: {{ rewrites: {{ docker.io: mirror.example.com }} }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: mark }}
spec:
  rules:
    - operations: [CREATE, UPDATE]
      apiGroups: [\"*\"]
      apiVersions: [\"*\"]
      resources: [configmaps, clusterroles, namespaces, serviceaccounts, selfsubjectaccessreviews]
  stages:
    - name: guest
      plugin: {{ source: \"{guest}\", settings: {{ behaviour: well-behaved }} }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: tags }}
spec:
  phase: Validating
  rules: [{{ operations: [CREATE, UPDATE, DELETE, CONNECT], resources: [\"*/*\"] }}]
  stages:
    - name: tags
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
"
    )
}

fn expected_object(change: RecordedChange, object: &Value) -> Value {
    let mut object = object.clone();
    let pod = |pod: &mut Value| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let image = containers[0]["image"].as_str().unwrap();
        containers[0]["image"] = json!(format!("mirror.example.com/library/{image}"));
        containers.push(json!({"name": "proxy", "image": "registry.example.com/proxy:1"}));
        pod["metadata"]["annotations"]["sidecar-injector.admittance.dev/status"] = json!("proxy");
    };
    match change {
        RecordedChange::None => {}
        RecordedChange::Pod => pod(&mut object),
        RecordedChange::Template => pod(&mut object["spec"]["template"]),
        RecordedChange::Mark => object["metadata"]["annotations"]["well-behaved"] = json!("true"),
    }
    object
}

#[tokio::test]
async fn every_recorded_review_is_answered() {
    let server = Server::start("", &chains()).await;
    let http2 = server.http2_client();
    let mut sent_counts: Vec<(String, usize)> = Vec::new();
    for exchange in read_recorded_calls() {
        let row = FILES.iter().find(|(file, ..)| *file == exchange.file);
        let (file, _, change, images) = *row.unwrap_or_else(|| panic!("{} has no row", exchange.file));
        match sent_counts.last_mut() {
            Some((last, count)) if *last == file => *count += 1,
            _ => sent_counts.push((file.to_owned(), 1)),
        }
        let plain = check_call(&server, &server.client, &exchange, change, images).await;
        assert_eq!(plain, Version::HTTP_11, "{file}");
        let beta = check_call(&server, &http2, &exchange.into_v1beta1(), change, images).await;
        assert_eq!(beta, Version::HTTP_2, "{file}");
    }
    let expected: Vec<_> = FILES
        .iter()
        .map(|(file, count, ..)| ((*file).to_owned(), *count))
        .collect();
    assert_eq!(sent_counts, expected, "every row was sent");
}

/// Sends a recorded review to each path of the server, and checks the verdicts. Returns the replies' HTTP version.
async fn check_call(
    server: &Server,
    client: &Client,
    exchange: &RecordedCall,
    change: RecordedChange,
    images: ImageVerdict,
) -> Version {
    let file = &exchange.file;
    let object = &exchange.review["request"]["object"];
    let mut version = None;
    for (path, mutates, validates) in [
        ("/admit", true, true),
        ("/mutate", true, false),
        ("/validate", false, true),
        ("/mutate/inject", true, false),
        ("/mutate/mark", true, false),
        ("/validate/tags", false, true),
    ] {
        let reply = exchange.send(client, server, path).await;
        assert_eq!(*version.get_or_insert(reply.version), reply.version, "{file} {path}");
        let verdict = ReviewVerdict::parse(&exchange.review, &reply);
        let refuses = validates && images == ImageVerdict::Refused;
        assert_eq!(verdict.is_allowed(), !refuses, "{file} {path}: {verdict:?}");
        if refuses {
            assert_eq!(verdict.code(), 403, "{file} {path}");
            let has_reason = verdict
                .message()
                .starts_with("stage tags of chain tags denied the request: ");
            assert!(has_reason, "{file} {path}: {}", verdict.message());
            continue;
        }
        let change = match (path, change) {
            ("/mutate/mark", RecordedChange::Mark) => RecordedChange::Mark,
            ("/mutate/mark", _) | ("/mutate/inject", RecordedChange::Mark) => RecordedChange::None,
            _ if mutates => change,
            _ => RecordedChange::None,
        };
        assert_eq!(
            verdict.patch().is_some(),
            change != RecordedChange::None,
            "{file} {path}: {verdict:?}"
        );
        let changed = verdict.patched_object(object);
        assert_eq!(changed, expected_object(change, object), "{file} {path}");
    }
    version.unwrap()
}
