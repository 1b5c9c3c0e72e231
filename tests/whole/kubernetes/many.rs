//! Tests thousands of chains that are resources of the cluster.

use std::time::{Duration, Instant};

use admittance_tests::{Admittance, ProgramLogLine};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::resources::{CHAIN_PLURAL, chain, start_with_additions, start_with_store};
use crate::{
    replicas::{changes_of_soak, until_ready},
    scene::source,
    setting::Setting,
};

/// The number of chains in the test. One chain in `CHAINS_PER_PLUGIN` has a plugin.
const CHAIN_COUNT: usize = 2000;
const CHAINS_PER_PLUGIN: usize = 100;

/// A timeout that is long enough for a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

fn chain_name(number: usize) -> String {
    format!("chain-{number:04}")
}

/// Returns the chain with this number. `text` is the message of its denials, or the registry that its plugin allows.
fn numbered_chain(number: usize, text: &str) -> Value {
    chain_with_plugin_every(CHAINS_PER_PLUGIN, number, text)
}

/// Returns the chain with this number. If the number is divisible by `every`, the chain has a plugin, and `text` is the
/// registry that the plugin allows. Otherwise, `text` is the message of the chain's denials.
fn chain_with_plugin_every(every: usize, number: usize, text: &str) -> Value {
    let mut chain = chain(&chain_name(number), text);
    if number.is_multiple_of(every) {
        chain["spec"]["stages"][0] = json!({
            "name": "images",
            "plugin": {"source": source("image-policy"), "settings": {"allowedRegistries": [format!("{text}.example.com")]}},
        });
    }
    chain
}

fn loaded_plugin_count(program: &Admittance) -> usize {
    let is_loaded = |line: &&ProgramLogLine| line.message().starts_with("plugin loaded");
    program.log().iter().filter(is_loaded).count()
}

async fn until_statuses_written(setting: &Setting, expected: usize) {
    let status_write_count = || setting.server.count_requests("patch", "/status");
    let wait = async {
        while status_write_count() != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let result = tokio::time::timeout(WAIT_TIMEOUT, wait).await;
    assert!(result.is_ok(), "{} instead of {expected}", status_write_count());
}

#[tokio::test]
async fn a_change_loads_plugins_and_writes_statuses_only_of_changed_chains() {
    let setting = Setting::new();
    for number in 1..=CHAIN_COUNT {
        setting
            .server
            .put(CHAIN_PLURAL, numbered_chain(number, &chain_name(number)));
    }
    let server = start_with_additions(&setting, "log: { level: debug }").await;
    assert_eq!(loaded_plugin_count(&server.program), CHAIN_COUNT / CHAINS_PER_PLUGIN);
    until_statuses_written(&setting, CHAIN_COUNT).await;

    // (number of the chain that changes, number of plugins that the program loads because of the change)
    for (revision, (number, plugins)) in (2..).zip([(1, 0), (CHAINS_PER_PLUGIN, 1), (CHAIN_COUNT, 1)]) {
        let before = loaded_plugin_count(&server.program);
        setting
            .server
            .put(CHAIN_PLURAL, numbered_chain(number, &format!("changed-{number}")));
        server.until_revision(revision).await;
        assert_eq!(loaded_plugin_count(&server.program), before + plugins, "{number}");
        until_statuses_written(&setting, CHAIN_COUNT + revision as usize - 1).await;
        let path = format!("{}/status", chain_name(number));
        assert_eq!(
            setting.server.count_requests("patch", &path),
            2,
            "its status was written once more"
        );
    }
}

/// Half of the chains have a plugin, each with settings of its own. `cargo task soak` runs this test with 2000 chains.
#[tokio::test]
async fn thousands_of_chains_are_ready_soon() {
    const MAX_START_TIME: Duration = Duration::from_secs(5);
    let is_soak = changes_of_soak().is_some();
    let chains = if is_soak { CHAIN_COUNT } else { 40 };
    let setting = Setting::new();
    for number in 1..=chains {
        setting
            .server
            .put(CHAIN_PLURAL, chain_with_plugin_every(2, number, &chain_name(number)));
    }
    let store = TempDir::new().unwrap();
    let start = async || {
        let started = Instant::now();
        let mut server = start_with_store(&setting, "", store.path()).await;
        until_ready(&server.program).await;
        let ready = started.elapsed();
        let status = server.program.status().await.unwrap();
        assert_eq!(status["chains"].as_array().unwrap().len(), chains);
        server.program.terminate().unwrap();
        server.program.wait_for_end().await.unwrap();
        ready
    };
    let (cold, warm) = (start().await, start().await);
    println!(
        "{chains} chains as resources: ready after {cold:.1?} with an empty store, and {warm:.1?} with a warm one"
    );
    if is_soak {
        assert!(warm < MAX_START_TIME, "{warm:?}");
    }
}
