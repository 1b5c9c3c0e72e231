//! Reads the state of replicas that are configured to go live together.

use admittance_tests::Admittance;
use serde_json::Value;

use crate::setting::eventually;

/// The environment variable in which `cargo task soak` passes the number of changes under load. If it is set, other
/// tests run at full length, and fail if their measurements exceed a limit.
const CHANGES: &str = "ADMITTANCE_TEST_CHANGES";

/// Returns the number of changes that `cargo task soak` asks for. Returns `None` in ordinary test runs.
pub(crate) fn changes_of_soak() -> Option<u32> {
    let changes = std::env::var(CHANGES).ok();
    changes.map(|number| number.parse().unwrap())
}

pub(crate) async fn until_ready(program: &Admittance) {
    eventually("the replica is ready", async || program.is_ready().await).await;
}

pub(crate) async fn replicas(program: &Admittance) -> Value {
    program.status().await.unwrap()["replicas"].clone()
}

/// Waits until this replica reports that it waits for other replicas, with these words. Returns the report.
pub(crate) async fn until_waiting(program: &Admittance, words: &str) -> String {
    let mut waiting = String::new();
    eventually(words, async || {
        waiting = replicas(program).await["waiting"].to_string();
        waiting.contains(words)
    })
    .await;
    waiting
}

/// Waits until this replica has joined the others, and returns the name by which they list it.
pub(crate) async fn own_name(program: &Admittance) -> String {
    let mut name = None;
    eventually("the replica knows itself", async || {
        let replicas = replicas(program).await;
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

pub(crate) async fn until_known(program: &Admittance, count: usize) {
    eventually("the replicas know one another", async || {
        let known_count = replicas(program).await["replicas"].as_array().map(Vec::len);
        known_count == Some(count)
    })
    .await;
}
