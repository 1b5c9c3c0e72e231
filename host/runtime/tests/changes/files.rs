//! Tests files that change while they are read, and paths that are not regular files.

use std::{fs, path::Path, time::Duration};

use admittance::{Error, HistoryError, Host, definitions::Definitions};
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::{
    scene::{ChangesScene, chain, change_options_by, live_summary, plugin},
    stores::{FollowTask, id, wait_until_live},
};

/// The time limit after which a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Opening a FIFO for reading blocks until another program writes to it, so the host must not open it.
#[tokio::test]
async fn a_fifo_among_the_files_delays_no_change_and_no_rollback() {
    let scene = ChangesScene::new();
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
        let reloaded = tokio::time::timeout(TEST_TIMEOUT, host.reload()).await;
        let error = reloaded.expect("the reload hangs").unwrap_err().to_string();
        assert!(
            error.contains(&format!("it is {what}, not a regular file")),
            "{source}: {error}"
        );
    }
    scene.remove("b.yaml");
    mkfifoat(CWD, scene.chains().join("b.yaml"), Mode::RUSR | Mode::WUSR).unwrap();
    let reloaded = tokio::time::timeout(TEST_TIMEOUT, host.reload()).await;
    let error = reloaded.expect("the reload hangs").unwrap_err().to_string();
    assert!(error.contains("b.yaml") && error.contains("it is a FIFO"), "{error}");
    let rolled_back = tokio::time::timeout(TEST_TIMEOUT, host.rollback(1, None)).await;
    rolled_back.expect("the rollback hangs").unwrap();
    assert_eq!(live_summary(&host), "3 a=1 !");
}

/// The first part of a file may be a valid file with fewer chains, so the host waits until the file is complete.
#[tokio::test]
async fn a_file_is_read_only_after_it_is_written_completely() {
    let scene = ChangesScene::new();
    let both = |path: &str| format!("{}---\n{}", chain("a", path), chain("b", path));
    scene.write("ab.yaml", &both("1"));
    let host = scene.start().await.unwrap();
    let pause = Duration::from_millis(300);
    for path in ["2", "3"] {
        scene.write("ab.yaml", &chain("a", path));
        let applied = chain("c", path);
        let completed = async {
            tokio::time::sleep(pause).await;
            assert!(live_summary(&host).contains(" b="), "{}", live_summary(&host));
            scene.write("ab.yaml", &both(path));
        };
        let application = change_options_by("ci");
        let (applied, ()) = tokio::join!(host.apply(&applied, "c", &application), completed);
        applied.unwrap();
        let expected = format!("{path} a={path} b={path} c={path}");
        assert_eq!(live_summary(&host), expected);
    }
    let _following = FollowTask::start(&host);
    scene.write("ab.yaml", &chain("a", "4"));
    tokio::time::sleep(pause).await;
    assert_eq!(live_summary(&host), "3 a=3 b=3 c=3");
    scene.write("ab.yaml", &both("4"));
    wait_until_live(&host, "4 a=4 b=4 c=3").await;
    scene.write("ab.yaml", &chain("a", "4"));
    wait_until_live(&host, "5 a=4 c=3").await;
}

#[tokio::test]
async fn definitions_stay_in_force_if_their_file_becomes_empty_or_unreadable() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    scene.write("b.yaml", &chain("b", "1"));
    let host = scene.start().await.unwrap();
    let _following = FollowTask::start(&host);
    let path = scene.chains().join("b.yaml");
    type Loss = fn(&Path);
    let losses: [(Loss, &str); 6] = [
        (|path| fs::write(path, "").unwrap(), "there is no definition in it"),
        (
            |path| fs::write(path, "# gone\n---\n").unwrap(),
            "there is no definition in it",
        ),
        (|path| fs::write(path, b"\xff").unwrap(), "the file is not UTF-8"),
        (|path| fs::write(path, b"kind: [").unwrap(), "this is not YAML"),
        (
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
            "it is a directory, not a regular file",
        ),
        (
            |path| {
                fs::remove_dir(path).unwrap();
                std::os::unix::fs::symlink("absent", path).unwrap();
            },
            "No such file or directory",
        ),
    ];
    for (lose, expected) in losses {
        lose(&path);
        wait_until_problem(&host, expected).await;
        assert_eq!(live_summary(&host), "1 a=1 b=1 !", "{expected}");
        let mistakes = host.status().problem.unwrap().mistakes;
        assert!(mistakes[0].contains("b.yaml"), "{mistakes:?}");
        // The command `admittance check` loads files with `Definitions::load`, so it reports the same mistake as the
        // host.
        let error = Definitions::load(&[scene.chains()]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::remove_file(&path).unwrap();
    wait_until_live(&host, "2 a=1").await;
}

#[tokio::test]
async fn other_definitions_can_be_changed_while_a_file_is_empty_or_unreadable() {
    type Loss = fn(&Path);
    let losses: [(Loss, &str); 4] = [
        (|path| fs::write(path, "").unwrap(), "there is no definition in it"),
        (|path| fs::write(path, "kind: [").unwrap(), "this is not YAML"),
        (|path| fs::write(path, b"kind: \xc3").unwrap(), "the file is not UTF-8"),
        (
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("absent", path).unwrap();
            },
            "delete it to remove its definitions",
        ),
    ];
    for (lose, mistake) in losses {
        let expected = mistake;
        let scene = ChangesScene::new();
        for name in ["a", "b", "c"] {
            scene.write(&format!("{name}.yaml"), &chain(name, "1"));
        }
        let host = scene.start().await.unwrap();
        let following = FollowTask::start(&host);
        lose(&scene.chains().join("b.yaml"));
        wait_until_problem(&host, expected).await;
        let applied = host
            .apply(&chain("a", "2"), "a", &change_options_by("ci"))
            .await
            .unwrap();
        assert!(applied.warnings[0].contains(expected), "{:?}", applied.warnings);
        assert_eq!(live_summary(&host), "2 a=2 b=1 c=1 !", "{expected}");
        host.delete(&id("AdmissionChain/c"), &change_options_by("ci"))
            .await
            .unwrap();
        host.apply(&chain("d", "1"), "d", &change_options_by("ci"))
            .await
            .unwrap();
        assert_eq!(live_summary(&host), "4 a=2 b=1 d=1 !", "{expected}");
        assert!(!scene.chains().join("c.yaml").exists());
        drop(following);
        drop(host);
        let host = restart(&scene).await;
        assert_eq!(live_summary(&host), "4 a=2 b=1 d=1 !", "{expected}");
        let _following = FollowTask::start(&host);
        if scene.chains().join("b.yaml").is_file() {
            for (path, expected) in [("1", "4 a=2 b=1 d=1"), ("2", "5 a=2 b=2 d=1")] {
                lose(&scene.chains().join("b.yaml"));
                wait_until_problem(&host, mistake).await;
                host.apply(&chain("b", path), "b", &change_options_by("ci"))
                    .await
                    .unwrap();
                assert_eq!(scene.read("b.yaml"), chain("b", path));
                wait_until_live(&host, expected).await;
            }
            lose(&scene.chains().join("b.yaml"));
            wait_until_problem(&host, expected).await;
            host.delete(&id("AdmissionChain/b"), &change_options_by("ci"))
                .await
                .unwrap();
            wait_until_live(&host, "6 a=2 d=1").await;
        } else {
            let refused = host.delete(&id("AdmissionChain/b"), &change_options_by("ci")).await;
            assert!(refused.unwrap_err().to_string().contains(expected));
        }
    }
}

/// The configuration of the host contains the path of this file. So the host refuses to delete the file, and tells the
/// user to remove the path from the configuration.
#[tokio::test]
async fn a_file_that_is_configured_by_name_is_not_deleted() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    scene.write("b.yaml", &chain("b", "1"));
    let path = scene.chains().join("b.yaml");
    let host = Host::builder()
        .definitions(scene.chains().join("a.yaml"))
        .definitions(&path)
        .history(scene.folder.path().join("history"))
        .build()
        .await
        .unwrap();
    let error = host
        .delete(&id("AdmissionChain/b"), &change_options_by("ci"))
        .await
        .unwrap_err();
    let fix = "remove it from `definitions` there";
    assert!(error.to_string().contains(fix), "{error}");
    assert_eq!(live_summary(&host), "1 a=1 b=1");
    fs::remove_file(&path).unwrap();
    let _following = FollowTask::start(&host);
    wait_until_problem(&host, "are removed with its entry in `definitions`").await;
    host.apply(&chain("a", "2"), "a", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "2 a=2 b=1 !");
}

/// Starts a host again. Waits until the previous host has released the directory of the history.
async fn restart(scene: &ChangesScene) -> Host {
    for _ in 0..1200 {
        match scene.start().await {
            Err(Error::History(HistoryError::InUse { .. })) => {}
            started => return started.unwrap(),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the history stays in use");
}

async fn wait_until_problem(host: &Host, expected: &str) {
    let is_known = || {
        let problem = host.status().problem;
        problem.is_some_and(|problem| problem.mistakes.iter().any(|mistake| mistake.contains(expected)))
    };
    for _ in 0..1200 {
        if is_known() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{expected}: {:?}", host.status().problem);
}
