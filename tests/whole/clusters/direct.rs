//! Tests clusters to whose API servers the gateway connects directly.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    api_server::{ApiServer, ClusterAuthority},
    scene::{ClustersScene, PODS, SERVICE_ACCOUNT, pod},
};

#[tokio::test]
async fn users_act_in_a_cluster_under_their_own_names() {
    let scene = ClustersScene::start(false).await;
    let early = scene.send(Method::GET, "/version", Value::Null).await;
    let status = early.json().unwrap();
    assert_eq!(
        (early.status.as_u16(), &status["kind"]),
        (500, &json!("Status")),
        "{status}"
    );
    assert_eq!(status["reason"], "CREATE_TUNNEL_ERROR");

    assert_eq!(scene.report(&[&scene.server], SERVICE_ACCOUNT).await.status, 200);
    let created = scene
        .send(Method::POST, PODS, pod("a", "nginx:1", json!({})))
        .await;
    assert_eq!(created.status, 200, "{}", created.text());
    let read = scene
        .send(Method::GET, &format!("{PODS}/a?pretty=true"), Value::Null)
        .await;
    assert_eq!(read.json().unwrap()["metadata"]["name"], "a");
    let got = scene.server.got();
    let last = got.last().unwrap();
    assert_eq!(
        (last.method.as_str(), last.uri.to_string()),
        ("GET", format!("{PODS}/a?pretty=true"))
    );
    assert_eq!(
        last.values("authorization"),
        [format!("Bearer {SERVICE_ACCOUNT}")]
    );
    assert_eq!(last.values("impersonate-user"), ["plain.alice"]);
    assert_eq!(
        last.values("impersonate-group"),
        ["admittance:view", "admittance:edit"]
    );
}

#[tokio::test]
async fn users_with_the_cluster_permission_have_only_the_rights_of_their_role_bindings() {
    let scene = ClustersScene::start(false).await;
    scene.report(&[&scene.server], SERVICE_ACCOUNT).await;
    let granted = json!({"user": "alice", "permission": "Cluster"});
    let cluster = scene
        .admin("POST", "/v1/clusters/plain-dev/permissions", granted)
        .await;
    assert_eq!(
        cluster["permissions"],
        json!([{"user": "plain:alice", "permission": "Cluster"}])
    );
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    scene.send(Method::DELETE, webhooks, Value::Null).await;
    let got = scene.server.got();
    let last = got.last().unwrap();
    assert_eq!((last.method.as_str(), last.uri.path()), ("DELETE", webhooks));
    assert_eq!(last.values("impersonate-user"), ["plain.alice"]);
    assert!(
        last.values("impersonate-group").is_empty(),
        "{:?}",
        last.values("impersonate-group")
    );
}

#[tokio::test]
async fn super_users_need_no_binding_where_the_agent_may_impersonate_everybody() {
    let scene = ClustersScene::start(false).await;
    let root = scene.user("root", json!({"superUser": true})).await;
    let root = format!("Bearer {root}");
    let identity = async || {
        let headers = [("authorization", root.as_str())];
        let reply = scene
            .send_with(Method::GET, "/version", &headers, Value::Null)
            .await;
        assert_eq!(reply.status, 404, "{}", reply.text());
        let got = scene.server.got();
        let last = got.last().unwrap();
        (last.values("impersonate-user"), last.values("impersonate-group"))
    };
    let groups = |more: &[&str]| {
        let known = ["view", "edit", "hooks", "super-users"].map(|group| format!("admittance:{group}"));
        let more = more.iter().map(|group| (*group).to_owned());
        (
            vec!["plain.root".to_owned()],
            known.into_iter().chain(more).collect::<Vec<_>>(),
        )
    };
    scene.report(&[&scene.server], SERVICE_ACCOUNT).await;
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
    while scene.report(&[&scene.server], "cluster-admin").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(identity().await, groups(&["system:masters"]));
    scene.send(Method::GET, "/version", Value::Null).await;
    let got = scene.server.got();
    assert_eq!(
        got.last().unwrap().values("impersonate-group"),
        ["admittance:view", "admittance:edit"]
    );
}

#[tokio::test]
async fn changed_cluster_credentials_and_addresses_are_used_at_once() {
    let mut scene = ClustersScene::start(false).await;
    let second = ApiServer::start(&scene.authority, "rotated").await;
    scene.report(&[&scene.server], SERVICE_ACCOUNT).await;
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    scene.server.change_token("rotated");
    // The API server replied 401 to the agent's token. The user's token is valid, so the user gets 502 instead.
    let refused = scene.send(Method::GET, "/version", Value::Null).await;
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(
        refused.text().contains("the token of the cluster's agent"),
        "{}",
        refused.text()
    );
    // The gateway limits how often an agent may report new credentials, so the report is repeated until it is accepted.
    while scene.report(&[&scene.server, &second], "rotated").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    drop(std::mem::replace(&mut scene.server, second));
    let before = scene.server.got().len();
    for _ in 0..4 {
        assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
    }
    assert_eq!(scene.server.got().len(), before + 4);
}

#[tokio::test]
async fn only_the_api_server_of_the_cluster_is_trusted() {
    let mut scene = ClustersScene::start(false).await;
    let others = ClusterAuthority::new();
    // The gateway must not trust this server, because its certificate is from another CA and for another name.
    scene.server = ApiServer::start(&others, SERVICE_ACCOUNT).await;
    let misnamed = ApiServer::named(&scene.authority, SERVICE_ACCOUNT, "localhost").await;
    scene.report(&[&scene.server, &misnamed], SERVICE_ACCOUNT).await;
    let reply = scene.send(Method::GET, "/version", Value::Null).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.json().unwrap()["kind"]),
        (502, &json!("Status"))
    );
    assert!(scene.server.got().is_empty() && misnamed.got().is_empty());
}

#[tokio::test]
async fn watches_are_streamed_until_the_token_is_revoked() {
    let scene = ClustersScene::start(false).await;
    scene.report(&[&scene.server], SERVICE_ACCOUNT).await;
    let mut watch = scene.send_raw("GET", &format!("{PODS}?watch=true"), "").await;
    watch.until("\r\n\r\n").await;
    scene.server.until_watched(1).await;
    for name in ["a", "b"] {
        scene
            .server
            .put(&format!("{PODS}/{name}"), pod(name, "nginx:1", json!({})));
        let event = watch.until(&format!(r#""name":"{name}""#)).await;
        assert!(event.contains("MODIFIED"), "{event}");
    }
    let users = scene.admin("GET", "/v1/users/plain:alice", Value::Null).await;
    let token = &users["tokens"][0]["id"];
    scene
        .admin(
            "DELETE",
            &format!("/v1/users/plain:alice/tokens/{token}"),
            Value::Null,
        )
        .await;
    watch.ended().await;
    scene.server.until_watched(0).await;
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 401);
}

#[tokio::test]
async fn upgraded_connections_are_passed_on_until_the_permission_is_revoked() {
    let scene = ClustersScene::start(false).await;
    scene.report(&[&scene.server], SERVICE_ACCOUNT).await;
    for (method, protocol) in [("POST", "SPDY/3.1"), ("GET", "websocket")] {
        let lines = format!(
            "Connection: Upgrade, Impersonate-User\r\nUpgrade: {protocol}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
        );
        let mut exec = scene
            .send_raw(method, &format!("{PODS}/a/exec?command=sh"), &lines)
            .await;
        let head = exec.until("\r\n\r\n").await.to_lowercase();
        assert!(
            head.starts_with("http/1.1 101") && head.contains(&protocol.to_lowercase()),
            "{head}"
        );
        exec.write(b"echo this").await;
        exec.until("echo this").await;
        let got = scene.server.got();
        assert_eq!(got.last().unwrap().values("impersonate-user"), ["plain.alice"]);
        if protocol == "websocket" {
            scene.admin("DELETE", "/v1/users/plain:alice", Value::Null).await;
            exec.ended().await;
        }
    }
}
