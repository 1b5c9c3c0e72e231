//! Tests tables that wait to go live until the program permits it.

use std::{fs, time::Duration};

use admittance::{
    Digest, Host, HostBuilder,
    definitions::{PluginDefinition, load},
};

use crate::{
    guest::Guest,
    scene::{ChangesScene, chain, live_summary, plugin},
    stores::FollowTask,
};

async fn start(scene: &ChangesScene) -> Host {
    let host = Host::builder()
        .definitions(scene.chains())
        .history(scene.folder.path().join("history"))
        .go_live_on_request()
        .build();
    host.await.unwrap()
}

/// Lets the only chain call a webhook whose URL has this path. Returns the content hash of the prepared table.
async fn prepare(scene: &ChangesScene, host: &Host, path: &str) -> Digest {
    scene.write("a.yaml", &chain("a", path));
    host.reload().await.unwrap();
    host.table_hashes().newest
}

async fn wait_until_prepared(host: &Host, hash: Digest) {
    let mut changes = host.changes();
    let waiting = async {
        while host.table_hashes().newest != hash {
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "{hash} is never prepared");
}

#[tokio::test]
async fn a_new_table_waits_until_the_program_lets_it_go_live() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let first = host.hash();
    assert_eq!((host.table_hashes().newest, host.status().prepared), (first, None));

    let second = prepare(&scene, &host, "2").await;
    assert_eq!(live_summary(&host), "1 a=1");
    assert_eq!((host.hash(), host.status().prepared), (first, Some(second)));
    host.reload().await.unwrap();
    assert_eq!(host.table_hashes().newest, second);
    assert!(!host.go_live_with(Digest::of_bytes("another")).await);
    assert!(host.go_live_with(second).await && host.go_live_with(second).await);
    assert_eq!(live_summary(&host), "2 a=2");
    assert_eq!(
        (host.hash(), host.table_hashes().newest, host.table_hashes().earlier),
        (second, second, None)
    );

    prepare(&scene, &host, "3").await;
    assert_eq!(host.history().len(), 2);
    drop(host);
    let host = start(&scene).await;
    assert_eq!(live_summary(&host), "3 a=3");
}

#[tokio::test]
async fn an_earlier_prepared_table_can_still_go_live() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let second = prepare(&scene, &host, "2").await;
    let third = prepare(&scene, &host, "3").await;
    assert_eq!(
        (host.table_hashes().newest, host.table_hashes().earlier),
        (third, Some(second))
    );
    assert!(host.go_live_with(second).await);
    assert_eq!(
        (live_summary(&host), host.table_hashes().newest),
        ("2 a=2".to_owned(), third)
    );
    assert!(host.go_live_with(third).await);
    assert_eq!(live_summary(&host), "3 a=3");
}

#[tokio::test]
async fn a_change_can_go_live_after_it_was_reverted_and_before_the_reversal() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let first = host.hash();
    let second = prepare(&scene, &host, "2").await;
    assert_eq!(prepare(&scene, &host, "1").await, first);
    assert_eq!(host.table_hashes().earlier, Some(second));
    let _following = FollowTask::start(&host);
    assert!(host.go_live_with(second).await);
    assert_eq!(live_summary(&host), "2 a=2");
    wait_until_prepared(&host, first).await;
    assert!(host.go_live_with(first).await);
    assert_eq!(live_summary(&host), "3 a=1");
}

#[tokio::test]
async fn a_change_without_effect_on_verdicts_goes_live_immediately() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let hash = host.hash();
    scene.remove("a.yaml");
    scene.write("b.yaml", &chain("a", "1"));
    host.reload().await.unwrap();
    assert_eq!((live_summary(&host), host.hash()), ("2 a=1".to_owned(), hash));

    let elsewhere = ChangesScene::new();
    elsewhere.write("z.yaml", &chain("a", "1"));
    assert_eq!(elsewhere.start().await.unwrap().hash(), hash);
    elsewhere.write("z.yaml", &chain("a", "2"));
    assert_ne!(elsewhere.start().await.unwrap().hash(), hash);
}

/// Definitions refer to modules and Rego files by their paths, but two replicas may have different files at the same
/// path. So the hash of a table must change if the content of such a file changes.
#[tokio::test]
async fn a_changed_module_or_rego_file_makes_a_new_table() {
    let scene = ChangesScene::new();
    let [module, policy] = ["a.wasm", "a.rego"].map(|name| scene.chains().join(name));
    scene.write("a.yaml", &plugin("a", "file:a.wasm"));
    fs::write(&module, Guest::default().component()).unwrap();
    let first = scene.start_without_history().await.unwrap().hash();
    assert_eq!(scene.start_without_history().await.unwrap().hash(), first);
    fs::write(&module, Guest::running("nop").component()).unwrap();
    let second = scene.start_without_history().await.unwrap().hash();
    assert_ne!(second, first, "another module");

    let stage = "      rego: { file: a.rego, entrypoint: data.a.deny }\n";
    let text = plugin("a", "file:a.wasm");
    let (head, _) = text.split_once("      plugin:").unwrap();
    scene.write("a.yaml", &format!("{head}{stage}"));
    let with_policy = async |text: &str| {
        fs::write(&policy, text).unwrap();
        let mut chains = load(&[scene.chains()]).unwrap();
        let Some(plugin) = chains[0].stages[0].hook.get_mut::<PluginDefinition>() else {
            panic!("{chains:?}");
        };
        plugin.source = format!("file:{}", module.display()).parse().unwrap();
        let builder = chains.into_iter().fold(Host::builder(), HostBuilder::definition);
        builder.build().await.unwrap().hash()
    };
    let first = with_policy("package a").await;
    assert_eq!(with_policy("package a").await, first);
    assert_ne!(with_policy("package a # other").await, first, "another settings file");
}
