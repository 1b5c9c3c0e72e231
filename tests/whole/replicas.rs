//! Reads the state of replicas that are configured to go live together.

use admittance_tests::Admittance;
use serde_json::Value;

use crate::setting::wait_until;

/// The environment variable in which `cargo task soak` passes the number of changes under load. If it is set, other
/// tests run at full length, and fail if their measurements exceed a limit.
const CHANGES_VARIABLE: &str = "ADMITTANCE_TEST_CHANGES";

/// Returns the number of changes that `cargo task soak` asks for. Returns `None` in ordinary test runs.
pub(crate) fn changes_of_soak() -> Option<u32> {
    let changes = std::env::var(CHANGES_VARIABLE).ok();
    changes.map(|number| number.parse().unwrap())
}

pub(crate) async fn until_ready(program: &Admittance) {
    wait_until("the replica is ready", async || program.is_ready().await).await;
}

pub(crate) async fn replica_status(program: &Admittance) -> Value {
    program.status().await.unwrap()["replicas"].clone()
}

/// Waits until this replica reports that it waits for other replicas, with these words. Returns the report.
pub(crate) async fn until_waiting(program: &Admittance, words: &str) -> String {
    let mut waiting = String::new();
    wait_until(words, async || {
        waiting = replica_status(program).await["waiting"].to_string();
        waiting.contains(words)
    })
    .await;
    waiting
}

/// Waits until this replica has joined the others, and returns the name by which they list it.
pub(crate) async fn own_name(program: &Admittance) -> String {
    let mut name = None;
    wait_until("the replica knows itself", async || {
        let replicas = replica_status(program).await;
        let mut entries = replicas["replicas"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|replica| replica["self"] == true);
        name = entries
            .next()
            .and_then(|entry| entry["name"].as_str().map(str::to_owned));
        name.is_some()
    })
    .await;
    name.unwrap()
}

pub(crate) async fn until_replicas_known(program: &Admittance, count: usize) {
    wait_until("the replicas know one another", async || {
        let known_count = replica_status(program).await["replicas"].as_array().map(Vec::len);
        known_count == Some(count)
    })
    .await;
}
