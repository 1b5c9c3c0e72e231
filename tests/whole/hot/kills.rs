//! Killed while it applies, fetches, compiles and starts. `cargo task soak` does it a hundred times.

use admittance_tests::Kills;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_again_with_a_whole_table_that_somebody_applied() {
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let killed = Kills { rounds: 6, seed }
        .run(|round, what| println!("{round}: {what}"))
        .await
        .unwrap();
    assert!(killed.mistakes.is_empty(), "of the seed {seed}: {killed:#?}");
    assert_eq!(killed.new + killed.known + killed.starting, 6);
}
