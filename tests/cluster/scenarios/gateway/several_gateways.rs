//! Several gateways that share a database, and outages of this database.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{
    RECONNECT_TIMEOUT,
    balancer::ConnectionBalancer,
    scene::{GatewayScene, GatewaySetting, create_token, rest_client, run_command},
    watches::{end_with_errors, open_watches},
};
use crate::{cluster::TestCluster, ensemble, mariadb::ClusterMariaDb, process::wait_until, scene::replace};

const WATCHES: usize = 10;

struct SharedStorage {
    server: ClusterMariaDb,
    directory: TempDir,
}

impl SharedStorage {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = ClusterMariaDb::start(directory.path()).await.unwrap();
        // Both keys are the same fixed text, in the format that `openssl rand -base64 32` prints.
        for name in [KEYS_FILE, SECRET_FILE] {
            let text = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";
            write_private_file(&directory, name, text);
        }
        Self { server, directory }
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn accounts(&self) -> Value {
        json!({"mysql": self.server.config(), "keyFile": self.file(KEYS_FILE)})
    }
}

const KEYS_FILE: &str = "accounts.key";
const SECRET_FILE: &str = "peers.secret";

fn write_private_file(directory: &TempDir, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;

    let path = directory.path().join(name);
    replace(&path, text.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) async fn a_second_gateway_replaces_a_killed_one(cluster: Arc<TestCluster>) {
    let shared = SharedStorage::start().await;
    let ensemble = tokio::task::spawn_blocking(ensemble::TestZooKeeper::start)
        .await
        .unwrap();
    let front = ConnectionBalancer::start().await;
    let tls = json!({"ca": "certs/ca.pem", "serverName": "localhost"});
    let setting = GatewaySetting {
        accounts: shared.accounts(),
        peers: Some(json!({"secretFile": shared.file(SECRET_FILE), "tls": tls})),
        extra_config: json!({
            "zookeeper": {"service": {"servers": [ensemble.address()], "sessionTimeout": "2s"}},
            "registration": {},
        }),
        balancer: Some(&front),
        ..GatewaySetting::simple(true)
    };
    let mut gateway = GatewayScene::start_configured(cluster, setting).await;
    let (first_url, alice_token) = (gateway.scene.url(""), create_token(&gateway.scene, "alice").await);
    let mut first = gateway.scene.serve_elsewhere().await;
    let second_url = gateway.scene.url("");
    front.pass_to(&[first_url.clone(), second_url.clone()]);
    let by_second = rest_client(&gateway.scene, &second_url, &alice_token);
    gateway.wait_until_reached_by(&by_second).await;
    let tunnels = |status: &Value| {
        let cluster = &status["gateway"]["kubernetes"][0];
        (cluster["tunnels"].as_u64(), cluster["gateways"].as_u64())
    };
    let status = gateway.scene.program_mut().status().await.unwrap();
    assert_eq!(tunnels(&status), (Some(0), Some(1)), "{status}");

    // The agent's tunnel is at the first gateway, so the second one forwards all requests and watches to it.
    gateway.rest = by_second.clone();
    let create = async |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let reply = by_second.post(&gateway.path("configmaps"), &object).await.unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text());
    };
    create("through-both").await;
    let mut watches = open_watches(&gateway, WATCHES).await;
    first.kill().await.unwrap();
    end_with_errors(&mut watches, WATCHES).await;
    timeout(RECONNECT_TIMEOUT, gateway.wait_until_reached()).await.unwrap();
    create("through-the-second").await;
    let status = gateway
        .scene
        .program_mut()
        .wait_for_status("the agent's tunnel", |status| tunnels(status) == (Some(1), Some(0)));
    status.await.unwrap();
    gateway
        .run("get configmap through-both through-the-second")
        .await
        .assert_success();

    drop(first);
    let second = gateway.scene.serve_elsewhere().await;
    let by_third = rest_client(&gateway.scene, &gateway.scene.url(""), &alice_token);
    gateway.wait_until_reached_by(&by_third).await;
    drop(second);
}

pub(crate) async fn gateways_survive_an_outage_of_the_database(cluster: Arc<TestCluster>) {
    let mut shared = SharedStorage::start().await;
    let setting = GatewaySetting {
        accounts: shared.accounts(),
        ..GatewaySetting::simple(true)
    };
    let gateway = GatewayScene::start_configured(cluster, setting).await;
    shared.server.kill().await.unwrap();
    // While the database is down, the gateway uses the data that it has read from the database before.
    let create = async |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let path = gateway.path("configmaps");
        let reply = gateway.rest.send(Method::POST, &path, Some(&object)).await.unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text());
    };
    create("without-the-database").await;
    run_command(&gateway.scene, "users create bob")
        .await
        .assert_failure_with(&["the database of users and clusters"]);
    let metric_name = "admittance_gateway_accounts_last_read_successful";
    wait_until("the report of the problem", async || {
        (gateway.scene.metrics().await.sum(metric_name, &[]) == Some(0.0)).then_some(())
    })
    .await;
    create("after-the-report").await;

    shared.server.start_again().await.unwrap();
    let back = wait_until("the database", async || {
        (gateway.scene.metrics().await.sum(metric_name, &[]) == Some(1.0)).then_some(())
    });
    timeout(Duration::from_secs(30), back).await.unwrap();
    run_command(&gateway.scene, "users create bob").await.assert_success();
    gateway.revoke().await;
    gateway.run("get configmaps").await.assert_failure_with(&["logged in"]);
}
