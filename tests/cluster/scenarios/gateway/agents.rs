//! Tests the agents that connect clusters to a gateway: which rights they need, and how they find the API servers.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::timeout;

use super::{
    balancer::ConnectionBalancer,
    scene::{GatewayScene, create_token, rest_client, run_command},
};
use crate::{cluster::TestCluster, process::wait_until, rest::UserClient};

const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

async fn status_of(user: &UserClient, path: &str) -> u16 {
    user.get(path).await.map_or(0, |reply| reply.status.as_u16())
}

async fn wait_for_status(user: &UserClient, path: &str, expected: u16) {
    let reached = wait_until("the status of a request", async || {
        (status_of(user, path).await == expected).then_some(())
    });
    timeout(AGENT_TIMEOUT, reached).await.unwrap();
}

pub(crate) async fn role_bindings_of_the_cluster_decide(cluster: Arc<TestCluster>) {
    let mut gateway = GatewayScene::start(cluster, true).await;
    let namespace = gateway.scene.namespace.clone();
    run_command(&gateway.scene, "users create carol").await.assert_success();
    let granted = format!("permissions grant carol {} Cluster", gateway.cluster_id);
    run_command(&gateway.scene, &granted).await.assert_success();
    let carol = create_token(&gateway.scene, "carol").await;
    let carol = rest_client(&gateway.scene, &gateway.scene.url(""), &carol);
    let (pods, secrets) = (gateway.path("pods"), gateway.path("secrets"));
    // Carol may use the cluster according to the gateway, but no role binding in the cluster gives her rights.
    let refused = carol.get(&pods).await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("plain.carol"), "{}", refused.text());
    gateway
        .run_as_admin("create role secret-reader --verb=get,list --resource=secrets")
        .await;
    gateway
        .run_as_admin("create rolebinding carol --role=secret-reader --user=plain.carol")
        .await;
    wait_for_status(&carol, &secrets, 200).await;
    assert_eq!(status_of(&carol, &pods).await, 403);

    // The cluster rejects the agent's token. The user's token is valid, so the user gets 502 instead of 401.
    gateway
        .run_as_admin("delete serviceaccount admittance --namespace=admittance-system")
        .await;
    wait_for_status(&carol, &secrets, 502).await;
    let reply = carol.get(&secrets).await.unwrap();
    let message = reply.json().unwrap()["message"].to_string();
    assert!(message.contains("agent"), "{message}");

    // In this part of the test, the agent's account gets the role `cluster-admin`, as agents of BCS have. With such an
    // agent, a super user such as `root` has all rights in the cluster without a role binding.
    gateway
        .run_as_admin("delete clusterrolebinding admittance-system-admittance-agent-cluster-admin")
        .await;
    run_command(&gateway.scene, "users create root --super-user")
        .await
        .assert_success();
    let root = create_token(&gateway.scene, "root").await;
    let root = rest_client(&gateway.scene, &gateway.scene.url(""), &root);
    gateway.run_as_admin("create serviceaccount bcs-kube-agent").await;
    let bound = format!(
        "create clusterrolebinding {namespace} --clusterrole=cluster-admin --serviceaccount={namespace}:bcs-kube-agent"
    );
    gateway.run_as_admin(&bound).await;
    let account = gateway.mount(&namespace, "bcs-kube-agent").await;
    gateway.replace_agent(&account).await;
    wait_for_status(&carol, &secrets, 200).await;
    assert_eq!(status_of(&carol, &pods).await, 403);
    wait_for_status(&root, &format!("{}/api/v1/nodes", gateway.prefix), 200).await;
}

pub(crate) async fn agents_find_the_addresses_of_api_servers(cluster: Arc<TestCluster>) {
    let mut gateway = GatewayScene::start(cluster, false).await;
    let account = gateway.scene.path("service-account");
    let (first, second) = ("198.18.0.1", "198.18.0.2");
    let at_first = serve_at(&gateway, first).await;
    gateway.replace_agent(&account).await;
    let pods = gateway.path("pods");
    wait_until_reported(&gateway, first, &at_first).await;
    wait_for_status(&gateway.rest, &pods, 200).await;

    let at_second = serve_at(&gateway, second).await;
    drop(at_first);
    wait_until_reported(&gateway, second, &at_second).await;
    wait_for_status(&gateway.rest, &pods, 200).await;
    gateway
        .run_as_admin("delete endpoints kubernetes --namespace=default")
        .await;
}

/// Starts a balancer in front of the API server at this address, and makes it the server's only published endpoint.
/// Kubernetes rejects loopback addresses as endpoints.
async fn serve_at(gateway: &GatewayScene, ip: &str) -> ConnectionBalancer {
    let server = ConnectionBalancer::start_at(ip).await;
    server.pass_to(&[gateway.scene.cluster.url()]);
    let endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "subsets": [{"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": server.port()}]}],
    });
    gateway.scene.apply(&endpoints).await.assert_success();
    server
}

async fn wait_until_reported(gateway: &GatewayScene, ip: &str, server: &ConnectionBalancer) {
    let address = format!("https://{ip}:{}", server.port());
    let reported = wait_until("the addresses that the agent reports", async || {
        let clusters = run_command(&gateway.scene, "clusters list --output json").await.json();
        clusters.to_string().contains(&address).then_some(())
    });
    timeout(AGENT_TIMEOUT, reported).await.unwrap();
}
