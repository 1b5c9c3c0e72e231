//! Tests existing webhook configurations as definitions: Admittance calls their webhooks in place of the API server,
//! until plugins replace them one by one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    process::wait_until,
    registration::Registration,
    scene::{GOOD_IMAGE, Scene, chain, core_rules, image_of_container, pod, sidecar_stage},
};

const OLD_IMAGE: &str = "registry.example.com/log-agent:2.1";
const NEW_IMAGE: &str = "registry.example.com/log-agent:2.2";

/// Starts a server that injects a sidecar. Returns it with its webhook configuration, which is no longer registered.
async fn start_hook(cluster: Arc<TestCluster>) -> (Scene, Value) {
    let injection = chain(
        "injection",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("2.1")]),
    );
    let hook = Scene::start(cluster, &[injection]).await;
    let registration = Registration::mutating("/mutate/injection");
    hook.register(&registration).await;
    let name = registration.name(&hook.namespace);
    let document = hook.get(&format!("{} {name}", registration.resource())).await;
    hook.unregister(&registration).await;
    (hook, document)
}

/// Returns the webhook that the test is about, which is the second one in the configuration. The first one is a probe:
/// it shows when the API server uses the configuration.
fn webhook(document: &mut Value) -> &mut Value {
    &mut document["webhooks"][1]
}

pub(crate) async fn a_webhook_is_called_and_then_becomes_a_plugin(cluster: Arc<TestCluster>) {
    let (hook, mut document) = start_hook(Arc::clone(&cluster)).await;
    let access = Scene::grant_cluster_access(&cluster).await;
    let scene = Scene::start_configured(cluster, access, &[]).await;
    webhook(&mut document)["namespaceSelector"] = json!({"matchLabels": {"scene": scene.namespace}});
    scene.define(&document);
    scene.register(&Registration::mutating("/mutate")).await;
    wait_for_image(&scene, "webhook", OLD_IMAGE).await;

    let stage = sidecar_stage("2.2");
    let entry = webhook(&mut document);
    entry.as_object_mut().unwrap().remove("clientConfig");
    entry["plugin"] = stage["plugin"].clone();
    scene.define(&document);
    wait_for_image(&scene, "plugin", NEW_IMAGE).await;
    drop(hook);
    scene.create(&pod("last", GOOD_IMAGE)).await.assert_success();
    assert_eq!(
        image_of_container(&scene.get("pod last").await, "log-agent").unwrap(),
        NEW_IMAGE
    );
}

/// Creates Pods until one gets the expected image.
async fn wait_for_image(scene: &Scene, prefix: &str, expected: &str) {
    wait_until("the effect of a definition", async || {
        let name = format!("{prefix}-{}", scene.cluster.next_number());
        scene.create(&pod(&name, GOOD_IMAGE)).await.assert_success();
        let stored = scene.get(&format!("pod {name}")).await;
        (image_of_container(&stored, "log-agent").as_deref() == Some(expected)).then_some(())
    })
    .await;
}

/// This API server is too old to know match conditions, but Admittance evaluates them before it calls a webhook.
pub(crate) async fn match_conditions_of_a_webhook_are_evaluated(cluster: Arc<TestCluster>) {
    let mut stage = sidecar_stage("2.1");
    stage["matchConditions"] = json!([
        {"name": "not-skipped", "expression": "!object.metadata.name.startsWith('skipped')"},
        {"name": "not-of-alice", "expression": "request.userInfo.username != 'alice'"},
    ]);
    let injection = chain("injection", core_rules(&["CREATE"], &["pods"]), json!([stage]));
    let scene = Scene::start(cluster, &[injection]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    for role in [
        "create role pods --verb=get,create --resource=pods",
        "create rolebinding alice --role=pods --user=alice",
    ] {
        scene.run(role).await.assert_success();
    }
    let alice = scene.cluster.kubectl_as(crate::cluster::ClusterUser::Alice).unwrap();
    for (name, kubectl, expected) in [
        ("web", &scene.kubectl, &["web", "log-agent"][..]),
        ("skipped", &scene.kubectl, &["web"]),
        ("of-alice", &alice, &["web"]),
    ] {
        // Granted rights take effect after a short time.
        wait_until("the right to create Pods", async || {
            let arguments = ["create", "--namespace", &scene.namespace, "-f", "-"];
            let output = kubectl
                .run_with_input(&arguments, &pod(name, GOOD_IMAGE).to_string())
                .await
                .unwrap();
            (!output.stderr.contains("Forbidden")).then(|| output.assert_success())
        })
        .await;
        assert_eq!(scene.containers(name).await, expected, "{name}");
    }
}
