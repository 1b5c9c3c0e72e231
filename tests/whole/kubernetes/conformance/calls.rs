//! Tests connections and timeouts of webhook calls, and requests for which no webhook is called.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use tokio::task::JoinSet;

use super::assert_rows;
use crate::kubernetes::{
    hooks::{Arrivals, HookAnswer, HookCall, Hooks, configuration, rule},
    server::{POD, ReviewedResource, Server, review_request},
};

const CALL_COUNT: usize = 10;

async fn answer_together(_: HookCall, mut arrivals: Arrivals) -> HookAnswer {
    let arrived = arrivals.count("/together");
    arrivals
        .wait_for("/together", arrived.next_multiple_of(CALL_COUNT))
        .await;
    HookAnswer::allow()
}

/// Sends a review to each of these chains in turn. Returns the index of each webhook call's connection.
async fn connections_one_by_one(server: &Server, hooks: &Hooks, chains: &[&str]) -> Vec<usize> {
    for chain in chains {
        let verdict = server.review(&format!("/validate/{chain}"), &POD.review(chain)).await;
        assert!(verdict.is_allowed(), "{chain}: {verdict:?}");
    }
    hooks.calls("/").iter().map(|call| call.connection).collect()
}

#[tokio::test]
async fn webhook_connections_are_pooled_by_server_and_authority() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start_with_protocols(&["h2"], directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let at_url = json!({"clientConfig": hooks.client_by_url("/allow")});
    let documents = configuration("Validating", "c3.1", &[hooks.webhook("a", "/allow", &json!({}))])
        + &*configuration("Validating", "c3.2", &[hooks.webhook("a", "/other", &json!({}))])
        + &*configuration("Validating", "c3.3", &[hooks.webhook("b", "/allow", &json!({}))])
        + &*configuration("Validating", "c3.4", &[hooks.webhook("a", "", &at_url)])
        + &*configuration("Validating", "c3.5", &[hooks.webhook("a", "", &at_url)]);
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    let rows = ["c3.1", "c3.2", "c3.3", "c3.4", "c3.5"];
    assert_eq!(connections_one_by_one(&server, &hooks, &rows).await, [0, 0, 0, 1, 1]);
    assert_rows("C3", ["C3.1", "C3.2", "C3.3", "C3.4", "C3.5"]);
}

/// Sends concurrent reviews. Returns the indices of the connections on which the webhook was called.
async fn connections_at_once(server: &Arc<Server>, hooks: &Hooks) -> BTreeSet<usize> {
    let earlier_count = hooks.calls("/").len();
    let mut tasks = JoinSet::new();
    for number in 0..CALL_COUNT {
        let server = server.clone();
        tasks.spawn(async move {
            let review = POD.review(&format!("u{number}"));
            assert!(server.review("/validate/together", &review).await.is_allowed());
        });
    }
    tasks.join_all().await;
    let calls = hooks.calls("/");
    assert_eq!(calls.len(), earlier_count + CALL_COUNT);
    calls[earlier_count..].iter().map(|call| call.connection).collect()
}

async fn start_together(protocol: &str) -> (Arc<Server>, Hooks) {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start_with_protocols(&[protocol], directory.path(), answer_together).await;
    let with = json!({"timeoutSeconds": 30});
    let documents = configuration("Validating", "together", &[hooks.webhook("a", "/together", &with)])
        + &*configuration("Validating", "first", &[hooks.webhook("a", "/first", &with)]);
    let additions = format!("limits: {{ requestTimeout: 60s }}\n{}", hooks.resolve_config());
    (Arc::new(Server::start(&additions, &documents).await), hooks)
}

#[tokio::test]
async fn ten_webhook_calls_run_concurrently() {
    let (server, hooks) = start_together("http/1.1").await;
    let opened = connections_at_once(&server, &hooks).await;
    assert_eq!(opened.len(), CALL_COUNT, "none waits for another");
    // A connection returns to the pool a moment after its reply. If the next calls begin before that, they open new
    // connections. So the calls are repeated five times, and at least once, they must open no connection.
    let mut earlier_connections = opened;
    let mut opens_none = false;
    for _ in 0..5 {
        let used_connections = connections_at_once(&server, &hooks).await;
        opens_none |= used_connections.is_subset(&earlier_connections);
        earlier_connections.extend(used_connections);
    }
    assert!(opens_none, "{earlier_connections:?}");

    let (server, hooks) = start_together("h2").await;
    // The first call opens a connection and agrees with the server on HTTP/2, so later calls can share it.
    connections_one_by_one(&server, &hooks, &["first"]).await;
    for _ in 0..2 {
        assert_eq!(connections_at_once(&server, &hooks).await, BTreeSet::from([0]));
    }
    webhook_configurations_and_access_reviews_call_no_webhook().await;
    assert_rows("C14", ["C14.1", "C14.2", "C14.3", "C14.6", "C14.8"]);
}

/// No webhook is called for a request that writes a webhook configuration, so that a user can always remove the
/// configuration of a broken webhook. No webhook is called for access reviews, either.
async fn webhook_configurations_and_access_reviews_call_no_webhook() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async {
        HookAnswer::Text(500, "broken".into())
    })
    .await;
    let documents = configuration("Mutating", "broken", &[hooks.webhook("a", "/broken", &json!({}))])
        + &*configuration("Validating", "broken", &[hooks.webhook("a", "/broken", &json!({}))]);
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (operation, resource, kind) in [
        (
            "DELETE",
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        ),
        (
            "UPDATE",
            "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
        ),
        (
            "CREATE",
            "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
        ),
        (
            "CREATE",
            "admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
        ),
        ("CREATE", "authentication.k8s.io/v1/tokenreviews", "TokenReview"),
        (
            "CREATE",
            "authentication.k8s.io/v1/selfsubjectreviews",
            "SelfSubjectReview",
        ),
        (
            "CREATE",
            "authorization.k8s.io/v1/subjectaccessreviews",
            "SubjectAccessReview",
        ),
        (
            "CREATE",
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
        ),
        (
            "CREATE",
            "authorization.k8s.io/v1/localsubjectaccessreviews",
            "LocalSubjectAccessReview",
        ),
        (
            "CREATE",
            "authorization.k8s.io/v1/selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
        ),
    ] {
        let reviewed = ReviewedResource {
            operation,
            resource,
            kind,
        };
        let verdict = server.review("/admit", &reviewed.review(kind)).await;
        assert_eq!(verdict.response, json!({"uid": kind, "allowed": true}), "{resource}");
    }
    assert!(hooks.calls("/").is_empty());
    let verdict = server.review("/admit", &POD.review("broken")).await;
    assert_eq!(verdict.code(), 500, "it is broken: {verdict:?}");
}

#[tokio::test]
async fn a_dry_run_refused_for_side_effects_calls_no_webhook() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let with = json!({"sideEffects": "Some"});
    let documents = configuration("Validating", "some", &[hooks.webhook("a", "/some", &with)]);
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    let mut review = POD.review("dry");
    review["request"]["dryRun"] = json!(true);
    assert_eq!(server.review("/admit", &review).await.code(), 400);
    assert!(hooks.calls("/").is_empty());
    assert_rows("C4", ["C4.3"]);
}

#[tokio::test]
async fn webhooks_get_the_timeout_of_the_caller() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |call, _| async move {
        match call.path.as_str() {
            "/serial/1-slow" => tokio::time::sleep(Duration::from_millis(1100)).await,
            "/late/1-silent" => return HookAnswer::Silence,
            _ => {}
        }
        HookAnswer::allow()
    })
    .await;
    let webhook = |path: &str, seconds: u32, policy: &str| {
        let name = path.rsplit('/').next().unwrap();
        // The webhooks below `/serial` match another API group than all other webhooks.
        let group = if path.starts_with("/serial") {
            "serial.example"
        } else {
            ""
        };
        let rules = [rule(&["*"], &[group], &["*"], &["*"])];
        let with = json!({"timeoutSeconds": seconds, "failurePolicy": policy, "rules": rules});
        hooks.webhook(name, path, &with)
    };
    let documents = configuration("Mutating", "long", &[webhook("/long", 20, "Fail")])
        + &*configuration("Mutating", "short", &[webhook("/short", 5, "Fail")])
        + &*configuration(
            "Mutating",
            "serial",
            &[
                webhook("/serial/1-slow", 30, "Fail"),
                webhook("/serial/2-short", 5, "Fail"),
                webhook("/serial/3-long", 30, "Fail"),
            ],
        )
        + &*configuration(
            "Validating",
            "serial",
            &[
                webhook("/serial/4-short", 5, "Fail"),
                webhook("/serial/5-long", 30, "Fail"),
                webhook("/serial/6-long", 30, "Fail"),
            ],
        )
        + &*configuration(
            "Mutating",
            "late",
            &[
                webhook("/late/1-silent", 20, "Ignore"),
                webhook("/late/2-not-called", 20, "Ignore"),
            ],
        );
    let additions = format!("limits: {{ requestTimeout: 60s }}\n{}", hooks.resolve_config());
    let server = Server::start(&additions, &documents).await;
    let send = async |path: &str, reviewed: ReviewedResource<'_>| {
        let url = server.program.tls_url(path);
        let review = reviewed.review(path);
        server
            .client
            .send(review_request(&url, &review))
            .await
            .unwrap()
            .json()
            .unwrap()
    };
    let custom = ReviewedResource {
        resource: "serial.example/v1/things",
        ..POD
    };
    let timeouts = |path: &str| -> Vec<u64> {
        let mut calls = hooks.calls(path);
        calls.sort_by(|a, b| a.path.cmp(&b.path));
        calls.iter().map(|call| call.timeout).collect()
    };
    let (long, short, late, all) = tokio::join!(
        send("/mutate/long?timeout=10s", POD),
        send("/mutate/short?timeout=10s", POD),
        send("/mutate/late?timeout=1s", POD),
        send("/admit?timeout=20s", custom),
    );
    for allowed in [&long, &short, &all] {
        assert_eq!(allowed["response"]["allowed"], true, "{allowed}");
    }
    assert_eq!((timeouts("/long"), timeouts("/short")), (vec![10], vec![5]));

    let serial = timeouts("/serial");
    assert_eq!((serial[0], serial[1], serial[3]), (20, 5, 5), "{serial:?}");
    assert!(
        serial[2] < 20 && serial[4] <= serial[2],
        "the first took its time: {serial:?}"
    );
    // The last two calls run at the same time, and the timeout of each is the time that is left. The program computes
    // this time for each call separately, and rounds it to whole seconds. So the two timeouts may differ by one second.
    assert!(
        serial[4].abs_diff(serial[5]) <= 1,
        "the rest is the same for both: {serial:?}"
    );

    assert_eq!(late["response"]["status"]["code"], 504, "{late}");
    assert_eq!(hooks.calls("/late").len(), 1);
    assert_rows("C13", ["C13.1", "C13.2", "C13.3", "C13.4", "C13.5"]);
}
