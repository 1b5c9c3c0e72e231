//! Tests rollouts of candidates in replicas that go live together.

use serde_json::{Value, json};

use super::{
    resources::{CHAIN_PLURAL, chain, start, start_with_definitions},
    server::{POD, Server},
};
use crate::{
    replicas::{own_name, until_ready, until_replicas_known},
    scene::{source, write},
    setting::{Setting, wait_until},
};

pub(super) const STAGE: &str = "pods/images";

/// Returns a chain with this rollout and a candidate that always fails.
pub(super) fn rollout_chain(rollout: &Value) -> Value {
    let mut chain = chain("pods", "");
    let plugin = json!({"source": source("guest-misbehaves"), "settings": {"behaviour": "well-behaved"}});
    let mut candidate = plugin.clone();
    candidate["settings"]["behaviour"] = json!("traps");
    candidate["rollout"] = rollout.clone();
    chain["spec"]["phase"] = json!("Mutating");
    chain["spec"]["stages"] = json!([{"name": "images", "plugin": plugin, "candidate": candidate}]);
    chain
}

async fn rollout_status(server: &Server) -> Value {
    let status = server.program.status().await.unwrap();
    status["chains"][0]["stages"][0]["candidate"]["rollout"].clone()
}

async fn until_rollout_at(servers: &[&Server], state: &str, share: &str) {
    for server in servers {
        wait_until(&format!("{state} {share}"), async || {
            let rollout = rollout_status(server).await;
            rollout["state"] == state && rollout["share"] == share
        })
        .await;
    }
}

async fn steer(server: &Server, action: &str) {
    let steered = server.run_command(&["rollout", action, STAGE]).await;
    assert_eq!(steered.code, Some(0), "{}", steered.stderr);
}

async fn start_three(start: impl AsyncFn() -> Server) -> [Server; 3] {
    let servers = [start().await, start().await, start().await];
    for server in &servers {
        until_ready(&server.program).await;
        until_replicas_known(&server.program, 3).await;
    }
    servers
}

/// Checks that a command to one replica steers the rollout in all, and that a limit reached in one aborts it in all.
async fn check_shared(servers: &[Server; 3]) {
    let [first, second, third] = servers;
    let all = [first, second, third];
    until_rollout_at(&all, "progressing", "50%").await;
    steer(third, "next").await;
    until_rollout_at(&all, "progressing", "100%").await;
    steer(second, "pause").await;
    until_rollout_at(&all, "paused", "100%").await;
    // Only the last replica gets requests. It reports the failures of the candidate to the others.
    let name = own_name(&third.program).await;
    wait_until("the rollout is aborted", async || {
        third.review("/mutate", &POD.review("p1")).await.is_allowed()
    })
    .await;
    until_rollout_at(&all, "aborted", "0%").await;
    for other in [first, second] {
        let reason = rollout_status(other).await["reason"].to_string();
        let expected = format!("the candidate failed for 3 of 3 requests; the limit is 3 (in replica {name})");
        assert!(reason.contains(&expected), "{reason}");
        assert!(other.review("/mutate", &POD.review("p2")).await.is_allowed());
    }
    steer(second, "resume").await;
    until_rollout_at(&all, "progressing", "50%").await;
    steer(first, "abort").await;
    until_rollout_at(&all, "aborted", "0%").await;
}

fn uid_rollout_chain() -> Value {
    rollout_chain(&json!({"steps": [50, 100], "by": "uid", "pause": "1h", "abortOn": {"failures": 3}}))
}

#[tokio::test]
async fn replicas_agree_on_a_rollout_defined_in_a_resource() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, uid_rollout_chain());
    let servers = start_three(async || start(&setting).await).await;
    check_shared(&servers).await;
    wait_until("the status says so", async || {
        let status = setting.server.object(CHAIN_PLURAL, "", "pods").unwrap()["status"].clone();
        status["rollouts"][0]["state"] == "aborted" && status["rollouts"][0]["attempt"] == 1
    })
    .await;
}

#[tokio::test]
async fn replicas_agree_on_a_rollout_defined_in_a_file() {
    let setting = Setting::new();
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "pods.yaml", uid_rollout_chain().to_string());
    let definitions = format!("definitions: [ {{ kubernetes: {{}} }}, {} ]", file.display());
    let servers = start_three(async || start_with_definitions(&setting, &definitions).await).await;
    check_shared(&servers).await;
}

/// The leader is killed while a step of the rollout lasts. The replicas stay at this step until a new leader continues.
#[tokio::test]
async fn the_next_leader_continues_a_rollout() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let [mut leader, second, third] = start_three(async || start(&setting).await).await;
    setting
        .server
        .put(CHAIN_PLURAL, rollout_chain(&json!({"steps": [1, 100], "pause": "10s"})));
    until_rollout_at(&[&leader, &second, &third], "progressing", "1%").await;
    leader.program.kill().await.unwrap();
    for server in [&second, &third] {
        wait_until("the next step", async || {
            rollout_status(server).await["share"] == "100%"
        })
        .await;
        let log = server.program.log();
        let steps = log.iter().filter(|line| line.field("action") == "rollout");
        let steps: Vec<_> = steps.map(|line| line.field("share")).take(2).collect();
        assert_eq!(steps, ["1%", "100%"]);
    }
}
