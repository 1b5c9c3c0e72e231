//! Tests how plugins are prepared, and how definitions are changed meanwhile. Some plugins have a `configure` that
//! never returns, and a timeout for it that is longer than any test waits.

use std::{fs, path::PathBuf, time::Duration};

use admittance::{ChangeError, Digest, Host, sandbox::SandboxConfig};

use crate::{
    guest::Guest,
    scene::{ChangesScene, chain, change_options_by, dry_run_options, live_summary, plugin},
    stores::{FollowTask, wait_until_live},
};

/// The time limit after which a test that hangs fails. The timeout of `configure` is ten times as long, so that a test
/// cannot pass because of that timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a chain with a plugin whose `configure` never returns, so that its preparation hangs.
fn hanging_chain(scene: &ChangesScene, name: &str) -> String {
    let module = scene.folder.path().join(format!("{name}.wasm"));
    let guest = Guest::default().with_configure("(loop $again (br $again))");
    fs::write(&module, guest.component()).unwrap();
    plugin(name, &format!("file:{}", module.display()))
}

/// Starts a host, and changes its definitions once, so that a rollback is possible.
async fn start(scene: &ChangesScene) -> Host {
    scene.write("a.yaml", &chain("a", "1"));
    let mut sandbox = SandboxConfig::default();
    sandbox.calls_in_flight = 4;
    sandbox.configure_timeout = 10 * TEST_TIMEOUT;
    let host = Host::builder()
        .definitions(scene.chains())
        .history(scene.folder.path().join("history"))
        .sandbox(sandbox)
        .build()
        .await
        .unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "2 a=2");
    host
}

async fn wait_until_building(host: &Host, is_building: bool) {
    let mut turns = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while host.status().building != is_building {
            turns.tick().await;
        }
    };
    let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
    assert!(waited.is_ok(), "building is never {is_building}");
}

/// Awaits an operation while the `configure` of some other plugin never returns. The operation must not wait for that
/// plugin: the test fails if the operation takes too long.
async fn finish_in_time<T>(operation: &str, answer: impl Future<Output = Result<T, ChangeError>>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, answer).await {
        Ok(answer) => answer.unwrap(),
        Err(_) => panic!("{operation} waits for `configure`"),
    }
}

#[tokio::test]
async fn a_hanging_apply_delays_no_other_change() {
    let scene = ChangesScene::new();
    let host = start(&scene).await;
    let hangs = hanging_chain(&scene, "b");
    let applying = {
        let host = host.clone();
        tokio::spawn(async move { host.apply(&hangs, "b", &change_options_by("ci")).await.map(|_| ()) })
    };
    wait_until_building(&host, true).await;

    let dry_run_change = finish_in_time("a dry run", host.apply(&chain("c", "1"), "c", &dry_run_options())).await;
    assert_eq!(dry_run_change.revision, 3);
    finish_in_time("an apply", host.apply(&chain("c", "1"), "c", &change_options_by("ops"))).await;
    assert_eq!(live_summary(&host), "3 a=2 c=1");
    finish_in_time("a rollback", host.rollback(1, None)).await;
    assert_eq!(live_summary(&host), "4 a=1");

    assert!(!applying.is_finished());
    applying.abort();
    wait_until_building(&host, false).await;
}

#[tokio::test]
async fn a_newer_change_of_files_cancels_a_change_that_hangs() {
    let scene = ChangesScene::new();
    let host = start(&scene).await;
    let _following = FollowTask::start(&host);
    scene.write("b.yaml", &hanging_chain(&scene, "b"));
    wait_until_building(&host, true).await;

    scene.write("b.yaml", &chain("b", "1"));
    wait_until_live(&host, "3 a=2 b=1").await;
    wait_until_building(&host, false).await;
}

#[tokio::test]
async fn a_rollback_cancels_a_change_that_hangs() {
    let scene = ChangesScene::new();
    let host = start(&scene).await;
    let _following = FollowTask::start(&host);
    scene.write("b.yaml", &hanging_chain(&scene, "b"));
    wait_until_building(&host, true).await;

    finish_in_time("a rollback", host.rollback(1, None)).await;
    assert_eq!(live_summary(&host), "3 a=1");
    wait_until_building(&host, false).await;
    assert_eq!(live_summary(&host), "3 a=1");
}

fn compiled_form(scene: &ChangesScene) -> (PathBuf, Vec<u8>) {
    let compiled = scene.folder.path().join("history/store/compiled");
    let mut entries = fs::read_dir(compiled).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none());
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// The test damages the compiled form of a plugin in the store, but stores the matching digest with it. So the host
/// does not notice the damage before it loads the plugin.
#[tokio::test]
async fn a_compiled_form_that_cannot_be_loaded_is_compiled_again() {
    let scene = ChangesScene::new();
    let module = scene.folder.path().join("allows.wasm");
    fs::write(&module, Guest::default().component()).unwrap();
    scene.write("a.yaml", &plugin("a", &format!("file:{}", module.display())));
    drop(scene.start().await.unwrap());

    let (path, intact) = compiled_form(&scene);
    let (content, seal) = intact.split_at(intact.len() - 40);
    let mut content = content.to_vec();
    content[..4].copy_from_slice(b"none");
    let damaged = [&content, Digest::of_bytes(&content).as_bytes().as_slice(), &seal[32..]].concat();
    fs::remove_file(&path).unwrap();
    fs::write(&path, damaged).unwrap();

    let host = scene.start().await.unwrap();
    assert_eq!(host.status().plugins, 1);
    assert!(compiled_form(&scene).1 == intact);
}
