//! Tests the chains that a gateway runs for requests to clusters.

use http::Method;
use serde_json::{Value, json};

use super::scene::{ClustersScene, PODS_PATH, SERVICE_ACCOUNT_TOKEN, pod};

/// Sends a request that must be refused with a `Status`, as kubectl requires. Returns the status code and the message.
async fn expect_refusal(scene: &ClustersScene, method: Method, path: &str, body: Value) -> (u16, String) {
    let reply = scene.send(method, path, body).await;
    let status = reply.json().unwrap();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Failure")),
        "{status}"
    );
    assert_eq!(status["code"], json!(reply.status.as_u16()));
    (reply.status.as_u16(), status["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn writes_to_a_cluster_go_through_the_chains() {
    let scene = ClustersScene::start(true).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let path = format!("{PODS_PATH}/a");

    let (code, message) = expect_refusal(&scene, Method::POST, PODS_PATH, pod("a", "nginx:latest", json!({}))).await;
    assert!(
        (400..500).contains(&code) && message.contains("images"),
        "{code} {message}"
    );
    assert_eq!(scene.server.requests().len(), 0);

    let created = scene
        .send(Method::POST, PODS_PATH, pod("a", "nginx:1", json!({"sidecar": "true"})))
        .await;
    assert_eq!(created.status, 200, "{}", created.text());
    let stored = scene.server.object(&path).unwrap();
    assert_eq!(stored["spec"]["containers"].as_array().unwrap().len(), 2, "{stored}");

    // An update sends the whole new object, so the chains judge that object.
    let (_, message) = expect_refusal(&scene, Method::PUT, &path, pod("a", "nginx:latest", json!({}))).await;
    assert!(message.contains("images"), "{message}");
    let updated = scene
        .send(Method::PUT, &path, pod("a", "nginx:2", json!({"keep": "true"})))
        .await;
    assert_eq!(updated.status, 200, "{}", updated.text());

    // A patch is only a part of the object, so the chains judge the object that results from the patch.
    let patch = |image: &str| json!({"spec": {"containers": [{"name": "main", "image": image}]}});
    let (_, message) = expect_refusal(&scene, Method::PATCH, &path, patch("nginx:latest")).await;
    assert!(message.contains("images"), "{message}");
    assert_eq!(scene.send(Method::PATCH, &path, patch("nginx:3")).await.status, 200);
    let stored = scene.server.object(&path).unwrap();
    assert_eq!(stored["spec"]["containers"][0]["image"], "nginx:3");
    let old_image = "old.example.com/nginx:3";
    let (code, message) = expect_refusal(&scene, Method::PATCH, &path, patch(old_image)).await;
    assert!(code == 422 && message.contains("with an update"), "{code} {message}");
    assert_eq!(scene.server.object(&path).unwrap(), stored);
    // If the API server itself refuses the patch, the client gets its refusal unchanged.
    let missing = scene
        .send(Method::PATCH, &format!("{PODS_PATH}/b"), patch("nginx:3"))
        .await;
    assert_eq!(
        (missing.status.as_u16(), &missing.json().unwrap()["reason"]),
        (404, &json!("NotFound"))
    );

    // A deletion sends no object, so the chains judge the object that would be deleted.
    let (_, message) = expect_refusal(&scene, Method::DELETE, &path, Value::Null).await;
    assert!(message.contains("guard"), "{message}");
    let (_, message) = expect_refusal(&scene, Method::DELETE, PODS_PATH, Value::Null).await;
    assert!(message.contains("delete each by its name"), "{message}");
    assert!(scene.server.object(&path).is_some());
    let unlabelled = json!({"metadata": {"labels": {"keep": "false"}}});
    assert_eq!(scene.send(Method::PATCH, &path, unlabelled).await.status, 200);
    assert_eq!(scene.send(Method::DELETE, &path, Value::Null).await.status, 200);
    assert_eq!(scene.server.object(&path), None);

    // The gateway made every request, including its dry runs, with the rights of the user.
    let requests = scene.server.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.values("impersonate-user") == ["plain.alice"])
    );
}

#[tokio::test]
async fn a_patch_is_not_sent_if_its_dry_run_returns_no_object() {
    let scene = ClustersScene::start(true).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let path = format!("{PODS_PATH}/a");
    scene.server.put(&path, pod("a", "nginx:1", json!({})));
    scene.server.ignore_patches();
    let patch = || json!({"metadata": {"labels": {"a": "b"}}});
    let (code, message) = expect_refusal(&scene, Method::PATCH, &path, patch()).await;
    assert!(code == 502 && message.contains("cannot be read"), "{code} {message}");
    let requests = scene.server.requests();
    let patches: Vec<_> = requests
        .iter()
        .filter(|request| request.method == Method::PATCH)
        .collect();
    assert!(
        patches.len() == 1 && patches[0].uri.query() == Some("dryRun=All"),
        "{patches:?}"
    );

    let map = "/api/v1/namespaces/n/configmaps/a";
    scene.server.put(map, json!({"metadata": {"name": "a"}}));
    let reply = scene.send(Method::PATCH, map, patch()).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.json().unwrap()["status"]),
        (202, &json!("Success"))
    );
}

#[tokio::test]
async fn exec_connections_are_judged_by_their_options() {
    let scene = ClustersScene::start(true).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let mut allowed_exec = scene
        .send_raw("POST", &format!("{PODS_PATH}/a/exec?command=ls&stdout=true"), upgrade)
        .await;
    assert!(allowed_exec.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 101"));
    allowed_exec.write(b"ping").await;
    allowed_exec.read_until("ping").await;
    for method in ["POST", "GET"] {
        let mut refused_exec = scene
            .send_raw(method, &format!("{PODS_PATH}/a/exec?command=rm&command=-r"), upgrade)
            .await;
        let head = refused_exec.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 500"), "{head}");
        refused_exec.read_until("guard").await;
    }
    assert_eq!(scene.server.requests().len(), 1);
}

#[tokio::test]
async fn a_body_that_cannot_be_inspected_is_refused() {
    let scene = ClustersScene::start(true).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    for media_type in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        let headers = [("content-type", media_type)];
        let reply = scene
            .send_with(Method::POST, PODS_PATH, &headers, pod("a", "nginx:latest", json!({})))
            .await;
        assert_eq!(reply.status, 415, "{}", reply.text());
    }
    let headers = [("content-type", "application/json")];
    let map = json!({"metadata": {"name": "a"}});
    let reply = scene
        .send_with(Method::POST, "/api/v1/namespaces/n/configmaps", &headers, map)
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(scene.server.requests().len(), 1);
}
