//! What is served after a start.

use std::fs;

use admittance::Error;

use crate::scene::{Scene, chain, live};

#[tokio::test]
async fn the_same_definitions_are_the_same_revision() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    for _ in 0..2 {
        assert_eq!(live(&scene.start().await.unwrap()), "1 a=1");
    }
    scene.write("a.yaml", &chain("a", "2"));
    assert_eq!(live(&scene.start().await.unwrap()), "2 a=2");
}

#[tokio::test]
async fn what_was_live_last_is_served_when_the_definitions_are_wrong() {
    let scene = Scene::new();
    scene.write("a.yaml", &chain("a", "1"));
    drop(scene.start().await.unwrap());
    for wrong in [
        "nonsense",
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n",
    ] {
        scene.write("a.yaml", wrong);
        let host = scene.start().await.unwrap();
        assert_eq!(live(&host), "1 a=1 !");
        let problem = host.status().problem.unwrap();
        assert!(problem.mistakes[0].contains("a.yaml"), "{problem:?}");
    }
    // The directory itself is gone, and comes back.
    fs::rename(scene.chains(), scene.folder.path().join("away")).unwrap();
    let host = scene.start().await.unwrap();
    assert_eq!(live(&host), "1 a=1 !");
    fs::rename(scene.folder.path().join("away"), scene.chains()).unwrap();
    scene.write("a.yaml", &chain("a", "1"));
    host.reload().await.unwrap();
    assert_eq!(live(&host), "1 a=1");
    scene.remove("a.yaml");
    host.reload().await.unwrap();
    assert_eq!(live(&host), "2");
}

#[tokio::test]
async fn without_a_history_wrong_definitions_are_the_end() {
    let scene = Scene::new();
    scene.write("a.yaml", "nonsense");
    assert!(matches!(scene.start().await, Err(Error::Definitions(_))));
    assert!(matches!(
        scene.start_without_history().await,
        Err(Error::Definitions(_))
    ));
}

#[tokio::test]
async fn a_history_has_one_host() {
    let scene = Scene::new();
    let _first = scene.start().await.unwrap();
    let error = scene.start().await.unwrap_err();
    assert!(error.to_string().contains("in use by process"), "{error}");
}
