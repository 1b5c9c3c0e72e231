//! Tests the webhook configurations and the certificate that the leader maintains.

use std::{net::SocketAddr, sync::Arc};

use admittance_tests::Serve;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    resources::{SERVICE_NAME, denying_chain, install_resources},
    updates::{PodCreators, sidecar_image},
};
use crate::{
    cluster::{ClusterUser, TestCluster},
    process::wait_until,
    scene::{GOOD_IMAGE, Scene, chain, compiled_store, containers, pod, sidecar_stage},
};

/// If a webhook configuration names a Service without a port, the API server calls the Service at this port.
const PORT: u16 = 443;

/// Returns a scene whose server issues its own certificate and writes its own webhook configurations. The
/// configurations refer to a Service with an external host. This host is the local machine, on which the server
/// listens.
async fn start_scene(cluster: Arc<TestCluster>) -> Scene {
    let config = json!({
        "dialect": {"kubernetes": {"webhookConfigurations": {
            "service": format!("{SERVICE_NAME}.default"), "certificate": {"overlap": "1s"},
        }}},
        "cluster": {},
        "definitions": [{"kubernetes": {}}],
    });
    install_resources(&cluster, &config).await;
    let mut config = config;
    config["cluster"]["kubeconfig"] = json!(cluster.kubeconfig(ClusterUser::Admittance));
    let mut scene = Scene::without_server(cluster, &config).await;
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE_NAME, "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    scene.apply(&service).await.assert_success();
    let server = Serve::new(scene.path("admittance.yaml"))
        .unwrap()
        .listen(SocketAddr::from(([127, 0, 0, 1], PORT)))
        .store(compiled_store());
    // Only root may listen on port 443, so the start fails if another user runs the test.
    scene.run_server(server.start().await.unwrap());
    scene
}

/// Tries to create a Pod with this image. Returns the names of the Pod's containers, or the message of the refusal.
async fn try_creation(scene: &Scene, image: &str) -> Result<Vec<String>, String> {
    let arguments = ["create", "--dry-run=server", "--output=json", "-f", "-"];
    let output = scene.run_with_object(&arguments, &pod("tried", image)).await;
    if output.is_success {
        Ok(containers(&output.json()))
    } else {
        Err(output.stderr)
    }
}

async fn wait_for_containers(scene: &Scene, expected: &[&str]) {
    wait_until(&format!("a Pod with {expected:?}"), async || {
        (try_creation(scene, GOOD_IMAGE).await.ok()? == expected).then_some(())
    })
    .await;
}

fn sidecar_chain(stage: Value) -> Value {
    let rules = json!([{"operations": ["CREATE"], "resources": ["pods"]}]);
    chain("sidecars", rules, json!([stage]))
}

pub(crate) async fn the_leader_registers_the_webhooks_of_chains(cluster: Arc<TestCluster>) {
    let scene = start_scene(cluster).await;
    wait_for_containers(&scene, &["web"]).await;

    scene.apply(&sidecar_chain(sidecar_stage("1"))).await.assert_success();
    scene.apply(&denying_chain(&scene, "by a chain")).await.assert_success();
    wait_for_containers(&scene, &["web", "log-agent"]).await;
    let refusal = wait_until("a refusal by the chain", async || {
        let refusal = try_creation(&scene, "bad").await.err()?;
        refusal.contains("by a chain").then_some(refusal)
    })
    .await;
    let expected = format!("admission webhook \"validate.{SERVICE_NAME}.default\" denied the request: ");
    assert!(refusal.contains(&expected), "{refusal}");
    scene.create(&pod("good", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("good").await, ["web", "log-agent"]);

    let mut bad = denying_chain(&scene, "never said");
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    scene
        .run_with_object(&["apply", "--dry-run=server", "-f", "-"], &bad)
        .await
        .assert_failure_with(&["spec.stages[0].cel.validations[0].expression"]);

    let image = "registry.example.com/log-agent:1";
    let mut creators = PodCreators::begin(&scene, sidecar_image);
    creators.wait_for_new_marked_pods(image).await;
    let secret = format!("secret {SERVICE_NAME}-tls --namespace default");
    let certificate = async || {
        let output = scene.run(&format!("get {secret} --output=json")).await;
        output.is_success.then(|| output.json()["data"]["tls.crt"].clone())
    };
    let before = certificate().await;
    scene.run(&format!("delete {secret}")).await.assert_success();
    wait_until("another certificate", async || {
        let now = certificate().await;
        (now.is_some() && now != before).then_some(())
    })
    .await;
    creators.wait_for_new_marked_pods(image).await;
    wait_until("the authorities of both certificates", async || {
        let webhook_configuration = scene.get(&format!("mutatingwebhookconfiguration {SERVICE_NAME}")).await;
        let bundle = webhook_configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str()?;
        let bundle = String::from_utf8(BASE64_STANDARD.decode(bundle).unwrap()).unwrap();
        (bundle.matches("BEGIN CERTIFICATE").count() == 2).then_some(())
    })
    .await;
    creators.wait_for_new_marked_pods(image).await;
    creators.end(&[image]).await;

    let rules = ["--type=json", "-p", r#"[{"op":"remove","path":"/webhooks/0/rules"}]"#];
    let patch_command = format!("patch mutatingwebhookconfiguration {SERVICE_NAME}");
    let arguments: Vec<_> = patch_command.split(' ').chain(rules).collect();
    scene.run_with_object(&arguments, &Value::Null).await.assert_success();
    wait_until("the rules again", async || {
        let configuration = scene.get(&format!("mutatingwebhookconfiguration {SERVICE_NAME}")).await;
        configuration["webhooks"][0]["rules"].is_array().then_some(())
    })
    .await;
    wait_for_containers(&scene, &["web", "log-agent"]).await;

    for name in ["sidecars", &scene.namespace] {
        scene
            .run(&format!("delete admissionchain {name}"))
            .await
            .assert_success();
    }
    wait_until("a Pod that is left alone", async || {
        try_creation(&scene, "bad").await.ok()
    })
    .await;
    wait_for_containers(&scene, &["web"]).await;
}
