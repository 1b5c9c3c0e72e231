//! Replaces a module again and again under load. `cargo task soak` runs these tests at full length.

use admittance_tests::Swaps;
use serde_json::Value;

async fn check_swaps(swaps: Swaps) {
    let swapped = swaps.run(|_, _| ()).await.unwrap();
    let load_counts = &swapped.load_counts;
    assert_eq!(
        load_counts.failures, 0,
        "of {}: {:#?}",
        load_counts.requests, load_counts.problems
    );
    // Each version went live, so there is a revision for each, and the last version is live now.
    let rounds = u64::from(swaps.rounds);
    assert_eq!(swapped.status["revision"], rounds + 1, "{:#}", swapped.status);
    assert_eq!(swapped.status["problem"], Value::Null);
    let version = &swapped.status["chains"][0]["stages"][0]["hook"]["version"];
    assert_eq!(version, &Value::from(format!("version-{:06}", swaps.rounds + 1)));
    // Memory may grow to three times its size. The soak test measures it more precisely.
    let (before, after) = (swapped.memory_before, swapped.memory_after);
    assert!(after < 3 * before, "{before} bytes before, {after} after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_gets_one_version_while_versions_change() {
    check_swaps(Swaps {
        rounds: 20,
        stages: 1,
        connections: 4,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_stages_change_to_a_new_version_at_once() {
    check_swaps(Swaps {
        rounds: 2,
        stages: 10,
        connections: 4,
    })
    .await;
}
