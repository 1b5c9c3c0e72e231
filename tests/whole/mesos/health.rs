//! Tests `/healthz` of the admin port from startup to exit, which must answer as in bcs-mesos-driver. Also tests the
//! replies to other requests during this time.

use admittance_tests::{MesosCluster, POLL_INTERVAL, Scheduler, TEST_TIMEOUT};
use http::Method;
use serde_json::{Value, json};

use super::{
    nodes::SchedulerCandidate,
    scene::{CLUSTER, Front, code_and_message, driver_config},
    zookeeper::{TestZooKeeper, ZooKeeperNode, run_blocking},
};
use crate::scene::application;

async fn get_health(driver: &Front) -> Value {
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
            last = get_health(driver).await;
            if last["message"] == message {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let is_reached = tokio::time::timeout(TEST_TIMEOUT, asking).await.is_ok();
    assert!(is_reached, "{message}: never; the last was {last}");
    assert_eq!(last["healthy"], message == "run ok", "{last}");
    assert_eq!(last["clusterID"], CLUSTER, "{last}");
    assert_eq!(last["runMode"], "master-master", "{last}");
    for key in ["module", "ip", "current_role"] {
        assert!(last[key].is_string(), "{key}: {last}");
    }
}

async fn create_application(driver: &Front, name: &str) -> (u16, Value) {
    let client = admittance_tests::Client::new().unwrap();
    let url = format!("{}/namespaces/shop/applications", driver.routes_url());
    let object = application("shop", name, "docker.io/library/nginx:1.29").to_string();
    let reply = client.send_bcs(Method::POST, &url, object).await.unwrap();
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
    let mut server = run_blocking(TestZooKeeper::start).await;
    let zookeeper = ZooKeeperNode::root(server.address());
    let mut server = run_blocking(move || {
        server.stop();
        server
    })
    .await;
    let driver = Front::start(&driver_config(&zookeeper, "")).await;
    until_healthz(&driver, "in starting").await;

    // ZooKeeper is now reachable, but no scheduler is registered in it.
    let server = run_blocking(move || {
        server.start_again();
        server
    })
    .await;
    until_healthz(&driver, "cannot connect to any scheduler").await;
    assert_eq!(create_application(&driver, "first").await, (200, no_scheduler.clone()));

    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let candidate = SchedulerCandidate::join_election(&zookeeper.connection(), &scheduler).await;
    until_healthz(&driver, "run ok").await;
    let (status, reply) = create_application(&driver, "second").await;
    assert_eq!((status, &reply["code"]), (200, &json!(0)), "{reply}");

    candidate.resign().await;
    until_healthz(&driver, "cannot connect to any scheduler").await;
    assert_eq!(create_application(&driver, "third").await, (200, no_scheduler));
    assert_eq!(scheduler.requests().len(), 1);
    drop(server);
}
