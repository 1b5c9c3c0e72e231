//! Tests of forwarded requests.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::setting::{Setting, TOKEN, connect};

fn new_request(method: &str, path: &str, body: &str) -> Request<Bytes> {
    Request::builder()
        .method(method)
        .uri(path)
        // These are credentials of the client. They must not be forwarded, because the API server would refuse them.
        .header("authorization", "Bearer theirs")
        .header("content-type", "application/json")
        .body(Bytes::from(body.to_owned()))
        .unwrap()
}

#[tokio::test]
async fn requests_are_forwarded_with_the_credentials_of_this_program() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    setting
        .server
        .put("nodes", json!({"metadata": {"name": "one"}, "spec": {"x": 1}}));
    // (method, path, expected status, JSON pointer into the reply, expected value at this pointer)
    for (method, path, status, pointer, expected) in [
        ("GET", "/api/v1/nodes/one", 200, "/spec/x", json!(1)),
        ("GET", "/api/v1/nodes/two", 404, "/reason", json!("NotFound")),
        (
            "GET",
            "/api/v1/nodes?limit=5",
            200,
            "/items/0/metadata/name",
            json!("one"),
        ),
    ] {
        let reply = cluster.forward(new_request(method, path, "")).await.unwrap();
        assert_eq!(reply.status(), status, "{method} {path}");
        assert!(!reply.headers().contains_key("transfer-encoding"), "{method} {path}");
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.pointer(pointer), Some(&expected), "{method} {path}");
    }
    let other = setting.kubeconfig_for_user("{token: another}");
    let other = connect(other, None).await.unwrap();
    let reply = other
        .forward(new_request("GET", "/api/v1/nodes/one", ""))
        .await
        .unwrap();
    assert_eq!(reply.status(), 401);
}

#[tokio::test]
async fn a_request_to_an_unreachable_server_fails_as_unavailable() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    setting.server.become_unavailable();
    let error = cluster
        .forward(new_request("GET", "/api/v1/nodes/one", ""))
        .await
        .err()
        .unwrap();
    let server = format!("https://{}: ", setting.server.address);
    assert!(error.to_string().starts_with(&server), "{error}");
    assert!(!error.to_string().contains(TOKEN), "{error}");
    assert!(cluster.ensure_namespace("n").await.is_err());
}

#[tokio::test]
async fn a_missing_namespace_is_created_once() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    setting.server.put("namespaces", json!({"metadata": {"name": "there"}}));
    let creation_count = || setting.server.count_requests("create", "/namespaces");
    // (namespace that must exist, number of requests to create a namespace that the server has received by then)
    for (name, expected) in [("there", 0), ("defaultGroup", 0), ("absent", 1), ("absent", 1)] {
        cluster.ensure_namespace(name).await.unwrap();
        assert_eq!(creation_count(), expected, "{name}");
    }
    setting.server.forbid("create", "namespaces");
    let error = cluster.ensure_namespace("other").await.unwrap_err().to_string();
    assert!(
        error.contains("the namespace other could not be found or created")
            && error.contains("give this program's account `get` and `create` on `namespaces`"),
        "{error}"
    );
}
