//! Tests chains that change objects when they are created.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    registration::Registration,
    scene::{
        GOOD_IMAGE, Scene, chain, containers, core_rules, image_policy_stage, misbehaving_stage, pod, sidecar_stage,
        validating_chain,
    },
};

const STATUS_ANNOTATION: &str = "sidecar-injector.admittance.dev/status";
const INJECT_ANNOTATION: &str = "sidecar-injector.admittance.dev/inject";

fn injection_chain() -> Value {
    chain(
        "injection",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("2.1")]),
    )
}

pub(crate) async fn pods_gain_the_sidecar(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    let stored = scene.get("pod web").await;
    assert_eq!(containers(&stored), ["web", "log-agent"]);
    assert_eq!(stored["metadata"]["annotations"][STATUS_ANNOTATION], "log-agent");
    // The second container comes from the plugin. The API server sets the defaults of this container, as it does for
    // the containers that the user sent.
    assert_eq!(
        stored["spec"]["containers"][1]["terminationMessagePath"],
        "/dev/termination-log"
    );

    // This Pod has a `generateName`. The API server generates its name after it has called the webhook.
    let mut nameless = pod("", GOOD_IMAGE);
    nameless["metadata"] = json!({"generateName": "web-"});
    let created = scene
        .run_with_object(&["create", "--output=json", "-f", "-"], &nameless)
        .await
        .json();
    assert_eq!(containers(&created), ["web", "log-agent"]);

    let mut declined = pod("declined", GOOD_IMAGE);
    declined["metadata"]["annotations"] = json!({INJECT_ANNOTATION: "false"});
    scene.create(&declined).await.assert_success();
    assert_eq!(scene.containers("declined").await, ["web"]);
}

pub(crate) async fn a_dry_run_changes_the_reply_and_stores_nothing(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    let dry_run_pod = scene
        .run_with_object(
            &["create", "--dry-run=server", "--output=json", "-f", "-"],
            &pod("web", GOOD_IMAGE),
        )
        .await
        .json();
    assert_eq!(containers(&dry_run_pod), ["web", "log-agent"]);
    scene.run("get pod web").await.assert_failure_with(&["NotFound"]);
}

/// The server has several paths: `/mutate` and `/validate` run the chains of a phase, `/admit` runs all chains, and
/// each chain has a path of its own.
pub(crate) async fn every_path_runs_its_chains(cluster: Arc<TestCluster>) {
    let annotation = chain(
        "annotation",
        core_rules(&["CREATE"], &["pods"]),
        json!([misbehaving_stage("well-behaved")]),
    );
    let policy = validating_chain(chain(
        "policy",
        core_rules(&["CREATE"], &["pods"]),
        json!([image_policy_stage()]),
    ));
    let scene = Scene::start(cluster, &[injection_chain(), annotation, policy]).await;
    let both: &[&str] = &["web", "log-agent"];
    // (path of the webhook, containers that a valid Pod has afterwards, whether the chain `annotation` changes this
    // Pod, whether an invalid Pod is denied)
    for (index, (path, expected, annotated, refuses)) in [
        ("/mutate", both, true, false),
        ("/mutate/injection", both, false, false),
        ("/mutate/annotation", &["web"], true, false),
        ("/admit", both, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        scene.register(&Registration::mutating(path)).await;
        let name = format!("good-{index}");
        scene.create(&pod(&name, GOOD_IMAGE)).await.assert_success();
        let stored = scene.get(&format!("pod {name}")).await;
        assert_eq!(containers(&stored), expected, "{path}");
        let annotations = &stored["metadata"]["annotations"];
        assert_eq!(annotations["well-behaved"] == "true", annotated, "{path}");
        let bad = scene
            .create(&pod(&format!("bad-{index}"), "registry.example.com/web:latest"))
            .await;
        assert_eq!(!bad.is_success, refuses, "{path}: {}", bad.stderr);
    }
    scene.unregister(&Registration::mutating("/admit")).await;
    for (index, path) in ["/validate", "/validate/policy"].into_iter().enumerate() {
        scene.register(&Registration::validating(path)).await;
        let name = format!("validated-{index}");
        scene.create(&pod(&name, GOOD_IMAGE)).await.assert_success();
        assert_eq!(scene.containers(&name).await, ["web"], "{path}");
        scene
            .create(&pod("bad", "registry.example.com/web:latest"))
            .await
            .assert_failure_with(&["denied the request", "latest"]);
    }
}

pub(crate) async fn reviews_of_v1beta1_are_answered(cluster: Arc<TestCluster>) {
    let policy = validating_chain(chain(
        "policy",
        core_rules(&["CREATE"], &["pods"]),
        json!([image_policy_stage()]),
    ));
    let scene = Scene::start(cluster, &[injection_chain(), policy]).await;
    scene
        .register(&Registration::mutating("/mutate").with_versions(&["v1beta1"]))
        .await;
    scene
        .register(&Registration::validating("/validate").with_versions(&["v1beta1", "v1"]))
        .await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("web").await, ["web", "log-agent"]);
    scene
        .create(&pod("bad", "registry.example.com/web:latest"))
        .await
        .assert_failure_with(&["denied the request", "latest"]);
}

pub(crate) async fn warnings_reach_the_user(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    let mut unclear = pod("web", GOOD_IMAGE);
    unclear["metadata"]["annotations"] = json!({INJECT_ANNOTATION: "perhaps"});
    let output = scene.create(&unclear).await.assert_success();
    assert!(
        output.stderr.starts_with("Warning: ") && output.stderr.contains("perhaps"),
        "{}",
        output.stderr
    );
}

/// If another webhook changes the Pod later, the API server calls the first webhook again.
pub(crate) async fn a_reinvocation_changes_nothing(cluster: Arc<TestCluster>) {
    let annotation = chain(
        "annotation",
        core_rules(&["CREATE"], &["pods"]),
        json!([misbehaving_stage("well-behaved")]),
    );
    let scene = Scene::start(cluster, &[injection_chain(), annotation]).await;
    scene
        .register(&Registration::mutating("/mutate/injection").with_reinvocation())
        .await;
    // The API server calls webhooks in the order of their configurations' names. The name of this configuration is the
    // last one, so `annotation` is called after `injection`.
    scene
        .register(&Registration::mutating("/mutate/annotation").with_suffix("second"))
        .await;
    let before = scene.review_count().await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    let stored = scene.get("pod web").await;
    assert_eq!(containers(&stored), ["web", "log-agent"]);
    assert_eq!(stored["metadata"]["annotations"]["well-behaved"], "true");
    assert_eq!(
        scene.review_count().await - before,
        3.0,
        "two webhooks, and the first again"
    );
}

pub(crate) async fn the_audit_log_contains_the_patch(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[injection_chain()]).await;
    let registration = Registration::mutating("/mutate/injection");
    scene.register(&registration).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    let audit = scene.cluster.audit_log().unwrap();
    let event = audit
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| {
            event["verb"] == "create"
                && event["objectRef"]["resource"] == "pods"
                && event["objectRef"]["namespace"] == scene.namespace
        })
        .unwrap();
    // The annotation's name ends with the position of the webhook in its configuration. The position is 1, because the
    // configuration begins with another webhook: the probe.
    let annotation = &event["annotations"]["patch.webhook.admission.k8s.io/round_0_index_1"];
    let recorded: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    assert_eq!(recorded["webhook"], registration.webhook_name(&scene.namespace));
    let patched: Vec<_> = recorded["patch"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation["path"].as_str().unwrap())
        .collect();
    assert!(patched.contains(&"/spec/containers/-"), "{patched:?}");
}

/// The Pod is almost as large as the largest object that etcd stores.
pub(crate) async fn a_large_object_is_changed(cluster: Arc<TestCluster>) {
    let rules = core_rules(&["CREATE"], &["configmaps"]);
    let annotation = chain("annotation", rules.clone(), json!([misbehaving_stage("well-behaved")]));
    let scene = Scene::start(cluster, &[annotation]).await;
    scene
        .register(&Registration::mutating("/mutate/annotation").with_rules(rules))
        .await;
    let data = "0123456789abcdef".repeat(60_000);
    let large = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "large"},
        "data": {"text": data},
    });
    scene.create(&large).await.assert_success();
    let stored = scene.get("configmap large").await;
    assert_eq!(stored["metadata"]["annotations"]["well-behaved"], "true");
    assert_eq!(stored["data"]["text"], data);
}
