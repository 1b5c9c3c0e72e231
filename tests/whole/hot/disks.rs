//! Tests full and read-only disks. The program runs in a mount namespace, if the kernel lets users create one.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use admittance_tests::{Admittance, Mark};
use serde_json::Value;

use super::scene::{HotScene, chain, file_contents, kill_program, mistakes_text};

/// Returns a command prefix that runs the program in a mount namespace, after these shell commands.
fn mount_wrapper(commands: &str) -> Vec<OsString> {
    let script = format!("set -e; {commands}; exec \"$@\"");
    [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
        "sh",
    ]
    .map(OsString::from)
    .to_vec()
}

fn can_mount() -> bool {
    let mount_attempt = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "mount",
            "-t",
            "tmpfs",
            "none",
            "/tmp",
        ])
        .output();
    match mount_attempt {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("left out: this machine has no namespaces for users: {reason}");
            false
        }
        Err(error) => {
            println!("left out: unshare: {error}");
            false
        }
    }
}

fn small_disk_wrapper(directory: &Path) -> Vec<OsString> {
    fs::create_dir_all(directory).unwrap();
    // Any user may mount a disk here, because every user is root inside a user namespace of their own.
    mount_wrapper(&format!(
        "mount -t tmpfs -o size=2m,mode=700 none '{}'",
        directory.display()
    ))
}

fn read_only_wrapper(directory: &Path) -> Vec<OsString> {
    let path = directory.display();
    mount_wrapper(&format!(
        "mount --bind '{path}' '{path}'; mount -o remount,bind,ro '{path}'"
    ))
}

/// Returns the path by which a test finds a file in the program's mount namespace.
fn path_seen_by(program: &Admittance, path: &Path) -> PathBuf {
    let root = format!("/proc/{}/root", program.id().unwrap());
    Path::new(&root).join(path.strip_prefix("/").unwrap())
}

/// Creates a file that fills the disk of this directory. Removing the file frees the disk.
fn fill_disk(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let result = fs::write(&path, vec![0; 4 << 20]);
    assert!(result.is_err(), "4 MB fit on a disk of 2 MB");
    path
}

/// Returns how often the program failed to write to this directory, which is `history` or `store`.
async fn write_failures(program: &Admittance, directory: &str) -> Option<f64> {
    let metrics = program.metrics().await.unwrap();
    metrics.sum("admittance_write_failures_total", &[("directory", directory)])
}

fn second_chain(hot: &HotScene) -> String {
    chain("second", &hot.plugin_fields("{ name: second }"))
}

#[tokio::test]
async fn a_change_is_refused_when_the_disk_of_the_history_is_full() {
    if !can_mount() {
        return;
    }
    let hot = HotScene::new().await;
    let history = hot.path("history");
    let program = hot
        .program_builder()
        .through_wrapper(small_disk_wrapper(&history))
        .start()
        .await
        .unwrap();
    let initial_status = program.status().await.unwrap();
    let definitions = file_contents(&hot.path("definitions"));
    let filler = fill_disk(&path_seen_by(&program, &history));

    let reply = hot.post(&program, "/v1/definitions", &second_chain(&hot)).await;
    let message = reply.text();
    assert_eq!(reply.status, 503, "{message}");
    for words in ["No space left", history.to_str().unwrap()] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(
        file_contents(&hot.path("definitions")),
        definitions,
        "no file is touched"
    );
    let status = program.status().await.unwrap();
    assert_eq!(
        (&status["revision"], status.get("problem")),
        (&initial_status["revision"], None),
        "{status:#}"
    );
    let annotations = hot.fetch_annotations(&program).await;
    assert!(
        !annotations.contains_key("version.admittance.dev/second"),
        "{annotations:?}"
    );

    // A restart would undo a rollback that the history cannot store, so the program refuses it.
    hot.write_module(2);
    hot.until_version(&program, "files change what is live all the same", 2)
        .await;
    let status = program
        .wait_for_status("the history is known to lack it", |status| {
            status["history"].get("problem").is_some()
        })
        .await
        .unwrap();
    let problem = status["history"]["problem"].as_str().unwrap();
    assert!(
        problem.contains("No space left") && problem.contains("free some space"),
        "{problem}"
    );
    let reply = hot.post(&program, "/v1/rollback", "{\"revision\": 1}").await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(hot.fetch_version(&program).await, Some(2));
    let failure_count = write_failures(&program, "history").await;
    assert!(failure_count > Some(0.0), "{failure_count:?}");

    fs::remove_file(filler).unwrap();
    let reply = hot.post(&program, "/v1/definitions", &second_chain(&hot)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let annotations = hot.fetch_annotations(&program).await;
    assert!(
        annotations.contains_key("version.admittance.dev/second"),
        "{annotations:?}"
    );
    let status = program.status().await.unwrap();
    assert_eq!(status["history"].get("problem"), None, "{status:#}");
}

#[tokio::test]
async fn an_unwritable_history_is_reported_before_anything_is_served() {
    if !can_mount() {
        return;
    }
    let hot = HotScene::new().await;
    let history = hot.path("history");
    fs::create_dir(&history).unwrap();
    let output = hot
        .program_builder()
        .through_wrapper(read_only_wrapper(&history))
        .finish()
        .await
        .unwrap();
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    for words in [
        "Read-only file system",
        history.to_str().unwrap(),
        "name a history directory that can be written",
    ] {
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
}

#[tokio::test]
async fn a_plugin_goes_live_even_if_the_store_cannot_save_it() {
    if !can_mount() {
        return;
    }
    for (name, words, is_full) in [("full", "No space left", true), ("read-only", "Read-only", false)] {
        let hot = HotScene::new().await;
        let store = hot.path("store");
        let wrapper = if is_full {
            small_disk_wrapper(&store)
        } else {
            kill_program(hot.start().await).await;
            read_only_wrapper(&store)
        };
        let program = hot.program_builder().through_wrapper(wrapper).start().await.unwrap();
        let first = program.status().await.unwrap();
        let plugin = &first["chains"][0]["stages"][0]["hook"];
        assert_eq!(plugin["fromStore"], !is_full, "{name}: {first:#}");
        if is_full {
            fill_disk(&path_seen_by(&program, &store));
        }
        hot.write_module(2);
        hot.until_version(&program, name, 2).await;
        let status = program.status().await.unwrap();
        assert_eq!(mistakes_text(&status), "", "{name}");
        let warning = program
            .wait_for_log_after(Mark::START, name, |line| {
                line.field("level") == "WARN" && line.message().contains("compiled plugin could not be stored")
            })
            .await
            .unwrap();
        assert!(warning.text.contains(words), "{name}: {}", warning.text);
        let failure_count = write_failures(&program, "store").await;
        assert!(failure_count > Some(0.0), "{name}: {failure_count:?}");
    }
}

#[tokio::test]
async fn a_change_is_refused_if_the_definition_files_are_read_only() {
    if !can_mount() {
        return;
    }
    let hot = HotScene::new().await;
    let definitions = hot.path("definitions");
    let program = hot
        .program_builder()
        .through_wrapper(read_only_wrapper(&definitions))
        .start()
        .await
        .unwrap();
    let initial_status = program.status().await.unwrap();
    let reply = hot.post(&program, "/v1/definitions", &second_chain(&hot)).await;
    let message = reply.text();
    assert_eq!(reply.status, 503, "{message}");
    assert!(
        message.contains("Read-only file system") && message.contains("definitions"),
        "{message}"
    );
    let status = program.status().await.unwrap();
    assert_eq!(status["revision"], initial_status["revision"], "{status:#}");
    assert_eq!(hot.fetch_version(&program).await, Some(1));

    kill_program(program).await;
    let program = hot.start().await;
    let annotations = hot.fetch_annotations(&program).await;
    assert!(
        !annotations.contains_key("version.admittance.dev/second"),
        "{annotations:?}"
    );
    assert_eq!(file_contents(&definitions).len(), 1);
    assert_eq!(program.status().await.unwrap()["problem"], Value::Null);
}
