//! Tests the preparation of plugins, and changes during the preparation of a plugin whose `configure` never returns.
//! The timeout of `configure` is too long for tests to wait for.

use std::{fs, path::PathBuf, time::Duration};

use admittance::{ChangeError, Digest, Host, sandbox::SandboxConfig};

use crate::{
    guest::Guest,
    scene::{Scene, by, chain, dry_run, live, plugin},
    stores::{FollowTask, until},
};

/// The time after which a hanging test fails: a tenth of the timeout of `configure`.
const NEVER: Duration = Duration::from_secs(60);

/// Returns a chain with a plugin whose `configure` never returns.
fn hanging(scene: &Scene, name: &str) -> String {
    let module = scene.folder.path().join(format!("{name}.wasm"));
    let guest = Guest::default().with_configure("(loop $again (br $again))");
    fs::write(&module, guest.component()).unwrap();
    plugin(name, &format!("file:{}", module.display()))
}

/// Starts a host whose second revision is live.
async fn start(scene: &Scene) -> Host {
    scene.write("a.yaml", &chain("a", "1"));
    let mut sandbox = SandboxConfig::default();
    sandbox.calls_in_flight = 4;
    sandbox.configure_timeout = 10 * NEVER;
    let host = Host::builder()
        .definitions(scene.chains())
        .history(scene.folder.path().join("history"))
        .sandbox(sandbox)
        .build()
        .await
        .unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(live(&host), "2 a=2");
    host
}

/// Waits until a table is being built; with `is_building` false, until none is.
async fn until_building(host: &Host, is_building: bool) {
    let mut turns = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while host.status().building != is_building {
            turns.tick().await;
        }
    };
    let waited = tokio::time::timeout(NEVER, waiting).await;
    assert!(waited.is_ok(), "building is never {is_building}");
}

/// Awaits an operation that must not wait for `configure`.
async fn soon<T>(what: &str, answer: impl Future<Output = Result<T, ChangeError>>) -> T {
    match tokio::time::timeout(NEVER, answer).await {
        Ok(answer) => answer.unwrap(),
        Err(_) => panic!("{what} waits for `configure`"),
    }
}

#[tokio::test]
async fn a_hanging_apply_delays_no_other_change() {
    let scene = Scene::new();
    let host = start(&scene).await;
    let hangs = hanging(&scene, "b");
    let applying = {
        let host = host.clone();
        tokio::spawn(async move { host.apply(&hangs, "b", &by("ci")).await.map(|_| ()) })
    };
    until_building(&host, true).await;

    let tried = soon("a dry run", host.apply(&chain("c", "1"), "c", &dry_run())).await;
    assert_eq!(tried.revision, 3);
    soon("an apply", host.apply(&chain("c", "1"), "c", &by("ops"))).await;
    assert_eq!(live(&host), "3 a=2 c=1");
    soon("a rollback", host.rollback(1, None)).await;
    assert_eq!(live(&host), "4 a=1");

    assert!(!applying.is_finished());
    // Cancelling the apply also cancels the preparation of its plugin.
    applying.abort();
    until_building(&host, false).await;
}

#[tokio::test]
async fn a_newer_change_of_files_cancels_a_hanging_one() {
    let scene = Scene::new();
    let host = start(&scene).await;
    let _following = FollowTask::start(&host);
    scene.write("b.yaml", &hanging(&scene, "b"));
    until_building(&host, true).await;

    scene.write("b.yaml", &chain("b", "1"));
    until(&host, "3 a=2 b=1").await;
    until_building(&host, false).await;
}

#[tokio::test]
async fn a_rollback_cancels_a_hanging_change() {
    let scene = Scene::new();
    let host = start(&scene).await;
    let _following = FollowTask::start(&host);
    scene.write("b.yaml", &hanging(&scene, "b"));
    until_building(&host, true).await;

    soon("a rollback", host.rollback(1, None)).await;
    assert_eq!(live(&host), "3 a=1");
    until_building(&host, false).await;
    assert_eq!(live(&host), "3 a=1");
}

/// Returns the only compiled form in the store.
fn compiled_form(scene: &Scene) -> (PathBuf, Vec<u8>) {
    let compiled = scene.folder.path().join("history/store/compiled");
    let mut entries = fs::read_dir(compiled).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none());
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// The compiled form of the module is damaged but has a correct digest, so the damage is found only when the plugin is
/// loaded.
#[tokio::test]
async fn a_compiled_form_that_cannot_be_loaded_is_compiled_again() {
    let scene = Scene::new();
    let module = scene.folder.path().join("allows.wasm");
    fs::write(&module, Guest::default().component()).unwrap();
    scene.write("a.yaml", &plugin("a", &format!("file:{}", module.display())));
    drop(scene.start().await.unwrap());

    let (path, intact) = compiled_form(&scene);
    let (content, seal) = intact.split_at(intact.len() - 40);
    let mut content = content.to_vec();
    content[..4].copy_from_slice(b"none");
    let damaged = [&content, Digest::of(&content).as_bytes().as_slice(), &seal[32..]].concat();
    fs::remove_file(&path).unwrap();
    fs::write(&path, damaged).unwrap();

    let host = scene.start().await.unwrap();
    assert_eq!(host.status().plugins, 1);
    assert!(compiled_form(&scene).1 == intact);
}
