//! Kills the program while it applies, fetches, compiles and starts. `cargo task soak` does this a hundred times.

use std::{fs, path::Path};

use admittance_tests::{Kills, modules, replace};

use super::scene::{HotScene, chain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_after_a_kill_serves_a_complete_table() {
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let killed = Kills { rounds: 6, seed }
        .run(|round, message| println!("{round}: {message}"))
        .await
        .unwrap();
    assert!(killed.problems.is_empty(), "of the seed {seed}: {killed:#?}");
    assert_eq!(
        killed.new_module_kills + killed.known_module_kills + killed.start_kills,
        6
    );
}

/// The compiler works on the module for minutes. SIGTERM must stop both the program and the compiler before that.
#[tokio::test]
async fn a_signal_stops_the_program_and_its_compiler() {
    let hot = HotScene::new().await;
    let mut program = hot.start().await;
    let slow = hot.path("modules/slow.wasm");
    fs::write(&slow, modules::slow_module_within_limits().unwrap()).unwrap();
    let settings = "{ behaviour: well-behaved }";
    let plugin = format!("{{ source: \"file:{}\", settings: {settings} }}", slow.display());
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let has_compiler = async || !program.children().unwrap().is_empty();
    hot.wait_until(&program, "a compiler", has_compiler).await;
    let compilers = program.children().unwrap();

    program.terminate().unwrap();
    let status = program.wait_for_end().await.unwrap();
    assert!(status.success(), "{status}");
    let is_gone = async || compilers.iter().all(|id| !is_compiler(id));
    hot.wait_until(&program, "the end of the compiler", is_gone).await;
}

fn is_compiler(id: &str) -> bool {
    let command = fs::read(Path::new("/proc").join(id).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command)
        .split('\0')
        .any(|word| word == "compile")
}
