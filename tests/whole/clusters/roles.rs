//! Tests that users' roles, from a file or an authorization system, become role bindings in a cluster.

use std::fs;

use futures_util::{SinkExt, StreamExt};
use http::Method;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};

use super::{
    api_server::ClusterAuthority,
    scene::{ClustersScene, SERVICE_ACCOUNT_TOKEN},
};
use admittance_tests::{POLL_INTERVAL, TEST_TIMEOUT};

const RBAC_PATH: &str = "/apis/rbac.authorization.k8s.io/v1";
const APP_SECRET: &str = "app-secret";

fn bindings(scene: &ClustersScene) -> Vec<(String, String, String)> {
    let objects = scene.server.objects();
    let bindings = objects.iter().filter(|(path, _)| path.contains("rolebindings/"));
    bindings
        .map(|(_, binding)| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                text(&binding["metadata"]["namespace"]),
                text(&binding["subjects"][0]["name"]),
                text(&binding["roleRef"]["name"]),
            )
        })
        .collect()
}

async fn until_bound(scene: &ClustersScene, expected: &[(&str, &str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(namespace, user, role)| ((*namespace).to_owned(), (*user).to_owned(), (*role).to_owned()))
        .collect();
    let wait = async {
        loop {
            let mut bound_roles = bindings(scene);
            bound_roles.sort();
            if bound_roles == expected {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(TEST_TIMEOUT, wait).await.is_err() {
        panic!("{:?} instead of {expected:?}", bindings(scene));
    }
}

fn role_binding(name: &str, labels: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "roleRef": {"name": "cluster-admin"},
        "subjects": [{"name": "somebody"}],
    })
}

#[tokio::test]
async fn roles_in_a_file_become_role_bindings_in_the_cluster() {
    let roles = "roles:
- { user: alice, cluster: plain-dev, roles: [services-view] }
- { user: bob, cluster: PLAIN-DEV, roles: [workloads-manage], namespaces: [\"n\"] }
- { user: nobody, cluster: \"*\", roles: [cluster-readonly] }
";
    let files = [("roles.yaml", roles)];
    let scene = ClustersScene::start_with_additions("    roles: { file: roles.yaml }\n", &files).await;
    let foreign = format!("{RBAC_PATH}/clusterrolebindings/foreign");
    scene.server.put(
        &foreign,
        role_binding("foreign", json!({"app.kubernetes.io/managed-by": "helm"})),
    );
    let bob = scene.create_user("bob", json!({})).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let foreign = ("", "somebody", "cluster-admin");
    until_bound(
        &scene,
        &[
            ("", "plain.alice", "admittance:services-view"),
            foreign,
            ("n", "plain.bob", "admittance:workloads-manage"),
        ],
    )
    .await;
    let applied = scene
        .server
        .requests()
        .into_iter()
        .find(|request| request.method == Method::PATCH && request.uri.path().contains("/namespaces/n/"))
        .unwrap();
    assert!(applied.uri.query().unwrap().contains("fieldManager=admittance-gateway"));
    assert_eq!(applied.values("content-type"), ["application/apply-patch+yaml"]);
    assert!(applied.values("impersonate-user").is_empty());
    let role = format!("{RBAC_PATH}/clusterroles/admittance:workloads-manage");
    let role = scene.server.object(&role).unwrap();
    assert!(!role["rules"].to_string().contains("exec"), "{role}");

    // Bob has no permission at the gateway and no group. His access comes from a role in the file.
    let authorization = format!("Bearer {bob}");
    let headers = [("authorization", &*authorization)];
    let reply = scene.send_with(Method::GET, "/version", &headers, Value::Null).await;
    assert_eq!(reply.status, 404, "{}", reply.text());
    let request = scene.server.requests().pop().unwrap();
    assert_eq!(request.values("impersonate-user"), ["plain.bob"]);
    assert!(request.values("impersonate-group").is_empty());

    let roles = "roles: [ { user: alice, cluster: plain-dev, roles: [workloads-view] } ]\n";
    fs::write(scene.directory.path().join("roles.yaml"), roles).unwrap();
    until_bound(&scene, &[("", "plain.alice", "admittance:workloads-view"), foreign]).await;
    let denied_reply = scene.send_with(Method::GET, "/version", &headers, Value::Null).await;
    assert_eq!(denied_reply.json().unwrap()["code"], 404);
    scene.send_to_admin("DELETE", "/v1/users/alice", Value::Null).await;
    until_bound(&scene, &[foreign]).await;
}

/// A fake of the authorization system with which an operator manages users' roles.
struct AuthorizationSystem {
    socket: WebSocketStream<TlsStream<TcpStream>>,
    /// The `Authorization` header with which the gateway signed in at the authorization system.
    login: String,
}

impl AuthorizationSystem {
    #[allow(clippy::result_large_err, reason = "the library defines the callback")]
    async fn accept(listener: &TcpListener, authority: &ClusterAuthority) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = authority.acceptor("localhost").accept(stream).await.unwrap();
        let mut login = String::new();
        let socket = accept_hdr_async(stream, |request: &Request, response: Response| {
            assert_eq!(request.uri().path(), "/subscribers/bcs-api/sub");
            login = request.headers()["authorization"].to_str().unwrap().to_owned();
            Ok(response)
        })
        .await
        .unwrap();
        Self { socket, login }
    }

    async fn send(&mut self, kind: &str, id: u32, data: &Value) {
        let message = json!({
            "app_code": "bcs", "type": kind, "worker_id": "w", "data_id": id, "data": data.to_string(),
        });
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Waits until the gateway acknowledges the message with this ID. Returns the IDs of the messages that the gateway
    /// has acknowledged before that.
    async fn until_acknowledged(&mut self, id: u32) -> Vec<u64> {
        let mut acknowledged_ids = Vec::new();
        let wait = async {
            loop {
                let Message::Text(text) = self.socket.next().await.unwrap().unwrap() else {
                    continue;
                };
                let ack: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(
                    (&ack["app_code"], &ack["type"], &ack["worker_id"]),
                    (&json!("bcs"), &json!("ack"), &json!("w"))
                );
                if ack["data_id"] == id {
                    return;
                }
                acknowledged_ids.extend(ack["data_id"].as_u64());
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
        acknowledged_ids
    }
}

fn policy_change(operation: &str, user: &str, role: &str, namespace: Option<&str>) -> Value {
    json!({
        "operation": operation,
        "principal": {"principal_type": "plain", "principal_id": user},
        "scope_type": "project", "scope_instance": "p", "service": "bcs",
        "action": role,
        "resource_type": if namespace.is_some() { "namespace" } else { "cluster" },
        "resource_instance": {"cluster": "plain-dev", "namespace": namespace.unwrap_or_default()},
        "policy_from": "common",
    })
}

#[tokio::test]
async fn roles_from_an_authorization_system_become_role_bindings() {
    let authority = ClusterAuthority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = format!(
        "    roles:
      subscription:
        url: wss://localhost:{port}
        appCode: bcs
        secretFile: app.secret
        tls: {{ ca: auth-ca.pem }}
"
    );
    let pem = authority.pem();
    let files = [("app.secret", APP_SECRET), ("auth-ca.pem", &pem)];
    let scene = ClustersScene::start_with_additions(&config, &files).await;
    let mut system = AuthorizationSystem::accept(&listener, &authority).await;
    assert_eq!(system.login, "Basic YmNzOmFwcC1zZWNyZXQ=");

    // The gateway acknowledges a change of roles only after making it in the cluster.
    system.send("hi", 1, &json!({})).await;
    system
        .send("data", 2, &policy_change("add", "alice", "workloads-view", None))
        .await;
    // The gateway does not acknowledge a message that it cannot carry out. Message 3 names the role `root`, which does
    // not exist. Message 4 names the role `cluster-manage`, which is not allowed.
    system
        .send("data", 3, &policy_change("add", "alice", "root", None))
        .await;
    system
        .send("data", 4, &policy_change("add", "alice", "cluster-manage", None))
        .await;
    system
        .send("data", 5, &policy_change("add", "alice", "services-view", Some("n")))
        .await;
    let early_acknowledgement = tokio::time::timeout(POLL_INTERVAL * 5, system.socket.next()).await;
    assert!(
        matches!(early_acknowledgement, Err(_) | Ok(Some(Ok(Message::Ping(_))))),
        "{early_acknowledgement:?}"
    );
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let acknowledged_ids = system.until_acknowledged(5).await;
    assert_eq!(acknowledged_ids, [2]);
    let view = ("", "plain.alice", "admittance:workloads-view");
    until_bound(&scene, &[view, ("n", "plain.alice", "admittance:services-view")]).await;

    system
        .send("data", 6, &policy_change("delete", "alice", "services-view", Some("n")))
        .await;
    system.until_acknowledged(6).await;
    until_bound(&scene, &[view]).await;

    // Some authorization systems send a complete list of roles at the start. The list replaces earlier roles.
    drop(system);
    let mut system = AuthorizationSystem::accept(&listener, &authority).await;
    let list = json!([policy_change("add", "alice", "cluster-readonly", None)]);
    system.send("list", 7, &list).await;
    system.until_acknowledged(7).await;
    until_bound(&scene, &[("", "plain.alice", "admittance:cluster-readonly")]).await;
}
