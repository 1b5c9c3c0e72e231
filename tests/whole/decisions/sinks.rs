use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use admittance_tests::Admittance;
use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::scene::{CONFIG, DecisionsScene, uids, until_lines, write_tokens};
use crate::kubernetes::server::{POD, Server};

#[tokio::test]
async fn decisions_on_disk_survive_a_restart() {
    let decisions = "decisions: { share: 0%, objects: true, sqlite: { file: decisions.db } }";
    let mut scene = DecisionsScene::start(decisions).await;
    // This request is allowed without a change. `share: 0%` means that the program writes no decisions about such
    // requests to disk.
    let mut unchanged = POD.review("unchanged");
    unchanged["request"]["object"]["metadata"]["annotations"] = json!({"well-behaved": "true"});
    assert_eq!(scene.review(&unchanged).await.patch(), None);
    scene.create("good", "img:1").await;
    scene.create("bad", "img:latest").await;
    assert_eq!(scene.list_uids(&[]).await, ["unchanged", "good", "bad"]);
    scene.0.program.terminate().unwrap();
    scene
        .0
        .program
        .wait_for_log("the end", |line| line.message().starts_with("stopped"))
        .await
        .unwrap();
    let mode = scene.path("decisions.db").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let Server { directory, program, .. } = scene.0;
    drop(program);
    let scene = DecisionsScene::start_in(directory, decisions).await;
    scene.create("new", "img:2").await;
    assert_eq!(scene.list_uids(&[]).await, ["good", "bad", "new"]);
    assert_eq!(
        scene.list_uids(&["--verdict", "refused", "--chain", "pods"]).await,
        ["bad"]
    );
    assert_eq!(scene.list_uids(&["--limit", "2"]).await, ["bad", "new"]);
    let explained = scene.json_of(&["explain", "good"]).await;
    assert_eq!(
        explained["decisions"][0]["result"]["metadata"]["annotations"]["well-behaved"],
        "true"
    );
    let replayed = scene.stdout_of(&["explain", "bad", "--replay"]).await;
    assert!(replayed.contains("the same"), "{replayed}");
    let page = scene.get("/v1/decisions?limit=1").await.json().unwrap();
    let next = scene
        .get(&format!("/v1/decisions?limit=2&before={}", page["next"]))
        .await;
    assert_eq!(
        uids(next.json().unwrap()["decisions"].as_array().unwrap()),
        ["bad", "good"]
    );
}

#[tokio::test]
async fn a_file_of_decisions_is_rotated_by_renaming_it() {
    let scene = DecisionsScene::start("decisions: { ndjson: { file: decisions.ndjson } }").await;
    let (path, rotated) = (scene.path("decisions.ndjson"), scene.path("decisions.ndjson.1"));
    scene.create("a", "img:1").await;
    until_lines(&path, 1).await;
    fs::rename(&path, &rotated).unwrap();
    let id = Pid::from_raw(scene.0.program.id().unwrap().cast_signed()).unwrap();
    kill_process(id, Signal::HUP).unwrap();
    scene.create("b", "img:1").await;
    let text = until_lines(&path, 1).await;
    let line: Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!((&line["uid"], &line["verdict"]), (&json!("b"), &json!("changed")));
    assert_eq!(fs::read_to_string(&rotated).unwrap().lines().count(), 1);
    let metrics = scene.0.program.metrics().await.unwrap();
    let labels = [("sink", "ndjson")];
    assert_eq!(metrics.sum("admittance_decisions_dropped_total", &labels), Some(0.0));
}

#[tokio::test]
async fn decisions_are_sent_to_a_server_with_the_configured_token() {
    let deliveries = Arc::new(Mutex::new(Vec::<(String, String)>::new()));
    let sink_deliveries = deliveries.clone();
    let take = post(async move |headers: HeaderMap, body: Bytes| {
        let token = headers["authorization"].to_str().unwrap().to_owned();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let mut guard = sink_deliveries.lock().unwrap();
        guard.push((token, text));
        // The sink's server replies to the first attempt with an error, so the program has to try again.
        if guard.len() == 1 {
            http::StatusCode::SERVICE_UNAVAILABLE
        } else {
            http::StatusCode::OK
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, Router::new().route("/in", take)).await });
    let directory = tempfile::tempdir().unwrap();
    write_tokens(&directory);
    let additions = format!("decisions: {{ http: {{ url: \"http://{address}/in\", tokenFile: reader }} }}");
    let scene = DecisionsScene::start_in(directory, &additions).await;
    scene.create("a", "img:1").await;
    scene.create("b", "img:latest").await;
    let lines = loop {
        let second = deliveries.lock().unwrap().get(1).cloned();
        if let Some((token, lines)) = second {
            assert_eq!(token, "Bearer reader-token-0123456789");
            break lines;
        }
        tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
    };
    let decisions: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(uids(&decisions), ["a", "b"]);
    let metrics = scene.0.program.metrics().await.unwrap();
    let failures = metrics.sum("admittance_decision_write_failures_total", &[("sink", "http")]);
    assert_eq!(failures, Some(1.0));
    server.abort();
}

#[tokio::test]
async fn a_decision_database_that_cannot_be_opened_is_reported_at_startup() {
    let directory = tempfile::tempdir().unwrap();
    let config_path = directory.path().join("admittance.yaml");
    let additions = "decisions: { sqlite: { file: none/decisions.db } }";
    fs::write(
        &config_path,
        format!("{}{additions}", CONFIG.replace("definitions: [chains.yaml]", "")),
    )
    .unwrap();
    let config = config_path.to_str().unwrap();
    let finished = Admittance::run(["serve", "--listen", "127.0.0.1:0", "--config", config])
        .await
        .unwrap();
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("none/decisions.db: No such file"),
        "{}",
        finished.stderr
    );
}
