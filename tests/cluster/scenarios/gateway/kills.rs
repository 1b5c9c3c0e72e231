//! Kills the agent or the gateway while clients send requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::{
    RECONNECT_TIMEOUT,
    scene::GatewayScene,
    watches::{end_with_errors, open_watches},
};
use crate::{
    cluster::TestCluster,
    process::{TEST_TIMEOUT, wait_until},
    rest::UserClient,
};

const CLIENTS: usize = 8;
const WATCHES: usize = 20;
const BACKOFF: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Tally {
    created_names: Vec<String>,
    /// The number of requests that the gateway refused with a `Status`.
    refused_count: usize,
    /// The number of requests without a complete reply.
    broken_count: usize,
}

/// Running clients, each of which creates one object after another until the load is stopped.
struct GatewayLoad {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Tally>,
}

impl GatewayLoad {
    fn start(gateway: &GatewayScene, name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let name = format!("{name}-{client}");
            clients.spawn(create_until_stopped(
                gateway.rest.clone(),
                gateway.path("configmaps"),
                name,
                stop.clone(),
            ));
        }
        Self { stop, clients }
    }

    async fn stop(self, gateway: &GatewayScene) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for tally in self.clients.join_all().await {
            all.created_names.extend(tally.created_names);
            all.refused_count += tally.refused_count;
            all.broken_count += tally.broken_count;
        }
        assert!(!all.created_names.is_empty());
        let path = format!("/api/v1/namespaces/{}/configmaps", gateway.scene.namespace);
        let config_maps = gateway.scene.rest.get(&path).await.unwrap().json().unwrap();
        let items = config_maps["items"].as_array().unwrap();
        for name in &all.created_names {
            let is_there = items.iter().any(|item| item["metadata"]["name"] == **name);
            assert!(is_there, "{name} was created, and is not there");
        }
        all
    }
}

async fn create_until_stopped(rest: UserClient, path: String, name: String, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{name}-{number}");
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"text": "x".repeat(1000)},
        });
        let answered = timeout(TEST_TIMEOUT, rest.post(&path, &object)).await;
        match answered.unwrap() {
            Ok(reply) if reply.status.is_success() => {
                assert_eq!(reply.json().unwrap()["metadata"]["name"], name);
                tally.created_names.push(name);
                continue;
            }
            Ok(reply) => {
                let status = reply.json().unwrap();
                assert!(
                    status["kind"] == "Status" && reply.status.is_server_error(),
                    "{}: {status}",
                    reply.status
                );
                tally.refused_count += 1;
            }
            Err(_) => tally.broken_count += 1,
        }
        tokio::time::sleep(BACKOFF).await;
    }
    tally
}

pub(crate) async fn confirmed_objects_survive_a_kill_of_the_agent(cluster: Arc<TestCluster>) {
    let mut gateway = GatewayScene::start(cluster, true).await;
    let mut watches = open_watches(&gateway, WATCHES).await;
    let load = GatewayLoad::start(&gateway, "agent");
    gateway.agent.kill().await.unwrap();
    let path = format!("{}/version", gateway.prefix);
    wait_until("an error", async || {
        let reply = gateway.rest.get(&path).await.unwrap();
        reply.status.is_server_error().then_some(())
    })
    .await;
    end_with_errors(&mut watches, WATCHES).await;
    gateway.start_agent();
    timeout(RECONNECT_TIMEOUT, gateway.wait_until_reached()).await.unwrap();
    let tally = load.stop(&gateway).await;
    // At the time of the kill, each client had at most one request in flight. Only these may lack a complete reply.
    assert!(tally.refused_count > 0 && tally.broken_count <= CLIENTS, "{tally:?}");
}

pub(crate) async fn confirmed_objects_survive_a_kill_of_the_gateway(cluster: Arc<TestCluster>) {
    let mut gateway = GatewayScene::start(cluster, true).await;
    let mut watches = open_watches(&gateway, WATCHES).await;
    let load = GatewayLoad::start(&gateway, "gateway");
    gateway.scene.program_mut().kill().await.unwrap();
    end_with_errors(&mut watches, WATCHES).await;
    gateway.scene.start_again().await;
    timeout(RECONNECT_TIMEOUT, gateway.wait_until_reached()).await.unwrap();
    let tally = load.stop(&gateway).await;
    assert!(tally.broken_count > 0, "{tally:?}");
}
