//! Tests a BCS driver with a real ZooKeeper: how it discovers schedulers, how clients discover it, and what its status
//! contains.

use std::{net::SocketAddr, time::Duration};

use admittance_bcs::{
    RegistrationConfig, SchedulersConfig, ServerInfo, UpstreamKind,
    zookeeper::{
        EnsembleConfig, FollowedChildren, HeldRegistration, NodeRegistration, RegisteredMember, ZooKeeper,
        ZooKeeperConfig,
    },
};
use admittance_driver::ShutdownResult;
use axum::Router;
use serde_json::{Value, json};

use self::ensemble::TestZooKeeper;
use crate::{
    harness::{
        CLUSTER, RunningDriver, Setup, held_upstream, refusing_upstream, request, send, serve, status_and_text,
        within_timeout,
    },
    tls::wait_until,
};

#[path = "../../../bcs/tests/zookeeper/ensemble.rs"]
pub(crate) mod ensemble;

const SCHEDULERS_PATH: &str = SchedulersConfig::DEFAULT_PATH;
const DRIVERS_PATH: &str = "/bcs/services/endpoints/mesosdriver";
const RESOURCES_PATH: &str = "/mesosdriver/v4/cluster/resources";
const NO_SCHEDULER: &str = "cannot connect to any scheduler";

fn discovering_setup(server: &str) -> Setup {
    let mut setup = Setup::new(&[]).bcs(|bcs| {
        bcs.upstream_kind = UpstreamKind::Scheduler;
        bcs.servers = SchedulersConfig::Discovered(SCHEDULERS_PATH.parse().unwrap());
    });
    setup.config.zookeeper = ZooKeeperConfig {
        cluster: Some(EnsembleConfig::new(server.parse().unwrap())),
        service: None,
    };
    setup
}

fn register(zookeeper: &ZooKeeper, address: SocketAddr) -> HeldRegistration {
    let info = ServerInfo {
        ip: address.ip().to_string(),
        port: address.port(),
        scheme: "http".into(),
        ..ServerInfo::default()
    };
    zookeeper.register(NodeRegistration {
        parent: SCHEDULERS_PATH.to_owned(),
        name: address.to_string(),
        data: serde_json::to_vec(&info).unwrap().into(),
    })
}

async fn serve_scheduler(name: &'static str) -> SocketAddr {
    let reply = json!({"result": true, "code": 0, "message": "success", "data": name}).to_string();
    serve(Router::new().fallback(async move || reply)).await
}

async fn ask_for_resources(driver: &RunningDriver) -> (u64, String, Value) {
    let (status, body) = status_and_text(driver.send(request("GET", RESOURCES_PATH, "")).await).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let message = body["message"].as_str().unwrap().to_owned();
    (body["code"].as_u64().unwrap(), message, body["data"].clone())
}

async fn health_message(driver: &RunningDriver) -> String {
    let (status, body) = driver.get_from_admin("/healthz").await;
    assert_eq!(status, 200, "{body}");
    let mut health: Value = serde_json::from_str(&body).unwrap();
    assert!(body.starts_with("{\n    \"runMode\": "), "{body}");
    let fields = health.as_object_mut().unwrap();
    assert!(
        fields.remove("atTime").unwrap().as_u64() > Some(1_700_000_000),
        "{body}"
    );
    let message = fields["message"].as_str().unwrap().to_owned();
    let expected = json!({
        "runMode": "master-master", "module": "mesosdriver", "clusterID": CLUSTER, "ip": "127.0.0.1",
        "current_role": "master", "healthy": message == "run ok", "message": message,
    });
    assert_eq!(health, expected);
    message
}

async fn wait_for_count(members: &mut FollowedChildren<RegisteredMember>, count: usize) {
    let reached = async {
        while members.borrow().children.len() != count || !members.borrow().is_read {
            members.changed().await;
        }
    };
    within_timeout(reached).await;
}

#[tokio::test]
async fn requests_go_to_the_master_of_the_discovered_schedulers() {
    let server = tokio::task::spawn_blocking(TestZooKeeper::start).await.unwrap();
    let driver = discovering_setup(server.address()).start().await;
    wait_until("the empty list", async || health_message(&driver).await == NO_SCHEDULER).await;
    let (code, message, _) = ask_for_resources(&driver).await;
    assert_eq!(
        (code, message.as_str()),
        (
            1_405_009,
            "(bcs-mesos-driver):do http request failed!scheduler not exist"
        )
    );

    let zookeeper = ZooKeeper::open(EnsembleConfig::new(server.address().parse().unwrap()));
    let mut members = zookeeper.members(SCHEDULERS_PATH);
    let first = register(&zookeeper, serve_scheduler("first").await);
    wait_for_count(&mut members, 1).await;
    wait_until("the first scheduler", async || {
        health_message(&driver).await == "run ok"
    })
    .await;
    assert_eq!(
        ask_for_resources(&driver).await,
        (0, "success".to_owned(), json!("first"))
    );
    let _second = register(&zookeeper, serve_scheduler("second").await);
    wait_for_count(&mut members, 2).await;
    wait_until("the second scheduler", async || {
        driver.status().await["upstream"].as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(ask_for_resources(&driver).await.2, "first");
    first.withdraw().await;
    wait_until("the new master", async || {
        ask_for_resources(&driver).await.2 == "second"
    })
    .await;
    // The driver has noticed the change. The test has its own connection to ZooKeeper and may notice it later, so it
    // waits here until its own list has a single member.
    wait_for_count(&mut members, 1).await;

    let status = driver.status().await;
    assert_eq!(status["discovery"]["path"], SCHEDULERS_PATH);
    assert_eq!(status["discovery"]["known"], true);
    assert_eq!(
        status["discovery"]["registrations"],
        json!([members.borrow().children[0].name])
    );
    assert_eq!(status["zookeeper"][0]["ensemble"], "cluster");
    assert_eq!(status["zookeeper"][0]["state"], "connected");
    assert_eq!(status["zookeeper"][0]["servers"], server.address());
    assert_eq!(status["registrations"], json!([]));

    drop((members, zookeeper));
    let server = tokio::task::spawn_blocking(move || {
        let mut server = server;
        server.stop();
        server
    })
    .await
    .unwrap();
    wait_until("the loss", async || {
        let lost_status = driver.status().await;
        lost_status["zookeeper"][0]["state"] == "lost" && lost_status["discovery"]["problem"].is_string()
    })
    .await;
    assert_eq!(ask_for_resources(&driver).await.2, "second");
    assert_eq!(health_message(&driver).await, "run ok");
    drop(server);
}

#[tokio::test]
async fn a_driver_without_zookeeper_is_not_ready() {
    let address = refusing_upstream().await.to_string();
    let driver = discovering_setup(&address)
        .upstream(|upstream| upstream.connect_timeout = Duration::from_millis(50))
        .start()
        .await;
    assert_eq!(health_message(&driver).await, "in starting");
    let (code, message, _) = ask_for_resources(&driver).await;
    assert_eq!(code, 1_405_009);
    assert!(
        message.ends_with("do http request failed!scheduler not exist"),
        "{message}"
    );
    let status = driver.status().await;
    assert_eq!(
        (&status["stopping"], &status["discovery"]["known"]),
        (&json!(false), &json!(false))
    );
}

#[tokio::test]
async fn a_driver_is_registered_while_it_serves() {
    let server = tokio::task::spawn_blocking(TestZooKeeper::start).await.unwrap();
    let (upstream, release, mut arrivals) = held_upstream().await;
    let driver = discovering_setup(server.address())
        .bcs(|bcs| {
            bcs.servers = SchedulersConfig::Listed(vec![format!("http://{upstream}").parse().unwrap()]);
            bcs.registration = Some(RegistrationConfig {
                hostname: Some("h".into()),
                ..RegistrationConfig::default()
            });
        })
        .start()
        .await;
    let zookeeper = ZooKeeper::open(EnsembleConfig::new(server.address().parse().unwrap()));
    let (mut within, mut of_cluster) = (
        zookeeper.members(DRIVERS_PATH),
        zookeeper.members(&format!("{DRIVERS_PATH}/{CLUSTER}")),
    );
    for members in [&mut within, &mut of_cluster] {
        wait_for_count(members, 1).await;
        let list = members.borrow();
        let member = &list.children[0];
        let info: ServerInfo = serde_json::from_slice(&member.data).unwrap();
        let expected = ServerInfo {
            ip: "127.0.0.1".into(),
            port: driver.address.port(),
            metric_port: driver.admin.port(),
            hostname: "h".into(),
            scheme: "http".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            cluster: CLUSTER.into(),
            pid: std::process::id(),
            ..ServerInfo::default()
        };
        assert_eq!(info, expected);
        let name = member.name.strip_prefix("_c_").unwrap();
        let (guid, rest) = name.split_once('-').unwrap();
        assert!(
            guid.len() == 32 && guid.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{name}"
        );
        assert_eq!(rest, format!("127.0.0.1{:010}", member.sequence));
    }
    let nodes = [
        ("service", format!("{DRIVERS_PATH}/{CLUSTER}"), &of_cluster),
        ("cluster", DRIVERS_PATH.to_owned(), &within),
    ]
    .map(|(ensemble, below, members)| {
        let node = format!("{below}/{}", members.borrow().children[0].name);
        json!({"ensemble": ensemble, "below": below, "node": node})
    });
    wait_until("its own nodes", async || {
        driver.status().await["registrations"] == json!(nodes)
    })
    .await;

    let address = driver.address;
    let in_flight = tokio::spawn(send(address, request("GET", RESOURCES_PATH, "")));
    within_timeout(arrivals.recv()).await.unwrap();
    driver.shutdown.signal();
    for members in [&mut within, &mut of_cluster] {
        wait_for_count(members, 0).await;
    }
    release.notify_one();
    let response = within_timeout(in_flight).await.unwrap();
    let (status, body) = status_and_text(response).await;
    assert!(status == 200 && body.contains("done"), "{status} {body}");
    assert_eq!(driver.wait_until_stopped().await, ShutdownResult::Cleanly);
}
