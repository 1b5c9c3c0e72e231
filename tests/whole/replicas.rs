//! The state of replicas that go live together, as each of them reports it.

use admittance_tests::Admittance;
use serde_json::Value;

use crate::setting::eventually;

/// The number of changes that are made under load, which `cargo task soak` sets. If it is set, other tests also run at
/// full length, and have limits for their measurements.
const CHANGES: &str = "ADMITTANCE_TEST_CHANGES";

/// Returns the number of changes in a soak; `None` in an ordinary run of the tests.
pub(crate) fn changes_of_soak() -> Option<u32> {
    let changes = std::env::var(CHANGES).ok();
    changes.map(|number| number.parse().unwrap())
}

pub(crate) async fn until_ready(program: &Admittance) {
    eventually("the replica is ready", async || program.is_ready().await).await;
}

/// Returns the state of all replicas, from the view of one of them.
pub(crate) async fn replicas(program: &Admittance) -> Value {
    program.status().await.unwrap()["replicas"].clone()
}

/// Waits until a replica reports with these words that it waits for others. Returns the whole report.
pub(crate) async fn until_waiting(program: &Admittance, words: &str) -> String {
    let mut waiting = String::new();
    eventually(words, async || {
        waiting = replicas(program).await["waiting"].to_string();
        waiting.contains(words)
    })
    .await;
    waiting
}

/// Returns a replica's name, which it reports after it has joined.
pub(crate) async fn own_name(program: &Admittance) -> String {
    let mut name = None;
    eventually("the replica knows itself", async || {
        let replicas = replicas(program).await;
        let own = replicas["replicas"].as_array().into_iter().flatten();
        let mut own = own.filter(|replica| replica["self"] == true);
        name = own.next().and_then(|own| own["name"].as_str().map(str::to_owned));
        name.is_some()
    })
    .await;
    name.unwrap()
}

/// Waits until a replica sees this number of replicas.
pub(crate) async fn until_known(program: &Admittance, count: usize) {
    eventually("the replicas know one another", async || {
        let known = replicas(program).await["replicas"].as_array().map(Vec::len);
        known == Some(count)
    })
    .await;
}
