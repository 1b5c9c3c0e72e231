use std::net::SocketAddr;

use admittance_bcs::zookeeper::{
    EnsembleAddress, EnsembleConfig, HeldRegistration, NodeRegistration, ZooKeeper, ZooKeeperConfig,
};
use admittance_gateway::{GatewayConfig, TokenTable, TokensConfig};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{GATEWAY_PREFIX, SimulatedDriver, gateway_setup, status_and_json};
use crate::{harness::*, tls::wait_until, zookeeper::ensemble::TestZooKeeper};

const PATH: &str = GatewayConfig::DEFAULT_PATH;

fn ensemble_config(server: &str) -> EnsembleConfig {
    EnsembleConfig::new(server.parse::<EnsembleAddress>().unwrap())
}

fn register(
    zookeeper: &ZooKeeper,
    parent: &str,
    address: SocketAddr,
    external: Option<SocketAddr>,
) -> HeldRegistration {
    let mut info = json!({
        "ip": address.ip().to_string(), "port": address.port(), "scheme": "http", "external_ip": "", "external_port": 0,
    });
    if let Some(external) = external {
        info["external_ip"] = external.ip().to_string().into();
        info["external_port"] = external.port().into();
    }
    zookeeper.register(NodeRegistration {
        parent: parent.to_owned(),
        name: address.ip().to_string(),
        data: info.to_string().into(),
    })
}

async fn code_and_message(gateway: &RunningDriver, cluster: &str) -> (u64, String) {
    let request = Request::get(format!("{GATEWAY_PREFIX}/a")).header("bcs-clusterid", cluster);
    let (_, body) = status_and_json(gateway.send(request.body(Body::empty()).unwrap()).await).await;
    let message = body["message"].as_str().unwrap().to_owned();
    (body["code"].as_u64().unwrap(), message)
}

async fn gateway_status(gateway: &RunningDriver) -> Value {
    gateway.status().await["gateway"].clone()
}

#[tokio::test]
async fn services_other_than_drivers_are_discovered_through_zookeeper() {
    let server = tokio::task::spawn_blocking(TestZooKeeper::start).await.unwrap();
    let (storage, kubernetes) = (
        SimulatedDriver::start_with_reply(404, "gone").await,
        SimulatedDriver::start().await,
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.yaml");
    let digest = |token: &str| hex::encode(Sha256::digest(token));
    let text = format!(
        "tokens:\n- {{ name: all, sha256: {}, clusters: {{ '*': Read }} }}\n- {{ name: one, sha256: {}, clusters: {{ BCS-K8S-1: Hooks }} }}\n",
        digest("all"),
        digest("one")
    );
    std::fs::write(&path, text).unwrap();
    let mut setup = gateway_setup(&[], |config| {
        config.services = true;
        config.tokens = Some(TokensConfig::File(TokenTable::read(&path).unwrap()));
    });
    setup.config.zookeeper = ZooKeeperConfig {
        cluster: None,
        service: Some(ensemble_config(server.address())),
    };
    let gateway = setup.start().await;
    let send = async |method: &str, path: &str, token: &str, cluster: &str| {
        let request = Request::builder()
            .method(method)
            .uri(format!("/bcsapi/v4/{path}"))
            .header("bcs-clusterid", cluster)
            .header("content-type", "application/yaml")
            .header("authorization", format!("Bearer {token}"));
        gateway
            .send(request.body(Body::from("a: 1")).unwrap())
            .await
            .status()
            .as_u16()
    };
    wait_until("it is known that there is none", async || {
        send("GET", "storage/x", "all", "").await == 502
    })
    .await;
    let registering = ZooKeeper::open(ensemble_config(server.address()));
    let _storage = register(&registering, "/bcs/services/endpoints/storage", storage.address, None);
    let node = "/bcs/services/endpoints/kubernetedriver/BCS-K8S-1";
    let _kubernetes = register(&registering, node, kubernetes.address, None);
    // The storage service, to which the gateway forwards this request, replies 404. The gateway passes this status on.
    wait_until("the storage", async || {
        send("GET", "storage/k8s/x?y=1", "all", "").await == 404
    })
    .await;
    let requests = storage.take_requests();
    let storage_request = requests.last().unwrap();
    assert_eq!(storage_request.uri, "/bcsstorage/v1/k8s/x?y=1");
    assert!(!storage_request.headers.contains_key("authorization"));
    assert_eq!(storage_request.body, "a: 1");
    wait_until("the driver", async || {
        send("PATCH", "scheduler/k8s/api/v1/pods", "one", "BCS-K8S-1").await == 200
    })
    .await;
    assert_eq!(
        kubernetes.take_requests().last().unwrap().uri,
        "/k8sdriver/v4/api/v1/pods"
    );
    for (method, path, token, cluster, status) in [
        ("POST", "storage/x", "all", "", 400),
        ("GET", "storage/x", "one", "", 400),
        ("GET", "storage/x", "wrong", "", 401),
        ("PATCH", "storage/x", "all", "", 405),
        ("GET", "storage/../x", "all", "", 400),
        ("GET", "netservice/x", "all", "", 502),
        ("GET", "scheduler/k8s/x", "one", "BCS-K8S-2", 400),
        ("DELETE", "scheduler/k8s/x", "all", "BCS-K8S-1", 400),
        ("GET", "scheduler/k8s/x", "all", "BCS-K8S-2", 502),
    ] {
        assert_eq!(
            send(method, path, token, cluster).await,
            status,
            "{method} {path} {token} {cluster}"
        );
    }
    assert!(storage.take_requests().is_empty() && kubernetes.take_requests().is_empty());
}

#[tokio::test]
async fn drivers_are_discovered_through_zookeeper() {
    let server = tokio::task::spawn_blocking(TestZooKeeper::start).await.unwrap();
    let (one, two, outside, listed_driver) = (
        SimulatedDriver::start().await,
        SimulatedDriver::start().await,
        SimulatedDriver::start().await,
        SimulatedDriver::start().await,
    );
    let mut setup = gateway_setup(&[("BCS-LISTED", &[listed_driver.address])], |config| {
        config.discovery = Some(PATH.parse().unwrap());
    });
    setup.config.zookeeper = ZooKeeperConfig {
        cluster: None,
        service: Some(ensemble_config(server.address())),
    };
    let gateway = setup.start().await;
    // The gateway answers after it has read the nodes in ZooKeeper, where no driver is registered yet.
    let (code, message) = code_and_message(&gateway, "BCS-1").await;
    assert_eq!(
        (code, message.as_str()),
        (1_405_051, "(bcs-api):mesos cluster BCS-1 not found")
    );
    assert_eq!(code_and_message(&gateway, "BCS-LISTED").await.0, 0);
    assert_eq!(gateway_status(&gateway).await["discovery"], PATH);

    let registering = ZooKeeper::open(ensemble_config(server.address()));
    // A driver also creates a node for schedulers, next to the nodes of the clusters. The gateway must ignore that
    // node.
    let _beside = register(&registering, PATH, one.address, None);
    let first = register(&registering, &format!("{PATH}/BCS-1"), one.address, None);
    wait_until("the first driver", async || {
        code_and_message(&gateway, "BCS-1").await.0 == 0
    })
    .await;
    let second = register(&registering, &format!("{PATH}/BCS-1"), two.address, None);
    wait_until("the second driver", async || {
        code_and_message(&gateway, "BCS-1").await;
        !two.take_requests().is_empty()
    })
    .await;
    // The gateway is outside the cluster, so it uses the driver's external address.
    let _third = register(
        &registering,
        &format!("{PATH}/BCS-2"),
        refusing_upstream().await,
        Some(outside.address),
    );
    wait_until("another cluster", async || {
        code_and_message(&gateway, "BCS-2").await.0 == 0
    })
    .await;
    assert!(!outside.take_requests().is_empty());
    // The configuration lists the drivers of the cluster `BCS-LISTED`. So if another driver registers itself for this
    // cluster, the gateway ignores it.
    let _fourth = register(&registering, &format!("{PATH}/BCS-LISTED"), one.address, None);
    let _last = register(&registering, &format!("{PATH}/BCS-3"), one.address, None);
    wait_until("the last cluster", async || {
        code_and_message(&gateway, "BCS-3").await.0 == 0
    })
    .await;
    let ids: Vec<Value> = gateway_status(&gateway).await["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cluster| cluster["cluster"].clone())
        .collect();
    assert_eq!(ids, ["BCS-1", "BCS-2", "BCS-3", "BCS-LISTED"]);
    let drivers = &gateway_status(&gateway).await["clusters"][3]["drivers"];
    assert_eq!(
        *drivers,
        json!([{"server": format!("http://{}", listed_driver.address), "up": true}])
    );

    within_timeout(second.withdraw()).await;
    wait_until("one driver", async || {
        gateway_status(&gateway).await["clusters"][0]["drivers"]
            .as_array()
            .unwrap()
            .len()
            == 1
    })
    .await;
    one.take_requests();
    two.take_requests();
    for _ in 0..4 {
        assert_eq!(code_and_message(&gateway, "BCS-1").await.0, 0);
    }
    assert_eq!((one.take_requests().len(), two.take_requests().len()), (4, 0));
    within_timeout(first.withdraw()).await;
    wait_until("nobody", async || {
        code_and_message(&gateway, "BCS-1").await.0 == 1_405_051
    })
    .await;
    let (_, message) = code_and_message(&gateway, "BCS-1").await;
    assert!(
        message.ends_with("mesos cluster BCS-1 not found: no driver of it is registered"),
        "{message}"
    );
    drop(server);
    wait_until("the loss", async || {
        gateway_status(&gateway).await["problem"] != Value::Null
    })
    .await;
    assert_eq!(code_and_message(&gateway, "BCS-2").await.0, 0);
}

#[tokio::test]
async fn without_zookeeper_a_gateway_knows_only_listed_drivers() {
    let listed_driver = SimulatedDriver::start().await;
    let mut setup = gateway_setup(&[("BCS-LISTED", &[listed_driver.address])], |config| {
        config.discovery = Some(PATH.parse().unwrap());
        config.drivers.connect_timeout = std::time::Duration::from_millis(50);
    });
    setup.config.zookeeper = ZooKeeperConfig {
        cluster: None,
        service: Some(ensemble_config(&refusing_upstream().await.to_string())),
    };
    let gateway = setup.start().await;
    assert_eq!(code_and_message(&gateway, "BCS-LISTED").await.0, 0);
    let (code, message) = code_and_message(&gateway, "BCS-1").await;
    assert_eq!(code, 1_405_051);
    assert!(
        message.contains("not found: the clusters have not been read from ZooKeeper yet"),
        "{message}"
    );
    assert_ne!(gateway_status(&gateway).await["problem"], Value::Null);
}
