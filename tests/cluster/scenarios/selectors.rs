//! Tests chains that select namespaces by labels, which the webhook server reads from the API server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    process::wait_until,
    registration::Registration,
    scene::{GOOD_IMAGE, Scene, chain, core_rules, pod, sidecar_stage},
};

fn injection_chain() -> Value {
    let mut stage = sidecar_stage("2.1");
    stage["namespaceSelector"] = json!({
        "matchExpressions": [{"key": "injection", "operator": "NotIn", "values": ["disabled"]}],
    });
    chain("injection", core_rules(&["CREATE"], &["pods"]), json!([stage]))
}

pub(crate) async fn a_label_turns_a_chain_off(cluster: Arc<TestCluster>) {
    let access = Scene::grant_cluster_access(&cluster).await;
    let scene = Scene::start_configured(cluster, access, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    scene.create(&pod("on", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("on").await, ["web", "log-agent"]);

    let namespace = scene.namespace.clone();
    scene
        .run(&format!("label namespace {namespace} injection=disabled"))
        .await
        .assert_success();
    wait_for_containers(&scene, "off", &["web"]).await;
    scene
        .run(&format!("label namespace {namespace} injection-"))
        .await
        .assert_success();
    wait_for_containers(&scene, "on-again", &["web", "log-agent"]).await;
}

async fn wait_for_containers(scene: &Scene, prefix: &str, expected: &[&str]) {
    wait_until("the effect of a namespace's label", async || {
        let name = format!("{prefix}-{}", scene.cluster.next_number());
        scene.create(&pod(&name, GOOD_IMAGE)).await.assert_success();
        (scene.containers(&name).await == expected).then_some(())
    })
    .await;
}

/// The Pod is created before the server's watch has reported its namespace, so the server has to ask.
pub(crate) async fn a_new_namespace_is_selected_at_once(cluster: Arc<TestCluster>) {
    let access = Scene::grant_cluster_access(&cluster).await;
    let scene = Scene::start_configured(cluster, access, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    for (name, labels, expected) in [
        ("off", json!({"injection": "disabled"}), &["web"][..]),
        ("on", json!({"injection": "enabled"}), &["web", "log-agent"]),
    ] {
        let namespace = format!("{}-{name}", scene.namespace);
        let mut list = json!({"apiVersion": "v1", "kind": "List", "items": []});
        let mut labels = labels;
        labels["scene"] = scene.namespace.clone().into();
        let mut pod = pod("web", GOOD_IMAGE);
        pod["metadata"]["namespace"] = namespace.clone().into();
        list["items"] = json!([
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
            pod,
        ]);
        scene
            .kubectl
            .run_with_input(&["create", "-f", "-"], &list.to_string())
            .await
            .unwrap()
            .assert_success();
        let stored = scene
            .kubectl
            .run(&["get", "pod", "web", "--namespace", &namespace, "--output=json"])
            .await
            .unwrap()
            .json();
        assert_eq!(crate::scene::containers(&stored), expected, "{name}");
    }
}

/// The labels of namespaces are unknown without the API server, so chains that need them fail.
pub(crate) async fn the_server_starts_without_the_cluster(cluster: Arc<TestCluster>) {
    let plain = chain(
        "plain",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("2.1")]),
    );
    let nobody = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "gone", "user": {"token": "none"}}],
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "gone"}}],
        "current-context": "gone",
    });
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, nobody.to_string()).unwrap();
    let config = json!({"cluster": {"kubeconfig": kubeconfig}});
    let scene = Scene::start_configured(cluster, config, &[plain, injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/plain")).await;
    scene.create(&pod("plain", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("plain").await, ["web", "log-agent"]);
    scene.register(&Registration::mutating("/mutate/injection")).await;
    scene
        .create(&pod("labelled", GOOD_IMAGE))
        .await
        .assert_failure_with(&["stage sidecar-injector of chain injection", "namespace"]);
}
