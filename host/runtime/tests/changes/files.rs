//! Files that change while they are read, and paths that are not files.

use std::{fs, time::Duration};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::{
    scene::{Scene, by, chain, live, plugin},
    stores::{Following, until},
};

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

/// Half a file may be a valid file with fewer chains: whoever reads it waits until it is complete.
#[tokio::test]
async fn half_a_file_is_not_used() {
    let scene = Scene::new();
    let both = |path: &str| format!("{}---\n{}", chain("a", path), chain("b", path));
    scene.write("ab.yaml", &both("1"));
    let host = scene.start().await.unwrap();
    let pause = Duration::from_millis(300);
    for path in ["2", "3"] {
        scene.write("ab.yaml", &chain("a", path));
        let applied = chain("c", path);
        let completed = async {
            tokio::time::sleep(pause).await;
            assert!(live(&host).contains(" b="), "{}", live(&host));
            scene.write("ab.yaml", &both(path));
        };
        let how = by("ci");
        let (applied, ()) = tokio::join!(host.apply(&applied, "c", &how), completed);
        applied.unwrap();
        let expected = format!("{path} a={path} b={path} c={path}");
        assert_eq!(live(&host), expected);
    }
    let _following = Following::of(&host);
    scene.write("ab.yaml", &chain("a", "4"));
    tokio::time::sleep(pause).await;
    assert_eq!(live(&host), "3 a=3 b=3 c=3");
    scene.write("ab.yaml", &both("4"));
    until(&host, "4 a=4 b=4 c=3").await;
    // It stays so.
    scene.write("ab.yaml", &chain("a", "4"));
    until(&host, "5 a=4 c=3").await;
}
