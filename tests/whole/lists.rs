//! Tests `admittance audit` for Nomad and BCS, control planes without a Kubernetes API.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use admittance_tests::{FinishedProgram, repository};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{import::run_admittance, scene::write};

/// A fake control plane, and the paths and queries of the requests that it received.
struct FakeControlPlane {
    request_uris: Arc<Mutex<Vec<String>>>,
    port: u16,
}

type Answer = fn(&Request) -> Response;

impl FakeControlPlane {
    async fn start(answer_of: Answer) -> Self {
        let shared_uris: Arc<Mutex<Vec<String>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = |State((uris, answer)): State<(Arc<Mutex<Vec<String>>>, Answer)>, request: Request| async move {
            uris.lock().unwrap().push(request.uri().to_string());
            answer(&request)
        };
        let router = Router::new()
            .fallback(answer)
            .with_state((shared_uris.clone(), answer_of));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            request_uris: shared_uris,
            port,
        }
    }

    /// Returns the received requests in alphabetical order, because the audit reads objects concurrently.
    fn request_uris(&self) -> Vec<String> {
        let mut uris = self.request_uris.lock().unwrap().clone();
        uris.sort();
        uris
    }
}

fn limits_chain(resource: &str, condition: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: limits }}
spec:
  rules: [ {{ operations: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: [{resource}] }} ]
  stages:
    - name: small
      cel:
        validations: [ {{ expression: '{condition}', message: too much }} ]
"
    )
}

fn finding_rows(audit_output: &FinishedProgram) -> Vec<[String; 3]> {
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| ["name", "namespace", "verdict"].map(|field| finding[field].as_str().unwrap().to_owned()))
        .collect()
}

fn owned_row(cells: [&str; 3]) -> [String; 3] {
    cells.map(str::to_owned)
}

/// Answers a request like Nomad. One of its four jobs is deleted before the audit reads it.
fn answer_like_nomad(request: &Request) -> Response {
    if request
        .headers()
        .get("X-Nomad-Token")
        .is_none_or(|token| token != "secret")
    {
        return (StatusCode::FORBIDDEN, "Permission denied").into_response();
    }
    let stub = |id: &str, namespace: &str| json!({"ID": id, "Namespace": namespace, "Status": "running"});
    let job = |id: &str, namespace: &str, priority: u32| {
        axum::Json(json!({"ID": id, "Namespace": namespace, "Priority": priority})).into_response()
    };
    let next = HeaderName::from_static("x-nomad-nexttoken");
    match request.uri().to_string().as_str() {
        "/v1/jobs?namespace=*&per_page=2" => {
            let page = json!([stub("web", "default"), stub("a/b", "shop")]);
            ([(next, "shop.db")], axum::Json(page)).into_response()
        }
        "/v1/jobs?namespace=*&per_page=2&next_token=shop.db" => {
            axum::Json(json!([stub("db", "shop"), stub("gone", "shop")])).into_response()
        }
        "/v1/job/web?namespace=default" => job("web", "default", 50),
        "/v1/job/a%2Fb?namespace=shop" => job("a/b", "shop", 99),
        "/v1/job/db?namespace=shop" => job("db", "shop", 70),
        _ => (StatusCode::NOT_FOUND, "job not found").into_response(),
    }
}

fn write_nomad_files(directory: &TempDir, port: u16, token: &str) {
    let config = fs::read_to_string(repository().join("docs/examples/nomad/admittance.yaml"))
        .unwrap()
        .replace("http://127.0.0.1:4646", &format!("http://127.0.0.1:{port}"));
    let headers = "# headers: { X-Nomad-Token: nomad.token }";
    assert!(config.contains(headers));
    write(directory, "admittance.yaml", config.replace(headers, &headers[2..]));
    let token = write(directory, "nomad.token", token);
    fs::set_permissions(token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::create_dir(directory.path().join("chains")).unwrap();
    write(
        directory,
        "chains/jobs.yaml",
        limits_chain("jobs", "object.Priority <= 60"),
    );
}

async fn run_audit(directory: &TempDir, arguments: &[&str]) -> FinishedProgram {
    let all = ["audit", "--config", "admittance.yaml", "--rate", "1000", "--page", "2"];
    run_admittance(directory, &[&all[..], arguments].concat()).await
}

#[tokio::test]
async fn nomad_jobs_are_audited() {
    let directory = tempfile::tempdir().unwrap();
    let nomad = FakeControlPlane::start(answer_like_nomad).await;
    write_nomad_files(&directory, nomad.port, "secret\n");
    let audit_output = run_audit(&directory, &["--output", "json"]).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    assert_eq!(
        finding_rows(&audit_output),
        [
            owned_row(["a/b", "shop", "denied"]),
            owned_row(["db", "shop", "denied"])
        ]
    );
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    assert_eq!(report["objects"], json!({"jobs": 3}));
    assert_eq!(report["notListed"], json!([]));
    assert_eq!(
        nomad.request_uris(),
        [
            "/v1/job/a%2Fb?namespace=shop",
            "/v1/job/db?namespace=shop",
            "/v1/job/gone?namespace=shop",
            "/v1/job/web?namespace=default",
            "/v1/jobs?namespace=*&per_page=2",
            "/v1/jobs?namespace=*&per_page=2&next_token=shop.db",
        ]
    );
    write(&directory, "new.yaml", limits_chain("jobs", "object.Priority <= 40"));
    let arguments = ["--against", "new.yaml", "--output", "json"];
    assert_eq!(
        finding_rows(&run_audit(&directory, &arguments).await),
        [owned_row(["web", "default", "denied"])]
    );
    let arguments = ["--namespace", "default", "--resource", "jobs"];
    let selected_output = run_audit(&directory, &arguments).await;
    assert_eq!(
        selected_output.code,
        Some(0),
        "{}{}",
        selected_output.stdout,
        selected_output.stderr
    );
    assert!(
        selected_output.stdout.contains("1 object of 1 resource"),
        "{}",
        selected_output.stdout
    );
    let volumes_output = run_audit(&directory, &["--resource", "volumes"]).await;
    assert_eq!(volumes_output.code, Some(2), "{}", volumes_output.stdout);
    assert!(
        volumes_output.stderr.contains("no list has volumes; they have jobs"),
        "{}",
        volumes_output.stderr
    );
}

#[tokio::test]
async fn a_list_that_nomad_refuses_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let nomad = FakeControlPlane::start(answer_like_nomad).await;
    write_nomad_files(&directory, nomad.port, "wrong");
    let audit_output = run_audit(&directory, &[]).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    let expected = "not listed: /v1/jobs?namespace=*: the upstream answered 403 Forbidden: Permission denied";
    assert!(audit_output.stdout.contains(expected), "{}", audit_output.stdout);
    // A file with a secret must not be readable by others, so the program refuses this file.
    let token = directory.path().join("nomad.token");
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let token_output = run_audit(&directory, &[]).await;
    assert_eq!(token_output.code, Some(2), "{}", token_output.stdout);
    assert!(
        token_output.stderr.contains("world-readable"),
        "{}",
        token_output.stderr
    );
    let config = fs::read_to_string(directory.path().join("admittance.yaml")).unwrap();
    let (before, rest) = config.split_once("  lists:\n").unwrap();
    let (_, after) = rest.split_once("\ndialect:").unwrap();
    write(&directory, "admittance.yaml", format!("{before}\ndialect:{after}"));
    let no_lists_output = run_audit(&directory, &[]).await;
    assert_eq!(no_lists_output.code, Some(2), "{}", no_lists_output.stdout);
    assert!(
        no_lists_output.stderr.contains("`upstream.lists` is missing"),
        "{}",
        no_lists_output.stderr
    );
}

const BCS_CONFIG: &str = "
dialect:
  bcs: { cluster: BCS-MESOS-10001 }
upstream:
  servers: [\"http://127.0.0.1:PORT\"]
  lists:
    - path:
        - /mesosdriver/v4/namespaces/shop/applications
        - /mesosdriver/v4/namespaces/empty/applications
        - /mesosdriver/v4/namespaces/broken/applications
      items: /data
      object:
        path: /mesosdriver/v4/definition/application/{/RunAs}/{/Name}
        pointer: /data
      request:
        method: POST
        path: /mesosdriver/v4/namespaces/{/RunAs}/applications
definitions: [chains.yaml]
";

/// Answers a request like a BCS driver with three applications in a namespace. The last has no definition.
fn answer_like_bcs(request: &Request) -> Response {
    let cluster = request.headers().get("BCS-ClusterID");
    if cluster.is_none_or(|cluster| cluster != "BCS-MESOS-10001") {
        return (StatusCode::BAD_REQUEST, "wrong cluster").into_response();
    }
    let application = |name: &str, instances: u32| {
        json!({
            "apiVersion": "v4", "kind": "application",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"instance": instances},
        })
    };
    let summary = |name: &str| json!({"RunAs": "shop", "Name": name, "Instances": 1});
    let path = request.uri().path().trim_start_matches("/mesosdriver/v4/");
    let data = match path {
        "namespaces/shop/applications" => json!([summary("web"), summary("db"), summary("lost")]),
        "namespaces/empty/applications" => Value::Null,
        "definition/application/shop/web" => application("web", 3),
        "definition/application/shop/db" => application("db", 9),
        "definition/application/shop/lost" => Value::Null,
        _ => return (StatusCode::INTERNAL_SERVER_ERROR, "zookeeper is down").into_response(),
    };
    axum::Json(json!({"result": true, "code": 0, "message": "success", "data": data})).into_response()
}

#[tokio::test]
async fn bcs_applications_are_audited() {
    let directory = tempfile::tempdir().unwrap();
    let driver = FakeControlPlane::start(answer_like_bcs).await;
    write(
        &directory,
        "admittance.yaml",
        BCS_CONFIG.replace("PORT", &driver.port.to_string()),
    );
    write(
        &directory,
        "chains.yaml",
        limits_chain("applications", "object.spec.instance < 5"),
    );
    let audit_output = run_audit(&directory, &["--output", "json"]).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    assert_eq!(finding_rows(&audit_output), [owned_row(["db", "shop", "denied"])]);
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    assert_eq!(report["objects"], json!({"applications": 2}));
    assert_eq!(
        report["notListed"],
        json!([
            {
                "resource": "/mesosdriver/v4/namespaces/shop/applications",
                "message": "objects that could not be read: 1, one of them because there is no object at `/data`",
            },
            {
                "resource": "/mesosdriver/v4/namespaces/broken/applications",
                "message": "the upstream answered 500 Internal Server Error: zookeeper is down",
            },
        ])
    );
}
