//! Tests a driver's nodes in ZooKeeper. They are created again if its session or the ensemble's leader is lost.

use admittance_tests::{MesosCluster, Scheduler};
use serde_json::{Value, json};

use super::{
    nodes::{DRIVERS, MesosNode, Nodes, SCHEDULERS, SchedulerCandidate},
    scene::{CLUSTER, Front, driver_config},
    writers::{ConcurrentWriters, WriteAnswer, scheduler_requests, write_violations},
    zookeeper::{Ensemble, ZooKeeperNode, run_blocking},
};

/// Returns the path in ZooKeeper where bcs-api looks for the drivers of the cluster.
fn cluster_path() -> String {
    format!("{DRIVERS}/{CLUSTER}")
}

/// Returns the two nodes that a driver creates in ZooKeeper. bcs-api reads the first one. The second one is in the list
/// of all drivers.
async fn registered_nodes(nodes: &Nodes) -> (MesosNode, MesosNode) {
    let is_driver = |node: &MesosNode| node.name.starts_with("_c_");
    let in_service = nodes
        .until_children(&cluster_path(), "a driver of the cluster", |nodes| nodes.len() == 1)
        .await;
    let in_cluster = nodes
        .until_children(DRIVERS, "a driver", |nodes| {
            nodes.iter().filter(|node| is_driver(node)).count() == 1
        })
        .await;
    (
        in_service.into_iter().next().unwrap(),
        in_cluster.into_iter().find(is_driver).unwrap(),
    )
}

/// Returns whether this is the name of a protected node of Curator: `_c_`, 32 hexadecimal digits, a dash, the address
/// and ten digits.
fn is_protected(name: &str, address: &str) -> bool {
    let rest = name.strip_prefix("_c_").and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(guid, rest)| {
        guid.len() == 32
            && guid.bytes().all(|byte| byte.is_ascii_hexdigit())
            && rest
                .strip_prefix(address)
                .is_some_and(|sequence| sequence.len() == 10 && sequence.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn authority_of(url: &str) -> http::uri::Authority {
    url.parse::<http::Uri>().unwrap().authority().unwrap().clone()
}

#[tokio::test]
async fn a_driver_registers_in_two_locations_and_repeats_this_after_a_lost_session() {
    let zookeeper = ZooKeeperNode::create_shared("sessions").await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes.put(&cluster_path(), &Value::Null).await;
    let additions = "registration: { hostname: here, external: { ip: 203.0.113.7, port: 31090 } }\n";
    let mut driver = Front::start(&driver_config(&zookeeper, additions)).await;
    let (listen, admin) = (
        authority_of(&driver.program.url("/")).port_u16().unwrap(),
        authority_of(&driver.program.admin_url("/")).port_u16().unwrap(),
    );
    let info = |external_ip: &str, external_port: u16| {
        json!({
            "ip": "127.0.0.1", "ipv6": "", "port": listen, "grpc_port": 0, "metric_port": admin,
            "hostname": "here", "scheme": "http", "version": env!("CARGO_PKG_VERSION"), "cluster": CLUSTER,
            "pid": driver.program.id().unwrap(),
            "external_ip": external_ip, "external_ipv6": "", "external_port": external_port,
        })
    };

    let (in_service, in_cluster) = registered_nodes(&nodes).await;
    assert_eq!(in_service.data, info("203.0.113.7", 31090));
    assert_eq!(in_cluster.data, info("", 0));
    for node in [&in_service, &in_cluster] {
        assert!(is_protected(&node.name, "127.0.0.1"), "{}", node.name);
        assert_ne!(node.session, 0, "it is ephemeral");
    }

    // The driver is suspended until its session expires. When it reconnects, its nodes have been deleted.
    driver.program.suspend().unwrap();
    nodes
        .until_children(&cluster_path(), "expired", <[MesosNode]>::is_empty)
        .await;
    nodes
        .until_children(DRIVERS, "expired", |nodes| {
            nodes.iter().all(|node| !node.name.starts_with("_c_"))
        })
        .await;
    driver.program.resume().unwrap();
    let is_registered_again = |nodes: &[MesosNode], before: &MesosNode| {
        let new = |node: &&MesosNode| node.name.starts_with("_c_") && node.session != before.session;
        nodes.iter().filter(new).count() == 1
    };
    nodes
        .until_children(&cluster_path(), "registered again", |nodes| {
            is_registered_again(nodes, &in_service)
        })
        .await;
    nodes
        .until_children(DRIVERS, "registered again", |nodes| {
            is_registered_again(nodes, &in_cluster)
        })
        .await;
    let (after_in_service, after_in_cluster) = registered_nodes(&nodes).await;
    assert_eq!(after_in_service.data, in_service.data);
    assert_eq!(after_in_cluster.data, in_cluster.data);

    // If somebody deletes the driver's node, the driver creates it again in its session.
    nodes
        .delete(&format!("{}/{}", cluster_path(), after_in_service.name))
        .await;
    let recreated_nodes = nodes
        .until_children(&cluster_path(), "made again", |nodes| nodes.len() == 1)
        .await;
    assert_ne!(recreated_nodes[0].name, after_in_service.name);
    assert_eq!(recreated_nodes[0].data, after_in_service.data);

    driver.program.terminate().unwrap();
    nodes
        .until_children(&cluster_path(), "withdrawn", <[MesosNode]>::is_empty)
        .await;
    assert!(driver.program.wait_for_end().await.unwrap().success());
    let remaining_nodes = nodes.children(DRIVERS).await;
    assert!(
        remaining_nodes.iter().all(|node| !node.name.starts_with("_c_")),
        "{remaining_nodes:?}"
    );
}

#[tokio::test]
async fn requests_succeed_while_the_zookeeper_ensemble_elects_a_leader() {
    let mut ensemble = run_blocking(|| Ensemble::start(3)).await;
    let zookeeper = ZooKeeperNode::root(&ensemble.addresses());
    let cluster = MesosCluster::default();
    let first = Scheduler::start(&cluster).await.unwrap();
    let second = Scheduler::start(&cluster).await.unwrap();
    let first_stands = SchedulerCandidate::join_election(&zookeeper.connection(), &first).await;
    let _second_stands = SchedulerCandidate::join_election(&zookeeper.connection(), &second).await;
    let driver = Front::start(&driver_config(&zookeeper, "registration: {}\n")).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes.put(&cluster_path(), &Value::Null).await;
    registered_nodes(&nodes).await;

    let writers = ConcurrentWriters::start(&[driver.routes_url()], 4);
    writers.until_created(20).await;
    let before = writers.count();
    let (ensemble, lost_server) = run_blocking(move || {
        let leader = ensemble.wait_for_leader();
        ensemble.kill(leader);
        let next = ensemble.wait_for_leader();
        assert_ne!(next, leader);
        (ensemble, leader)
    })
    .await;
    writers.until_created(20).await;
    let undisturbed = writers.count();

    // The driver keeps its session or gets a new one. Either way, it learns which scheduler is the new master.
    let nodes_after = Nodes::connect(&zookeeper.connection()).await;
    registered_nodes(&nodes_after).await;
    first_stands.resign().await;
    nodes_after
        .until_children(SCHEDULERS, "the second is the first", |nodes| nodes.len() == 1)
        .await;
    writers.until_created(20).await;
    let applications = writers.end().await;
    let (requests, problems) = scheduler_requests(&[&first, &second]);
    assert_eq!(problems, [""; 0]);
    let violations = write_violations(&applications, &cluster, &requests);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    let failed: Vec<_> = applications[..undisturbed]
        .iter()
        .filter(|application| application.answer != WriteAnswer::Created)
        .collect();
    assert!(
        failed.is_empty(),
        "{before} before server {lost_server} was killed: {failed:?}"
    );
    assert!(
        cluster
            .writes()
            .last()
            .is_some_and(|write| write.scheduler_address == second.address())
    );
    drop(ensemble);
}
