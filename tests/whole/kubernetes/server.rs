//! Admittance as a webhook server, and requests to it.

use std::{fs, path::Path};

use admittance_tests::{Admittance, Client, ClientTrust, Reply, Serve};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{store, write};

/// The configuration of a webhook server over TLS, to which tests append further keys.
const CONFIG: &str = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
definitions: [chains.yaml]
";

/// A running webhook server with TLS.
pub(crate) struct Server {
    pub(crate) directory: TempDir,
    pub(crate) program: Admittance,
    pub(crate) client: Client,
}

impl Server {
    pub(crate) async fn start(additions: &str, definitions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        certificates(&directory, &[]).await;
        Self::start_in(directory, &format!("{CONFIG}{additions}"), definitions).await
    }

    /// Starts a server in a directory that has certificates from an earlier start.
    pub(crate) async fn start_in(directory: TempDir, config: &str, definitions: &str) -> Self {
        write(&directory, "chains.yaml", definitions);
        Self::start_with_store(directory, config, store()).await
    }

    pub(crate) async fn start_with_store(directory: TempDir, config: &str, store: &Path) -> Self {
        let config = write(&directory, "admittance.yaml", config);
        let program = Serve::new(config).unwrap().store(store).start().await.unwrap();
        let authorities = fs::read_to_string(directory.path().join("ca.pem")).unwrap();
        let client = Client::with_trust(client_trust(&authorities)).unwrap();
        Self {
            directory,
            program,
            client,
        }
    }

    /// Returns a client that has connections of its own and offers HTTP/2 to the server.
    pub(crate) fn http2_client(&self) -> Client {
        let authorities = fs::read_to_string(self.directory.path().join("ca.pem")).unwrap();
        Client::with_http2(client_trust(&authorities)).unwrap()
    }

    /// Sends an AdmissionReview to a path of the server, with the headers of kube-apiserver.
    pub(crate) async fn post(&self, path: &str, review: &Value) -> Reply {
        self.client
            .send(review_request(&self.program.tls_url(path), review))
            .await
            .unwrap()
    }

    pub(crate) async fn review(&self, path: &str, review: &Value) -> ReviewVerdict {
        ReviewVerdict::parse(review, &self.post(path, review).await)
    }
}

/// Creates certificates for `localhost`, with the CA in `ca.pem`. `options` are further arguments of `admittance
/// certs`.
pub(crate) async fn certificates(directory: &TempDir, options: &[&str]) {
    let directory_path = directory.path().to_str().unwrap();
    let hosts = ["--host", "localhost", "--host", "127.0.0.1"];
    let arguments = [&["certs", "--out", directory_path], &hosts[..], options].concat();
    let certs_output = Admittance::run(arguments).await.unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
}

fn client_trust(authorities: &str) -> ClientTrust<'_> {
    ClientTrust {
        authorities,
        identity: None,
    }
}

pub(crate) fn review_request(url: &str, review: &Value) -> Request<String> {
    Request::post(url)
        .header("user-agent", "kube-apiserver-admission")
        .header("content-type", "application/json")
        .header("accept", "application/json, */*")
        .header("accept-encoding", "gzip")
        .body(review.to_string())
        .unwrap()
}

/// The `response` in the AdmissionReview that a server sent back.
#[derive(Debug)]
pub(crate) struct ReviewVerdict {
    pub(crate) response: Value,
}

impl ReviewVerdict {
    /// Parses the server's reply to an AdmissionReview, and checks the fields that every valid reply has.
    pub(crate) fn parse(review: &Value, reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.headers["content-type"], "application/json");
        let mut answer = reply.json().unwrap();
        assert_eq!(answer["apiVersion"], review["apiVersion"]);
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer.get("request"), None);
        let response = answer["response"].take();
        assert_eq!(response["uid"], review["request"]["uid"]);
        // A reply has both `patch` and `patchType`, or neither, because kube-apiserver rejects one alone.
        assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some());
        let verdict = Self { response };
        if !verdict.is_allowed() {
            assert_eq!(verdict.patch(), None, "no patch goes with a denial");
            assert!(verdict.code() >= 400 && !verdict.message().is_empty());
        }
        verdict
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.response["allowed"].as_bool().unwrap()
    }

    pub(crate) fn code(&self) -> u64 {
        self.response["status"]["code"].as_u64().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.response["status"]["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.response["auditAnnotations"][key].as_str()
    }

    pub(crate) fn patch(&self) -> Option<Value> {
        let text = self.response.get("patch")?.as_str().unwrap();
        assert_eq!(self.response["patchType"], "JSONPatch");
        Some(serde_json::from_slice(&BASE64_STANDARD.decode(text).unwrap()).unwrap())
    }

    /// Returns the object with the patch of this response applied. The patch is applied by the crate json-patch, so
    /// that the test does not depend on the program's own code.
    pub(crate) fn patched_object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(patch) = self.patch() {
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
        }
        object
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewedResource<'a> {
    pub(crate) operation: &'a str,
    /// The resource with group, version and subresource: `apps/v1/deployments/scale`, or `/v1/pods` (core group).
    pub(crate) resource: &'a str,
    pub(crate) kind: &'a str,
}

pub(crate) const POD: ReviewedResource<'static> = ReviewedResource {
    operation: "CREATE",
    resource: "/v1/pods",
    kind: "Pod",
};

impl ReviewedResource<'_> {
    /// Returns an AdmissionReview (`v1`) of an object. The object is in the namespace `test` and has the label `remove:
    /// me`.
    pub(crate) fn review(self, uid: &str) -> Value {
        let parts: Vec<_> = self.resource.split('/').collect();
        let (group, version, resource) = (parts[0], parts[1], parts[2]);
        let api_version = [group, version].join("/");
        let object = json!({
            "apiVersion": api_version.trim_start_matches('/'),
            "kind": self.kind,
            "metadata": {"name": "web", "namespace": "test", "labels": {"remove": "me"}},
            "spec": {"containers": [{"name": "c", "image": "img:1"}]},
        });
        let mut request = json!({
            "uid": uid,
            "kind": {"group": group, "version": version, "kind": self.kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "requestKind": {"group": group, "version": version, "kind": self.kind},
            "requestResource": {"group": group, "version": version, "resource": resource},
            "name": "web",
            "namespace": "test",
            "operation": self.operation,
            "userInfo": {"username": "alice", "groups": ["dev"]},
            "object": if self.operation == "DELETE" { Value::Null } else { object.clone() },
            "oldObject": if self.operation == "CREATE" { Value::Null } else { object },
            "dryRun": false,
            "options": null,
        });
        if let Some(subresource) = parts.get(3) {
            request["subResource"] = json!(subresource);
            request["requestSubResource"] = json!(subresource);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    }
}
