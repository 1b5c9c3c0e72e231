//! Tests the statuses of chains that are resources, and which replica writes them.

use admittance_tests::Admittance;
use serde_json::{Value, json};

use super::{
    resources::{CHAIN_PLURAL, chain, start},
    server::{POD, Server},
};
use crate::{
    scene::source,
    setting::{Setting, wait_until},
};

const LEADER_METRIC: (&str, &[(&str, &str)]) = ("admittance_cluster_leader", &[("lease", "admittance")]);

fn condition(status: &Value, name: &str) -> (String, String) {
    let conditions = status["conditions"].as_array();
    let condition = conditions
        .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == name))
        .unwrap_or(&Value::Null);
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// Waits until the chain's status refers to this generation of the chain and has this condition. Returns the status.
async fn until_condition(
    setting: &Setting,
    name: &str,
    generation: u64,
    (kind, holds, reason): (&str, &str, &str),
) -> Value {
    let mut status = Value::Null;
    wait_until(&format!("{name}: {kind} is {holds}, {reason}"), async || {
        let stored_chain = setting.server.object(CHAIN_PLURAL, "", name).unwrap();
        status = stored_chain["status"].clone();
        status["observedGeneration"] == generation && condition(&status, kind) == (holds.to_owned(), reason.to_owned())
    })
    .await;
    status
}

async fn is_leader(program: &Admittance) -> bool {
    program.metrics().await.unwrap().sum(LEADER_METRIC.0, LEADER_METRIC.1) == Some(1.0)
}

#[tokio::test]
async fn the_status_of_a_chain_says_whether_it_is_live() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    setting.server.put(CHAIN_PLURAL, chain("zother", "other"));
    let server = start(&setting).await;
    let status = until_condition(&setting, "pods", 1, ("Live", "True", "Live")).await;
    assert_eq!(status["revision"], 1);
    for name in ["Accepted", "ModulesResolved", "Enforced"] {
        assert_eq!(condition(&status, name).0, "True", "{status}");
    }
    until_condition(&setting, "zother", 1, ("Live", "True", "Live")).await;

    let other = setting.server.object(CHAIN_PLURAL, "", "zother").unwrap();
    let mut bad = chain("pods", "second");
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    setting.server.put(CHAIN_PLURAL, bad);
    let status = until_condition(&setting, "pods", 2, ("Accepted", "False", "Invalid")).await;
    assert_eq!(
        condition(&status, "Live"),
        ("False".to_owned(), "LastVersion".to_owned())
    );
    assert!(status["mistakes"][0].to_string().contains("expression"), "{status}");
    assert_eq!(status.get("revision"), None);
    assert!(
        server
            .review("/validate", &POD.review("p1"))
            .await
            .message()
            .contains("first")
    );

    let mut audited = chain("pods", "third");
    audited["spec"]["stages"][0]["mode"] = json!("Audit");
    setting.server.put(CHAIN_PLURAL, audited);
    let status = until_condition(&setting, "pods", 3, ("Enforced", "False", "Audit")).await;
    assert_eq!((status.get("mistakes"), &status["revision"]), (None, &json!(2)));
    let disable = ["disable", "Validating:zother/deny", "--for", "1h", "--reason", "a test"];
    let disabled = server.run_command(&disable).await;
    assert_eq!(disabled.code, Some(0), "{}", disabled.stderr);
    until_condition(&setting, "zother", 1, ("Enforced", "False", "Disabled")).await;

    // A written status is a change of the resource, but the leader does not write again because of it.
    assert_eq!(setting.server.count_requests("patch", "pods/status"), 3);
    assert_eq!(setting.server.count_requests("patch", "zother/status"), 2);
    let now = setting.server.object(CHAIN_PLURAL, "", "zother").unwrap();
    for field in ["generation", "name"] {
        assert_eq!(now["metadata"][field], other["metadata"][field]);
    }
    let revision = server.program.status().await.unwrap()["revision"].clone();
    assert_eq!(revision, 2, "statuses are no changes of definitions");
}

#[tokio::test]
async fn only_one_replica_writes_statuses() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let mut first = start(&setting).await;
    until_condition(&setting, "pods", 1, ("Live", "True", "Live")).await;
    let second = start(&setting).await;
    assert!(is_leader(&first.program).await && !is_leader(&second.program).await);
    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    until_condition(&setting, "pods", 2, ("Live", "True", "Live")).await;
    second.until_revision(2).await;
    assert_eq!(setting.server.count_requests("patch", "pods/status"), 2);

    first.program.terminate().unwrap();
    first.program.wait_for_end().await.unwrap();
    wait_until("another leader", async || is_leader(&second.program).await).await;
    setting.server.put(CHAIN_PLURAL, chain("pods", "third"));
    until_condition(&setting, "pods", 3, ("Live", "True", "Live")).await;
    assert_eq!(setting.server.count_requests("patch", "pods/status"), 3);
}

/// Even a replica that starts without a history is at the same step of a rollout as the leader.
#[tokio::test]
async fn replicas_follow_the_leader_in_a_rollout() {
    let setting = Setting::new();
    let mut rolled_out = chain("pods", "first");
    let plugin = json!({"source": source("guest-misbehaves"), "settings": {"behaviour": "well-behaved"}});
    let mut candidate = plugin.clone();
    candidate["settings"]["behaviour"] = json!("traps");
    candidate["rollout"] = json!({"steps": [1, 50, 100], "pause": "1h"});
    rolled_out["spec"]["stages"] = json!([{"name": "images", "plugin": plugin, "candidate": candidate}]);
    setting.server.put(CHAIN_PLURAL, rolled_out);
    let mut first = start(&setting).await;
    until_condition(&setting, "pods", 1, ("Live", "True", "Live")).await;
    let second = start(&setting).await;
    let steer = async |server: &Server, action: &str| {
        let steered = server.run_command(&["rollout", action, "pods/images"]).await;
        assert_eq!(steered.code, Some(0), "{}", steered.stderr);
    };
    let until_at = async |server: &Server, state: &str, share: &str| {
        let is_there = |status: &Value| {
            let rollout = &status["chains"][0]["stages"][0]["candidate"]["rollout"];
            rollout["state"] == state && rollout["share"] == share
        };
        server.program.wait_for_status(share, is_there).await.unwrap();
    };
    steer(&first, "next").await;
    until_at(&second, "progressing", "50%").await;
    steer(&first, "pause").await;
    until_at(&second, "paused", "50%").await;
    wait_until("the status says so", async || {
        let status = setting.server.object(CHAIN_PLURAL, "", "pods").unwrap()["status"].clone();
        let rollout = &status["rollouts"][0];
        (&rollout["stage"], &rollout["step"], &rollout["state"])
            == (&json!("Validating:pods/images"), &json!(1), &json!("paused"))
    })
    .await;

    // After the leader stops, the next leader continues with the step that the rollout has reached.
    first.program.terminate().unwrap();
    first.program.wait_for_end().await.unwrap();
    wait_until("another leader", async || is_leader(&second.program).await).await;
    let third = start(&setting).await;
    until_at(&third, "paused", "50%").await;
    steer(&second, "abort").await;
    until_at(&third, "aborted", "0%").await;
}

#[tokio::test]
async fn a_status_that_cannot_be_written_is_retried() {
    let setting = Setting::new();
    setting.server.forbid("patch", CHAIN_PLURAL);
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let mut server = start(&setting).await;
    let logged = |line: &admittance_tests::ProgramLogLine| {
        line.message()
            .contains("the status of AdmissionChain/pods cannot be written")
            && line
                .message()
                .contains("give this program's account `patch` on `admissionchains/status`")
    };
    server.program.wait_for_log("the refusal", logged).await.unwrap();
    let metrics = server.program.metrics().await.unwrap();
    let failure_count = metrics.sum("admittance_status_writes_total", &[("result", "failed")]);
    assert!(failure_count >= Some(1.0), "{failure_count:?}");
    assert!(
        server
            .review("/validate", &POD.review("p1"))
            .await
            .message()
            .contains("first")
    );
    setting.server.allow("patch", CHAIN_PLURAL);
    until_condition(&setting, "pods", 1, ("Live", "True", "Live")).await;
}
