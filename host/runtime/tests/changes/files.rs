//! Files that change while they are read, and paths that are not files.

use std::{fs, time::Duration};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::scene::{Scene, chain, live, plugin};

/// It ends a test that would hang.
const NEVER: Duration = Duration::from_secs(60);

/// Opening a FIFO for reading blocks until it has a writer.
#[tokio::test]
async fn a_fifo_holds_up_no_change_and_no_rollback() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    let fifo = scene.folder.path().join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let directory = scene.folder.path().join("directory");
    fs::create_dir(&directory).unwrap();
    for (source, what) in [
        ("file:../fifo", "a FIFO"),
        ("file:../directory", "a directory"),
        ("file:/dev/zero", "a device"),
    ] {
        scene.write("b.yaml", &plugin("b", source));
        let reloaded = tokio::time::timeout(NEVER, host.reload()).await;
        let error = reloaded.expect("the reload hangs").unwrap_err().to_string();
        assert!(
            error.contains(&format!("it is {what}, not a regular file")),
            "{source}: {error}"
        );
    }
    scene.remove("b.yaml");
    mkfifoat(CWD, scene.chains().join("b.yaml"), Mode::RUSR | Mode::WUSR).unwrap();
    let reloaded = tokio::time::timeout(NEVER, host.reload()).await;
    let error = reloaded.expect("the reload hangs").unwrap_err().to_string();
    assert!(
        error.contains("b.yaml") && error.contains("it is a FIFO"),
        "{error}"
    );
    let rolled_back = tokio::time::timeout(NEVER, host.rollback(1, None)).await;
    rolled_back.expect("the rollback hangs").unwrap();
    assert_eq!(live(&host), "3 a=1");
}
