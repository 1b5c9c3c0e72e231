//! Tests definitions in ZooKeeper, which several drivers share. The drivers may lose their connections.

use std::time::Instant;

use admittance_tests::{MesosCluster, POLL_INTERVAL, Reply, Scheduler, SchedulerKind, TEST_TIMEOUT};
use http::Method;
use serde_json::{Value, json};

use super::{
    hooks::MesosHooks,
    nodes::{Nodes, SchedulerCandidate},
    scene::{Front, code_and_message, driver_config},
    zookeeper::{TestZooKeeper, ZooKeeperNode, run_blocking},
};
use crate::scene::application;

pub(super) const DEFINITION_NODE: &str = "/blueking/admissionwebhook/defaultGroup/webhook-test";
pub(super) const DEFINITION_ROUTE: &str = "/namespaces/defaultGroup/admissionwebhook";

/// The servers that a driver needs: a scheduler that is registered in ZooKeeper, and webhooks for definitions to call.
pub(super) struct Surroundings {
    hooks: MesosHooks,
    cluster: MesosCluster,
    pub(super) scheduler: Scheduler,
    _stands: SchedulerCandidate,
    client: admittance_tests::Client,
}

impl Surroundings {
    pub(super) async fn new(zookeeper: &ZooKeeperNode) -> Self {
        let cluster = MesosCluster::default();
        let scheduler = Scheduler::start(&cluster).await.unwrap();
        Self {
            hooks: MesosHooks::start().await,
            _stands: SchedulerCandidate::join_election(&zookeeper.connection(), &scheduler).await,
            scheduler,
            cluster,
            client: admittance_tests::Client::new().unwrap(),
        }
    }

    async fn start_driver(&self, zookeeper: &ZooKeeperNode) -> Front {
        Front::start(&self.config(zookeeper, "")).await
    }

    pub(super) fn config(&self, zookeeper: &ZooKeeperNode, additions: &str) -> String {
        let address = self.hooks.address;
        let all_additions = format!(
            "definitions: [ {{ zookeeper: {{}} }} ]\nwebhooks: {{ resolve: {{ hook.hooks: \"{address}\" }} }}\n{additions}"
        );
        driver_config(zookeeper, &all_additions)
    }

    pub(super) fn definition(&self, name: &str, hook: &str) -> Value {
        let client =
            json!({"caBundle": self.hooks.bundle, "namespace": "hooks", "name": "hook", "path": format!("/{hook}")});
        json!({
            "apiVersion": "v4",
            "kind": "admissionwebhook",
            "metadata": {"name": name, "namespace": "defaultGroup"},
            "resourcesRef": {"operation": "Create", "kind": "application"},
            "admissionWebhooks": [{"name": "hook", "failurePolicy": "Fail", "clientConfig": client}],
        })
    }

    async fn send(&self, driver: &Front, method: Method, path: &str, body: &Value) -> Reply {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let url = format!("{}{path}", driver.routes_url());
        self.client.send_bcs(method, &url, body).await.unwrap()
    }

    /// Sends a request about definitions to the driver, and checks that it succeeds. Returns the `data` of the reply.
    pub(super) async fn send_expecting_success(
        &self,
        driver: &Front,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Value {
        let reply = self.send(driver, method, path, body).await;
        let envelope = reply.json().unwrap();
        assert_eq!(
            (reply.status.as_u16(), &envelope["code"]),
            (200, &json!(0)),
            "{envelope}"
        );
        assert_eq!(envelope["message"], "success", "{envelope}");
        envelope["data"].clone()
    }

    pub(super) async fn passed_hooks(&self, driver: &Front) -> Vec<String> {
        let name = format!("web-{:016x}", fastrand::u64(..));
        let object = application("shop", &name, "docker.io/library/nginx:1.29");
        let reply = self
            .send(driver, Method::POST, "/namespaces/shop/applications", &object)
            .await;
        assert_eq!(code_and_message(&reply).0, 0, "{}", reply.text());
        let version = self.cluster.object(SchedulerKind::Application, "shop", &name).unwrap();
        let annotations = version["raw_json"]["metadata"]["annotations"].as_object();
        annotations.into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    /// Waits until the driver reports exactly the expected definitions as invalid, in its status and in its metrics.
    /// `expected` has the end of each definition's path.
    async fn until_bad_definitions(&self, driver: &Front, expected: &[&str]) {
        let mut last = (Vec::new(), Vec::new());
        let asking = async {
            loop {
                let url = driver.program.admin_url("/v1/status");
                let status = self.client.get(&url).await.unwrap().json().unwrap();
                let bad = status["problem"]["badDefinitions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let reported_paths = bad.iter().map(|bad| bad["location"].as_str().unwrap().to_owned());
                let url = driver.program.admin_url("/metrics");
                let metrics = self.client.get(&url).await.unwrap().text();
                let metrics = metrics.lines().filter_map(|line| {
                    let rest = line.strip_prefix("admittance_bad_definition{definition=\"")?;
                    rest.strip_suffix("\"} 1").map(str::to_owned)
                });
                last = (reported_paths.collect(), metrics.collect());
                last.1.sort();
                let fits = |paths: &[String]| {
                    paths.len() == expected.len() && paths.iter().zip(expected).all(|(path, end)| path.ends_with(end))
                };
                if fits(&last.0) && fits(&last.1) {
                    return;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let is_reported = tokio::time::timeout(TEST_TIMEOUT, asking).await.is_ok();
        assert!(is_reported, "{expected:?}: never; the last was {last:?}");
    }

    pub(super) async fn until_passed(&self, driver: &Front, event: &str, hooks: &[&str]) {
        let since = Instant::now();
        let mut last = Vec::new();
        let asking = async {
            loop {
                last = self.passed_hooks(driver).await;
                if last == hooks {
                    return;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let has_passed = tokio::time::timeout(TEST_TIMEOUT, asking).await.is_ok();
        assert!(has_passed, "{event}: never; the last passed {last:?}");
        eprintln!("{event}: live after {:.0?}", since.elapsed());
    }
}

#[tokio::test]
async fn two_drivers_serve_a_change_made_through_one_of_them() {
    let zookeeper = ZooKeeperNode::create_shared("definitions").await;
    let around = Surroundings::new(&zookeeper).await;
    let (one, two) = (
        around.start_driver(&zookeeper).await,
        around.start_driver(&zookeeper).await,
    );
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    assert_eq!(around.passed_hooks(&one).await, [""; 0]);

    let definition = around.definition("webhook-test", "annotates");
    assert_eq!(
        around
            .send_expecting_success(&one, Method::POST, DEFINITION_ROUTE, &definition)
            .await,
        Value::Null
    );
    assert_eq!(
        around.passed_hooks(&one).await,
        ["first"],
        "who says that it is done has done it"
    );
    around.until_passed(&two, "created through the other", &["first"]).await;
    let (stored, first) = nodes.get(DEFINITION_NODE).await.unwrap();
    for key in ["kind", "resourcesRef", "admissionWebhooks"] {
        assert_eq!(stored[key], definition[key], "{key}");
    }

    let definition = around.definition("webhook-test", "odd");
    around
        .send_expecting_success(&two, Method::PUT, DEFINITION_ROUTE, &definition)
        .await;
    assert_eq!(around.passed_hooks(&two).await, ["odd"]);
    around.until_passed(&one, "changed through the other", &["odd"]).await;
    let (_, second) = nodes.get(DEFINITION_NODE).await.unwrap();
    assert_eq!(
        (second.czxid, second.version),
        (first.czxid, first.version + 1),
        "one write"
    );
    let path = format!("{DEFINITION_ROUTE}/webhook-test");
    for driver in [&one, &two] {
        let shown_definition = around
            .send_expecting_success(driver, Method::GET, &path, &Value::Null)
            .await;
        assert_eq!(shown_definition["admissionWebhooks"][0]["clientConfig"]["path"], "/odd");
        let all = around
            .send_expecting_success(driver, Method::GET, "/admissionwebhooks", &Value::Null)
            .await;
        assert_eq!(all, json!([shown_definition]));
    }

    // Both drivers know the same definitions: they refuse to create one that exists, and to replace one that does not.
    for (method, name, code) in [
        (Method::POST, "webhook-test", 1_405_201),
        (Method::PUT, "absent", 1_405_202),
    ] {
        for driver in [&one, &two] {
            let reply = around
                .send(
                    driver,
                    method.clone(),
                    DEFINITION_ROUTE,
                    &around.definition(name, "passes"),
                )
                .await;
            assert_eq!(code_and_message(&reply).0, code, "{method} {name}: {}", reply.text());
        }
    }

    // This definition does not come from a driver. The test writes it to ZooKeeper in the format in which the BCS
    // scheduler writes definitions.
    let mut by_hand = around.definition("webhook-test", "annotates");
    by_hand["metadata"]["creationTimestamp"] = "0001-01-01T00:00:00Z".into();
    by_hand["admissionWebhooks"][0]["clientConfig"]["url"] = "".into();
    by_hand["admissionWebhooks"][0]["clientConfig"]["port"] = 0.into();
    by_hand["admissionWebhooks"][0]["namespaceSelector"] = Value::Null;
    nodes.put(DEFINITION_NODE, &by_hand).await;
    around
        .until_passed(&one, "written by another program", &["first"])
        .await;
    around
        .until_passed(&two, "written by another program", &["first"])
        .await;

    around
        .send_expecting_success(&one, Method::DELETE, &path, &Value::Null)
        .await;
    assert_eq!(around.passed_hooks(&one).await, [""; 0]);
    around.until_passed(&two, "removed through the other", &[]).await;
    assert!(nodes.get(DEFINITION_NODE).await.is_none());
    let reply = around.send(&two, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(code_and_message(&reply).0, 1_405_202, "{}", reply.text());
}

/// One node in ZooKeeper does not contain a definition. Another node contains a definition that conflicts with a valid
/// one.
#[tokio::test]
async fn valid_definitions_are_served_despite_invalid_zookeeper_nodes() {
    let zookeeper = ZooKeeperNode::create_shared("bad").await;
    let around = Surroundings::new(&zookeeper).await;
    let one = around.start_driver(&zookeeper).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    let definition = around.definition("webhook-test", "annotates");
    around
        .send_expecting_success(&one, Method::POST, DEFINITION_ROUTE, &definition)
        .await;
    // The second definition is for the same operation and kind as the first one, so the two conflict. The one with the
    // lower path in ZooKeeper stays valid, and this is the first one.
    let second_name = "webhook-test-second";
    let second = &format!("/blueking/admissionwebhook/defaultGroup/{second_name}");
    nodes.put(second, &around.definition(second_name, "odd")).await;
    let junk = "/blueking/admissionwebhook/defaultGroup/junk";
    nodes.put(junk, &json!("junk")).await;
    let mut two = around.start_driver(&zookeeper).await;
    for driver in [&one, &two] {
        assert_eq!(around.passed_hooks(driver).await.len(), 1);
        around
            .until_bad_definitions(driver, &["/junk", "/webhook-test-second"])
            .await;
    }
    assert_eq!(around.passed_hooks(&one).await, ["first"]);
    // The text in the node `junk` is not a definition. A client that reads the definition `junk` gets an error. A
    // client cannot create this definition either, because the node exists, but can replace it.
    let path = |name: &str| format!("{DEFINITION_ROUTE}/{name}");
    let reply = around.send(&one, Method::GET, &path("junk"), &Value::Null).await;
    assert_eq!(code_and_message(&reply).0, 1_405_200, "{}", reply.text());
    let mut repaired = around.definition("junk", "passes");
    repaired["resourcesRef"]["kind"] = "secret".into();
    let reply = around.send(&one, Method::POST, DEFINITION_ROUTE, &repaired).await;
    assert_eq!(code_and_message(&reply).0, 1_405_201, "{}", reply.text());
    around
        .send_expecting_success(&one, Method::PUT, DEFINITION_ROUTE, &repaired)
        .await;
    around
        .send_expecting_success(&one, Method::DELETE, &path(second_name), &Value::Null)
        .await;
    for driver in [&one, &two] {
        around.until_bad_definitions(driver, &[]).await;
        assert_eq!(around.passed_hooks(driver).await, ["first"]);
    }
    nodes.put(second, &json!([])).await;
    around.until_bad_definitions(&one, &["/webhook-test-second"]).await;
    let mut other = around.definition("other", "passes");
    other["resourcesRef"]["kind"] = "service".into();
    around
        .send_expecting_success(&one, Method::POST, DEFINITION_ROUTE, &other)
        .await;
    around
        .send_expecting_success(&one, Method::DELETE, &path(second_name), &Value::Null)
        .await;
    let all = around
        .send_expecting_success(&one, Method::GET, "/admissionwebhooks", &Value::Null)
        .await;
    assert_eq!(all.as_array().unwrap().len(), 3, "{all}");
    let names_node = |line: &admittance_tests::ProgramLogLine| {
        line.message()
            .contains("admissionwebhook/defaultGroup/junk in zookeeper:")
    };
    two.program
        .wait_for_log("the bad definition", names_node)
        .await
        .unwrap();
}

/// The two definitions conflict, because they are for the same operation and kind.
#[tokio::test]
async fn only_one_of_two_conflicting_creates_succeeds() {
    let zookeeper = ZooKeeperNode::create_shared("rivals").await;
    let around = Surroundings::new(&zookeeper).await;
    let (one, two) = (
        around.start_driver(&zookeeper).await,
        around.start_driver(&zookeeper).await,
    );
    for round in 0..5 {
        let (first_name, second_name) = (format!("mine-{round}"), format!("yours-{round}"));
        let (first, second) = (
            around.definition(&first_name, "annotates"),
            around.definition(&second_name, "odd"),
        );
        let (a, b) = tokio::join!(
            around.send(&one, Method::POST, DEFINITION_ROUTE, &first),
            around.send(&two, Method::POST, DEFINITION_ROUTE, &second),
        );
        let winner = match (code_and_message(&a).0, code_and_message(&b).0) {
            (0, 1_405_231) => first_name,
            (1_405_231, 0) => second_name,
            codes => panic!("{codes:?}: {} {}", a.text(), b.text()),
        };
        let all = around
            .send_expecting_success(&one, Method::GET, "/admissionwebhooks", &Value::Null)
            .await;
        assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
        assert_eq!(all[0]["metadata"]["name"], winner, "{all}");
        let path = format!("{DEFINITION_ROUTE}/{winner}");
        around
            .send_expecting_success(&one, Method::DELETE, &path, &Value::Null)
            .await;
        around.until_passed(&two, "deleted through the other", &[]).await;
    }
}

async fn status_text(around: &Surroundings, driver: &Front) -> String {
    let url = driver.program.admin_url("/v1/status");
    let reply = around.client.get(&url).await.unwrap();
    assert_eq!(reply.status, 200, "it serves all the time: {}", reply.text());
    reply.text()
}

async fn until_status(around: &Surroundings, driver: &Front, event: &str, condition: impl Fn(&str) -> bool) {
    let mut last = String::new();
    let asking = async {
        loop {
            last = status_text(around, driver).await;
            if condition(&last) {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let is_ready = tokio::time::timeout(TEST_TIMEOUT, asking).await.is_ok();
    assert!(is_ready, "{event}: never; the last was {last}");
}

#[tokio::test]
async fn the_live_table_survives_the_loss_of_zookeeper() {
    let mut server = run_blocking(TestZooKeeper::start).await;
    let zookeeper = ZooKeeperNode::root(server.address());
    let around = Surroundings::new(&zookeeper).await;
    let driver = around.start_driver(&zookeeper).await;
    let definition = around.definition("webhook-test", "annotates");
    around
        .send_expecting_success(&driver, Method::POST, DEFINITION_ROUTE, &definition)
        .await;
    assert_eq!(around.passed_hooks(&driver).await, ["first"]);
    let is_lost = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        value
            .get("problem")
            .is_some_and(|problem| problem.to_string().contains("zookeeper"))
    };
    assert!(!is_lost(&status_text(&around, &driver).await));

    let mut server = run_blocking(move || {
        server.stop();
        server
    })
    .await;
    until_status(&around, &driver, "the loss is reported", is_lost).await;
    // Without ZooKeeper, the driver keeps its definitions and the address of the master scheduler.
    assert_eq!(around.passed_hooks(&driver).await, ["first"]);
    let reply = around
        .send(
            &driver,
            Method::PUT,
            DEFINITION_ROUTE,
            &around.definition("webhook-test", "odd"),
        )
        .await;
    assert_eq!(code_and_message(&reply).0, 1_405_200, "{}", reply.text());
    assert_eq!(around.passed_hooks(&driver).await, ["first"]);

    let server = run_blocking(move || {
        server.start_again();
        server
    })
    .await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    let (stored, _) = nodes.get(DEFINITION_NODE).await.unwrap();
    assert_eq!(stored["admissionWebhooks"], definition["admissionWebhooks"]);
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "odd"))
        .await;
    around.until_passed(&driver, "caught up", &["odd"]).await;
    until_status(&around, &driver, "the loss is over", |text| !is_lost(text)).await;
    drop(server);
}
