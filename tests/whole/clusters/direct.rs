//! Tests clusters to whose API servers the gateway connects directly.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    api_server::{ApiServer, ClusterAuthority},
    scene::{ClustersScene, PODS_PATH, SERVICE_ACCOUNT_TOKEN, pod},
};

#[tokio::test]
async fn users_act_in_a_cluster_under_their_own_names() {
    let scene = ClustersScene::start(false).await;
    let reply = scene.send(Method::GET, "/version", Value::Null).await;
    let status = reply.json().unwrap();
    assert_eq!(
        (reply.status.as_u16(), &status["kind"]),
        (500, &json!("Status")),
        "{status}"
    );
    assert_eq!(status["reason"], "CREATE_TUNNEL_ERROR");

    assert_eq!(
        scene
            .report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN)
            .await
            .status,
        200
    );
    let create_reply = scene
        .send(Method::POST, PODS_PATH, pod("a", "nginx:1", json!({})))
        .await;
    assert_eq!(create_reply.status, 200, "{}", create_reply.text());
    let get_reply = scene
        .send(Method::GET, &format!("{PODS_PATH}/a?pretty=true"), Value::Null)
        .await;
    assert_eq!(get_reply.json().unwrap()["metadata"]["name"], "a");
    let requests = scene.server.requests();
    let last_request = requests.last().unwrap();
    assert_eq!(
        (last_request.method.as_str(), last_request.uri.to_string()),
        ("GET", format!("{PODS_PATH}/a?pretty=true"))
    );
    assert_eq!(
        last_request.values("authorization"),
        [format!("Bearer {SERVICE_ACCOUNT_TOKEN}")]
    );
    assert_eq!(last_request.values("impersonate-user"), ["plain.alice"]);
    assert_eq!(
        last_request.values("impersonate-group"),
        ["admittance:view", "admittance:edit"]
    );
}

#[tokio::test]
async fn users_with_the_cluster_permission_have_only_the_rights_of_their_role_bindings() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let permission = json!({"user": "alice", "permission": "Cluster"});
    let cluster = scene
        .send_to_admin("POST", "/v1/clusters/plain-dev/permissions", permission)
        .await;
    assert_eq!(
        cluster["permissions"],
        json!([{"user": "plain:alice", "permission": "Cluster"}])
    );
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    scene.send(Method::DELETE, webhooks, Value::Null).await;
    let requests = scene.server.requests();
    let last_request = requests.last().unwrap();
    assert_eq!(
        (last_request.method.as_str(), last_request.uri.path()),
        ("DELETE", webhooks)
    );
    assert_eq!(last_request.values("impersonate-user"), ["plain.alice"]);
    assert!(
        last_request.values("impersonate-group").is_empty(),
        "{:?}",
        last_request.values("impersonate-group")
    );
}

#[tokio::test]
async fn super_users_need_no_binding_where_the_agent_may_impersonate_everybody() {
    let scene = ClustersScene::start(false).await;
    let root = scene.create_user("root", json!({"superUser": true})).await;
    let root = format!("Bearer {root}");
    let identity = async || {
        let headers = [("authorization", root.as_str())];
        let reply = scene.send_with(Method::GET, "/version", &headers, Value::Null).await;
        assert_eq!(reply.status, 404, "{}", reply.text());
        let requests = scene.server.requests();
        let last_request = requests.last().unwrap();
        (
            last_request.values("impersonate-user"),
            last_request.values("impersonate-group"),
        )
    };
    let groups = |extra: &[&str]| {
        let gateway_groups = ["view", "edit", "hooks", "super-users"].map(|group| format!("admittance:{group}"));
        let extra_groups = extra.iter().map(|group| (*group).to_owned());
        (
            vec!["plain.root".to_owned()],
            gateway_groups.into_iter().chain(extra_groups).collect::<Vec<_>>(),
        )
    };
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    assert_eq!(identity().await, groups(&[]));
    let review = scene
        .server
        .object("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/none")
        .unwrap();
    assert_eq!(
        review["spec"]["resourceAttributes"],
        json!({"verb": "impersonate", "resource": "groups", "name": "system:masters"})
    );
    // The gateway caches the agent's rights until the agent reports new credentials.
    scene.server.allow_everything();
    assert_eq!(identity().await, groups(&[]));
    scene.server.change_token("cluster-admin");
    while scene.report_servers(&[&scene.server], "cluster-admin").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(identity().await, groups(&["system:masters"]));
    scene.send(Method::GET, "/version", Value::Null).await;
    let requests = scene.server.requests();
    assert_eq!(
        requests.last().unwrap().values("impersonate-group"),
        ["admittance:view", "admittance:edit"]
    );
}

#[tokio::test]
async fn changed_cluster_credentials_and_addresses_are_used_at_once() {
    let mut scene = ClustersScene::start(false).await;
    let second = ApiServer::start(&scene.authority, "rotated").await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    scene.server.change_token("rotated");
    // The API server replied 401 to the agent's token. The user's token is valid, so the user gets 502 instead.
    let reply = scene.send(Method::GET, "/version", Value::Null).await;
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(
        reply.text().contains("the token of the cluster's agent"),
        "{}",
        reply.text()
    );
    // The gateway limits how often an agent may report new credentials, so the report is repeated until it is accepted.
    while scene.report_servers(&[&scene.server, &second], "rotated").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    drop(std::mem::replace(&mut scene.server, second));
    let before = scene.server.requests().len();
    for _ in 0..4 {
        assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    }
    assert_eq!(scene.server.requests().len(), before + 4);
}

#[tokio::test]
async fn only_the_api_server_of_the_cluster_is_trusted() {
    let mut scene = ClustersScene::start(false).await;
    let other_authority = ClusterAuthority::new();
    // The gateway must not trust this server, because its certificate is from another CA and for another name.
    scene.server = ApiServer::start(&other_authority, SERVICE_ACCOUNT_TOKEN).await;
    let misnamed = ApiServer::start_with_name(&scene.authority, SERVICE_ACCOUNT_TOKEN, "localhost").await;
    scene
        .report_servers(&[&scene.server, &misnamed], SERVICE_ACCOUNT_TOKEN)
        .await;
    let reply = scene.send(Method::GET, "/version", Value::Null).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.json().unwrap()["kind"]),
        (502, &json!("Status"))
    );
    assert!(scene.server.requests().is_empty() && misnamed.requests().is_empty());
}

#[tokio::test]
async fn watches_are_streamed_until_the_token_is_revoked() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    for name in ["a", "b"] {
        scene
            .server
            .put(&format!("{PODS_PATH}/{name}"), pod(name, "nginx:1", json!({})));
        let event = watch.read_until(&format!(r#""name":"{name}""#)).await;
        assert!(event.contains("MODIFIED"), "{event}");
    }
    let users = scene.send_to_admin("GET", "/v1/users/plain:alice", Value::Null).await;
    let token = &users["tokens"][0]["id"];
    scene
        .send_to_admin("DELETE", &format!("/v1/users/plain:alice/tokens/{token}"), Value::Null)
        .await;
    watch.read_to_end().await;
    scene.server.until_watch_count(0).await;
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 401);
}

#[tokio::test]
async fn upgraded_connections_are_passed_on_until_the_permission_is_revoked() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    for (method, protocol) in [("POST", "SPDY/3.1"), ("GET", "websocket")] {
        let lines = format!(
            "Connection: Upgrade, Impersonate-User\r\nUpgrade: {protocol}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
        );
        let mut exec = scene
            .send_raw(method, &format!("{PODS_PATH}/a/exec?command=sh"), &lines)
            .await;
        let head = exec.read_until("\r\n\r\n").await.to_lowercase();
        assert!(
            head.starts_with("http/1.1 101") && head.contains(&protocol.to_lowercase()),
            "{head}"
        );
        exec.write(b"echo this").await;
        exec.read_until("echo this").await;
        let requests = scene.server.requests();
        assert_eq!(requests.last().unwrap().values("impersonate-user"), ["plain.alice"]);
        if protocol == "websocket" {
            scene
                .send_to_admin("DELETE", "/v1/users/plain:alice", Value::Null)
                .await;
            exec.read_to_end().await;
        }
    }
}
