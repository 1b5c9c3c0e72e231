//! Tables that go live only when the program says so.

use std::time::Duration;

use admittance::{Digest, Host};

use crate::{
    scene::{Scene, chain, live},
    stores::Following,
};

async fn start(scene: &Scene) -> Host {
    let host = Host::builder()
        .definitions(scene.chains())
        .history(scene.folder.path().join("history"))
        .go_live_when_told()
        .build();
    host.await.unwrap()
}

/// Prepares the chain with this path, and returns the hash of the table.
async fn prepare(scene: &Scene, host: &Host, path: &str) -> Digest {
    scene.write("a.yaml", &chain("a", path));
    host.reload().await.unwrap();
    host.prepared().newest
}

async fn until_prepared(host: &Host, hash: Digest) {
    let mut changes = host.changes();
    let waiting = async {
        while host.prepared().newest != hash {
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "{hash} is never prepared");
}

#[tokio::test]
async fn a_table_waits_until_it_may_go_live() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let first = host.hash();
    assert_eq!((host.prepared().newest, host.status().prepared), (first, None));

    let second = prepare(&scene, &host, "2").await;
    assert_eq!(live(&host), "1 a=1");
    assert_eq!((host.hash(), host.status().prepared), (first, Some(second)));
    // Reading the same again changes nothing.
    host.reload().await.unwrap();
    assert_eq!(host.prepared().newest, second);
    assert!(!host.go_live_with(Digest::of("another")).await);
    assert!(host.go_live_with(second).await && host.go_live_with(second).await);
    assert_eq!(live(&host), "2 a=2");
    assert_eq!(
        (host.hash(), host.prepared().newest, host.prepared().earlier),
        (second, second, None)
    );

    // What waits is not in the history.
    prepare(&scene, &host, "3").await;
    assert_eq!(host.history().len(), 2);
    drop(host);
    let host = start(&scene).await;
    assert_eq!(live(&host), "3 a=3");
}

#[tokio::test]
async fn the_table_before_the_newest_may_still_go_live() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let second = prepare(&scene, &host, "2").await;
    let third = prepare(&scene, &host, "3").await;
    assert_eq!(
        (host.prepared().newest, host.prepared().earlier),
        (third, Some(second))
    );
    assert!(host.go_live_with(second).await);
    assert_eq!((live(&host), host.prepared().newest), ("2 a=2".to_owned(), third));
    assert!(host.go_live_with(third).await);
    assert_eq!(live(&host), "3 a=3");
}

#[tokio::test]
async fn a_change_that_was_taken_back_too_late_is_taken_back_after_it_went_live() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let first = host.hash();
    let second = prepare(&scene, &host, "2").await;
    assert_eq!(prepare(&scene, &host, "1").await, first);
    assert_eq!(host.prepared().earlier, Some(second));
    let _following = Following::of(&host);
    assert!(host.go_live_with(second).await);
    assert_eq!(live(&host), "2 a=2");
    until_prepared(&host, first).await;
    assert!(host.go_live_with(first).await);
    assert_eq!(live(&host), "3 a=1");
}

#[tokio::test]
async fn what_changes_no_verdict_need_not_wait() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = start(&scene).await;
    let hash = host.hash();
    scene.remove("a.yaml");
    scene.write("b.yaml", &chain("a", "1"));
    host.reload().await.unwrap();
    assert_eq!((live(&host), host.hash()), ("2 a=1".to_owned(), hash));

    // Another host with the same definitions elsewhere has the same hash.
    let elsewhere = Scene::new();
    elsewhere.write("z.yaml", &chain("a", "1"));
    assert_eq!(elsewhere.start().await.unwrap().hash(), hash);
    elsewhere.write("z.yaml", &chain("a", "2"));
    assert_ne!(elsewhere.start().await.unwrap().hash(), hash);
}
