//! Changes under load while replicas are killed or slow, or while the API server is down.

use std::time::Duration;

use admittance::Digest;
use admittance_tests::{ModuleServer, Versions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep_until};

use super::{balancer::Balancer, check_order, until_message};
use crate::{
    kubernetes::{
        resources::{CHAIN_PLURAL, chain, start_with_store},
        server::Server,
    },
    replicas::{changes_of_soak, own_name, replica_status, until_ready, until_replicas_known},
    scene::write,
    setting::{Setting, wait_until},
};

/// The time for which the API server is down in a run of `cargo task soak`. In other runs, the API server is down only
/// until the replicas have noticed it.
const OUTAGE_TIME: Duration = Duration::from_secs(60);

const CLIENT_COUNT: usize = 4;

/// The slow replica downloads a module in chunks. Before each chunk, the module server pauses for this time.
const CHUNK_PAUSE: Duration = Duration::from_secs(1);

struct Fleet {
    setting: Setting,
    modules: ModuleServer,
    /// The directories for compiled plugins: the fast replicas share one, and the slow replica has its own.
    stores: [TempDir; 2],
    /// The running replicas. The last one is slow, because it has to download modules.
    servers: Vec<Server>,
    balancer: Balancer,
    /// The version that the live chain writes into its answers.
    version: u32,
    is_soak: bool,
}

async fn start_replica(setting: &Setting, modules: &ModuleServer, store: &TempDir) -> Server {
    let authority = write(&setting.directory, "modules.pem", modules.authority());
    let additions = format!("modules: {{ ca: {} }}\n", authority.display());
    start_with_store(setting, &additions, store.path()).await
}

impl Fleet {
    async fn start(is_soak: bool) -> Self {
        let setting = Setting::new();
        let modules = ModuleServer::start().await.unwrap();
        let stores = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let [shared, slow] = &stores;
        setting.server.put(CHAIN_PLURAL, chain("pods", "version 0"));
        let mut servers = Vec::new();
        for store in [shared, shared, slow] {
            let server = start_replica(&setting, &modules, store).await;
            until_ready(&server.program).await;
            servers.push(server);
        }
        until_replicas_known(&servers[0].program, 3).await;
        Self {
            balancer: Balancer::start(&servers, CLIENT_COUNT),
            setting,
            modules,
            stores,
            servers,
            version: 0,
            is_soak,
        }
    }

    fn next_chain(&mut self) -> Value {
        self.version += 1;
        chain("pods", &format!("version {}", self.version))
    }

    fn change_chain(&mut self) {
        let next = self.next_chain();
        self.setting.server.put(CHAIN_PLURAL, next);
    }

    async fn until_changed(&self) {
        for server in &self.servers {
            until_message(server, &format!("version {}", self.version)).await;
        }
    }

    async fn change_repeatedly(&mut self, count: u32) {
        for _ in 0..count {
            self.change_chain();
            self.until_changed().await;
        }
    }

    async fn find_replica_index(&self, is_leader: bool) -> usize {
        let mut replica_index = None;
        wait_until("a replica that leads, or not", async || {
            for (index, server) in self.servers.iter().enumerate() {
                let status = server.program.status().await.unwrap();
                if status["leader"]["self"] == is_leader {
                    replica_index = Some(index);
                }
            }
            replica_index.is_some()
        })
        .await;
        replica_index.unwrap()
    }

    /// Changes the chain, kills the replica at this index before the change is live, and starts another replica.
    async fn kill_replica(&mut self, index: usize) {
        self.change_chain();
        let mut killed = self.servers.remove(index);
        killed.program.kill().await.unwrap();
        self.until_changed().await;
        let server = start_replica(&self.setting, &self.modules, &self.stores[0]).await;
        until_ready(&server.program).await;
        self.balancer.add(&server);
        self.servers.insert(0, server);
        self.until_changed().await;
    }

    async fn lose_api_server(&mut self) {
        let return_time = Instant::now() + OUTAGE_TIME;
        self.setting.server.become_unavailable();
        self.change_chain();
        for server in &self.servers {
            wait_until("a replica says that it is alone", async || {
                replica_status(&server.program).await["problem"] != Value::Null
            })
            .await;
        }
        if self.is_soak {
            sleep_until(return_time).await;
        }
        let before = format!("version {}", self.version - 1);
        for server in &self.servers {
            assert!(super::denial_message(server).await.contains(&before));
            assert!(server.program.is_ready().await);
        }
        self.setting.server.become_available();
        self.until_changed().await;
    }

    /// Changes the module, and checks that all replicas wait for the slow one.
    async fn wait_for_slow_replica(&mut self) {
        let module = Versions::find().unwrap().module(1);
        let digest = Digest::of_bytes(&module).to_string();
        self.modules.put("new.wasm", module);
        let mut changed = self.next_chain();
        let stages = changed["spec"]["stages"].as_array_mut().unwrap();
        stages.push(json!({
            "name": "new",
            "matchConditions": [{"name": "never", "expression": "false"}],
            "plugin": {"source": self.modules.url("new.wasm"), "digest": digest, "settings": {"name": "new"}},
        }));
        let [first, _, slow] = self.servers.as_slice() else {
            panic!("there are three replicas");
        };
        let file = write(&first.directory, "new.json", changed.to_string());
        let apply_output = first
            .run_command(&["apply", "--dry-run", "-f", file.to_str().unwrap()])
            .await;
        assert_eq!(
            apply_output.code,
            Some(0),
            "{}{}",
            apply_output.stdout,
            apply_output.stderr
        );

        self.modules.slow_down(CHUNK_PAUSE);
        self.setting.server.put(CHAIN_PLURAL, changed);
        let name = own_name(&slow.program).await;
        for server in &self.servers {
            wait_until("the slow replica is named, and no other", async || {
                let waiting = replica_status(&server.program).await["waiting"].take();
                waiting
                    .as_array()
                    .is_some_and(|waiting| waiting.len() == 1 && waiting[0].as_str().unwrap().starts_with(&name))
            })
            .await;
        }
        for server in &self.servers {
            let answer_count = self.balancer.answer_count(server);
            wait_until("a replica goes on with answering", async || {
                self.balancer.answer_count(server) > answer_count + 10
            })
            .await;
            assert!(server.program.is_ready().await);
        }
        self.modules.slow_down(Duration::ZERO);
        self.until_changed().await;
    }
}

#[tokio::test]
async fn changes_under_load_go_live_everywhere_at_once() {
    let changes = changes_of_soak();
    let share = changes.unwrap_or(20) / 5;
    let mut fleet = Fleet::start(changes.is_some()).await;
    let started = Instant::now();
    let log_step = |step: &str| println!("{:?}: {step}", started.elapsed());
    fleet.change_repeatedly(share).await;
    log_step("a replica is slow");
    fleet.wait_for_slow_replica().await;
    fleet.change_repeatedly(share - 1).await;
    log_step("a replica is killed");
    let other = fleet.find_replica_index(false).await;
    fleet.kill_replica(other).await;
    fleet.change_repeatedly(share - 1).await;
    log_step("the leader is killed");
    let leader = fleet.find_replica_index(true).await;
    fleet.kill_replica(leader).await;
    fleet.change_repeatedly(share - 1).await;
    log_step("the API server is away");
    fleet.lose_api_server().await;
    fleet.change_repeatedly(share - 1).await;
    log_step("the end");

    let Fleet {
        setting,
        balancer,
        servers,
        version,
        is_soak,
        ..
    } = fleet;
    let answers = balancer.stop().await;
    assert!(answers.count() > version as usize, "{}", answers.count());
    assert_eq!(check_order(&setting), version as usize + 1);
    let (overlap, before) = answers.longest_overlap();
    println!(
        "{} answers, {} of them of a second replica, {version} changes, longest overlap {overlap:?} after version {before}",
        answers.count(),
        answers.repeated,
    );
    if is_soak {
        assert!(overlap < Duration::from_secs(1), "{overlap:?} after version {before}");
    }
    let hash = servers[0].program.status().await.unwrap()["hash"].clone();
    for server in &servers {
        let status = server.program.status().await.unwrap();
        assert_eq!((&status["hash"], &status["replicas"]["target"]), (&hash, &hash));
        wait_until("the metrics say so too", async || {
            let metrics = server.program.metrics().await.unwrap();
            let value = |name| metrics.sum(name, &[]);
            value("admittance_replicas_waiting") == Some(0.0) && value("admittance_replica_ready") == Some(1.0)
        })
        .await;
    }
}
