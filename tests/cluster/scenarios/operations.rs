use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    process::wait_until,
    registration::Registration,
    scene::{
        GOOD_IMAGE, Scene, chain, core_rules, image_policy_stage, misbehaving_stage, plugin_stage, pod,
        validating_chain,
    },
};

const REFUSAL: &[&str] = &["deliberate error"];

async fn start_refusing_scene(cluster: Arc<TestCluster>, rules: Value) -> Scene {
    let refusing = validating_chain(chain(
        "refusing",
        rules.clone(),
        json!([misbehaving_stage("returns-error")]),
    ));
    let scene = Scene::start(cluster, &[refusing]).await;
    scene
        .register(&Registration::validating("/validate/refusing").with_rules(rules))
        .await;
    scene
}

pub(crate) async fn an_update_is_refused(cluster: Arc<TestCluster>) {
    let rules = core_rules(&["UPDATE"], &["pods"]);
    let policy = validating_chain(chain("policy", rules.clone(), json!([image_policy_stage()])));
    let scene = Scene::start(cluster, &[policy]).await;
    scene
        .register(&Registration::validating("/validate/policy").with_rules(rules))
        .await;
    scene
        .create(&pod("web", "registry.example.com/web:latest"))
        .await
        .assert_success();
    scene.run("label pod web tier=front").await.assert_success();
    scene
        .run(&format!("set image pod/web web={GOOD_IMAGE}"))
        .await
        .assert_success();
    scene
        .run("set image pod/web web=registry.example.com/other:latest")
        .await
        .assert_failure_with(&["denied the request", "spec.containers[0].image"]);
    assert_eq!(scene.get("pod web").await["spec"]["containers"][0]["image"], GOOD_IMAGE);
}

pub(crate) async fn a_deletion_is_refused(cluster: Arc<TestCluster>) {
    let scene = start_refusing_scene(cluster, core_rules(&["DELETE"], &["pods"])).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    scene
        .run("delete pod web --wait=false")
        .await
        .assert_failure_with(REFUSAL);
    assert_eq!(scene.containers("web").await, ["web"]);
    scene
        .run("delete pods --all --wait=false")
        .await
        .assert_failure_with(REFUSAL);
}

/// The body of a request for the subresource `eviction` of a Pod is not a Pod but an Eviction.
pub(crate) async fn an_eviction_is_refused(cluster: Arc<TestCluster>) {
    let scene = start_refusing_scene(cluster, core_rules(&["CREATE"], &["pods/eviction"])).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    let eviction = json!({
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": scene.namespace},
    });
    let path = format!("/api/v1/namespaces/{}/pods/web/eviction", scene.namespace);
    let reply = scene.rest.post(&path, &eviction).await.unwrap();
    assert!(reply.text().contains(REFUSAL[0]), "{}", reply.text());
    assert_eq!(scene.containers("web").await, ["web"]);
}

/// Kubernetes asks the webhook before it connects a client to a Pod. The cluster has no nodes, so a connection that the
/// webhook allows fails later, with another message.
pub(crate) async fn a_connection_is_refused(cluster: Arc<TestCluster>) {
    let scene = start_refusing_scene(cluster, core_rules(&["CONNECT"], &["pods/exec"])).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    scene.run("exec web -- true").await.assert_failure_with(REFUSAL);
    let path = format!(
        "/api/v1/namespaces/{}/pods/web/exec?command=true&stdout=true",
        scene.namespace
    );
    let reply = scene.rest.send(Method::POST, &path, None).await.unwrap();
    assert!(reply.text().contains(REFUSAL[0]), "{}", reply.text());
    let attach = path.replace("exec?command=true&", "attach?");
    let reply = scene.rest.send(Method::POST, &attach, None).await.unwrap();
    assert!(!reply.text().contains(REFUSAL[0]), "{}", reply.text());
}

pub(crate) async fn a_scale_is_refused(cluster: Arc<TestCluster>) {
    let rules = json!([{
        "operations": ["UPDATE"],
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments/scale"],
    }]);
    let scene = start_refusing_scene(cluster, rules).await;
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": GOOD_IMAGE}]},
            },
        },
    });
    scene.create(&deployment).await.assert_success();
    scene
        .run("scale deployment web --replicas=3")
        .await
        .assert_failure_with(REFUSAL);
    scene.run("label deployment web tier=front").await.assert_success();
    assert_eq!(scene.get("deployment web").await["spec"]["replicas"], 1);
}

pub(crate) async fn a_custom_resource_is_changed(cluster: Arc<TestCluster>) {
    let rules = json!([{
        "operations": ["CREATE"],
        "apiGroups": ["shop.example.com"],
        "apiVersions": ["*"],
        "resources": ["widgets"],
    }]);
    let annotation = chain("annotation", rules.clone(), json!([misbehaving_stage("well-behaved")]));
    let scene = Scene::start(cluster, &[annotation]).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }},
            }],
        },
    });
    scene.apply(&definition).await.assert_success();
    scene
        .run("wait --for=condition=Established crd/widgets.shop.example.com --timeout=60s")
        .await
        .assert_success();
    scene
        .register(&Registration::mutating("/mutate/annotation").with_rules(rules))
        .await;
    let widget = json!({
        "apiVersion": "shop.example.com/v1alpha1",
        "kind": "Widget",
        "metadata": {"name": "wheel"},
        "spec": {"size": 3},
    });
    // The status of a CustomResourceDefinition says `Established` a moment before the API server serves its resource.
    wait_until("the custom resource", async || {
        let output = scene.create(&widget).await;
        let missing = output.stderr.contains("no matches for kind") || output.stderr.contains("not find");
        (!missing).then(|| output.assert_success())
    })
    .await;
    let stored = scene.get("widget wheel").await;
    assert_eq!(stored["metadata"]["annotations"]["well-behaved"], "true");
    assert_eq!(stored["spec"], json!({"size": 3}));
}

/// The API server converts the object to the version in the webhook's rules before it calls the webhook, and back
/// afterwards.
pub(crate) async fn another_version_is_converted(cluster: Arc<TestCluster>) {
    let rules = json!([{
        "operations": ["CREATE"],
        "apiGroups": ["networking.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["ingresses"],
    }]);
    let annotation = chain("annotation", rules.clone(), json!([misbehaving_stage("well-behaved")]));
    let scene = Scene::start(cluster, &[annotation]).await;
    scene
        .register(&Registration::mutating("/mutate/annotation").with_rules(rules))
        .await;
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1beta1",
        "kind": "Ingress",
        "metadata": {"name": "web"},
        "spec": {"backend": {"serviceName": "web", "servicePort": 80}},
    });
    scene.create(&ingress).await.assert_success();
    let stored = scene.get("ingress.v1beta1.networking.k8s.io web").await;
    assert_eq!(stored["metadata"]["annotations"]["well-behaved"], "true");
    assert_eq!(stored["spec"]["backend"]["serviceName"], "web");
}

/// When a Namespace is created, a selector of namespaces is compared with the labels of the new Namespace itself.
pub(crate) async fn a_namespace_is_admitted_by_its_own_labels(cluster: Arc<TestCluster>) {
    let rules = core_rules(&["CREATE"], &["namespaces"]);
    let mut stage = plugin_stage("guest-misbehaves", json!({"behaviour": "well-behaved"}));
    stage["namespaceSelector"] = json!({"matchLabels": {"annotated": "yes"}});
    let access = Scene::grant_cluster_access(&cluster).await;
    let annotation = chain("annotation", rules.clone(), json!([stage]));
    let scene = Scene::start_configured(cluster, access, &[annotation]).await;
    scene
        .register(&Registration::mutating("/mutate/annotation").with_rules(rules))
        .await;
    for (name, expected) in [("yes", true), ("no", false)] {
        let namespace = format!("{}-{name}", scene.namespace);
        scene.make_namespace(&namespace, json!({"annotated": name})).await;
        let stored = scene.get(&format!("namespace {namespace}")).await;
        let is_annotated = stored["metadata"]["annotations"]["well-behaved"] == "true";
        assert_eq!(is_annotated, expected, "{stored}");
    }
}
