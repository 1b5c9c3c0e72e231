//! Tests the Kubernetes Events about denied requests and changes of chains.

use serde_json::{Value, json};

use super::{
    resources::{CHAIN_PLURAL, chain, start, start_with_additions},
    rollouts::{STAGE, rollout_chain},
    server::{POD, ReviewedResource, Server},
};
use crate::setting::{Setting, wait_until};

const EVENTS_CONFIG: &str = "decisions: { events: true }";

fn setting_with_chain() -> Setting {
    let setting = Setting::new();
    let namespace = json!({"metadata": {"name": "test"}});
    setting.server.put("namespaces", namespace);
    let mut chain = chain("pods", "not allowed here");
    chain["metadata"]["uid"] = json!("chain-uid");
    chain["spec"]["rules"] = json!([{"operations": ["*"], "resources": ["pods", "secrets"]}]);
    setting.server.put(CHAIN_PLURAL, chain);
    setting
}

async fn until_events(setting: &Setting, reason: &str, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    wait_until(&format!("{count} events: {reason}"), async || {
        events = setting.server.objects("events");
        events.retain(|event| event["reason"] == reason);
        events.len() == count
    })
    .await;
    events
}

async fn decision_metric(server: &Server, metric: &str) -> f64 {
    let metrics = server.program.metrics().await.unwrap();
    let name = format!("admittance_decision{metric}_total");
    metrics.sum(&name, &[("sink", "events")]).unwrap_or_default()
}

#[tokio::test]
async fn denials_are_reported_as_kubernetes_events() {
    let setting = setting_with_chain();
    let server = start_with_additions(&setting, EVENTS_CONFIG).await;
    // The object of the request does not exist yet, so the Event about its denial refers to the namespace.
    assert!(!server.review("/validate", &POD.review("p1")).await.is_allowed());
    let created = until_events(&setting, "Denied", 1).await.remove(0);
    let regarding = json!({"apiVersion": "v1", "kind": "Namespace", "name": "test", "namespace": "test"});
    let related = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "test"});
    assert_eq!((&created["regarding"], &created["related"]), (&regarding, &related));
    assert_eq!(
        (&created["type"], &created["action"]),
        (&json!("Warning"), &json!("Create"))
    );
    assert_eq!(created["reportingController"], "admittance.dev/admittance");
    let note = created["note"].as_str().unwrap();
    assert!(note.starts_with("Pod web, requested by alice: "), "{note}");
    assert!(note.contains("not allowed here"), "{note}");

    server.review("/validate", &POD.review("p2")).await;
    wait_until("a series", async || {
        setting
            .server
            .objects("events")
            .iter()
            .any(|event| event["series"]["count"] == 2)
    })
    .await;

    let mut update = ReviewedResource {
        operation: "UPDATE",
        ..POD
    }
    .review("p3");
    update["request"]["oldObject"]["metadata"]["uid"] = json!("pod-uid");
    let mut dry_run = ReviewedResource {
        operation: "UPDATE",
        ..POD
    }
    .review("p4");
    dry_run["request"]["dryRun"] = json!(true);
    dry_run["request"]["oldObject"]["metadata"]["uid"] = json!("dry-uid");
    let mut secret = ReviewedResource {
        resource: "/v1/secrets",
        kind: "Secret",
        ..POD
    }
    .review("p5");
    secret["request"]["object"]["data"] = json!({"key": "c2VjcmV0"});
    for review in [dry_run, update, secret] {
        assert!(!server.review("/validate", &review).await.is_allowed());
    }
    let denied = until_events(&setting, "Denied", 3).await;
    let of = |kind: &str| {
        let concerns_kind = |event: &&Value| event["regarding"]["kind"] == kind || event["related"]["kind"] == kind;
        denied.iter().rev().find(concerns_kind).unwrap()
    };
    let uids: Vec<_> = denied.iter().map(|event| &event["regarding"]["uid"]).collect();
    assert!(
        uids.contains(&&json!("pod-uid")) && !uids.contains(&&json!("dry-uid")),
        "{uids:?}"
    );
    assert_eq!(
        of("Secret")["note"],
        "Secret web, requested by alice: denied by stage deny of chain pods"
    );
    // The program counts a decision as written when the API server has accepted the Event about it.
    wait_until("four decisions are written", async || {
        decision_metric(&server, "s_written").await == 4.0
    })
    .await;
    assert_eq!(decision_metric(&server, "s_dropped").await, 0.0);
}

#[tokio::test]
async fn kubernetes_events_are_rate_limited_and_delay_no_request() {
    let setting = setting_with_chain();
    let mut server = start_with_additions(&setting, EVENTS_CONFIG).await;
    setting.server.hold("create", "events");
    for number in 0..12 {
        let review = POD.review(&format!("p{number}"));
        assert!(!server.review("/validate", &review).await.is_allowed());
    }
    wait_until("the rest is dropped", async || {
        decision_metric(&server, "s_dropped").await == 7.0
    })
    .await;
    assert_eq!(decision_metric(&server, "s_written").await, 0.0);
    setting.server.release("create", "events");
    wait_until("the first ones are written", async || {
        decision_metric(&server, "s_written").await == 5.0
    })
    .await;

    // The program is not allowed to write Events, but answers requests nevertheless.
    setting.server.forbid("create", "events");
    let delete = ReviewedResource {
        operation: "DELETE",
        ..POD
    };
    let mut review = delete.review("d1");
    review["request"]["name"] = json!("other");
    assert!(!server.review("/validate", &review).await.is_allowed());
    let logged = |line: &admittance_tests::ProgramLogLine| {
        line.message()
            .contains("an event for a denied request cannot be written")
            && line
                .message()
                .contains("give this program's account `create` and `patch` on `events`")
    };
    server.program.wait_for_log("the refusal", logged).await.unwrap();
    assert_eq!(decision_metric(&server, "_write_failures").await, 1.0);
}

#[tokio::test]
async fn changes_of_chains_are_reported_as_kubernetes_events() {
    let setting = setting_with_chain();
    let _server = start_with_additions(&setting, "").await;
    let live = until_events(&setting, "Live", 1).await.remove(0);
    let regarding = json!({
        "apiVersion": "admittance.dev/v1alpha1", "kind": "AdmissionChain", "name": "pods", "uid": "chain-uid",
    });
    assert_eq!(live["regarding"], regarding);
    assert_eq!(
        (&live["type"], &live["metadata"]["namespace"]),
        (&json!("Normal"), &json!("default"))
    );
    assert_eq!(live["note"], "generation 1 is live since revision 1");
    let mut bad = chain("pods", "second");
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    setting.server.put(CHAIN_PLURAL, bad);
    let refused = until_events(&setting, "Refused", 1).await.remove(0);
    assert_eq!(refused["type"], "Warning");
    assert!(refused["note"].to_string().contains("expression"), "{refused}");
}

#[tokio::test]
async fn the_end_of_a_rollout_is_reported_as_a_kubernetes_event() {
    let setting = Setting::new();
    let rollout = json!({"percent": 100, "pause": "1h", "abortOn": {"failures": 1}});
    let mut chain = rollout_chain(&rollout);
    chain["metadata"]["uid"] = json!("chain-uid");
    setting.server.put(CHAIN_PLURAL, chain);
    let server = start(&setting).await;
    until_events(&setting, "Live", 1).await;
    wait_until("the rollout is aborted", async || {
        server.review("/mutate", &POD.review("p1")).await.is_allowed()
    })
    .await;
    let aborted = until_events(&setting, "RolloutAborted", 1).await.remove(0);
    assert_eq!(
        (&aborted["type"], &aborted["action"], &aborted["regarding"]["uid"]),
        (&json!("Warning"), &json!("Abort"), &json!("chain-uid"))
    );
    assert_eq!(
        aborted["note"],
        "the plugin of Mutating:pods/images decides all requests again: the candidate failed for 1 of 1 requests; the \
         limit is 1"
    );

    for action in ["resume", "next"] {
        let steered = server.run_command(&["rollout", action, STAGE]).await;
        assert_eq!(steered.code, Some(0), "{}", steered.stderr);
    }
    let completed = until_events(&setting, "RolloutCompleted", 1).await.remove(0);
    assert_eq!(completed["type"], "Normal");
    assert_eq!(
        completed["note"],
        "the rollout of the candidate of Mutating:pods/images is completed: it can be promoted"
    );
}
