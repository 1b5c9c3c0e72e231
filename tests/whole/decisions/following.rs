use std::process::Stdio;

use admittance_tests::Admittance;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdout},
};

use super::scene::{DecisionsScene, EventClient};
use crate::kubernetes::server::POD;

struct FollowingCommand {
    child: Child,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl FollowingCommand {
    async fn start(scene: &DecisionsScene, arguments: &[&str]) -> Self {
        let mut command = Admittance::command().unwrap();
        command
            .args(["decisions", "--follow", "--output", "json"])
            .args(arguments)
            .args(["--server", &scene.0.program.admin_url("")]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn next_uid(&mut self) -> String {
        let line = self.lines.next_line().await.unwrap().unwrap();
        let decision: Value = serde_json::from_str(&line).unwrap();
        decision["uid"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn commands_that_follow_decisions_get_new_decisions() {
    let mut scene = DecisionsScene::start("").await;
    scene.create("a", "img:1").await;
    scene.create("b", "img:latest").await;
    let mut all = FollowingCommand::start(&scene, &["--since", "1h"]).await;
    let mut refused = FollowingCommand::start(&scene, &["--limit", "1", "--verdict", "refused"]).await;
    // Each command first prints the earlier decisions. By then, it is connected to the driver, and will print every new
    // decision. So the test reads these lines of both commands before it sends the next request.
    assert_eq!(
        (all.next_uid().await, all.next_uid().await),
        ("a".to_owned(), "b".to_owned())
    );
    assert_eq!(refused.next_uid().await, "b");
    scene.create("c", "img:2").await;
    scene.create("d", "img:latest").await;
    assert_eq!(
        (all.next_uid().await, all.next_uid().await),
        ("c".to_owned(), "d".to_owned())
    );
    assert_eq!(refused.next_uid().await, "d");

    scene.0.program.terminate().unwrap();
    let output = all.child.wait_with_output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("the driver stops"), "{errors}");
    scene
        .0
        .program
        .wait_for_log("the end", |line| line.message().starts_with("stopped"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_that_reconnects_gets_the_decisions_that_it_missed() {
    let scene = DecisionsScene::start("").await;
    for uid in ["a", "b", "c"] {
        scene.create(uid, "img:1").await;
    }
    let list = scene.json_of(&["decisions"]).await;
    let id = list["decisions"][0]["id"].to_string();
    let header = format!("Last-Event-ID: {id}\r\n");
    let mut client = EventClient::open(&scene, "/v1/decisions/events", &header).await;
    assert_eq!(
        client.read_until("content-type").await,
        "content-type: text/event-stream"
    );
    for (uid, index) in [("b", 1), ("c", 2)] {
        assert_eq!(client.read_until("event").await, "event: decision");
        let id = client.read_until("id").await;
        assert_eq!(id, format!("id: {}", list["decisions"][index]["id"]));
        let data = client.read_until("data").await;
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["uid"], uid);
    }
    let mut wrong = EventClient::open(&scene, "/v1/decisions/events", "Last-Event-ID: x\r\n").await;
    assert!(wrong.read_until("HTTP").await.contains("400"));
}

#[tokio::test]
async fn a_slow_client_gets_the_number_of_missed_decisions_and_delays_no_other_client() {
    let scene = DecisionsScene::start("decisions: { memory: { count: 10 } }").await;
    let mut slow = EventClient::open(&scene, "/v1/decisions/events", "").await;
    slow.read_until("content-type").await;
    // The next hundred decisions exceed the socket's buffers, so the slow client, which does not read, misses some.
    let mut review = POD.review("large");
    review["request"]["object"]["metadata"]["annotations"] = json!({"well-behaved": "false"});
    review["request"]["userInfo"]["groups"] = json!(vec!["g".repeat(1000); 200]);
    for _ in 0..100 {
        scene.review(&review).await;
    }
    let missed = slow.read_until("event: missed").await;
    assert_eq!(missed, "event: missed");
    let data = slow.read_until("data").await;
    let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert!(data["missed"].as_u64().unwrap() > 0);
    assert_eq!(scene.list_uids(&[]).await.len(), 10);
}
