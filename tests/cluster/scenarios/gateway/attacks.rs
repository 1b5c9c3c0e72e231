//! Attempts to get more rights at the API server than alice has, or to impersonate an agent.

use std::sync::Arc;

use admittance_tests::{Client, ClientTrust};
use http::{HeaderName, HeaderValue, Request};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::scene::{GatewayScene, cluster_identifier, create_token, rest_client, run_command};
use crate::{cluster::TestCluster, process::TEST_TIMEOUT, scene::Scene};

const NODES_PATH: &str = "/api/v1/nodes";

/// Header lines with which a client tries to impersonate another user.
const ATTACK_HEADERS: [&str; 17] = [
    "Impersonate-User: admin",
    "impersonate-user: admin\r\nImpersonate-Group: system:masters",
    "IMPERSONATE-GROUP: system:masters",
    "iMpErSoNaTe-gRoUp: system:masters\r\nImpersonate-Group: developers",
    "Impersonate-Group: developers\r\nImpersonate-Group: system:masters",
    "Impersonate_Group: system:masters",
    "Impersonate-Group:system:masters",
    "Impersonate-User: plain.alice\r\nImpersonate-Group: admittance:super-users",
    "Impersonate-Uid: 0\r\nImpersonate-Extra-Scopes: all",
    "X-Remote-User: admin\r\nX-Remote-Group: system:masters",
    "X-Remote-Extra-Scopes: all\r\nx-remote-group: system:masters",
    "X-Forwarded-Client-Cert: Subject=\"O=system:masters\"\r\nSSL-Client-Cert: x",
    "Connection: Impersonate-User, Impersonate-Group, Authorization",
    "Connection: impersonate-user\r\nConnection: impersonate-group",
    "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
     Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dG9rZW4tb2YtYWRtaW4",
    "Cookie: token=token-of-admin\r\nX-BCS-User-Token: token-of-admin",
];

async fn send_raw(scene: &Scene, head: &str) -> String {
    let authority = scene.authority("certs");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authority) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = scene.url("").replace("https://", "");
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let reading = async {
        while !is_complete(&response) {
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer).await {
                Ok(length) if length > 0 => response.extend_from_slice(&buffer[..length]),
                _ => break,
            }
        }
    };
    timeout(TEST_TIMEOUT, reading).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

fn is_complete(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length {
        Some(length) => body.len() >= length.trim().parse().unwrap(),
        None => body.ends_with("0\r\n\r\n"),
    }
}

pub(crate) async fn no_client_becomes_another_user(cluster: Arc<TestCluster>) {
    let gateway = GatewayScene::start(cluster.clone(), true).await;
    let direct = cluster.rest().unwrap();
    assert_eq!(direct.get(NODES_PATH).await.unwrap().status, 200);
    let (prefix, token) = (&gateway.prefix, create_token(&gateway.scene, "alice").await);
    for lines in ATTACK_HEADERS {
        let reply = send_raw(
            &gateway.scene,
            &format!(
                "GET {prefix}{NODES_PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n{lines}\r\n\r\n"
            ),
        )
        .await;
        // The API server's refusal names alice, so the gateway passed the request on as hers.
        let is_refused = reply.starts_with("HTTP/1.1 403") && reply.contains(r#"User \"plain.alice\" cannot list"#);
        assert!(is_refused, "{lines}: {reply}");
    }
    for (lines, code) in [
        ("Authorization: Bearer token-of-admin", 401),
        ("Authorization : Bearer token-of-admin", 400),
        ("Impersonate-Group : system:masters", 400),
        (" Impersonate-Group: system:masters", 400),
    ] {
        let reply = send_raw(
            &gateway.scene,
            &format!(
                "GET {prefix}{NODES_PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n{lines}\r\n\r\n"
            ),
        )
        .await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {code}")), "{lines}: {reply}");
    }

    // The attempts to become another user are repeated over HTTP/2. There, a request may have several headers with the
    // same name.
    let authority = String::from_utf8(gateway.scene.authority("certs")).unwrap();
    let client = Client::with_http2(ClientTrust {
        authorities: &authority,
        identity: None,
    })
    .unwrap();
    let mut request = Request::get(gateway.scene.url(&format!("{prefix}{NODES_PATH}")))
        .body(String::new())
        .unwrap();
    let headers = request.headers_mut();
    let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    headers.insert("authorization", bearer);
    for (name, value) in [
        ("impersonate-user", "admin"),
        ("impersonate-group", "developers"),
        ("impersonate-group", "system:masters"),
        ("x-remote-group", "system:masters"),
    ] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let reply = client.send(request).await.unwrap();
    assert_eq!(reply.version, http::Version::HTTP_2);
    assert!(
        reply.status == 403 && reply.text().contains("plain.alice"),
        "{}",
        reply.text()
    );

    for arguments in [
        "create clusterrolebinding mine --clusterrole=cluster-admin --user=plain.alice",
        "create rolebinding mine --clusterrole=admin --user=plain.alice",
        "get secrets --all-namespaces --as=system:serviceaccount:kube-system:default",
        "get nodes --token=token-of-admin",
    ] {
        let output = gateway.run(arguments).await;
        let is_right = output.is_success == arguments.starts_with("get secrets");
        assert!(is_right, "{arguments}: {} {}", output.stdout, output.stderr);
    }
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}},
    });
    let path = format!("{prefix}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let reply = gateway.rest.post(&path, &question).await.unwrap().json().unwrap();
    assert_eq!(reply["status"]["allowed"], false, "{reply}");
}

pub(crate) async fn no_client_reaches_another_cluster(cluster: Arc<TestCluster>) {
    let gateway = GatewayScene::start(cluster, true).await;
    let scene = &gateway.scene;
    run_command(scene, "users create bob").await.assert_success();
    let other_name = format!("{}-other", scene.namespace);
    let other_id = format!("plain-{other_name}");
    run_command(scene, &format!("clusters create {other_name} --creator bob"))
        .await
        .assert_success();
    let other = format!("/tunnels/clusters/{}", cluster_identifier(scene, &other_id).await);
    let bob = rest_client(scene, &scene.url(""), &create_token(scene, "bob").await);
    let alice = create_token(scene, "alice").await;
    let code = async |rest: &crate::rest::UserClient, path: String| {
        let reply = rest.get(&path).await.unwrap();
        (reply.status.as_u16(), reply.json().unwrap()["kind"].clone())
    };
    let status = json!("Status");
    // Bob may see the cluster that he has created. Requests to it fail, because it has no agent.
    assert_eq!(code(&bob, format!("{other}/version")).await, (500, status.clone()));
    assert_eq!(
        code(&gateway.rest, format!("{other}/version")).await,
        (404, status.clone())
    );
    assert_eq!(code(&bob, format!("{}/version", gateway.prefix)).await, (404, status));
    let identifier = other.rsplit('/').next().unwrap();
    for path in [
        format!("/../{identifier}/version"),
        format!("/%2e%2e/{identifier}/version"),
        format!("/..%2f{identifier}/version"),
        format!("/api/../../{identifier}/version"),
        format!("//{identifier}/version"),
        "/api/v1/namespaces/%2e%2e/nodes".to_owned(),
        "/api/v1/namespaces/..%2fnodes/pods".to_owned(),
        "/api%2Fv1%2Fnodes".to_owned(),
        "/api/v1/nodes/%2e".to_owned(),
        "/api/v1/nodes%00".to_owned(),
        "/api/v1%5cnodes".to_owned(),
    ] {
        let head = format!(
            "GET {}{path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {alice}\r\n\r\n",
            gateway.prefix
        );
        let reply = send_raw(scene, &head).await;
        assert!(reply.starts_with("HTTP/1.1 400"), "{path}: {reply}");
    }
}

pub(crate) async fn a_register_token_cannot_be_guessed(cluster: Arc<TestCluster>) {
    let gateway = GatewayScene::start(cluster, true).await;
    let scene = &gateway.scene;
    let other_name = format!("{}-other", scene.namespace);
    run_command(scene, &format!("clusters create {other_name}"))
        .await
        .assert_success();
    let of_other = run_command(scene, &format!("register-tokens create plain-{other_name}")).await;
    let file = std::fs::read_to_string(scene.path("register.token")).unwrap();
    let right = file.trim();
    let clusters = async || run_command(scene, "clusters list --output json").await.json();
    let before = clusters().await;
    for wrong in [
        String::new(),
        "*".to_owned(),
        right[1..].to_owned(),
        format!("{right}x"),
        right.to_ascii_lowercase(),
        of_other.assert_success().stdout.trim().to_owned(),
        create_token(scene, "alice").await,
    ] {
        let report = json!({
            "register_token": wrong,
            "server_addresses": "https://198.51.100.1:6443",
            "cacert_data": std::fs::read_to_string(scene.path("certs/ca.pem")).unwrap(),
            "user_token": "mine",
        });
        let path = format!("/rest/clusters/{}/credentials", gateway.cluster_id);
        let result = gateway.rest.send(http::Method::PUT, &path, Some(&report)).await;
        let reply = result.unwrap().json().unwrap();
        assert_ne!(reply["code_name"], Value::Null, "{wrong}: {reply}");
        let head = format!(
            "GET /bcsapi/v1/websocket/connect HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             BCS-API-Tunnel-Module: kube-agent\r\nBCS-API-Tunnel-ClusterId: {}\r\n\
             BCS-API-Tunnel-Params: e30=\r\nBCS-API-Tunnel-Token: {wrong}\r\n\r\n",
            gateway.cluster_id
        );
        let reply = send_raw(scene, &head).await;
        assert!(reply.starts_with("HTTP/1.1 4"), "{wrong}: {reply}");
    }
    assert_eq!(clusters().await, before);
    gateway.run("get pods").await.assert_success();
}
