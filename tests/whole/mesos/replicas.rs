//! Several drivers that start to use each change of the definitions at the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance_tests::{Admittance, Client, Mark, ProgramLogLine, TimedAnswer, Versions, longest_overlap};
use http::Method;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::{
    definitions::{DEFINITION_NODE, DEFINITION_ROUTE, Surroundings},
    nodes::{DRIVERS, Nodes},
    scene::{CLUSTER, Front},
    zookeeper::{TestZooKeeper, ZooKeeperNode, run_blocking},
};
use crate::{
    replicas::{changes_of_soak, own_name, replica_status, until_ready, until_waiting},
    setting::wait_until,
};

fn drivers_path() -> String {
    format!("/admittance/drivers/{CLUSTER}")
}

/// Starts a driver with a ZooKeeper session that does not expire before the test ends.
async fn start_with_long_session(around: &Surroundings, zookeeper: &ZooKeeperNode) -> Front {
    let config = around.config(zookeeper, "").replace("2s", "60s");
    Front::start(&config).await
}

/// Waits until this driver reports `count` drivers, of which one is the leader. Returns the name of this driver.
async fn until_replicas_known(driver: &Front, count: usize) -> String {
    wait_until("the drivers know one another, and have a leader", async || {
        let replica_list = replica_status(&driver.program).await["replicas"].clone();
        let entries = replica_list.as_array().map(Vec::as_slice).unwrap_or_default();
        let leaders = entries.iter().filter(|replica| replica["leader"] == true);
        entries.len() == count && leaders.count() == 1
    })
    .await;
    own_name(&driver.program).await
}

async fn is_leader(driver: &Front) -> bool {
    let replicas = replica_status(&driver.program).await;
    let mut entries = replicas["replicas"].as_array().into_iter().flatten();
    entries.any(|replica| replica["self"] == true && replica["leader"] == true)
}

/// Checks that no driver served a table before the leader had published it as the target of all drivers.
async fn check_order(nodes: &Nodes) {
    let (published, target) = nodes.get(&drivers_path()).await.unwrap();
    for driver in nodes.children(&drivers_path()).await {
        let Some((report, stat)) = nodes.get(&format!("{}/{}", drivers_path(), driver.name)).await else {
            continue;
        };
        assert_ne!(driver.session, 0, "it is ephemeral");
        if report["live"] == published["target"] && target.version > 1 {
            assert!(stat.mzxid > target.mzxid, "{report} before {published}");
        }
    }
}

/// Creates applications through the ready drivers in turn. Checks that no driver returns to an earlier table.
async fn create_until_over(
    around: &Surroundings,
    drivers: &[Front],
    is_over: &AtomicBool,
    answers: &mut Vec<TimedAnswer>,
) {
    let mut newest = vec![0; drivers.len()];
    for (index, driver) in drivers.iter().enumerate().cycle() {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        if !driver.program.is_ready().await {
            continue;
        }
        let passed = around.passed_hooks(driver).await;
        let [version] = passed.as_slice() else {
            panic!("{passed:?}")
        };
        let answer = TimedAnswer::from_message(version).unwrap();
        assert!(answer.version >= newest[index], "{version} after {}", newest[index]);
        newest[index] = answer.version;
        answers.push(answer);
    }
}

#[tokio::test]
async fn three_drivers_go_live_with_each_change_together() {
    let soak = changes_of_soak();
    let changes = soak.map_or(20, |changes| changes as usize);
    let zookeeper = ZooKeeperNode::create_shared("together").await;
    let around = Surroundings::new(&zookeeper).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-0"))
        .await;
    let config = around.config(&zookeeper, "");
    let drivers = [
        Front::start(&config).await,
        Front::start(&config).await,
        Front::start(&config).await,
    ];
    for driver in &drivers {
        until_ready(&driver.program).await;
    }
    let names = [
        until_replicas_known(&drivers[0], 3).await,
        until_replicas_known(&drivers[1], 3).await,
        until_replicas_known(&drivers[2], 3).await,
    ];
    assert!(is_leader(&drivers[0]).await, "the first one");

    let (is_over, mut answers) = (Arc::new(AtomicBool::new(false)), Vec::new());
    let changing = async {
        for number in 1..=changes {
            let definition = around.definition("webhook-test", &format!("version-{number}"));
            let driver = &drivers[number % drivers.len()];
            around
                .send_expecting_success(driver, Method::PUT, DEFINITION_ROUTE, &definition)
                .await;
            let expected = format!("version-{number}");
            assert_eq!(
                around.passed_hooks(driver).await,
                [&*expected],
                "who says that it is done has done it"
            );
            for driver in &drivers {
                around.until_passed(driver, &expected, &[&expected]).await;
            }
            check_order(&nodes).await;
        }
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(changing, create_until_over(&around, &drivers, &is_over, &mut answers));
    answers.sort();
    let (overlap, _) = longest_overlap(&answers);
    println!(
        "{} answers, {changes} changes, longest overlap {overlap:?}",
        answers.len()
    );
    if soak.is_some() {
        assert!(overlap < Duration::from_secs(1), "{overlap:?}");
    }
    let (published, stat) = nodes.get(&drivers_path()).await.unwrap();
    assert_eq!(usize::try_from(stat.version).unwrap(), changes + 1);
    for driver in &drivers {
        let status = driver.program.status().await.unwrap();
        assert_eq!(status["replicas"]["target"], published["target"]);
        assert_eq!(status["hash"], published["target"]);
        let metrics = driver.program.metrics().await.unwrap();
        assert_eq!(metrics.sum("admittance_replicas", &[]), Some(3.0));
        assert_eq!(metrics.sum("admittance_replicas_waiting", &[]), Some(0.0));
        assert_eq!(metrics.sum("admittance_replica_ready", &[]), Some(1.0));
    }
    let server = drivers[1].program.admin_url("");
    let status_output = Admittance::run(["status", "--fleet", "--server", &server])
        .await
        .unwrap();
    for name in &names {
        assert!(
            status_output.stdout.contains(name.as_str()),
            "{name}: {}",
            status_output.stdout
        );
    }
}

#[tokio::test]
async fn a_hanging_driver_delays_the_other_drivers_and_is_reported_by_name() {
    let zookeeper = ZooKeeperNode::create_shared("hangs").await;
    let around = Surroundings::new(&zookeeper).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-0"))
        .await;
    let first = start_with_long_session(&around, &zookeeper).await;
    let mut slow = start_with_long_session(&around, &zookeeper).await;
    for driver in [&first, &slow] {
        until_ready(&driver.program).await;
    }
    let name = until_replicas_known(&slow, 2).await;
    until_replicas_known(&first, 2).await;

    slow.program.suspend().unwrap();
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-1"))
        .await;
    let waiting = until_waiting(&first.program, &name).await;
    assert!(waiting.contains("has not prepared"), "{waiting}");
    assert_eq!(around.passed_hooks(&first).await, ["version-0"]);
    let server = first.program.admin_url("");
    let status_output = Admittance::run(["status", "--fleet", "--server", &server])
        .await
        .unwrap();
    assert!(
        status_output.stdout.contains("a change waits:") && status_output.stdout.contains(&name),
        "{}",
        status_output.stdout
    );
    slow.program.resume().unwrap();
    for driver in [&first, &slow] {
        around
            .until_passed(driver, "both have prepared it", &["version-1"])
            .await;
    }
    check_order(&nodes).await;

    slow.program.terminate().unwrap();
    slow.program.wait_for_end().await.unwrap();
    let definition = around.definition("webhook-test", "version-2");
    around
        .send_expecting_success(&first, Method::PUT, DEFINITION_ROUTE, &definition)
        .await;
    assert_eq!(around.passed_hooks(&first).await, ["version-2"]);
}

#[tokio::test]
async fn drivers_keep_serving_after_a_kill_and_without_zookeeper() {
    let server = run_blocking(TestZooKeeper::start).await;
    let zookeeper = ZooKeeperNode::root(server.address());
    // The drivers do not look for the scheduler in ZooKeeper, because their configuration has its address. So they can
    // still reach the scheduler when this test stops its ZooKeeper server.
    let around = Surroundings::new(&ZooKeeperNode::create_shared("elsewhere").await).await;
    let config = around
        .config(&zookeeper, "")
        .replace("discover: {}", &format!("servers: [\"{}\"]", around.scheduler.url()))
        .replace(CLUSTER, &format!("{CLUSTER}, behind: scheduler"));
    let start_driver = async || Front::start(&config.replace("2s", "60s")).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-0"))
        .await;
    let mut leader = Front::start(&config).await;
    until_ready(&leader.program).await;
    until_replicas_known(&leader, 1).await;
    assert!(is_leader(&leader).await);
    let (mut second, third) = (start_driver().await, start_driver().await);
    for driver in [&second, &third] {
        until_ready(&driver.program).await;
    }
    until_replicas_known(&leader, 3).await;
    until_replicas_known(&third, 3).await;

    second.program.suspend().unwrap();
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-1"))
        .await;
    until_waiting(&leader.program, "has not prepared").await;
    leader.program.kill().await.unwrap();
    assert_eq!(around.passed_hooks(&third).await, ["version-0"]);
    second.program.resume().unwrap();
    for driver in [&second, &third] {
        around.until_passed(driver, "another one leads", &["version-1"]).await;
    }
    until_replicas_known(&third, 2).await;

    // While ZooKeeper is down, all drivers answer clients, but no change goes live.
    let mut server = run_blocking(move || {
        let mut server = server;
        server.stop();
        server
    })
    .await;
    for driver in [&second, &third] {
        wait_until("the loss is told", async || {
            replica_status(&driver.program).await["problem"].is_string()
        })
        .await;
        assert_eq!(around.passed_hooks(driver).await, ["version-1"]);
        assert!(driver.program.is_ready().await);
    }
    let server = run_blocking(move || {
        server.start_again();
        server
    })
    .await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-2"))
        .await;
    for driver in [&second, &third] {
        around.until_passed(driver, "ZooKeeper is back", &["version-2"]).await;
        wait_until("the loss is over", async || {
            replica_status(&driver.program).await["problem"].is_null()
        })
        .await;
    }

    // By the time a new driver is ready, it serves the table that all drivers share.
    let new = start_driver().await;
    until_ready(&new.program).await;
    assert_eq!(around.passed_hooks(&new).await, ["version-2"]);

    let session = session_of_driver(&nodes, &second).await;
    second.program.kill().await.unwrap();
    let definition = around.definition("webhook-test", "version-3");
    nodes.put(DEFINITION_NODE, &definition).await;
    until_waiting(&third.program, "has not prepared").await;
    assert_eq!(around.passed_hooks(&third).await, ["version-2"]);
    let server = run_blocking(move || {
        server.expire(session);
        server
    })
    .await;
    for driver in [&third, &new] {
        around.until_passed(driver, "nobody waits for it", &["version-3"]).await;
    }
    check_order(&nodes).await;
    drop(server);
}

async fn session_of_driver(nodes: &Nodes, driver: &Front) -> i64 {
    let name = until_replicas_known(driver, 3).await;
    let of_driver = |node: &&super::nodes::MesosNode| node.data["name"] == name.as_str();
    let replica_nodes = nodes.children(&drivers_path()).await;
    replica_nodes.iter().find(of_driver).unwrap().session
}

#[tokio::test]
async fn a_driver_that_cannot_prepare_a_change_is_reported_and_stops_being_ready() {
    let zookeeper = ZooKeeperNode::create_shared("strict").await;
    let around = Surroundings::new(&zookeeper).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    nodes
        .put(DEFINITION_NODE, &around.definition("webhook-test", "version-0"))
        .await;
    let directory = tempfile::tempdir().unwrap();
    let (key, module) = (directory.path().join("key.pem"), directory.path().join("plugin.wasm"));
    std::fs::write(&key, KeyPair::generate().unwrap().public_key_pem()).unwrap();
    std::fs::write(&module, Versions::find().unwrap().module(1)).unwrap();
    let first = start_with_long_session(&around, &zookeeper).await;
    // The configuration of this driver requires signed modules, so it rejects the plugin, which has no signature.
    let strict = around.config(
        &zookeeper,
        &format!("registration: {{}}\nsignatures: [ {{ source: \"file:**\", keys: [{key:?}] }} ]\n"),
    );
    let mut unable = Front::start(&strict.replace("2s", "60s")).await;
    for driver in [&first, &unable] {
        until_ready(&driver.program).await;
    }
    let name = until_replicas_known(&unable, 2).await;
    until_replicas_known(&first, 2).await;

    let mut of_plugin = around.definition("plugin", "unused");
    of_plugin["resourcesRef"]["kind"] = "secret".into();
    of_plugin["admissionWebhooks"][0]
        .as_object_mut()
        .unwrap()
        .remove("clientConfig");
    of_plugin["admissionWebhooks"][0]["plugin"] =
        json!({"source": format!("file:{}", module.display()), "settings": {"name": "a"}});
    let node = DEFINITION_NODE.replace("webhook-test", "plugin");
    nodes.put(&node, &of_plugin).await;
    let waiting = until_waiting(&first.program, "not signed").await;
    assert!(waiting.contains(&format!("{name} has not prepared")), "{waiting}");
    let is_wait_logged =
        |line: &ProgramLogLine| line.message().contains("a change waits") && line.message().contains(&name);
    first
        .program
        .wait_for_log_after(Mark::START, "who is waited for", is_wait_logged)
        .await
        .unwrap();
    let chains = async |driver: &Front| {
        let status = driver.program.status().await.unwrap();
        status["chains"].as_array().unwrap().len()
    };
    assert_eq!(chains(&first).await, 1);
    assert!(unable.program.is_ready().await, "it serves what all serve");
    unable.program.terminate().unwrap();
    unable.program.wait_for_end().await.unwrap();
    wait_until("the plugin is live", async || chains(&first).await == 2).await;

    // This driver cannot serve the plugin, so it does not become ready, and the others do not wait for it.
    let late_driver = Front::start(&strict).await;
    wait_until("it knows what the others serve", async || {
        replica_status(&late_driver.program).await["target"].is_string()
    })
    .await;
    let client = Client::new().unwrap();
    let answer = client.get(&late_driver.program.admin_url("/readyz")).await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json().unwrap()["reason"], "the replicas serve another table");
    until_registered(&nodes, 0).await;
    let definition = around.definition("webhook-test", "version-1");
    around
        .send_expecting_success(&first, Method::PUT, DEFINITION_ROUTE, &definition)
        .await;
    assert_eq!(around.passed_hooks(&first).await, ["version-1"]);
    until_registered(&nodes, 0).await;

    // This driver cannot serve the plugin, so it has not registered itself. When the definition with the plugin is
    // deleted, the driver can serve the same table as the others, and registers itself.
    nodes.delete(&node).await;
    until_ready(&late_driver.program).await;
    until_registered(&nodes, 1).await;
    late_driver.program.suspend().unwrap();
    nodes.put(&node, &of_plugin).await;
    wait_until("the plugin is live again", async || chains(&first).await == 2).await;
    late_driver.program.resume().unwrap();
    wait_until("it is late again", async || !late_driver.program.is_ready().await).await;
    until_registered(&nodes, 0).await;
}

async fn until_registered(nodes: &Nodes, count: usize) {
    let of_cluster = format!("{DRIVERS}/{CLUSTER}");
    nodes
        .until_children(&of_cluster, "the drivers that are ready", |nodes| nodes.len() == count)
        .await;
}

#[tokio::test]
async fn drivers_may_go_live_independently() {
    let zookeeper = ZooKeeperNode::create_shared("alone").await;
    let around = Surroundings::new(&zookeeper).await;
    let config = around.config(&zookeeper, "replicas: Independently\n");
    let (one, two) = (Front::start(&config).await, Front::start(&config).await);
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    two.program.suspend().unwrap();
    let definition = around.definition("webhook-test", "version-0");
    around
        .send_expecting_success(&one, Method::POST, DEFINITION_ROUTE, &definition)
        .await;
    assert_eq!(around.passed_hooks(&one).await, ["version-0"]);
    two.program.resume().unwrap();
    around.until_passed(&two, "the other follows", &["version-0"]).await;
    assert_eq!(replica_status(&one.program).await, Value::Null);
    assert!(nodes.get("/admittance").await.is_none());
}
