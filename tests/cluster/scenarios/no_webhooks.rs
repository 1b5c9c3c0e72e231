//! The API server without webhooks. The other scenarios are compared with it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{ClusterUser, TestCluster};

pub(crate) async fn pods_are_stored_unchanged(cluster: Arc<TestCluster>) {
    let kubectl = cluster.kubectl().unwrap();
    let version = kubectl.run(&["version", "--output=json"]).await.unwrap().json();
    for program in ["clientVersion", "serverVersion"] {
        assert_eq!(version[program]["minor"], "20", "{version}");
    }
    let namespace = format!("bare-{}", cluster.next_number());
    kubectl
        .run(&["create", "namespace", &namespace])
        .await
        .unwrap()
        .assert_success();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1.0"}]},
    });
    kubectl
        .run_with_input(&["create", "-f", "-"], &pod.to_string())
        .await
        .unwrap()
        .assert_success();
    let stored = kubectl
        .run(&["get", "pod", "web", "--namespace", &namespace, "--output=json"])
        .await
        .unwrap()
        .json();
    assert_eq!(stored["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(stored["spec"]["containers"][0]["image"], "registry.example.com/web:1.0");
    assert_eq!(stored["status"]["phase"], "Pending");
}

pub(crate) async fn users_have_their_own_permissions(cluster: Arc<TestCluster>) {
    let alice = cluster.kubectl_as(ClusterUser::Alice).unwrap();
    alice
        .run(&["create", "namespace", "of-alice"])
        .await
        .unwrap()
        .assert_failure_with(&["Forbidden", "alice"]);
    let audit = cluster.audit_log().unwrap();
    let recorded = audit.lines().any(|line| {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        event["user"]["username"] == "alice" && event["responseStatus"]["code"] == 403
    });
    assert!(recorded, "no refusal in the audit log:\n{audit}");
}

pub(crate) async fn a_dry_run_stores_nothing(cluster: Arc<TestCluster>) {
    let rest = cluster.rest().unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "not-made"}});
    let reply = rest.post("/api/v1/namespaces?dryRun=All", &namespace).await.unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text());
    let reply = rest.get("/api/v1/namespaces/not-made").await.unwrap();
    assert_eq!(reply.status, 404, "{}", reply.text());
}
