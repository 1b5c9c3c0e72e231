//! Tests a host with a store of definitions besides its files. The store is read and watched, and its definitions stay
//! in force while it is unreachable.

use std::time::Duration;

use admittance::{ChangeError, Error, Host, HostBuilder, definitions::DefinitionId};

use crate::{
    memory_store::MemoryStore,
    scene::{ChangesScene, chain, change_options_by, dry_run_options, live_summary},
};

/// Returns a BCS definition with one webhook, whose URL has this path.
pub(crate) fn bcs_definition(name: &str, kind: &str, path: &str) -> String {
    format!(
        r#"{{"kind":"admissionwebhook","apiVersion":"v4","metadata":{{"namespace":"n","name":"{name}"}},"resourcesRef":{{"operation":"Create","kind":"{kind}"}},"admissionWebhooks":[{{"name":"hook","failurePolicy":"Fail","clientConfig":{{"url":"http://127.0.0.1:1/{path}"}}}}]}}"#
    )
}

pub(crate) fn id(text: &str) -> DefinitionId {
    text.parse().unwrap()
}

pub(crate) fn builder(scene: &ChangesScene, memory: &MemoryStore) -> HostBuilder {
    Host::builder()
        .definitions(scene.chains())
        .definition_store(memory.clone())
        .history(scene.folder.path().join("history"))
}

/// Waits until `live_summary` returns `expected` for this host.
pub(crate) async fn wait_until_live(host: &Host, expected: &str) {
    let mut poll_interval = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while live_summary(host) != expected {
            poll_interval.tick().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "{expected} never comes: {}", live_summary(host));
}

/// A task in which a host follows changes of its definitions. The task ends when this value is dropped.
pub(crate) struct FollowTask(tokio::task::JoinHandle<()>);

impl FollowTask {
    pub(crate) fn start(host: &Host) -> Self {
        Self(tokio::spawn(host.clone().follow()))
    }
}

impl Drop for FollowTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test]
async fn definitions_of_stores_and_files_are_live_together() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    scene.write("a.yaml", &chain("a", "1"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    assert_eq!(live_summary(&host), "1 a=1 n/x=1");
    let _following = FollowTask::start(&host);

    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    wait_until_live(&host, "2 a=1 n/x=2").await;
    memory.put("n/y", &bcs_definition("y", "Secret", "1"));
    wait_until_live(&host, "3 a=1 n/x=2 n/y=1").await;
    scene.write("a.yaml", &chain("a", "2"));
    wait_until_live(&host, "4 a=2 n/x=2 n/y=1").await;
    memory.remove("n/x");
    wait_until_live(&host, "5 a=2 n/y=1").await;

    let stored = host.definitions().await.unwrap();
    let rows: Vec<_> = stored
        .iter()
        .map(|one| (one.id.to_string(), one.file.display().to_string()))
        .collect();
    let file = scene.chains().join("a.yaml").display().to_string();
    assert_eq!(
        rows,
        [
            ("AdmissionChain/a".to_owned(), file),
            ("admissionwebhook/n/y".to_owned(), "memory:/a/n/y".to_owned()),
        ]
    );

    memory.put(
        "n/y",
        &bcs_definition("y", "Secret", "1").replace(",\"resourcesRef\"", ",\n  \"resourcesRef\""),
    );
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "5 a=2 n/y=1");
    let comparison = host.compare(1, 2).unwrap().text;
    let lines: Vec<_> = comparison.lines().filter(|line| line.contains("url")).collect();
    assert_eq!(
        lines,
        [
            r#"-        "url": "http://127.0.0.1:1/1""#,
            r#"+        "url": "http://127.0.0.1:1/2""#
        ]
    );
}

#[tokio::test]
async fn mistakes_in_a_store_are_reported_with_their_locations() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    let plugin = r#""plugin":{"source":"file:x.wasm"}"#;
    let client = r#""clientConfig":{"url":"http://127.0.0.1:1/1"}"#;
    // (text in the store, beginning of the expected mistake)
    let table = [
        ("{".to_owned(), "memory:/a/n/y:1:"),
        (
            bcs_definition("y", "Secret", "1").replace("Fail\"", "Fial\""),
            "memory:/a/n/y:1:192: admissionWebhooks[0].failurePolicy: \"Fial\" is not a valid failure policy; write Fail or Ignore",
        ),
        (
            bcs_definition("y", "Secret", "1").replace(client, plugin),
            "memory:/a/n/y:1:218: admissionWebhooks[0].plugin.source: the path \"x.wasm\" is relative, and this \
             definition is not in a directory; write an absolute path, or `https:` or `oci:`",
        ),
        (
            bcs_definition("y", "Application", "1"),
            "memory:/a/n/y:1:101: resourcesRef: memory:/a/n/x:1:101 already defines hooks for Create of application; BCS \
             has one definition for each operation and kind: put the hooks into one",
        ),
    ];
    for (text, expected) in table {
        memory.put("n/y", &text);
        host.reload().await.unwrap();
        let problem = host.status().problem.unwrap();
        let [bad] = &problem.bad_definitions[..] else {
            panic!("{problem:?}");
        };
        assert_eq!(bad.location, "memory:/a/n/y");
        assert_eq!(bad.id.as_deref(), Some("admissionwebhook/n/y"));
        assert!(bad.reasons[0].starts_with(expected), "{bad:?}");
        assert_eq!(live_summary(&host), "1 n/x=1 !");
    }
    memory.remove("n/y");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "1 n/x=1");
}

#[tokio::test]
async fn a_table_stays_live_while_its_store_is_lost() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    scene.write("a.yaml", &chain("a", "1"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    let _following = FollowTask::start(&host);

    memory.set_lost(true);
    wait_until_live(&host, "1 a=1 n/x=1 !").await;
    let problem = host.status().problem.unwrap();
    assert_eq!(problem.mistakes, ["memory:/a cannot be reached: it is away"]);
    assert!(problem.next_attempt.is_some());
    std::fs::write(scene.chains().join("b.yaml"), b"\xff").unwrap();
    let error = host.reload().await.unwrap_err().to_string();
    assert!(
        error.starts_with("memory:/a cannot be reached: it is away\n") && error.contains("b.yaml:1:1: "),
        "{error}"
    );
    scene.remove("b.yaml");
    let errors = [
        host.definitions().await.unwrap_err(),
        host.apply(
            &bcs_definition("x", "Application", "2"),
            "new",
            &change_options_by("ci"),
        )
        .await
        .unwrap_err(),
        host.delete(&id("admissionwebhook/n/x"), &dry_run_options())
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ChangeError::Table(Error::Stores(_))), "{error}");
    }

    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    memory.set_lost(false);
    wait_until_live(&host, "2 a=1 n/x=2").await;
    memory.set_lost(true);
    wait_until_live(&host, "2 a=1 n/x=2 !").await;
    memory.set_lost(false);
    wait_until_live(&host, "2 a=1 n/x=2").await;
}

#[tokio::test(start_paused = true)]
async fn a_start_without_the_store_serves_the_last_live_table() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    memory.set_lost(true);
    let begin = tokio::time::Instant::now();
    let error = builder(&scene, &memory).build().await.unwrap_err();
    assert_eq!(error.to_string(), "memory:/a cannot be reached: it is away");
    assert_eq!(begin.elapsed().as_secs(), 5);

    let builder = || builder(&scene, &memory);
    let returns = async {
        tokio::task::yield_now().await;
        memory.set_lost(false);
    };
    let (host, ()) = tokio::join!(builder().build(), returns);
    assert_eq!(live_summary(&host.unwrap()), "1 n/x=1");

    memory.set_lost(true);
    let host = builder().build().await.unwrap();
    assert_eq!(live_summary(&host), "1 n/x=1 !");
    let _following = FollowTask::start(&host);
    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    memory.set_lost(false);
    wait_until_live(&host, "2 n/x=2").await;
}

/// A store reports each change only once, to whoever reads the store next. In this test, `Host::definitions` and
/// `Host::delete` read a change, but do not go live with it. The host must go live with it later.
#[tokio::test]
async fn a_change_that_was_read_but_not_used_goes_live_later() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    host.definitions().await.unwrap();
    assert_eq!(live_summary(&host), "1 n/x=1");
    let following = FollowTask::start(&host);
    wait_until_live(&host, "2 n/x=2").await;
    drop(following);

    memory.put("n/x", &bcs_definition("x", "Application", "3"));
    host.delete(&id("admissionwebhook/n/y"), &change_options_by("ci"))
        .await
        .unwrap_err();
    assert_eq!(live_summary(&host), "2 n/x=2");
    let _following = FollowTask::start(&host);
    wait_until_live(&host, "3 n/x=3").await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_holds_until_the_store_changes() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    host.apply(
        &bcs_definition("x", "Application", "2"),
        "new",
        &change_options_by("ci"),
    )
    .await
    .unwrap();
    host.rollback(1, None).await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1");
    assert!(memory.text("n/x").contains("1:1/2"));

    memory.set_lost(true);
    host.reload().await.unwrap_err();
    assert_eq!(live_summary(&host), "3 n/x=1 !");
    drop(host);
    let host = builder(&scene, &memory).build().await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1 !");
    memory.set_lost(false);
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1");
    drop(host);
    let host = builder(&scene, &memory).build().await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1");
    memory.put("n/x", &bcs_definition("x", "Application", "3"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "4 n/x=3");
    memory.set_lost(true);
    host.reload().await.unwrap_err();
    host.rollback(1, None).await.unwrap();
    assert_eq!(live_summary(&host), "5 n/x=1");
    memory.set_lost(false);
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "5 n/x=1");
    memory.put("n/x", &bcs_definition("x", "Application", "4"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "6 n/x=4");
}
