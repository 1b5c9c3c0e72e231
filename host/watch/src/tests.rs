use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const LONG_DELAY: Duration = Duration::from_secs(3600);

/// The watch practically never polls (`poll` is an hour), so the tests see only the changes of which the operating
/// system notifies the watch.
const QUICK_CONFIG: WatchConfig = WatchConfig {
    debounce: Duration::from_millis(5),
    settle: Duration::from_millis(1),
    hold: Duration::from_millis(20),
    poll: LONG_DELAY,
};
const POLLING_CONFIG: WatchConfig = WatchConfig {
    debounce: Duration::from_millis(5),
    settle: Duration::from_millis(1),
    hold: Duration::from_millis(20),
    poll: Duration::from_millis(10),
};

fn refuse_watcher(_: directory_watches::EventHandler) -> notify::Result<notify::RecommendedWatcher> {
    Err(notify::Error::new(notify::ErrorKind::MaxFilesWatch))
}

fn start_watch(paths: &[PathBuf], is_noticed: bool) -> Watch {
    let fingerprint = Fingerprint::read(paths.to_vec());
    if is_noticed {
        Watch::from_fingerprint(fingerprint, QUICK_CONFIG)
    } else {
        Watch::with_opener(fingerprint, POLLING_CONFIG, refuse_watcher)
    }
}

async fn next_change(watch: &mut Watch) -> Vec<PathBuf> {
    tokio::time::timeout(TEST_TIMEOUT, watch.changed())
        .await
        .expect("no change is seen")
}

/// Makes sure that the initial check of the watch is over: changes a scratch file, and waits until the watch reports
/// this file.
async fn wait_for_initial_check(watch: &mut Watch, scratch: &Path) {
    fs::write(scratch, "armed").unwrap();
    assert_eq!(next_change(watch).await, [scratch]);
}

fn write_file(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Mounts a file as kubelet does, in `mount`. `..data` is a link to a directory that contains the file, and
/// `mount/file` is a link to `..data/file`. A new revision is a new directory, to which `..data` is switched.
fn mount_revision(root: &Path, revision: &str, text: &str) {
    let directory = root.join("mount");
    write_file(directory.join(format!("..{revision}/file")), text);
    symlink(format!("..{revision}"), directory.join("..data_tmp")).unwrap();
    let old = fs::read_link(directory.join("..data"));
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    if let Ok(old) = old {
        fs::remove_dir_all(directory.join(old)).unwrap();
    }
    if !directory.join("file").is_symlink() {
        symlink("..data/file", directory.join("file")).unwrap();
    }
}

#[tokio::test]
async fn a_file_change_is_reported_however_it_is_made() {
    type Step = fn(&Path);
    // (case, path to watch, preparation before the watch begins, changes). The watch must report each of the changes.
    let cases: [(&str, &str, Step, &[Step]); 9] = [
        (
            "written in place",
            "file",
            |root| write_file(root.join("file"), "1"),
            &[
                |root| write_file(root.join("file"), "2"),
                |root| write_file(root.join("file"), "3"),
            ],
        ),
        (
            "appended to",
            "file",
            |root| write_file(root.join("file"), "1"),
            &[|root| {
                use std::io::Write;
                let mut file = fs::OpenOptions::new().append(true).open(root.join("file")).unwrap();
                file.write_all(b"2").unwrap();
            }],
        ),
        (
            "renamed over, as editors do",
            "file",
            |root| write_file(root.join("file"), "1"),
            &[
                |root| {
                    write_file(root.join(".file.swp"), "2");
                    fs::rename(root.join(".file.swp"), root.join("file")).unwrap();
                },
                |root| {
                    fs::rename(root.join("file"), root.join("file~")).unwrap();
                    write_file(root.join("file"), "3");
                },
            ],
        ),
        (
            "comes, goes and comes back",
            "some/where/file",
            |_| {},
            &[
                |root| write_file(root.join("some/where/file"), "1"),
                |root| fs::remove_dir_all(root.join("some")).unwrap(),
                |root| write_file(root.join("some/where/file"), "1"),
                |root| fs::remove_file(root.join("some/where/file")).unwrap(),
            ],
        ),
        (
            "its directory is swapped",
            "some/file",
            |root| write_file(root.join("some/file"), "1"),
            &[
                |root| {
                    write_file(root.join("new/file"), "2");
                    fs::rename(root.join("some"), root.join("old")).unwrap();
                    fs::rename(root.join("new"), root.join("some")).unwrap();
                },
                |root| write_file(root.join("some/file"), "3"),
            ],
        ),
        (
            "mounted by Kubernetes",
            "mount/file",
            |root| mount_revision(root, "1", "1"),
            &[
                |root| mount_revision(root, "2", "2"),
                |root| mount_revision(root, "3", "3"),
                |root| mount_revision(root, "4", "4"),
            ],
        ),
        (
            "a directory mounted by Kubernetes",
            "mount",
            |root| mount_revision(root, "1", "1"),
            &[
                |root| mount_revision(root, "2", "2"),
                |root| mount_revision(root, "3", "3"),
            ],
        ),
        (
            "files of a directory",
            "directory",
            |root| write_file(root.join("directory/a"), "1"),
            &[
                |root| write_file(root.join("directory/b"), "1"),
                |root| write_file(root.join("directory/b"), "2"),
                |root| fs::rename(root.join("directory/b"), root.join("directory/c")).unwrap(),
                |root| fs::remove_file(root.join("directory/a")).unwrap(),
                |root| fs::remove_dir_all(root.join("directory")).unwrap(),
                |root| write_file(root.join("directory/a"), "1"),
            ],
        ),
        (
            "a link is set to another file",
            "link",
            |root| {
                write_file(root.join("a/1"), "1");
                write_file(root.join("b/2"), "2");
                symlink("a/1", root.join("link")).unwrap();
            },
            &[
                |root| {
                    symlink("b/2", root.join("link_tmp")).unwrap();
                    fs::rename(root.join("link_tmp"), root.join("link")).unwrap();
                },
                |root| write_file(root.join("b/2"), "3"),
            ],
        ),
    ];
    for (case, path, prepare, steps) in cases {
        for is_noticed in [true, false] {
            let directory = TempDir::new().unwrap();
            let root = directory.path();
            prepare(root);
            let (path, scratch) = (root.join(path), root.join("scratch/file"));
            fs::create_dir(root.join("scratch")).unwrap();
            let mut watch = start_watch(&[path.clone(), scratch.clone()], is_noticed);
            wait_for_initial_check(&mut watch, &scratch).await;
            for (number, step) in steps.iter().enumerate() {
                step(root);
                let change = tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await;
                assert_eq!(
                    change,
                    Ok(vec![path.clone()]),
                    "{case}, step {number}, noticed: {is_noticed}"
                );
                // A step may change the files twice, such as a new link and its renaming. The watch may report both
                // changes at once, or one after the other. So the test calls `changed` until the watch has seen the
                // current files.
                while !Fingerprint::read([path.clone()])
                    .differing_paths(&watch.fingerprint)
                    .is_empty()
                {
                    next_change(&mut watch).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn writes_that_leave_the_content_the_same_are_not_reported() {
    type Step = fn(&Path);
    let cases: [(&str, Step); 5] = [
        ("read", |root| {
            fs::read(root.join("file")).unwrap();
        }),
        ("written with what was there", |root| write_file(root.join("file"), "1")),
        ("touched", |root| {
            let file = fs::File::options().append(true).open(root.join("file")).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }),
        ("replaced by the same", |root| {
            write_file(root.join("file.new"), "1");
            fs::rename(root.join("file.new"), root.join("file")).unwrap();
        }),
        ("a neighbour", |root| write_file(root.join("neighbour"), "1")),
    ];
    for (case, step) in cases {
        let directory = TempDir::new().unwrap();
        let root = directory.path();
        write_file(root.join("file"), "1");
        let other = root.join("other");
        let mut watch = start_watch(&[root.join("file"), other.clone()], true);
        wait_for_initial_check(&mut watch, &other).await;
        step(root);
        write_file(other.clone(), "2");
        assert_eq!(next_change(&mut watch).await, [other], "{case}");
    }
}

#[tokio::test]
async fn a_change_is_reported_even_if_the_waiting_future_was_dropped_before() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    let mut watch = start_watch(std::slice::from_ref(&file), true);
    wait_for_initial_check(&mut watch, &file).await;
    fs::write(&file, "2").unwrap();
    // The test calls `changed` again and again, and cancels each call after a timeout that is 200 µs longer than the
    // one before. So the calls are cancelled at different await points. No cancellation may lose the change.
    let change = tokio::time::timeout(TEST_TIMEOUT, async {
        let mut patience = Duration::ZERO;
        loop {
            if let Ok(paths) = tokio::time::timeout(patience, watch.changed()).await {
                return paths;
            }
            patience += Duration::from_micros(200);
        }
    });
    assert_eq!(change.await.unwrap(), [file]);
}

#[tokio::test]
async fn the_watched_paths_can_be_replaced() {
    let directory = TempDir::new().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
    let mut watch = start_watch(&[a.clone(), b.clone()], true);
    wait_for_initial_check(&mut watch, &a).await;
    fs::write(&a, "2").unwrap();
    fs::write(&c, "before").unwrap();
    watch.set_fingerprint(Fingerprint::read([b.clone(), c.clone()]));
    fs::write(&b, "2").unwrap();
    assert_eq!(watch.paths().collect::<Vec<_>>(), [&b, &c]);
    assert_eq!(next_change(&mut watch).await, [b]);
    fs::write(&a, "3").unwrap();
    fs::write(&c, "3").unwrap();
    assert_eq!(next_change(&mut watch).await, [c]);
}

#[tokio::test]
async fn changes_since_a_fingerprint_are_reported() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "1").unwrap();
    let fingerprint = Fingerprint::read([file.clone()]);
    fs::write(&file, "2").unwrap();
    let mut watch = Watch::from_fingerprint(fingerprint, QUICK_CONFIG);
    assert_eq!(next_change(&mut watch).await, [file]);
}

#[tokio::test]
async fn a_change_is_reported_as_soon_as_its_writer_closes_the_file() {
    let directory = TempDir::new().unwrap();
    let [file, scratch] = ["file", "scratch"].map(|name| directory.path().join(name));
    let paths = [file.clone(), scratch.clone()];
    let config = WatchConfig {
        debounce: LONG_DELAY,
        ..QUICK_CONFIG
    };
    let mut watch = Watch::from_fingerprint(Fingerprint::read(paths), config);
    wait_for_initial_check(&mut watch, &scratch).await;
    fs::write(&file, "1").unwrap();
    assert_eq!(next_change(&mut watch).await, [file]);
}

#[tokio::test]
async fn a_change_to_an_open_file_is_reported_after_the_last_write() {
    use std::io::Write as _;
    let directory = TempDir::new().unwrap();
    let [file, scratch] = ["file", "scratch"].map(|name| directory.path().join(name));
    let paths = [file.clone(), scratch.clone()];
    let hold_config = WatchConfig {
        hold: LONG_DELAY,
        ..QUICK_CONFIG
    };
    let mut watch = Watch::from_fingerprint(Fingerprint::read(paths.clone()), hold_config);
    wait_for_initial_check(&mut watch, &scratch).await;
    for step in ["made", "written anew"] {
        let mut writer = fs::File::create(&file).unwrap();
        for half in ["the first half, ", "the second half"] {
            let change = tokio::time::timeout(hold_config.debounce * 40, watch.changed()).await;
            assert!(change.is_err(), "{step}: before {half:?}");
            writer.write_all(format!("{step}: {half}").as_bytes()).unwrap();
        }
        drop(writer);
        assert_eq!(next_change(&mut watch).await, std::slice::from_ref(&file), "{step}");
        assert_eq!(watch.fingerprint, Fingerprint::read(paths.clone()), "{step}");
    }
    let mut neighbour = fs::File::create(directory.path().join("neighbour")).unwrap();
    neighbour.write_all(b"a line").unwrap();
    fs::write(&file, "whole").unwrap();
    assert_eq!(next_change(&mut watch).await, std::slice::from_ref(&file));
    let brief_hold_config = WatchConfig {
        hold: Duration::from_millis(50),
        ..QUICK_CONFIG
    };
    fs::write(&scratch, "not armed").unwrap();
    let mut watch = Watch::from_fingerprint(Fingerprint::read(paths), brief_hold_config);
    wait_for_initial_check(&mut watch, &scratch).await;
    let mut writer = fs::File::create(&file).unwrap();
    writer.write_all(b"a half").unwrap();
    assert_eq!(next_change(&mut watch).await, [file]);
}

#[tokio::test]
async fn files_that_are_still_being_written_are_listed() {
    use std::io::Write as _;
    let directory = TempDir::new().unwrap();
    // Notifications contain the canonical path, so the test compares with that.
    let file = directory.path().canonicalize().unwrap().join("file");
    let hold_config = WatchConfig {
        hold: LONG_DELAY,
        ..QUICK_CONFIG
    };
    let mut watch = Watch::from_fingerprint(Fingerprint::read([file.clone()]), hold_config);
    wait_for_initial_check(&mut watch, &file).await;
    let writers = watch.writers();
    assert_eq!(writers.wait_and_list_unfinished(LONG_DELAY).await, [] as [PathBuf; 0]);
    let mut writer = fs::File::create(&file).unwrap();
    writer.write_all(b"a half").unwrap();
    let patience = hold_config.settle * 40;
    let unfinished_files = tokio::time::timeout(TEST_TIMEOUT, async {
        while writers.wait_and_list_unfinished(patience).await.is_empty() {
            tokio::task::yield_now().await;
        }
        writers.wait_and_list_unfinished(patience).await
    });
    assert_eq!(unfinished_files.await.unwrap(), std::slice::from_ref(&file));
    drop(writer);
    let finished = tokio::time::timeout(TEST_TIMEOUT, writers.wait_and_list_unfinished(LONG_DELAY));
    assert_eq!(finished.await.unwrap(), [] as [PathBuf; 0]);
}

#[test]
fn devices_are_not_read() {
    let fingerprint = Fingerprint::read(["/dev/zero".into(), "/dev/null".into()]);
    for (path, content) in fingerprint.contents {
        assert_eq!(content, fingerprint::FileContent::Other, "{}", path.display());
    }
}
