//! Tests webhook servers that require the API server to present its client certificate.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    registration::Registration,
    scene::{GOOD_IMAGE, Scene, chain, core_rules, pod, sidecar_stage},
};

fn injection_chain() -> Value {
    chain(
        "injection",
        core_rules(&["CREATE"], &["pods"]),
        json!([sidecar_stage("2.1")]),
    )
}

pub(crate) async fn the_api_server_presents_its_certificate(cluster: Arc<TestCluster>) {
    let config = json!({"listen": {"tls": {"clientCa": cluster.authority_file()}}});
    let scene = Scene::start_configured(cluster, config, &[injection_chain()]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    scene.create(&pod("web", GOOD_IMAGE)).await.assert_success();
    assert_eq!(scene.containers("web").await, ["web", "log-agent"]);
}

pub(crate) async fn a_caller_with_another_ca_is_refused(cluster: Arc<TestCluster>) {
    // The server accepts only client certificates from the CA in `ca.pem`. The API server's client certificate is from
    // another CA, so the server refuses the API server's calls.
    let config = json!({"listen": {"tls": {"clientCa": "certs/ca.pem"}}});
    let scene = Scene::start_configured(cluster, config, &[injection_chain()]).await;
    let registration = Registration::mutating("/mutate/injection");
    scene.register(&registration).await;
    scene
        .create(&pod("web", GOOD_IMAGE))
        .await
        .assert_failure_with(&["failed calling webhook", "remote error: tls:"]);
}
