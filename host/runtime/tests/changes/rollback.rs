use admittance::Origin;

use crate::{
    memory_store::MemoryStore,
    scene::{ChangesScene, chain, change_options_by, live_summary},
    stores::{bcs_definition, builder},
};

#[tokio::test]
async fn a_rollback_holds_until_the_files_change() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "2 a=2");

    let revision = host.rollback(1, Some("ops".to_owned())).await.unwrap();
    assert_eq!((revision.number, &revision.origin), (3, &Origin::RolledBack { to: 1 }));
    assert_eq!(live_summary(&host), "3 a=1");
    assert_eq!(scene.read("a.yaml"), chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1");

    drop(host);
    let host = scene.start().await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1");
    assert_eq!(host.status().by.as_deref(), Some("ops"));

    scene.write("a.yaml", &chain("a", "3"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "4 a=3");
    drop(host);
    assert_eq!(live_summary(&scene.start().await.unwrap()), "4 a=3");
}

#[tokio::test]
async fn the_problem_of_an_invalid_file_remains_during_a_rollback() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    scene.write("a.yaml", "nonsense");
    host.reload().await.unwrap_err();
    assert_eq!(live_summary(&host), "2 a=2 !");
    host.rollback(1, None).await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1 !");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1 !");

    drop(host);
    let host = scene.start().await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1 !");
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "4 a=2");
}

#[tokio::test]
async fn definitions_can_be_changed_after_a_rollback() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    let applied = host
        .apply(&chain("a", "2"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(applied.warnings, [""; 0]);
    host.rollback(1, None).await.unwrap();
    assert_eq!(host.rolled_back_to(), Some(1));
    let unknown = host
        .promote(&"b/hook".parse().unwrap(), &change_options_by("ci"))
        .await
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("a rollback to revision 1 is live"), "{unknown}");
    let applied = host
        .apply(&chain("b", "1"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "4 a=2 b=1");
    assert_eq!(host.rolled_back_to(), None);
    let ends = "the rollback to revision 1 ends with this change, and all current definitions are live again: ";
    let names = applied.warnings[0].strip_prefix(ends);
    assert_eq!(names, Some("added AdmissionChain/b, AdmissionChain/a"), "{applied:?}");
}

#[tokio::test]
async fn a_rollback_to_a_revision_that_the_history_lacks_is_refused() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start_without_history().await.unwrap();
    let error = host.rollback(7, None).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no revision 7: 1 to 1 are kept");
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    host.rollback(1, None).await.unwrap();
    assert_eq!(live_summary(&host), "3 a=1");
}

#[tokio::test]
async fn a_change_that_is_read_during_a_rollback_takes_effect_after_it() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    host.reload().await.unwrap();
    for (change, expected) in [("2", "3 n/x=1"), ("3", "5 n/x=3")] {
        memory.put("n/x", &bcs_definition("x", "Application", change));
        let (has_read, release) = memory.hold_reading();
        let reading = {
            let host = host.clone();
            tokio::spawn(async move { host.reload().await.map(drop) })
        };
        has_read.await.unwrap();
        host.rollback(1, None).await.unwrap();
        drop(release);
        reading.await.unwrap().unwrap();
        assert_eq!(live_summary(&host), expected);
    }
}
