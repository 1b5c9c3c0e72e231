//! Tests requests during which a stage fails or the webhook server is unreachable.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    registration::Registration,
    scene::{GOOD_IMAGE, Scene, chain, containers, core_rules, ignore_failures, misbehaving_stage, pod, sidecar_stage},
};

pub(crate) async fn the_failure_policy_applies_to_an_unreachable_server(cluster: Arc<TestCluster>) {
    let injection = chain(
        "injection",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("2.1")]),
    );
    let mut scene = Scene::start(cluster, &[injection]).await;
    let closed = Registration::mutating("/mutate/injection");
    scene.register(&closed).await;
    scene.create(&pod("before", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("before").await, ["web", "log-agent"]);

    scene.stop().await;
    let webhook = closed.webhook_name(&scene.namespace);
    scene
        .create(&pod("closed", GOOD_IMAGE))
        .await
        .assert_failure_with(&["failed calling webhook", &webhook]);
    scene.register(&closed.clone().with_failures_ignored()).await;
    scene.create(&pod("open", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("open").await, ["web"]);

    let scene = scene.serve().await;
    scene.create(&pod("after", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("after").await, ["web", "log-agent"]);
}

async fn check_failing_stage(cluster: Arc<TestCluster>, stage: Value, words: &[&str]) {
    let rules = || core_rules(&["CREATE"], &["pods"]);
    let closed = chain("closed", rules(), json!([stage, sidecar_stage("2.1")]));
    let open = chain("open", rules(), json!([ignore_failures(stage), sidecar_stage("2.1")]));
    let scene = Scene::start(cluster, &[closed, open]).await;
    scene.register(&Registration::mutating("/mutate/closed")).await;
    scene
        .create(&pod("closed", GOOD_IMAGE))
        .await
        .assert_failure_with(words);
    scene.register(&Registration::mutating("/mutate/open")).await;
    scene.create(&pod("open", GOOD_IMAGE)).await.assert_success();
    assert_eq!(containers(&scene.get("pod open").await), ["web", "log-agent"]);
}

pub(crate) async fn the_failure_policy_applies_to_a_trap(cluster: Arc<TestCluster>) {
    check_failing_stage(
        cluster,
        misbehaving_stage("traps"),
        &["stage guest-misbehaves of chain closed", "trap"],
    )
    .await;
}

/// The server replies with a denial, so the failure policy of the chain decides, not the failure policy of
/// the webhook configuration.
pub(crate) async fn the_failure_policy_applies_to_an_inapplicable_patch(cluster: Arc<TestCluster>) {
    check_failing_stage(
        cluster,
        misbehaving_stage("patch-does-not-apply"),
        &["stage guest-misbehaves of chain closed", "patch"],
    )
    .await;
}

pub(crate) async fn the_failure_policy_applies_to_a_slow_stage(cluster: Arc<TestCluster>) {
    let mut stage = misbehaving_stage("loops-forever");
    stage["timeout"] = "50ms".into();
    check_failing_stage(cluster, stage, &["stage guest-misbehaves of chain closed", "timeout"]).await;
}
