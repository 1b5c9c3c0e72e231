//! Tests `/healthz` of the admin port from startup to exit, which must answer as in bcs-mesos-driver. Also tests the
//! replies to other requests during this time.

use admittance_tests::{MesosCluster, NEVER, POLL, Scheduler};
use http::Method;
use serde_json::{Value, json};

use super::{
    nodes::SchedulerCandidate,
    scene::{CLUSTER, Front, code_and_message, driver},
    zookeeper::{TestZooKeeper, ZooKeeperNode, blocking},
};
use crate::scene::application;

async fn health(driver: &Front) -> Value {
    let client = admittance_tests::Client::new().unwrap();
    let reply = client.get(&driver.program.admin_url("/healthz")).await.unwrap();
    assert_eq!(reply.headers["content-type"], "application/json");
    reply.json().unwrap()
}

/// Waits until `/healthz` has this message. Checks that its other fields have the values of bcs-mesos-driver.
async fn until_healthz(driver: &Front, message: &str) {
    let mut last = Value::Null;
    let asking = async {
        loop {
            last = health(driver).await;
            if last["message"] == message {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let is_reached = tokio::time::timeout(NEVER, asking).await.is_ok();
    assert!(is_reached, "{message}: never; the last was {last}");
    assert_eq!(last["healthy"], message == "run ok", "{last}");
    assert_eq!(last["clusterID"], CLUSTER, "{last}");
    assert_eq!(last["runMode"], "master-master", "{last}");
    for key in ["module", "ip", "current_role"] {
        assert!(last[key].is_string(), "{key}: {last}");
    }
}

async fn create(driver: &Front, name: &str) -> (u16, Value) {
    let client = admittance_tests::Client::new().unwrap();
    let url = format!("{}/namespaces/shop/applications", driver.routes());
    let object = application("shop", name, "docker.io/library/nginx:1.29").to_string();
    let reply = client.bcs(Method::POST, &url, object).await.unwrap();
    code_and_message(&reply);
    (reply.status.as_u16(), reply.json().unwrap())
}

#[tokio::test]
async fn healthz_reports_schedulers_like_bcs_mesos_driver() {
    let no_scheduler = json!({
        "result": false,
        "code": 1_405_009,
        "message": "(bcs-mesos-driver):do http request failed!scheduler not exist",
        "data": {},
    });
    // First, ZooKeeper is unreachable.
    let mut server = blocking(TestZooKeeper::start).await;
    let zookeeper = ZooKeeperNode::root(server.address());
    let mut server = blocking(move || {
        server.stop();
        server
    })
    .await;
    let driver = Front::start(&driver(&zookeeper, "")).await;
    until_healthz(&driver, "in starting").await;

    // ZooKeeper is now reachable, but no scheduler is registered in it.
    let server = blocking(move || {
        server.start_again();
        server
    })
    .await;
    until_healthz(&driver, "cannot connect to any scheduler").await;
    assert_eq!(create(&driver, "first").await, (200, no_scheduler.clone()));

    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let candidate = SchedulerCandidate::stand(&zookeeper.connection(), &scheduler).await;
    until_healthz(&driver, "run ok").await;
    let (status, reply) = create(&driver, "second").await;
    assert_eq!((status, &reply["code"]), (200, &json!(0)), "{reply}");

    candidate.resign().await;
    until_healthz(&driver, "cannot connect to any scheduler").await;
    assert_eq!(create(&driver, "third").await, (200, no_scheduler));
    assert_eq!(scheduler.requests().len(), 1);
    drop(server);
}
