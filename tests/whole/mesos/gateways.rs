//! Tests a gateway in front of several drivers.

use admittance_tests::{MesosCluster, Scheduler};
use serde_json::Value;

use super::{
    nodes::{DRIVERS, Nodes, SchedulerCandidate},
    scene::{CLUSTER, Front, driver_config},
    writers::{ConcurrentWriters, WriteAnswer, scheduler_requests, write_violations},
    zookeeper::ZooKeeperNode,
};

const CLIENT_COUNT: usize = 8;

fn gateway_config(zookeeper: &ZooKeeperNode, additions: &str) -> String {
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}\n\
         dialect: {{ gateway: {{ discover: {{}}{additions} }} }}\n\
         zookeeper: {{ service: {} }}\n",
        zookeeper.config()
    )
}

#[tokio::test]
async fn no_write_is_lost_or_duplicated_when_a_driver_is_killed() {
    let zookeeper = ZooKeeperNode::create_shared("gateways").await;
    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let _stands = SchedulerCandidate::join_election(&zookeeper.connection(), &scheduler).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    let of_cluster = format!("{DRIVERS}/{CLUSTER}");
    nodes.put(&of_cluster, &Value::Null).await;
    let registering = driver_config(&zookeeper, "registration: {}\n");
    let mut killed_driver = Front::start(&registering).await;
    let staying_driver = Front::start(&registering).await;
    nodes
        .until_children(&of_cluster, "both drivers", |nodes| nodes.len() == 2)
        .await;
    let gateway = Front::start(&gateway_config(&zookeeper, "")).await;

    let front_door = gateway.program.url("/bcsapi/v4/scheduler/mesos");
    let writers = ConcurrentWriters::start(&[front_door], CLIENT_COUNT);
    writers.until_created(50).await;
    // The scheduler holds back its replies until each client waits for one. All drivers have the same share of clients.
    let gate = scheduler.hold_replies();
    let mut answered_count = usize::MAX;
    while answered_count != writers.count() {
        answered_count = writers.count();
        scheduler
            .wait_until_received(answered_count + CLIENT_COUNT)
            .await
            .unwrap();
    }
    killed_driver.program.kill().await.unwrap();
    drop(gate);
    nodes
        .until_children(&of_cluster, "one driver is gone", |nodes| nodes.len() == 1)
        .await;
    let written_count = writers.count();
    writers.until_created(50).await;
    let applications = writers.end().await;

    let (requests, problems) = scheduler_requests(&[&scheduler]);
    assert_eq!(problems, [""; 0]);
    let violations = write_violations(&applications, &cluster, &requests);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    // Only requests to the killed driver may fail.
    let failed: Vec<_> = applications
        .iter()
        .filter(|application| application.answer != WriteAnswer::Created)
        .collect();
    assert!(!failed.is_empty());
    for failed_application in failed {
        let WriteAnswer::Refused(code, message) = &failed_application.answer else {
            panic!("{failed_application:?}")
        };
        assert_eq!(*code, 1_405_053, "{message}");
    }
    let after = &applications[written_count..];
    assert!(
        after.iter().all(|later| later.answer == WriteAnswer::Created),
        "{after:?}"
    );
    drop(staying_driver);
}
