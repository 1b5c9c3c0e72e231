//! Tests chains that deny requests of the API server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    registration::Registration,
    scene::{
        GOOD_IMAGE, Scene, chain, core_rules, image_policy_stage, plugin_stage, pod, sidecar_stage, validating_chain,
    },
};

const BAD_IMAGE: &str = "registry.example.com/web:latest";

fn policy_chain() -> Value {
    validating_chain(chain(
        "policy",
        core_rules(&["CREATE"], &["pods"]),
        json!([image_policy_stage()]),
    ))
}

pub(crate) async fn refused_pods_show_the_message(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[policy_chain()]).await;
    let registration = Registration::validating("/validate/policy");
    scene.register(&registration).await;
    let webhook = registration.webhook_name(&scene.namespace);
    scene.create(&pod("web", BAD_IMAGE)).await.assert_failure_with(&[
        &format!("admission webhook \"{webhook}\" denied the request:"),
        "spec.containers[0].image",
        "latest",
    ]);
    scene.run("get pod web").await.assert_failure_with(&["NotFound"]);
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
}

pub(crate) async fn a_refusal_keeps_its_code_and_reason(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[policy_chain()]).await;
    scene.register(&Registration::validating("/validate/policy")).await;
    let path = format!("/api/v1/namespaces/{}/pods", scene.namespace);
    let reply = scene.rest.post(&path, &pod("web", BAD_IMAGE)).await.unwrap();
    let status = reply.json().unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["reason"], "ImageNotAllowed", "{status}");
    assert_eq!(status["code"], u64::from(reply.status.as_u16()), "{status}");
    assert!(reply.status.is_client_error(), "{status}");
}

pub(crate) async fn a_dry_run_is_refused_too(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[policy_chain()]).await;
    scene.register(&Registration::validating("/validate/policy")).await;
    scene
        .run_with_object(&["create", "--dry-run=server", "-f", "-"], &pod("web", BAD_IMAGE))
        .await
        .assert_failure_with(&["denied the request", "latest"]);
}

/// The mutating chain adds a container. The validating chain denies the Pod because of this container's image.
pub(crate) async fn validating_chains_see_the_mutated_object(cluster: Arc<TestCluster>) {
    let injection = chain(
        "injection",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("latest")]),
    );
    let rewriting = chain(
        "rewriting",
        core_rules(&["CREATE"], &["pods"]),
        json!([plugin_stage(
            "image-policy",
            json!({"rewrites": {"registry.example.com": "mirror.example.com"}})
        )]),
    );
    let scene = Scene::start(cluster, &[injection, rewriting, policy_chain()]).await;
    scene.register(&Registration::mutating("/mutate")).await;
    scene.register(&Registration::validating("/validate")).await;
    scene
        .create(&pod("web", GOOD_IMAGE))
        .await
        .assert_failure_with(&["spec.containers[1].image", "mirror.example.com/log-agent:latest"]);
}
