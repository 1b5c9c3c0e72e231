//! Tests that a driver authenticates itself at ZooKeeper by digest. Only one user may read the nodes.

use std::os::unix::fs::PermissionsExt as _;

use admittance_tests::{Client, MesosCluster, Scheduler};
use http::Method;
use serde_json::Value;

use super::{
    nodes::{DRIVERS, Nodes, SCHEDULERS, SchedulerCandidate},
    scene::{CLUSTER, Front, code_and_message, driver_config},
    zookeeper::ZooKeeperNode,
};
use crate::scene::{application, write};

const USER: &str = "bcs";
const PASSWORD: &str = "no: secret";

async fn create_application(driver: &Front, name: &str) -> (u64, String) {
    let url = format!("{}/namespaces/shop/applications", driver.routes_url());
    let object = application("shop", name, "docker.io/library/nginx:1.29").to_string();
    let client = Client::new().unwrap();
    code_and_message(&client.send_bcs(Method::POST, &url, object).await.unwrap())
}

#[tokio::test]
async fn zookeeper_nodes_are_readable_only_with_the_password() {
    let zookeeper = ZooKeeperNode::create_shared("digest").await;
    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let _stands = SchedulerCandidate::join_election(&zookeeper.connection(), &scheduler).await;
    let (nodes, user) = (
        Nodes::connect(&zookeeper.connection()).await,
        Nodes::connect_as(&zookeeper.connection(), USER, PASSWORD).await,
    );
    let of_cluster = format!("{DRIVERS}/{CLUSTER}");
    nodes.put(&of_cluster, &Value::Null).await;
    let name = nodes.children(SCHEDULERS).await.remove(0).name;
    user.restrict_to_user(&format!("{SCHEDULERS}/{name}")).await;

    let directory = tempfile::tempdir().unwrap();
    let password = write(&directory, "password", format!("{PASSWORD}\n"));
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
    let plain_config = driver_config(&zookeeper, "registration: {}\n");
    let digest = format!("digest: {{ user: {USER}, passwordFile: {} }}", password.display());
    let digest_config = plain_config.replace("sessionTimeout: 2s", &format!("sessionTimeout: 2s, {digest}"));

    let trusted = Front::start(&digest_config).await;
    let registered = user
        .until_children(&of_cluster, "registered", |nodes| nodes.len() == 1)
        .await;
    assert_eq!(registered[0].data["cluster"], CLUSTER);
    assert_eq!(create_application(&trusted, "trusted").await.0, 0);
    let of_driver = format!("{of_cluster}/{}", registered[0].name);
    assert!(nodes.is_access_denied(&of_driver).await && !user.is_access_denied(&of_driver).await);

    let stranger = Front::start(&plain_config).await;
    let (code, message) = create_application(&stranger, "stranger").await;
    assert_eq!(code, 1_405_009, "{message}");
    assert_eq!(scheduler.requests().len(), 1);
}
