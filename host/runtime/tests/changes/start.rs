//! Tests which table a host serves after its start.

use std::{
    fs,
    time::{Duration, Instant},
};

use admittance::{
    Digest, Error, Host,
    admission::{FailurePolicy, Operation, Protocol, ReviewVersion, Rule, WebhookTarget},
    definitions::{ChainDefinition, FileChange, StageDefinition, WebhookDefinition},
};
use serde_json::{Value, json};

use crate::scene::{ChangesScene, chain, change_options_by, live_summary};

#[tokio::test]
async fn unchanged_definitions_keep_their_revision_after_a_restart() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    for _ in 0..2 {
        assert_eq!(live_summary(&scene.start().await.unwrap()), "1 a=1");
    }
    scene.write("a.yaml", &chain("a", "2"));
    assert_eq!(live_summary(&scene.start().await.unwrap()), "2 a=2");
}

/// If a file contains fewer chains than were live before, another program may still be writing to it. So a starting
/// host waits for the rest of the file before it goes live.
#[tokio::test]
async fn a_start_waits_until_a_file_is_written_completely() {
    // The shortest time that the start must take. The host waits until two seconds have passed since the last write to
    // the file. File systems round times, so the test demands a little less.
    const MIN_START_TIME: Duration = Duration::from_millis(1900);
    let scene = ChangesScene::new();
    scene.write("ab.yaml", &format!("{}---\n{}", chain("a", "1"), chain("b", "1")));
    assert_eq!(live_summary(&scene.start().await.unwrap()), "1 a=1 b=1");
    let write_time = Instant::now();
    scene.write("ab.yaml", &chain("a", "1"));
    assert_eq!(live_summary(&scene.start().await.unwrap()), "2 a=1");
    assert!(write_time.elapsed() >= MIN_START_TIME, "{:?}", write_time.elapsed());
}

#[tokio::test]
async fn a_start_with_invalid_definitions_serves_the_last_live_table() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    drop(scene.start().await.unwrap());
    for wrong in [
        "nonsense",
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n",
    ] {
        scene.write("a.yaml", wrong);
        let host = scene.start().await.unwrap();
        assert_eq!(live_summary(&host), "1 a=1 !");
        let problem = host.status().problem.unwrap();
        assert!(problem.mistakes[0].contains("a.yaml"), "{problem:?}");
    }
    fs::rename(scene.chains(), scene.folder.path().join("away")).unwrap();
    let host = scene.start().await.unwrap();
    assert_eq!(live_summary(&host), "1 a=1 !");
    fs::rename(scene.folder.path().join("away"), scene.chains()).unwrap();
    scene.write("a.yaml", &chain("a", "1"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "1 a=1");
    scene.remove("a.yaml");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "2");
}

#[tokio::test]
async fn a_start_with_invalid_definitions_fails_without_a_history() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", "nonsense");
    assert!(matches!(scene.start().await, Err(Error::Definitions(_))));
    assert!(matches!(
        scene.start_without_history().await,
        Err(Error::Definitions(_))
    ));
}

#[tokio::test]
async fn a_history_directory_cannot_be_opened_by_two_hosts() {
    let scene = ChangesScene::new();
    let _first = scene.start().await.unwrap();
    let error = scene.start().await.unwrap_err();
    assert!(error.to_string().contains("in use by process"), "{error}");
}

/// Leaves three files as a crash in the middle of a change would: the first `written_count` files have their new
/// text already, and the others still have their old text.
async fn interrupt_change(scene: &ChangesScene, written_count: usize) -> Vec<FileChange> {
    for name in ["a", "b"] {
        scene.write(&format!("{name}.yaml"), &chain(name, "1"));
    }
    let host = scene.start().await.unwrap();
    let text = [chain("a", "2"), chain("b", "2"), chain("c", "2")].join("---\n");
    host.apply(&text, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!(live_summary(&host), "2 a=2 b=2 c=2");
    drop(host);
    let changes: Vec<_> = [("a", "a.yaml"), ("b", "b.yaml"), ("c", "AdmissionChain-c.yaml")]
        .into_iter()
        .map(|(name, file)| {
            let before = (name != "c").then(|| chain(name, "1"));
            FileChange::new(scene.chains().join(file), before, Some(chain(name, "2")))
        })
        .collect();
    for change in &changes {
        assert_eq!(fs::read_to_string(&change.path).ok(), change.after);
    }
    let path = scene.folder.path().join("history/0000000002.revision");
    let revision = fs::read_to_string(&path).unwrap();
    let (_, revision) = revision.split_once('\n').unwrap();
    let mut revision: Value = serde_json::from_str(revision).unwrap();
    assert_eq!(revision.get("pending"), None);
    revision["pending"] = json!(changes);
    let revision = revision.to_string();
    fs::write(&path, format!("{}\n{revision}", Digest::of_bytes(&revision))).unwrap();
    for change in &changes[written_count..] {
        match &change.before {
            Some(before) => fs::write(&change.path, before).unwrap(),
            None => fs::remove_file(&change.path).unwrap(),
        }
    }
    changes
}

#[tokio::test]
async fn a_change_that_a_crash_interrupted_is_completed_at_the_next_start() {
    for written_count in 0..=3 {
        let scene = ChangesScene::new();
        let changes = interrupt_change(&scene, written_count).await;
        let host = scene.start().await.unwrap();
        assert_eq!(live_summary(&host), "2 a=2 b=2 c=2", "{written_count}");
        for change in &changes {
            assert_eq!(fs::read_to_string(&change.path).ok(), change.after, "{written_count}");
        }
        drop(host);
        scene.write("b.yaml", &chain("b", "1"));
        assert_eq!(
            live_summary(&scene.start().await.unwrap()),
            "3 a=2 b=1 c=2",
            "{written_count}"
        );
    }
}

#[tokio::test]
async fn an_interrupted_change_does_not_overwrite_later_changes() {
    let scene = ChangesScene::new();
    interrupt_change(&scene, 1).await;
    scene.write("b.yaml", &chain("b", "9"));
    assert_eq!(live_summary(&scene.start().await.unwrap()), "3 a=2 b=9 c=2");
}

#[tokio::test]
async fn a_start_that_cannot_complete_an_interrupted_change_fails_with_a_message() {
    let scene = ChangesScene::new();
    interrupt_change(&scene, 1).await;
    fs::create_dir(scene.chains().join("AdmissionChain-c.yaml")).unwrap();
    let error = scene.start().await.unwrap_err();
    assert!(matches!(error, Error::IncompleteChange { revision: 2, .. }), "{error}");
    fs::remove_dir(scene.chains().join("AdmissionChain-c.yaml")).unwrap();
    assert_eq!(live_summary(&scene.start().await.unwrap()), "2 a=2 b=2 c=2");
}

#[tokio::test]
async fn a_chain_that_the_program_defines_in_code_is_live() {
    let protocol = Protocol::AdmissionReview {
        versions: vec![ReviewVersion::V1],
    };
    let define = |url: &str| {
        let target = WebhookTarget::Url(url.parse().unwrap());
        let hook = WebhookDefinition::new(protocol.clone(), target);
        let mut stage = StageDefinition::new("hook", hook);
        stage.spec.failure_policy = FailurePolicy::Ignore;
        let rules = vec![Rule::for_operations([Operation::Create])];
        Host::builder().definition(ChainDefinition::new("owners", rules, vec![stage]))
    };
    let host = define("https://127.0.0.1:1/1").build().await.unwrap();
    assert_eq!(live_summary(&host), "1 owners=1");
    let stage = &host.status().chains[0].stages[0];
    assert_eq!(stage.failure_policy, FailurePolicy::Ignore);
    let error = define("http://127.0.0.1:1/1").build().await.unwrap_err().to_string();
    assert!(error.starts_with("stage hook: "), "{error}");
}
