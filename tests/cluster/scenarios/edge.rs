//! Tests the plugin `edge-health`, which reads Nodes from the API server.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    process::wait_until,
    registration::Registration,
    scene::{Scene, chain, core_rules, plugin_stage},
};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

async fn start_edge_scene(cluster: Arc<TestCluster>, rules: Value) -> Scene {
    let mut stage = plugin_stage("edge-health", json!({}));
    stage["plugin"]["allow"] = json!({"cluster": ["v1/Node"]});
    let access = Scene::grant_cluster_access(&cluster).await;
    let chain = chain("edge", rules.clone(), json!([stage]));
    let scene = Scene::start_configured(cluster, access, &[chain]).await;
    scene
        .register(&Registration::mutating("/mutate/edge").with_rules(rules))
        .await;
    scene
}

async fn create_lost_node(scene: &Scene, name: &str, annotations: Value) {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
    });
    scene.apply(&node).await.assert_success();
    let mut stored = scene.get(&format!("node {name}")).await;
    stored["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let path = format!("/api/v1/nodes/{name}/status");
    let reply = scene.rest.send(Method::PUT, &path, Some(&stored)).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The test adds the taint of a lost node itself, because no node controller runs here.
pub(crate) async fn a_lost_node_keeps_its_pods(cluster: Arc<TestCluster>) {
    let scene = start_edge_scene(cluster, core_rules(&["UPDATE"], &["nodes"])).await;
    for (index, (annotations, keeps_taint)) in [(json!({}), false), (json!({"nodeunhealth": "yes"}), true)]
        .into_iter()
        .enumerate()
    {
        let name = format!("{}-{index}", scene.namespace);
        create_lost_node(&scene, &name, annotations).await;
        scene
            .run(&format!("taint node {name} {UNREACHABLE}=:NoExecute"))
            .await
            .assert_success();
        let stored = scene.get(&format!("node {name}")).await;
        let taints = stored["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let evicts = taints
            .iter()
            .any(|taint| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute");
        assert_eq!(evicts, keeps_taint, "{stored}");
    }
}

pub(crate) async fn addresses_on_a_lost_node_stay_ready(cluster: Arc<TestCluster>) {
    let scene = start_edge_scene(cluster, core_rules(&["CREATE", "UPDATE"], &["endpoints"])).await;
    let node = format!("{}-node", scene.namespace);
    create_lost_node(&scene, &node, json!({})).await;
    let address = |ip: &str, node: &str| json!({"ip": ip, "nodeName": node});
    // The server watches Nodes, so it gets the change after a short time.
    wait_until("the Node in the server's view", async || {
        let name = format!("web-{}", scene.cluster.next_number());
        let endpoints = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": name},
            "subsets": [{
                "notReadyAddresses": [address("10.1.0.1", &node), address("10.1.0.2", "nowhere")],
                "ports": [{"port": 80}],
            }],
        });
        scene.create(&endpoints).await.assert_success();
        let stored = scene.get(&format!("endpoints {name}")).await;
        let subset = &stored["subsets"][0];
        let ready = subset["addresses"][0]["ip"] == "10.1.0.1";
        ready.then(|| assert_eq!(subset["notReadyAddresses"][0]["ip"], "10.1.0.2", "{stored}"))
    })
    .await;
}
