//! Tests a gateway in front of several drivers.

use admittance_tests::{MesosCluster, Scheduler};
use serde_json::Value;

use super::{
    nodes::{DRIVERS, Nodes, SchedulerCandidate},
    scene::{CLUSTER, Front, driver},
    writers::{ConcurrentWriters, WriteAnswer, received, wrong},
    zookeeper::ZooKeeperNode,
};

const CLIENTS: usize = 8;

fn gateway(place: &ZooKeeperNode, more: &str) -> String {
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}\n\
         dialect: {{ gateway: {{ discover: {{}}{more} }} }}\n\
         zookeeper: {{ service: {} }}\n",
        place.config()
    )
}

#[tokio::test]
async fn no_write_is_lost_or_duplicated_when_a_driver_is_killed() {
    let place = ZooKeeperNode::shared("gateways").await;
    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let _stands = SchedulerCandidate::stand(&place.connection(), &scheduler).await;
    let nodes = Nodes::connect(&place.connection()).await;
    let of_cluster = format!("{DRIVERS}/{CLUSTER}");
    nodes.put(&of_cluster, &Value::Null).await;
    let registering = driver(&place, "registration: {}\n");
    let mut killed = Front::start(&registering).await;
    let stays = Front::start(&registering).await;
    nodes
        .until_children(&of_cluster, "both drivers", |nodes| nodes.len() == 2)
        .await;
    let gateway = Front::start(&gateway(&place, "")).await;

    let front_door = gateway.program.url("/bcsapi/v4/scheduler/mesos");
    let writers = ConcurrentWriters::start(&[front_door], CLIENTS);
    writers.until_created(50).await;
    // The scheduler holds back its replies until each client waits for one. All drivers have the same share of clients.
    let gate = scheduler.hold();
    let mut answered = usize::MAX;
    while answered != writers.count() {
        answered = writers.count();
        scheduler.until_received(answered + CLIENTS).await.unwrap();
    }
    killed.program.kill().await.unwrap();
    drop(gate);
    nodes
        .until_children(&of_cluster, "one driver is gone", |nodes| nodes.len() == 1)
        .await;
    let gone = writers.count();
    writers.until_created(50).await;
    let written = writers.end().await;

    let (received, problems) = received(&[&scheduler]);
    assert_eq!(problems, [""; 0]);
    let wrong = wrong(&written, &cluster, &received);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Only requests to the killed driver may fail.
    let failed: Vec<_> = written
        .iter()
        .filter(|written| written.answer != WriteAnswer::Created)
        .collect();
    assert!(!failed.is_empty());
    for written in failed {
        let WriteAnswer::Refused(code, message) = &written.answer else {
            panic!("{written:?}")
        };
        assert_eq!(*code, 1_405_053, "{message}");
    }
    let after = &written[gone..];
    assert!(
        after.iter().all(|written| written.answer == WriteAnswer::Created),
        "{after:?}"
    );
    drop(stays);
}
