//! Tests replicas that start to use each change of the definitions at the same time.

mod balancer;
mod under_load;

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    resources::{CHAIN_PLURAL, chain, start, start_with_resources},
    server::{POD, Server},
};
use crate::{
    replicas::{own_name, replica_status, until_ready, until_replicas_known, until_waiting},
    setting::{Setting, wait_until},
};

/// The time after which the Lease of a replica expires unless the replica renews it.
const EXPIRY: SignedDuration = SignedDuration::from_secs(15);

/// A replica that has prepared a new table must soon serve it. In the time between, the replica may renew its Lease at
/// most this many times.
const MAX_LATE_RENEWALS: usize = 2;

fn annotation<'a>(lease: &'a Value, name: &str) -> Option<&'a str> {
    lease["metadata"]["annotations"][format!("admittance.dev/{name}")].as_str()
}

/// Returns whether a replica reports that it serves this table, or could serve it at once.
fn can_serve(lease: &Value, table: Option<&str>) -> bool {
    ["live", "prepared", "earlier"]
        .into_iter()
        .any(|name| annotation(lease, name) == table)
}

fn renewal_time(lease: &Value) -> Timestamp {
    lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap()
}

/// Checks all versions of all Leases in the order of their writes, and returns how many targets the leader published. A
/// target is the table that all replicas are to serve. These are the rules:
/// - A table becomes the target only when all replicas that serve the previous target have prepared it.
/// - A replica serves a table only after it has become the target, and then soon.
/// - A replica never returns to an earlier target.
fn check_order(setting: &Setting) -> usize {
    let mut targets: Vec<Option<String>> = Vec::new();
    // The last two versions of each replica's Lease. The leader may have seen only the first of them.
    let mut replicas: BTreeMap<String, (Option<Value>, Value)> = BTreeMap::new();
    // For each replica, the position in `targets` of the target that the replica serves.
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    let mut late_renewals: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, lease) in setting.server.history("leases") {
        let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
        if name == "admittance" {
            let now = annotation(&lease, "target").map(str::to_owned);
            let target = targets.last().cloned().flatten();
            if now != target {
                let (before, new) = (target.as_deref(), now.as_deref());
                // The leader knows its own state before it has written this state to its Lease, so its Lease may be out
                // of date when it chooses a new target. That is why only the Leases of the other replicas are checked.
                let leader = &lease["spec"]["holderIdentity"];
                let is_known =
                    |previous: &Option<Value>| previous.as_ref().is_some_and(|lease| can_serve(lease, before));
                let serving = replicas
                    .values()
                    .filter(|(previous, _)| before.is_some() && is_known(previous))
                    .map(|(_, replica)| replica)
                    .filter(|replica| annotation(replica, "live") == before)
                    .filter(|replica| replica["spec"]["holderIdentity"] != *leader)
                    .filter(|replica| renewal_time(&lease).duration_since(renewal_time(replica)) < EXPIRY);
                for replica in serving {
                    assert!(
                        can_serve(replica, new),
                        "{new:?} is the target, and {replica} has not prepared it"
                    );
                }
                targets.push(now);
                late_renewals.clear();
            }
            continue;
        }
        if kind == "DELETED" {
            replicas.remove(&name);
            positions.remove(&name);
            continue;
        }
        let target = targets.last().and_then(Option::as_deref);
        // `before` is the table that the replica served according to the previous version of its Lease. It is `None` if
        // the Lease is new.
        let before = replicas.get(&name).and_then(|(_, before)| annotation(before, "live"));
        let live = annotation(&lease, "live");
        let serves = |target: &Option<String>| target.as_deref() == live;
        if before.is_none() {
            let position = targets.iter().rposition(serves);
            positions.extend(position.map(|position| (name.clone(), position)));
        } else if before != live {
            let next = positions.get(&name).map_or(0, |position| position + 1);
            let Some(further) = targets.iter().skip(next).position(serves) else {
                panic!("{name} serves {live:?} after {before:?}, and the targets were {targets:?}")
            };
            positions.insert(name.clone(), next + further);
        }
        let is_waiting = ["prepared", "earlier"]
            .into_iter()
            .any(|name| annotation(&lease, name) == target);
        if target.is_some() && before == live && live.is_some() && live != target && is_waiting {
            let renewals = late_renewals.entry(name.clone()).or_default();
            *renewals += 1;
            assert!(
                *renewals <= MAX_LATE_RENEWALS,
                "{name} has {target:?} and does not serve it"
            );
        }
        let previous = replicas.remove(&name).map(|(_, before)| before);
        replicas.insert(name, (previous, lease));
    }
    targets.len()
}

/// Returns the message with which the chain `pods` of this replica denies a Pod.
async fn denial_message(server: &Server) -> String {
    let verdict = server.review("/validate/pods", &POD.review("p1")).await;
    verdict.message().to_owned()
}

async fn until_message(server: &Server, text: &str) {
    wait_until(text, async || denial_message(server).await.contains(text)).await;
}

async fn start_three(setting: &Setting) -> [Server; 3] {
    let servers = [start(setting).await, start(setting).await, start(setting).await];
    for server in &servers {
        until_ready(&server.program).await;
    }
    until_replicas_known(&servers[0].program, 3).await;
    servers
}

#[tokio::test]
async fn a_hanging_replica_delays_the_other_replicas_and_is_reported_by_name() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let first = start(&setting).await;
    until_ready(&first.program).await;
    let mut slow = start(&setting).await;
    until_ready(&slow.program).await;
    let name = own_name(&slow.program).await;
    until_replicas_known(&first.program, 2).await;

    slow.program.suspend().unwrap();
    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    let waiting = until_waiting(&first.program, &name).await;
    assert!(waiting.contains("has not prepared"), "{waiting}");
    assert!(denial_message(&first).await.contains("first"));
    let status_output = first.run_command(&["status", "--fleet"]).await;
    assert!(
        status_output.stdout.contains("a change waits:") && status_output.stdout.contains(&name),
        "{}",
        status_output.stdout
    );
    let metrics = first.program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_replicas_waiting", &[]), Some(1.0));
    slow.program.resume().unwrap();
    for server in [&first, &slow] {
        until_message(server, "second").await;
    }

    // A replica that shuts down gives up its Lease, so the others do not wait for it.
    slow.program.terminate().unwrap();
    slow.program.wait_for_end().await.unwrap();
    setting.server.put(CHAIN_PLURAL, chain("pods", "third"));
    until_message(&first, "third").await;
    check_order(&setting);
}

#[tokio::test]
async fn replicas_keep_serving_after_a_kill_and_without_the_api_server() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let [mut leader, mut second, third] = start_three(&setting).await;

    second.program.suspend().unwrap();
    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    until_waiting(&leader.program, "has not prepared").await;
    wait_until("the Lease of the leader says what is prepared", async || {
        let replicas = replica_status(&third.program).await;
        let mut known_replicas = replicas["replicas"].as_array().into_iter().flatten();
        known_replicas.any(|replica| replica["leader"] == true && replica["prepared"] != replica["live"])
    })
    .await;
    leader.program.kill().await.unwrap();
    second.program.resume().unwrap();
    for server in [&second, &third] {
        until_message(server, "second").await;
    }

    // While the API server is down, replicas answer reviews, but no change goes live.
    setting.server.become_unavailable();
    setting.server.put(CHAIN_PLURAL, chain("pods", "third"));
    for server in [&second, &third] {
        assert!(denial_message(server).await.contains("second"));
        assert!(server.program.is_ready().await);
    }
    setting.server.become_available();
    for server in [&second, &third] {
        until_message(server, "third").await;
    }

    // By the time a new replica is ready, it serves the table that the other replicas serve.
    let new = start(&setting).await;
    until_ready(&new.program).await;
    assert!(denial_message(&new).await.contains("third"));
    second.program.kill().await.unwrap();
    check_order(&setting);
}

#[tokio::test]
async fn a_rollback_applies_to_all_replicas() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let servers = [start(&setting).await, start(&setting).await];
    for server in &servers {
        until_ready(&server.program).await;
    }
    for server in &servers {
        until_replicas_known(&server.program, 2).await;
    }
    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    for server in &servers {
        until_message(server, "second").await;
    }
    let rollback_output = servers[0].run_command(&["rollback", "1"]).await;
    assert_ne!(
        rollback_output.code,
        Some(0),
        "{}{}",
        rollback_output.stdout,
        rollback_output.stderr
    );
    assert!(
        rollback_output.stderr.contains("roll back each of them"),
        "{}",
        rollback_output.stderr
    );
    assert!(denial_message(&servers[0]).await.contains("second"));
    let rollback_output = servers[1].run_command(&["rollback", "1"]).await;
    assert_eq!(
        rollback_output.code,
        Some(0),
        "{}{}",
        rollback_output.stdout,
        rollback_output.stderr
    );
    for server in &servers {
        until_message(server, "first").await;
        assert!(server.program.is_ready().await);
    }
    check_order(&setting);
}

#[tokio::test]
async fn a_replica_with_another_table_is_not_ready_and_is_reported_by_name() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let namespaced = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "NamespacedAdmissionChain",
        "metadata": {"name": "own", "namespace": "test"},
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": "deny", "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/"}}],
        },
    });
    let allowing = [
        start_with_resources(&setting, "namespaced: { webhooks: Any }", "").await,
        start_with_resources(&setting, "namespaced: { webhooks: Any }", "").await,
    ];
    for server in &allowing {
        until_ready(&server.program).await;
    }
    // The configuration of this replica does not allow the chain, so the replica rejects it and the others wait.
    let mut strict = start(&setting).await;
    until_ready(&strict.program).await;
    let name = own_name(&strict.program).await;
    until_replicas_known(&allowing[0].program, 3).await;
    setting.server.put("namespacedadmissionchains", namespaced);
    let waiting = until_waiting(&allowing[0].program, "webhooks").await;
    assert!(waiting.contains(&format!("{name} has not prepared")), "{waiting}");
    let logged = |line: &admittance_tests::ProgramLogLine| {
        line.message().contains("a change waits") && line.message().contains(&name)
    };
    let mark = admittance_tests::Mark::START;
    let chains = async |server: &Server| {
        let status = server.program.status().await.unwrap();
        status["chains"].as_array().unwrap().len()
    };
    for server in &allowing {
        server
            .program
            .wait_for_log_after(mark, "who is waited for", logged)
            .await
            .unwrap();
        assert_eq!(chains(server).await, 1);
    }
    strict.program.terminate().unwrap();
    strict.program.wait_for_end().await.unwrap();
    for server in &allowing {
        wait_until("the chain of the namespace is live", async || chains(server).await == 2).await;
    }
    // The new replica cannot use the chain, so it does not become ready, but the others do not wait for it.
    let late_server = start(&setting).await;
    let knows_target = async || replica_status(&late_server.program).await["target"] != Value::Null;
    wait_until("it knows what the others serve", knows_target).await;
    let answer = late_server
        .client
        .get(&late_server.program.admin_url("/readyz"))
        .await
        .unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json().unwrap()["reason"], "the replicas serve another table");
    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    for server in &allowing {
        until_message(server, "second").await;
    }
    check_order(&setting);
}
