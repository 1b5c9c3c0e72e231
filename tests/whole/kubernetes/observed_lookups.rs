//! Tests lookups of a webhook server in its cluster: their spans, and their replay from recordings.

use std::{fs, net::SocketAddr};

use admittance_tests::Admittance;
use axum::{
    Json, Router,
    http::{Method, StatusCode, Uri},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::server::{POD, Server, certificates};
use crate::{
    scene::write,
    traces::collector::{Manner, TestCollector, attribute, spans},
};

/// The configuration of a webhook server with access to a cluster, to which tests append further keys.
const CONFIG: &str = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
definitions: [chains.yaml]
cluster: { kubeconfig: kubeconfig }
";

/// A chain that reads the labels of the request's namespace.
const CHAIN: &str = "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  rules: [{ operations: [CREATE], resources: [pods] }]
  stages:
    - name: names
      namespaceSelector: { matchLabels: { team: a } }
      cel: { validations: [ { expression: \"object.metadata.name == 'web'\" } ] }
";

/// A Kyverno policy that looks up the ConfigMap `limits` in the namespace, and sends a request to a server.
const POLICY: &str = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: { name: limited }
spec:
  matchConstraints:
    resourceRules: [{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] }]
  validations:
    - expression: resource.Get('v1', 'configmaps', 'test', 'limits').data.most == '2'
    - expression: http.Get('SERVER/teams').teams == ['a'] && http.Get('SERVER/teams').statusCode == 200
";

async fn start_api_server(directory: &TempDir) -> SocketAddr {
    let routes = Router::new().fallback(answer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
    });
    write(directory, "kubeconfig", config.to_string());
    address
}

async fn answer(method: Method, uri: Uri) -> (StatusCode, Json<Value>) {
    if method == Method::GET && uri.path() == "/api/v1/namespaces/test" {
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "test", "labels": {"team": "a"}},
        });
        return (StatusCode::OK, Json(namespace));
    }
    let object = match uri.path() {
        "/api/v1/namespaces/test/configmaps/limits" => Some(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits", "namespace": "test"},
            "data": {"most": "2"},
        })),
        "/api/v1" => Some(json!({
            "kind": "APIResourceList", "groupVersion": "v1",
            "resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["get", "list", "watch"]}],
        })),
        "/teams" => Some(json!({"teams": ["a"]})),
        _ => None,
    };
    if let Some(body) = object {
        return (StatusCode::OK, Json(body));
    }
    // The program first tries to watch the objects, which begins with listing them. This server answers a list with
    // 404. So the program cannot watch the objects, and sends a request for each lookup.
    let status = json!({"kind": "Status", "status": "Failure", "message": "none", "reason": "NotFound", "code": 404});
    (StatusCode::NOT_FOUND, Json(status))
}

#[tokio::test]
async fn a_cluster_lookup_has_a_trace_span() {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    start_api_server(&directory).await;
    let collector = TestCollector::start(Manner::Accepts).await;
    let config = format!("{CONFIG}tracing: {{ endpoint: \"http://{}\" }}\n", collector.address);
    let server = Server::start_in(directory, &config, CHAIN).await;
    let review = POD.review("u-1");
    assert!(server.review("/admit", &review).await.is_allowed());
    let exports = collector.until_received(|spans| spans.len() >= 4).await;
    let spans = spans(&exports);
    let find_span = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (request, chain, look_up) = (find_span("POST"), find_span("chain pods"), find_span("cluster get"));
    assert_eq!(attribute(&request.attributes, "admittance.uid"), "u-1");
    assert_eq!(chain.parent_span_id, request.span_id);
    assert_eq!(look_up.parent_span_id, chain.span_id);
    assert_eq!(attribute(&look_up.attributes, "admittance.result"), "ok");
    assert_eq!(find_span("stage names").parent_span_id, chain.span_id);
}

#[tokio::test]
async fn a_kyverno_policy_is_replayed_without_the_cluster_and_the_servers() {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    let address = start_api_server(&directory).await;
    let policy = POLICY.replace("SERVER", &format!("http://{address}"));
    let config = format!("{CONFIG}pluginHttp: {{ kyverno: [\"http://{address}\"] }}\n");
    let server = Server::start_in(directory, &config, &policy).await;
    let path = server.directory.path().join("requests.ndjson");
    let file = path.to_str().unwrap();
    let url = server.program.admin_url("");
    let record = Admittance::run(["record", "--count", "1", "--output", file, "--server", &url]);
    let review = async {
        // The program writes the recording shortly after its reply.
        while !fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')) {
            assert!(server.review("/admit", &POD.review("u-1")).await.is_allowed());
        }
    };
    let (record, ()) = tokio::join!(record, review);
    assert_eq!(record.unwrap().code, Some(0));
    let recorded = fs::read_to_string(&path).unwrap();

    // If a recorded value is changed, the result of the replay differs.
    for (original, changed, expected) in [
        ("", "", Some(0)),
        (r#""most":"2""#, r#""most":"3""#, Some(1)),
        (r#"{"teams":["a"]}"#, r#"{"teams":["b"]}"#, Some(1)),
    ] {
        let text = match original {
            "" => recorded.clone(),
            part => recorded.replace(part, changed),
        };
        assert!(original.is_empty() || text != recorded, "{recorded}");
        let changed_path = write(&server.directory, "changed.ndjson", text);
        let (changed, config) = (
            changed_path.to_str().unwrap(),
            server.directory.path().join("admittance.yaml"),
        );
        let run = Admittance::run(["replay", changed, "--config", config.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(run.code, expected, "{original}: {}{}", run.stdout, run.stderr);
    }
}
