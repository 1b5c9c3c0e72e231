//! Tests several gateways, of which only one has the tunnel to a cluster.

use admittance_tests::Admittance;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use ring::hmac;
use serde_json::{Value, json};

use super::{
    scene::{ClustersScene, PEER_SECRET, PODS_PATH, pod},
    wire::WireClient,
};
use crate::mesos::zookeeper::ZooKeeperNode;

/// Waits until a gateway and this many other gateways have tunnels to each other.
async fn until_linked(gateway: &Admittance, peer_count: usize) {
    let wait = gateway.wait_for_status("gateways know one another", |status| {
        let peers = &status["gateway"]["peers"];
        let gateways = peers["gateways"].as_array().unwrap();
        gateways.len() == peer_count
            && gateways.iter().all(|gateway| gateway["problem"].is_null())
            && peers["accepted"] == peer_count
    });
    wait.await.unwrap();
}

#[tokio::test]
async fn a_cluster_is_reached_through_the_gateway_that_has_its_tunnel() {
    let zookeeper = ZooKeeperNode::create_shared("peers").await;
    let scene = ClustersScene::start_with_peers(&zookeeper.config()).await;
    let mut another = scene
        .start_another_gateway(([127, 0, 0, 1], 0).into(), PEER_SECRET)
        .await;
    // The two gateways connect to each other: `scene.gateway` with verified TLS, and `another` without TLS.
    until_linked(&scene.gateway, 1).await;
    until_linked(&another, 1).await;
    let agent = scene.start_agent_for(&another.tls_url("")).await;
    scene.until_cluster_reached().await;

    // Only the first gateway runs chains and replaces the user's identity.
    let create_reply = scene
        .send(Method::POST, PODS_PATH, pod("a", "nginx:1", json!({"sidecar": "true"})))
        .await;
    assert_eq!(create_reply.status, 200, "{}", create_reply.text());
    let stored = scene.server.object(&format!("{PODS_PATH}/a")).unwrap();
    assert_eq!(stored["spec"]["containers"].as_array().unwrap().len(), 2, "{stored}");
    let requests = scene.server.requests();
    let last_request = requests.last().unwrap();
    assert_eq!(last_request.values("impersonate-user"), ["plain.alice"]);
    assert_eq!(
        last_request.values("impersonate-group"),
        ["admittance:view", "admittance:edit"]
    );
    assert_eq!(last_request.values("x-forwarded-for").len(), 1);
    let refused = scene
        .send(Method::POST, PODS_PATH, pod("b", "nginx:latest", json!({})))
        .await;
    assert!(refused.text().contains("images"), "{}", refused.text());
    assert!(!format!("{:?}", another.log()).contains("/tunnels/clusters/"));

    // Watches, upgraded connections and a body larger than all buffers go through both gateways.
    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let mut exec = scene
        .send_raw("POST", &format!("{PODS_PATH}/a/exec?command=sh"), upgrade)
        .await;
    exec.read_until("\r\n\r\n").await;
    exec.write(b"echo this").await;
    exec.read_until("echo this").await;
    let mut large = pod("c", "nginx:1", json!({}));
    large["metadata"]["annotations"] = json!({"large": "x".repeat(3 << 20)});
    assert_eq!(scene.send(Method::POST, PODS_PATH, large.clone()).await.status, 200);
    let get_reply = scene.send(Method::GET, &format!("{PODS_PATH}/c"), Value::Null).await;
    assert_eq!(get_reply.json().unwrap(), large);
    watch.read_until(r#""name":"c""#).await;

    let address = another.tls_url("").rsplit(':').next().unwrap().parse().unwrap();
    another.kill().await.unwrap();
    watch.read_to_end().await;
    exec.read_to_end().await;
    let reply = scene.send(Method::GET, "/version", Value::Null).await;
    assert!(reply.status.is_server_error(), "{}", reply.text());
    assert_eq!(reply.json().unwrap()["kind"], "Status");
    another = scene
        .start_another_gateway(([127, 0, 0, 1], address).into(), PEER_SECRET)
        .await;
    scene.until_cluster_reached().await;

    // A gateway that shuts down lets running requests end, such as this watch. The other gateway sends no new requests
    // to the gateway that shuts down.
    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    another.terminate().unwrap();
    let withdrawn = scene.gateway.wait_for_status("the tunnel is withdrawn", |status| {
        status["gateway"]["kubernetes"][0]["gateways"] == 0
    });
    withdrawn.await.unwrap();
    scene
        .server
        .put(&format!("{PODS_PATH}/d"), pod("d", "nginx:1", json!({})));
    watch.read_until(r#""name":"d""#).await;
    drop(watch);
    another.wait_for_end().await.unwrap();
    drop(agent);
}

#[tokio::test]
async fn a_gateway_without_the_shared_secret_is_refused_by_other_gateways() {
    let zookeeper = ZooKeeperNode::create_shared("strangers").await;
    let scene = ClustersScene::start_with_peers(&zookeeper.config()).await;
    let other_secret = "a secret that is long enough, but not theirs";
    let another = scene
        .start_another_gateway(([127, 0, 0, 1], 0).into(), other_secret)
        .await;
    for gateway in [&scene.gateway, &another] {
        let wait = gateway.wait_for_status("the other gateway refuses it", |status| {
            let peers = &status["gateway"]["peers"];
            let problem = peers["gateways"][0]["problem"].as_str().unwrap_or_default();
            problem.contains("401") && problem.contains("does not know the secret") && peers["accepted"] == 0
        });
        wait.await.unwrap();
    }
    let log = format!("{:?}{:?}", scene.gateway.log(), another.log());
    assert!(!log.contains(other_secret) && !log.contains(PEER_SECRET));
}

#[tokio::test]
async fn a_replayed_request_opens_no_tunnel_between_gateways() {
    let zookeeper = ZooKeeperNode::create_shared("recorded").await;
    let scene = ClustersScene::start_with_peers(&zookeeper.config()).await;
    // The request below opens a tunnel between two gateways. It is signed with the gateways' secret, and an attacker
    // may have recorded it.
    let (id, key) = ("recorded", "AAAAAAAAAAAAAAAAAAAAAA==");
    let secret = hmac::Key::new(hmac::HMAC_SHA256, PEER_SECRET.as_bytes());
    let proof = |text: String| BASE64_STANDARD.encode(hmac::sign(&secret, text.as_bytes()));
    let url = scene.gateway.url("");
    let opens = proof(format!("opens\n{id}\n{key}\n{url}\n"));
    let request = format!(
        "GET /bcsapi/v1/websocket/connect HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
         BCS-API-Tunnel-ID: {id}\r\nBCS-API-Tunnel-Token: {opens}\r\n\r\n"
    );
    let open = async || {
        let mut wire = WireClient::open(url.trim_start_matches("http://"), &request).await;
        let head = wire.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let challenge = head
            .lines()
            .find_map(|line| line.strip_prefix("bcs-api-tunnel-challenge: "));
        (wire, challenge.unwrap().to_owned())
    };
    let answer = |challenge: &str| proof(format!("answers\n{id}\n{key}\n{url}\n{challenge}"));
    let (mut wire, challenge) = open().await;
    let recorded = answer(&challenge);
    wire.write(&text_message(&recorded)).await;
    let wait = scene.gateway.when_logged("the tunnel", |line| {
        line.message() == "another gateway has opened a tunnel"
    });
    wait.await.unwrap();
    drop(wire);

    // On each connection, the gateway sends another challenge. The recorded message answers the challenge of the old
    // connection, so the gateway refuses the message on the new connection.
    let (mut again, another) = open().await;
    assert_ne!(another, challenge);
    again.write(&text_message(&recorded)).await;
    again.read_to_end().await;
    let refused = scene.gateway.when_logged("the refusal", |line| {
        line.message() == "a gateway has opened a tunnel, but does not prove that it knows the secret"
    });
    refused.await.unwrap();
}

fn text_message(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126);
    [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat()
}
