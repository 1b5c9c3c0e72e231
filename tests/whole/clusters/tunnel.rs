//! Clusters that the gateway cannot reach, and whose agents open tunnels.

use std::process::Stdio;

use admittance_tests::NEVER;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::scene::{PODS, Scene, pod};

#[tokio::test]
async fn requests_watches_and_upgrades_pass_the_tunnel() {
    let scene = Scene::behind_a_tunnel().await;
    let agent = scene.agent().await;
    scene.until_reached().await;
    let large = json!({"large": "x".repeat(3 << 20)});
    let mut object = pod("a", "nginx:1", json!({}));
    object["metadata"]["annotations"] = large;
    assert_eq!(scene.send(Method::POST, PODS, object.clone()).await.status, 200);
    let read = scene.send(Method::GET, &format!("{PODS}/a"), Value::Null).await;
    assert_eq!(read.json().unwrap(), object);

    let mut watch = scene.wire("GET", &format!("{PODS}?watch=true"), "").await;
    watch.until("\r\n\r\n").await;
    scene.server.until_watched(1).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let mut exec = scene
        .wire("POST", &format!("{PODS}/a/exec?command=sh"), upgrade)
        .await;
    exec.until("\r\n\r\n").await;
    for turn in 0..10 {
        scene.server.put(
            &format!("{PODS}/b{turn}"),
            pod(&format!("b{turn}"), "nginx:1", json!({})),
        );
        watch.until(&format!(r#""name":"b{turn}""#)).await;
        exec.write(format!("line {turn};").as_bytes()).await;
        exec.until(&format!("line {turn};")).await;
    }
    // Closed by the client: the API server sees it.
    drop(watch);
    scene.server.until_watched(0).await;
    drop(agent);
}

#[tokio::test]
async fn an_agent_says_why_its_report_is_refused() {
    let scene = Scene::behind_a_tunnel().await;
    let mut command = scene.agent_command(&scene.gateway.url(""));
    let mut agent = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(agent.stderr.take().unwrap()).lines();
    let refused = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            assert!(!line.contains("has the cluster's credentials"), "{line}");
            if line.contains("were not reported") {
                return line;
            }
        }
    };
    let line = tokio::time::timeout(NEVER, refused).await.unwrap();
    // With HTTP 200, as bcs-api replies.
    assert!(line.contains("200 OK") && line.contains("localServers"), "{line}");
    // The tunnel needs no report.
    scene.until_reached().await;
}

#[tokio::test]
async fn an_agent_or_a_gateway_that_is_killed_comes_back() {
    let mut scene = Scene::behind_a_tunnel().await;
    let agent = scene.agent().await;
    scene.until_reached().await;
    let mut watch = scene.wire("GET", &format!("{PODS}?watch=true"), "").await;
    watch.until("\r\n\r\n").await;
    scene.server.until_watched(1).await;
    agent.kill().await;
    watch.ended().await;

    let agent = scene.agent().await;
    scene.until_reached().await;
    scene.restart_gateway().await;
    scene.until_reached().await;

    // A register token that is revoked ends the tunnel. The addresses that were reported stay known.
    let mut watch = scene.wire("GET", &format!("{PODS}?watch=true"), "").await;
    watch.until("\r\n\r\n").await;
    scene.server.until_watched(1).await;
    scene
        .admin("DELETE", "/v1/clusters/plain-dev/register-token", Value::Null)
        .await;
    watch.ended().await;
    drop(agent);
}

#[tokio::test]
async fn a_slow_reader_does_not_hold_others_up() {
    let scene = Scene::behind_a_tunnel().await;
    let agent = scene.agent().await;
    scene.until_reached().await;
    let mut object = pod("a", "nginx:1", json!({}));
    object["metadata"]["annotations"] = json!({"large": "x".repeat(12 << 20)});
    scene.server.put(&format!("{PODS}/a"), object);
    // Reads nothing of its reply.
    let mut slow = scene
        .wire("GET", &format!("{PODS}/a"), "Connection: close\r\n")
        .await;
    for _ in 0..20 {
        let reply = tokio::time::timeout(NEVER, scene.send(Method::GET, "/version", Value::Null)).await;
        assert_eq!(reply.unwrap().status, 404);
    }
    let whole = slow.ended().await;
    assert!(whole.len() > 12 << 20, "{}", whole.len());
    drop(agent);
}
