//! Tests that the gateway reads the roles of users from a file and makes role bindings for them in the cluster, even if
//! the agent's account has few rights.

use std::{fs, sync::Arc};

use serde_json::json;

use super::scene::{GatewayScene, GatewaySetting, create_token, rest_client, run_command};
use crate::{cluster::TestCluster, process::wait_until};

pub(crate) async fn roles_of_a_file_are_bound_in_the_cluster(cluster: Arc<TestCluster>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("roles.yaml");
    let write = |roles: &str| {
        let text = format!("roles: [ {{ user: bob, cluster: \"*\", roles: [{roles}] }} ]\n");
        fs::write(&file, text).unwrap();
    };
    write("workloads-view");
    let setting = GatewaySetting {
        roles: Some(json!({"file": &file})),
        ..GatewaySetting::simple(true)
    };
    let gateway = GatewayScene::start_configured(cluster, setting).await;
    run_command(&gateway.scene, "users create bob").await.assert_success();
    let bob = create_token(&gateway.scene, "bob").await;
    let bob = rest_client(&gateway.scene, &gateway.scene.url(""), &bob);
    let status_of = async |path: &str| {
        let reply = bob.get(path).await.ok()?;
        Some(reply.status.as_u16())
    };
    let (pods, secrets) = (gateway.path("pods"), gateway.path("secrets"));
    wait_until("the role of bob", async || {
        (status_of(&pods).await == Some(200)).then_some(())
    })
    .await;
    assert_eq!(status_of(&secrets).await, Some(403));
    assert_eq!(status_of(&format!("{pods}/web/exec?command=id")).await, Some(403));

    write("services-view");
    wait_until("the other role of bob", async || {
        let services = status_of(&gateway.path("services")).await;
        (services == Some(200) && status_of(&pods).await == Some(403)).then_some(())
    })
    .await;
    write("");
    wait_until("no role of bob", async || {
        (status_of(&pods).await == Some(404)).then_some(())
    })
    .await;
}
