//! Tests clusters that are reachable only through the tunnel of their agent.

use std::{process::Stdio, sync::atomic::Ordering};

use admittance_tests::{Client, EndlessReply, Error, POLL_INTERVAL, ProgramLogLine, TEST_TIMEOUT, TunnelFlood};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinHandle,
};

use super::{
    api_server::ApiServer,
    scene::{ClustersScene, PODS_PATH, SERVICE_ACCOUNT_TOKEN, pod, port_of},
    wire::WireClient,
};

#[tokio::test]
async fn requests_watches_and_upgrades_go_through_the_tunnel() {
    let scene = ClustersScene::start_behind_tunnel().await;
    let agent = scene.start_agent().await;
    scene.until_cluster_reached().await;
    let large = json!({"large": "x".repeat(3 << 20)});
    let mut object = pod("a", "nginx:1", json!({}));
    object["metadata"]["annotations"] = large;
    assert_eq!(scene.send(Method::POST, PODS_PATH, object.clone()).await.status, 200);
    let reply = scene.send(Method::GET, &format!("{PODS_PATH}/a"), Value::Null).await;
    assert_eq!(reply.json().unwrap(), object);

    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let mut exec = scene
        .send_raw("POST", &format!("{PODS_PATH}/a/exec?command=sh"), upgrade)
        .await;
    exec.read_until("\r\n\r\n").await;
    for turn in 0..10 {
        scene.server.put(
            &format!("{PODS_PATH}/b{turn}"),
            pod(&format!("b{turn}"), "nginx:1", json!({})),
        );
        watch.read_until(&format!(r#""name":"b{turn}""#)).await;
        exec.write(format!("line {turn};").as_bytes()).await;
        exec.read_until(&format!("line {turn};")).await;
    }
    drop(watch);
    scene.server.until_watch_count(0).await;
    drop(agent);
}

#[tokio::test]
async fn an_agent_logs_why_its_report_is_refused() {
    let scene = ClustersScene::start_behind_tunnel().await;
    let mut command = scene.agent_command(&scene.gateway.url(""));
    let mut agent = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(agent.stderr.take().unwrap()).lines();
    let wait = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            assert!(!line.contains("has the cluster's credentials"), "{line}");
            if line.contains("were not reported") {
                return line;
            }
        }
    };
    let line = tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
    // Like bcs-api, the gateway replies with the status 200 to a report that it refuses. The reason is in the body.
    assert!(line.contains("200 OK") && line.contains("localServers"), "{line}");
    // The gateway has refused the addresses that the agent reported, but the agent's tunnel is open, and requests go
    // through this tunnel.
    scene.until_cluster_reached().await;
}

#[tokio::test]
async fn an_agent_follows_the_api_servers_of_its_cluster() {
    let scene = ClustersScene::start(false).await;
    let other = ApiServer::start(&scene.authority, SERVICE_ACCOUNT_TOKEN).await;
    let list = |server: &ApiServer| {
        let port: u16 = port_of(server).parse().unwrap();
        let addresses = json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port}]}]);
        let endpoints = json!({"subsets": addresses});
        scene
            .server
            .put("/api/v1/namespaces/default/endpoints/kubernetes", endpoints);
    };
    list(&other);
    let mut command = scene.listing_agent_command(&scene.gateway.url(""));
    command.args(["--no-tunnel", "--listen-addr", "127.0.0.1:0"]);
    let mut agent = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(agent.stderr.take().unwrap()).lines();
    let line = tokio::time::timeout(TEST_TIMEOUT, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["address"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });

    scene.until_cluster_reached().await;
    assert!(other.requests().iter().any(|request| request.uri.path() == "/version"));
    assert!(
        !scene
            .server
            .requests()
            .iter()
            .any(|request| request.uri.path() == "/version")
    );
    let client = Client::new().unwrap();
    let get = async |path: &str| client.get(&format!("http://{address}{path}")).await.unwrap();
    assert_eq!(get("/healthz").await.status, 200);
    assert_eq!(get("/readyz").await.status, 200);
    let metrics = get("/metrics").await.text();
    assert!(metrics.contains("\nadmittance_agent_reported 1\n"), "{metrics}");

    list(&scene.server);
    let wait = async {
        while !scene
            .server
            .requests()
            .iter()
            .any(|request| request.uri.path() == "/version")
        {
            scene.send(Method::GET, "/version", Value::Null).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
}

#[tokio::test]
async fn a_tunnel_is_reopened_after_its_agent_or_gateway_is_killed() {
    let mut scene = ClustersScene::start_behind_tunnel().await;
    let agent = scene.start_agent().await;
    scene.until_cluster_reached().await;
    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    agent.kill().await;
    watch.read_to_end().await;

    let agent = scene.start_agent().await;
    scene.until_cluster_reached().await;
    scene.restart_gateway().await;
    scene.until_cluster_reached().await;

    // Revoking the agent's register token closes its tunnel, and so the watch ends.
    let mut watch = scene.send_raw("GET", &format!("{PODS_PATH}?watch=true"), "").await;
    watch.read_until("\r\n\r\n").await;
    scene.server.until_watch_count(1).await;
    scene
        .send_to_admin("DELETE", "/v1/clusters/plain-dev/register-token", Value::Null)
        .await;
    watch.read_to_end().await;
    drop(agent);
}

#[tokio::test]
async fn a_client_that_reads_slowly_delays_no_other_client_of_a_tunnel() {
    let scene = ClustersScene::start_behind_tunnel().await;
    let agent = scene.start_agent().await;
    scene.until_cluster_reached().await;
    let mut object = pod("a", "nginx:1", json!({}));
    object["metadata"]["annotations"] = json!({"large": "x".repeat(12 << 20)});
    scene.server.put(&format!("{PODS_PATH}/a"), object);
    // A client that does not read its large reply must not block requests of others in the tunnel.
    let mut slow = scene
        .send_raw("GET", &format!("{PODS_PATH}/a"), "Connection: close\r\n")
        .await;
    for _ in 0..20 {
        let reply = tokio::time::timeout(TEST_TIMEOUT, scene.send(Method::GET, "/version", Value::Null)).await;
        assert_eq!(reply.unwrap().status, 404);
    }
    let slow_reply = slow.read_to_end().await;
    assert!(slow_reply.len() > 12 << 20, "{}", slow_reply.len());
    drop(agent);
}

/// Returns an agent of the cluster that answers every request in its tunnel with this reply.
fn flooding_agent(scene: &ClustersScene, reply: EndlessReply) -> TunnelFlood {
    TunnelFlood {
        gateway: scene.gateway_address(),
        cluster: "plain-dev".to_owned(),
        register_token: scene.register_token.clone(),
        empty_frames: 8,
        reply,
        sent_byte_count: std::sync::Arc::default(),
    }
}

/// Runs an agent that floods its tunnel, and waits until the gateway has this tunnel.
async fn start_flood(scene: &mut ClustersScene, flood: &TunnelFlood) -> JoinHandle<Result<(), Error>> {
    let flood = flood.clone();
    let flood_task = tokio::spawn(async move { flood.run().await });
    let wait = scene.gateway.wait_for_log("the tunnel", |line| {
        line.message().contains("agent of a cluster has opened a tunnel")
    });
    wait.await.unwrap();
    flood_task
}

#[tokio::test]
async fn informational_responses_through_a_tunnel_are_limited() {
    let mut scene = ClustersScene::start_behind_tunnel().await;
    let flood = flooding_agent(&scene, EndlessReply::Informational);
    let flood_task = start_flood(&mut scene, &flood).await;
    let pod = format!("{PODS_PATH}/a");
    let request = scene.send(Method::GET, &pod, Value::Null);
    let reply = tokio::time::timeout(TEST_TIMEOUT, request).await.unwrap();
    let text = reply.text();
    assert_eq!(
        (reply.status.as_u16(), text.contains("informational responses")),
        (502, true),
        "{text}"
    );
    assert!(!flood_task.is_finished(), "the tunnel stays open");
}

#[tokio::test]
async fn an_agent_that_ignores_flow_control_takes_a_bounded_amount_of_memory() {
    const MIB: u64 = 1 << 20;
    let mut scene = ClustersScene::start_behind_tunnel().await;
    let flood = flooding_agent(&scene, EndlessReply::Body);
    let flood_task = start_flood(&mut scene, &flood).await;
    let initial_memory = scene.gateway.resident_memory().unwrap();
    let mut unread = Vec::new();
    for _ in 0..64 {
        let path = format!("{}{PODS_PATH}", scene.prefix);
        unread.push(flood.watch(&path, &scene.alice).await.unwrap());
    }
    let ended_count = || {
        let log = scene.gateway.log();
        let reports_end = |line: &&ProgramLogLine| line.message().contains("a connection in a tunnel is ended");
        log.iter().filter(reports_end).count()
    };
    let mut peak_memory = initial_memory;
    let wait = async {
        // The agent sends up to 400 MiB. A gateway without a limit would keep all of it in memory.
        while ended_count() < 20 && flood.sent_byte_count.load(Ordering::Relaxed) < 400 * MIB {
            peak_memory = peak_memory.max(scene.gateway.resident_memory().unwrap());
            tokio::time::sleep(10 * POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
    let growth = (peak_memory - initial_memory) / MIB;
    assert!(growth < 160, "{growth} MiB are held of what nobody reads");
    assert!(
        ended_count() > 0 && !flood_task.is_finished(),
        "only slow readers are ended"
    );
}

#[tokio::test]
async fn an_agent_may_report_a_limited_number_of_addresses() {
    let scene = ClustersScene::start_behind_tunnel().await;
    let addresses: Vec<_> = (0..4096)
        .map(|number| format!("https://10.0.{}.{}", number / 256, number % 256))
        .collect();
    let ca = BASE64_STANDARD.encode(scene.authority.pem());
    let params = json!({"address": addresses.join(";"), "userToken": "t", "caCert": ca});
    let lines = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nBCS-API-Tunnel-Module: kubeagent\r\n\
         BCS-API-Tunnel-ClusterId: plain-dev\r\nBCS-API-Tunnel-Token: {}\r\n\
         BCS-API-Tunnel-Params: {}\r\n",
        scene.register_token,
        BASE64_STANDARD.encode(params.to_string()),
    );
    let head = format!("GET /bcsapi/v1/websocket/connect HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n");
    let mut wire = WireClient::open(&scene.gateway_address(), &head).await;
    let reply = wire.read_until("allowed").await;
    assert!(
        reply.starts_with("HTTP/1.1 400") && reply.contains("at most 2048"),
        "{reply}"
    );
}
