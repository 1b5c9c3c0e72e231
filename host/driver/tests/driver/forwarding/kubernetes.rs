//! Tests custom resources, whose requests are forwarded to kube-apiserver.

use std::sync::{Arc, Mutex};

use admittance_cluster::{ClusterConfig, ClusterSource};
use axum::{Router, body::Body};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::scheduler::*;
use crate::harness::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions";

struct KubernetesScene {
    scene: SchedulerScene,
    url: String,
    requests: Arc<Mutex<Vec<RelayedRequest>>>,
    _directory: tempfile::TempDir,
}

impl KubernetesScene {
    /// Starts a kube-apiserver with a single readable namespace, `there`. Requests that are not about namespaces get
    /// the given reply.
    async fn start(reply: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static) -> Self {
        let requests: Arc<Mutex<Vec<RelayedRequest>>> = Arc::default();
        let request_log = requests.clone();
        let routes = Router::new().fallback(async move |request: Request<Body>| {
            let (head, body) = request.into_parts();
            let line = format!("{} {}", head.method, head.uri);
            let body = body.collect().await.unwrap().to_bytes();
            request_log.lock().unwrap().push(RelayedRequest {
                line: line.clone(),
                headers: head.headers,
                body,
            });
            let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match line.as_str() {
                "GET /api/v1/namespaces/there" => json_reply(200, &namespace("there")),
                "GET /api/v1/namespaces/locked" => json_reply(403, &failure_status(403, "Forbidden")),
                "POST /api/v1/namespaces?" | "POST /api/v1/namespaces" => json_reply(201, &namespace("made")),
                line if line.starts_with("GET /api/v1/namespaces/") => {
                    json_reply(404, &failure_status(404, "NotFound"))
                }
                _ => reply(),
            }
        });
        Self::start_at_url(&format!("http://{}", serve(routes).await), requests).await
    }

    async fn start_at_url(url: &str, requests: Arc<Mutex<Vec<RelayedRequest>>>) -> Self {
        Self::start_with_custom_resources(url, requests, true).await
    }

    async fn start_with_custom_resources(
        url: &str,
        requests: Arc<Mutex<Vec<RelayedRequest>>>,
        custom_resources: bool,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
            "users": [{"name": "me", "user": {"token": "ours"}}],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let source = ClusterSource::Kubeconfig {
            path: Some(path),
            context: None,
        };
        let scene = SchedulerScene::start_with_setup(|mut setup| {
            setup.config.cluster = Some(ClusterConfig { source });
            setup.bcs(|bcs| bcs.allows_custom_resources = custom_resources)
        })
        .await;
        Self {
            scene,
            url: url.to_owned(),
            requests,
            _directory: directory,
        }
    }

    fn take_requests(&self) -> Vec<RelayedRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn json_reply(status: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("audit-id", "a")
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn failure_status(code: u16, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "no"})
}

#[tokio::test]
#[rustfmt::skip]
async fn api_versions_of_custom_resource_definitions_are_translated() {
    let reply = r#"{"kind":"L","apiVersion":"apiextensions.k8s.io/v1beta1","items":[{"apiVersion":"apiextensions.k8s.io/v1beta1"}]}"#;
    let expected = r#"{"kind":"L","apiVersion":"v4","items":[{"apiVersion":"apiextensions.k8s.io/v1beta1"}]}"#;
    let kubernetes = KubernetesScene::start(move || Response::builder().status(201).header("audit-id", "a").body(Body::from(reply)).unwrap()).await;
    let crd = r#"{"apiVersion":"v4","kind":"CustomResourceDefinition","metadata":{"name":"a.b"},"other":1}"#;
    let translated_crd = r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"a.b"},"other":1}"#;
    // (method, path, body, expected request line at kube-apiserver, expected body at kube-apiserver)
    for (method, path, body, line, expected_body) in [
        ("GET", "/customresourcedefinitions?limit=5", "", format!("GET {DEFINITIONS}?limit=5"), ""),
        ("GET", "/customresourcedefinitions/a.b", "", format!("GET {DEFINITIONS}/a.b"), ""),
        ("DELETE", "/customresourcedefinitions/a.b", r#"{"kind":"DeleteOptions"}"#, format!("DELETE {DEFINITIONS}/a.b"), r#"{"kind":"DeleteOptions"}"#),
        ("POST", "/customresourcedefinitions", crd, format!("POST {DEFINITIONS}"), translated_crd),
        ("PUT", "/customresourcedefinitions/a.b", crd, format!("PUT {DEFINITIONS}/a.b"), translated_crd),
        ("POST", "/customresourcedefinitions", "kind: yaml", format!("POST {DEFINITIONS}"), "kind: yaml"),
    ] {
        let mut request = request(method, &mesos_path(path), body);
        for (name, value) in [("authorization", "Bearer theirs"), ("impersonate-user", "admin"), ("accept-encoding", "gzip"), ("content-type", "application/json"), ("accept", "*/*")] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = kubernetes.scene.driver.send(request).await;
        assert_eq!(response.headers()["audit-id"], "a", "{method} {path}");
        assert_eq!(response.headers()["content-length"], expected.len().to_string(), "{method} {path}");
        assert_eq!(status_and_text(response).await, (201, expected.to_owned()), "{method} {path}");
        let [forwarded_request] = &kubernetes.take_requests()[..] else { panic!("{method} {path} was not asked once") };
        assert_eq!((&forwarded_request.line, &forwarded_request.body[..]), (&line, expected_body.as_bytes()), "{method} {path}");
        let mut headers = forwarded_request.header_lines();
        headers.retain(|line| !line.starts_with("content-length"));
        assert_eq!(headers, ["accept: */*", "authorization: Bearer ours", "content-type: application/json"], "{method} {path}");
    }
    assert!(kubernetes.scene.take_requests().is_empty());
}

#[tokio::test]
#[rustfmt::skip]
async fn requests_for_custom_resources_are_forwarded_unchanged() {
    let kubernetes = KubernetesScene::start(|| json_reply(409, &failure_status(409, "AlreadyExists"))).await;
    let in_namespace = |name: &str| json!({"kind": "K", "metadata": {"name": "a", "namespace": name}}).to_string();
    let collection_path = "/apis/g/v1/namespaces/there/ks";
    // (method, path below /customresources, body, expected request lines at kube-apiserver)
    for (method, path, body, lines) in [
        ("GET", "/g/v1/namespaces/there/ks?limit=5", String::new(), vec![format!("GET {collection_path}?limit=5")]),
        ("PUT", "/g/v1/namespaces/there/ks/a", in_namespace("absent"), vec![format!("PUT {collection_path}/a")]),
        ("DELETE", "/g/v1/namespaces/there/ks/a", String::new(), vec![format!("DELETE {collection_path}/a")]),
        ("POST", "/g/v1/namespaces/there/ks", in_namespace("there"), vec!["GET /api/v1/namespaces/there".to_owned(), format!("POST {collection_path}")]),
        ("POST", "/g/v1/namespaces/there/ks", in_namespace("absent"), vec!["GET /api/v1/namespaces/absent".to_owned(), "POST /api/v1/namespaces?".to_owned(), format!("POST {collection_path}")]),
        ("POST", "/g/v1/namespaces/there/ks", in_namespace("locked"), vec!["GET /api/v1/namespaces/locked".to_owned(), format!("POST {collection_path}")]),
        ("POST", "/g/v1/namespaces/there/ks", in_namespace("../nodes"), vec![format!("POST {collection_path}")]),
        ("POST", "/g/v1/ks", r#"{"metadata":{"name":"a"}}"#.to_owned(), vec!["POST /apis/g/v1/ks".to_owned()]),
        ("POST", "/g/v1/ks", "metadata: {}".to_owned(), vec!["POST /apis/g/v1/ks".to_owned()]),
    ] {
        let request = request(method, &mesos_path(&format!("/customresources{path}")), body.clone());
        let response = kubernetes.scene.driver.send(request).await;
        assert_eq!(response.headers()["audit-id"], "a", "{method} {path}");
        assert_eq!(status_and_text(response).await, (409, failure_status(409, "AlreadyExists").to_string()), "{method} {path}");
        let forwarded_requests = kubernetes.take_requests();
        assert_eq!(forwarded_requests.iter().map(|request| request.line.clone()).collect::<Vec<_>>(), lines, "{method} {path} {body}");
        assert_eq!(forwarded_requests.last().unwrap().body, body, "{method} {path}");
        let namespace_creation = forwarded_requests.iter().find(|request| request.line.starts_with("POST /api/v1/namespaces"));
        if let Some(namespace_creation) = namespace_creation {
            assert_eq!(namespace_creation.json()["metadata"]["name"], "absent");
        }
    }
    let watch = request("GET", &mesos_path("/customresources/g/v1/watch/ks"), Body::empty());
    assert_eq!(status_and_text(kubernetes.scene.driver.send(watch).await).await, (404, "Not Found".to_owned()));
    assert!(kubernetes.take_requests().is_empty());
}

#[tokio::test]
async fn custom_resource_definitions_are_written_in_v1_if_v1beta1_is_not_served() {
    let requests: Arc<Mutex<Vec<RelayedRequest>>> = Arc::default();
    let request_log = requests.clone();
    let routes = Router::new().fallback(async move |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let line = format!("{} {}", head.method, head.uri);
        if line.contains("/v1beta1/") {
            return Response::builder()
                .status(404)
                .header("content-type", "text/plain; charset=utf-8")
                .body(Body::from("404 page not found"))
                .unwrap();
        }
        let body = body.collect().await.unwrap().to_bytes();
        let reply: Value = serde_json::from_slice(&body).unwrap();
        request_log.lock().unwrap().push(RelayedRequest {
            line,
            headers: head.headers,
            body,
        });
        json_reply(201, &reply)
    });
    let url = format!("http://{}", serve(routes).await);
    let kubernetes = KubernetesScene::start_at_url(&url, requests).await;
    let old_definition = json!({"apiVersion": "v4", "kind": "CustomResourceDefinition", "spec": {"version": "v2"}});
    let request = request(
        "POST",
        &mesos_path("/customresourcedefinitions"),
        old_definition.to_string(),
    );
    let (status, reply) = status_and_text(kubernetes.scene.driver.send(request).await).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((status, &reply["apiVersion"]), (201, &json!("v4")), "{reply}");
    let [forwarded_request] = &kubernetes.take_requests()[..] else {
        panic!("one definition is written");
    };
    assert_eq!(
        forwarded_request.line,
        "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    );
    assert_eq!(forwarded_request.json()["spec"]["versions"][0]["name"], "v2");
}

/// A driver may be connected to a cluster only to read the labels of namespaces. Such a driver must not forward the
/// requests of its clients to this cluster.
#[tokio::test]
async fn custom_resources_are_refused_by_default() {
    let open_scene = KubernetesScene::start(|| json_reply(200, &json!({}))).await;
    let url = open_scene.url.clone();
    let closed_scene = KubernetesScene::start_with_custom_resources(&url, open_scene.requests.clone(), false).await;
    for (method, path) in [
        ("GET", "/customresourcedefinitions"),
        ("DELETE", "/customresourcedefinitions/a.b"),
        ("GET", "/customresources/g.io/v1/ks"),
        (
            "DELETE",
            "/customresources/rbac.authorization.k8s.io/v1/clusterrolebindings",
        ),
        ("POST", "/customresources/g.io/v1/ks"),
    ] {
        let request = request(method, &mesos_path(path), r#"{"metadata":{"namespace":"absent"}}"#);
        let (status, reply) = status_and_text(closed_scene.scene.driver.send(request).await).await;
        assert_eq!(status, 404, "{method} {path}: {reply}");
    }
    assert!(closed_scene.take_requests().is_empty());
    assert!(closed_scene.scene.take_requests().is_empty());
}

#[tokio::test]
async fn compressed_bodies_of_custom_resources_are_refused() {
    let kubernetes = KubernetesScene::start(|| json_reply(200, &json!({}))).await;
    for path in ["/customresourcedefinitions", "/customresources/g/v1/ks"] {
        let mut compressed_request = request("POST", &mesos_path(path), "x");
        compressed_request
            .headers_mut()
            .insert("content-encoding", "gzip".parse().unwrap());
        assert_eq!(
            status_and_text(kubernetes.scene.driver.send(compressed_request).await)
                .await
                .0,
            415,
            "{path}"
        );
    }
    assert!(kubernetes.take_requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_kube_apiserver_is_reported() {
    let refusing_url = format!("http://{}", refusing_upstream().await);
    let kubernetes = KubernetesScene::start_at_url(&refusing_url, Arc::default()).await;
    for path in ["/customresourcedefinitions", "/customresources/g/v1/ks"] {
        let response = kubernetes
            .scene
            .driver
            .send(request("GET", &mesos_path(path), Body::empty()))
            .await;
        let (status, reply) = status_and_text(response).await;
        assert_eq!(
            (status, reply.as_str()),
            (502, "the kube-apiserver does not respond\n"),
            "{path}"
        );
    }
}
