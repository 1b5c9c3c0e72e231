//! The spans of what a webhook server looks up in its cluster.

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
    traces::collector::{Collector, Manner, attribute, spans},
};

/// The configuration of a webhook server with a cluster, to which a test adds.
const CONFIG: &str = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
definitions: [chains.yaml]
cluster: { kubeconfig: kubeconfig }
";

/// A chain that reads the labels of the namespace.
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

/// Starts an API server that knows the namespace `test`, and writes a kubeconfig for it.
async fn api_server(directory: &TempDir) {
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
}

async fn answer(method: Method, uri: Uri) -> (StatusCode, Json<Value>) {
    if method == Method::GET && uri.path() == "/api/v1/namespaces/test" {
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "test", "labels": {"team": "a"}},
        });
        return (StatusCode::OK, Json(namespace));
    }
    // No watch begins without a list, so every look-up is a request.
    let status =
        json!({"kind": "Status", "status": "Failure", "message": "none", "reason": "NotFound", "code": 404});
    (StatusCode::NOT_FOUND, Json(status))
}

#[tokio::test]
async fn a_lookup_has_a_span() {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    api_server(&directory).await;
    let collector = Collector::start(Manner::Accepts).await;
    let config = format!(
        "{CONFIG}tracing: {{ endpoint: \"http://{}\" }}\n",
        collector.address
    );
    let server = Server::start_in(directory, &config, CHAIN).await;
    let review = POD.review("u-1");
    assert!(server.review("/admit", &review).await.is_allowed());
    let received = collector.until(|spans| spans.len() >= 4).await;
    let spans = spans(&received);
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (request, chain, look_up) = (named("POST"), named("chain pods"), named("cluster get"));
    assert_eq!(attribute(&request.attributes, "admittance.uid"), "u-1");
    assert_eq!(chain.parent_span_id, request.span_id);
    assert_eq!(look_up.parent_span_id, chain.span_id);
    assert_eq!(attribute(&look_up.attributes, "admittance.result"), "ok");
    assert_eq!(named("stage names").parent_span_id, chain.span_id);
}
