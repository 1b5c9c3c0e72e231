//! Attempts to impersonate another user or to reach another cluster.

use http::Method;
use serde_json::{Value, json};

use super::scene::{ClustersScene, PODS_PATH, SERVICE_ACCOUNT_TOKEN};

#[tokio::test]
async fn no_header_changes_the_user_of_a_request() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let header_attempts = [
        "Impersonate-User: system:admin\r\n",
        "IMPERSONATE-GROUP: system:masters\r\n",
        "impersonate-group: a\r\nImpersonate-Group: system:masters\r\n",
        "Impersonate_Group: system:masters\r\n",
        "Impersonate-Uid: 1\r\nImpersonate-Extra-Scopes: all\r\n",
        "X-Remote-User: system:admin\r\nX-Remote-Group: system:masters\r\n",
        "X-Forwarded-Client-Cert: Subject=admin\r\nSSL-Client-Cert: x\r\n",
        "Connection: Impersonate-User, Impersonate-Group, Authorization\r\n",
        "Connection: impersonate-user\r\nConnection: close\r\n",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VydmljZQ\r\n",
        // If the gateway allowed an upgrade to HTTP/2, it could not check later requests on this connection.
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n",
        "X-BCS-User-Token: other\r\nCookie: session=other\r\n",
    ];
    for lines in header_attempts {
        let mut wire = scene.send_raw("GET", "/version", lines).await;
        let head = wire.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 404"), "{lines}: {head}");
        let requests = scene.server.requests();
        let last_request = requests.last().unwrap();
        let identity_headers: Vec<_> = last_request
            .headers
            .iter()
            .filter(|(name, _)| {
                let name = name.as_str().replace('_', "-");
                [
                    "impersonate",
                    "x-remote",
                    "client-cert",
                    "authorization",
                    "cookie",
                    "x-bcs",
                    "sec-websocket",
                ]
                .iter()
                .any(|part| name.contains(part))
            })
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let mut sorted_headers: Vec<_> = identity_headers.iter().map(String::as_str).collect();
        sorted_headers.sort_unstable();
        let expected = [
            "authorization: Bearer service-account-1",
            "impersonate-group: admittance:edit",
            "impersonate-group: admittance:view",
            "impersonate-user: plain.alice",
        ];
        assert_eq!(sorted_headers, expected, "{lines}");
    }
    assert_eq!(scene.server.requests().len(), header_attempts.len());
}

#[tokio::test]
async fn requests_need_a_token_with_permission_for_the_cluster_in_their_path() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let (bob, viewer) = (
        scene.create_user("bob", json!({})).await,
        scene.create_user("viewer", json!({})).await,
    );
    let grant = json!({"user": "plain:viewer", "permission": "Read"});
    scene
        .send_to_admin("POST", "/v1/clusters/plain-dev/permissions", grant)
        .await;
    let [bob, viewer] = [bob, viewer].map(|token| format!("Bearer {token}"));
    let register = format!("Bearer {}", scene.register_token);
    let other = scene.create_cluster("other", "plain:bob").await;
    let exec = format!("{PODS_PATH}/a/exec?command=sh");
    for (authorization, method, path, expected) in [
        ("", Method::GET, "/version", 401),
        ("Bearer ", Method::GET, "/version", 401),
        ("Bearer wrong", Method::GET, "/version", 401),
        (&register, Method::GET, "/version", 401),
        ("Bearer service-account-1", Method::GET, "/version", 401),
        ("Basic YWxpY2U6eA==", Method::GET, "/version", 401),
        (&bob, Method::GET, "/version", 404),
        (&viewer, Method::GET, "/version", 404),
        (&viewer, Method::POST, PODS_PATH, 403),
        (&viewer, Method::DELETE, &format!("{PODS_PATH}/a"), 403),
        (&viewer, Method::POST, &exec, 403),
        (&viewer, Method::GET, &exec, 403),
        (&viewer, Method::GET, "/api/v1/nodes/n/proxy/run", 403),
    ] {
        let reply = scene
            .send_with(method.clone(), path, &[("authorization", authorization)], Value::Null)
            .await;
        let status = reply.json().unwrap();
        assert_eq!(reply.status, expected, "{authorization} {method} {path}: {status}");
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(expected)),
            "{status}"
        );
    }
    let mut twice = scene
        .send_raw("GET", "/version", "Authorization: Bearer other\r\n")
        .await;
    assert!(twice.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 401"));

    let identifier = other.rsplit('/').next().unwrap();
    for path in [
        format!("/../{identifier}/version"),
        format!("/%2e%2e/{identifier}/version"),
        format!("/..%2f{identifier}/version"),
        "//version".to_owned(),
        "/api/v1/%2e%2e/%2E%2E/version".to_owned(),
        "/api%2Fv1/pods".to_owned(),
        "/version%00".to_owned(),
        "/api/v1/pods%5c..".to_owned(),
    ] {
        let mut wire = scene.send_raw("GET", &path, "").await;
        let head = wire.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 400"), "{path}: {head}");
    }
    let requests = scene.server.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
}

#[tokio::test]
async fn register_tokens_cannot_be_guessed() {
    let mut scene = ClustersScene::start(false).await;
    let register_token = scene.register_token.clone();
    for invalid_token in [
        String::new(),
        register_token[1..].to_owned(),
        format!("{register_token}x"),
        scene.alice.clone(),
    ] {
        scene.register_token = invalid_token;
        let reply = scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
        assert!(
            ["RTOKEN", "VALIDATION_ERROR"]
                .iter()
                .any(|code| reply.text().contains(code))
                || !reply.status.is_success(),
            "{}",
            reply.text()
        );
        let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nBCS-API-Tunnel-Module: kubeagent\r\n\
                     BCS-API-Tunnel-ClusterId: plain-dev\r\nBCS-API-Tunnel-Params: e30=\r\n";
        let token = &scene.register_token;
        let lines = format!("{lines}BCS-API-Tunnel-Token: {token}\r\n");
        let prefix = std::mem::take(&mut scene.prefix);
        let mut wire = scene.send_raw("GET", "/bcsapi/v1/websocket/connect", &lines).await;
        scene.prefix = prefix;
        let head = wire.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 4"), "{token}: {head}");
    }
    scene.register_token = register_token;
    assert_eq!(
        scene
            .report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN)
            .await
            .status,
        200
    );
}
