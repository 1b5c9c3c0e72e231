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
    harness::{CLUSTER, RunningDriver, Setup, held_upstream, refusing, request, send, serve, soon, text},
    tls::until,
};

#[path = "../../../bcs/tests/zookeeper/ensemble.rs"]
pub(crate) mod ensemble;

const SCHEDULERS: &str = SchedulersConfig::DEFAULT_PATH;
const DRIVERS: &str = "/bcs/services/endpoints/mesosdriver";
const RESOURCES: &str = "/mesosdriver/v4/cluster/resources";
const NO_SCHEDULER: &str = "cannot connect to any scheduler";

fn discovering(server: &str) -> Setup {
    let mut setup = Setup::new(&[]).bcs(|bcs| {
        bcs.upstream_kind = UpstreamKind::Scheduler;
        bcs.servers = SchedulersConfig::Discovered(SCHEDULERS.parse().unwrap());
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
        parent: SCHEDULERS.to_owned(),
        name: address.to_string(),
        data: serde_json::to_vec(&info).unwrap().into(),
    })
}

async fn scheduler(name: &'static str) -> SocketAddr {
    let reply = json!({"result": true, "code": 0, "message": "success", "data": name}).to_string();
    serve(Router::new().fallback(async move || reply)).await
}

async fn ask(driver: &RunningDriver) -> (u64, String, Value) {
    let (status, body) = text(driver.send(request("GET", RESOURCES, "")).await).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let message = body["message"].as_str().unwrap().to_owned();
    (body["code"].as_u64().unwrap(), message, body["data"].clone())
}

async fn health(driver: &RunningDriver) -> String {
    let (status, body) = driver.ask("/healthz").await;
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

async fn count(members: &mut FollowedChildren<RegisteredMember>, count: usize) {
    let reached = async {
        while members.borrow().children.len() != count || !members.borrow().is_read {
            members.changed().await;
        }
    };
    soon(reached).await;
}

#[tokio::test]
async fn requests_go_to_the_master_of_the_discovered_schedulers() {
    let server = tokio::task::spawn_blocking(TestZooKeeper::start).await.unwrap();
    let driver = discovering(server.address()).start().await;
    until("the empty list", async || health(&driver).await == NO_SCHEDULER).await;
    let (code, message, _) = ask(&driver).await;
    assert_eq!(
        (code, message.as_str()),
        (
            1_405_009,
            "(bcs-mesos-driver):do http request failed!scheduler not exist"
        )
    );

    let zookeeper = ZooKeeper::open(EnsembleConfig::new(server.address().parse().unwrap()));
    let mut members = zookeeper.members(SCHEDULERS);
    let first = register(&zookeeper, scheduler("first").await);
    count(&mut members, 1).await;
    until("the first scheduler", async || health(&driver).await == "run ok").await;
    assert_eq!(ask(&driver).await, (0, "success".to_owned(), json!("first")));
    let _second = register(&zookeeper, scheduler("second").await);
    count(&mut members, 2).await;
    until("the second scheduler", async || {
        driver.status().await["upstream"].as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(ask(&driver).await.2, "first");
    first.withdraw().await;
    until("the new master", async || ask(&driver).await.2 == "second").await;
    // The driver has noticed the change. The test has its own connection to ZooKeeper and may notice it later, so it
    // waits here until its own list has a single member.
    count(&mut members, 1).await;

    let status = driver.status().await;
    assert_eq!(status["discovery"]["path"], SCHEDULERS);
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
    until("the loss", async || {
        let lost_status = driver.status().await;
        lost_status["zookeeper"][0]["state"] == "lost" && lost_status["discovery"]["problem"].is_string()
    })
    .await;
    assert_eq!(ask(&driver).await.2, "second");
    assert_eq!(health(&driver).await, "run ok");
    drop(server);
}

#[tokio::test]
async fn a_driver_without_zookeeper_is_not_ready() {
    let address = refusing().await.to_string();
    let driver = discovering(&address)
        .upstream(|upstream| upstream.connect_timeout = Duration::from_millis(50))
        .start()
        .await;
    assert_eq!(health(&driver).await, "in starting");
    let (code, message, _) = ask(&driver).await;
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
    let driver = discovering(server.address())
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
        zookeeper.members(DRIVERS),
        zookeeper.members(&format!("{DRIVERS}/{CLUSTER}")),
    );
    for members in [&mut within, &mut of_cluster] {
        count(members, 1).await;
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
        ("service", format!("{DRIVERS}/{CLUSTER}"), &of_cluster),
        ("cluster", DRIVERS.to_owned(), &within),
    ]
    .map(|(ensemble, below, members)| {
        let node = format!("{below}/{}", members.borrow().children[0].name);
        json!({"ensemble": ensemble, "below": below, "node": node})
    });
    until("its own nodes", async || {
        driver.status().await["registrations"] == json!(nodes)
    })
    .await;

    let address = driver.address;
    let in_flight = tokio::spawn(send(address, request("GET", RESOURCES, "")));
    soon(arrivals.recv()).await.unwrap();
    driver.shutdown.signal();
    for members in [&mut within, &mut of_cluster] {
        count(members, 0).await;
    }
    release.notify_one();
    let response = soon(in_flight).await.unwrap();
    let (status, body) = text(response).await;
    assert!(status == 200 && body.contains("done"), "{status} {body}");
    assert_eq!(driver.wait_until_stopped().await, ShutdownResult::Cleanly);
}
