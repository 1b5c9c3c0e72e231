//! Tests of changes that users request while the host runs.

use admittance::{AppliedEffect, ChangeError, Comparison, Origin, definitions::DefinitionId};

use crate::scene::{ChangesScene, chain, change_options_by, dry_run_options, live_summary};

fn id(text: &str) -> DefinitionId {
    text.parse().unwrap()
}

#[tokio::test]
async fn an_applied_definition_is_live_until_it_is_deleted() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    assert_eq!(live_summary(&host), "1 a=1");

    let text = format!("{}---\n{}", chain("a", "2"), chain("b", "1"));
    let dry_run_change = host.apply(&text, "new.yaml", &dry_run_options()).await.unwrap();
    assert!(dry_run_change.dry_run);
    assert_eq!((live_summary(&host).as_str(), dry_run_change.revision), ("1 a=1", 2));
    assert_eq!(scene.read("a.yaml"), chain("a", "1"));

    let applied = host.apply(&text, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!(live_summary(&host), "2 a=2 b=1");
    let effects: Vec<_> = applied
        .definitions
        .iter()
        .map(|definition| (definition.id.as_str(), definition.effect))
        .collect();
    assert_eq!(
        effects,
        [
            ("AdmissionChain/a", AppliedEffect::Changed),
            ("AdmissionChain/b", AppliedEffect::Created),
        ]
    );
    assert_eq!(applied.comparison, dry_run_change.comparison);
    assert_eq!(scene.read("a.yaml"), chain("a", "2"));
    assert_eq!(scene.read("AdmissionChain-b.yaml"), chain("b", "1"));

    let again = host.apply(&text, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!((live_summary(&host).as_str(), again.revision), ("2 a=2 b=1", 2));
    assert!(
        again
            .definitions
            .iter()
            .all(|one| one.effect == AppliedEffect::Unchanged)
    );

    let stored: Vec<_> = host.definitions().await.unwrap();
    let mut names: Vec<_> = stored.iter().map(|definition| definition.id.to_string()).collect();
    names.sort_unstable();
    assert_eq!(names, ["AdmissionChain/a", "AdmissionChain/b"]);

    host.delete(&id("AdmissionChain/a"), &change_options_by("ops"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "3 b=1");
    assert!(!scene.chains().join("a.yaml").exists());

    let history = host.history();
    let rows: Vec<_> = history
        .iter()
        .map(|revision| (revision.number, &revision.origin, revision.by.as_deref()))
        .collect();
    assert_eq!(
        rows,
        [
            (3, &Origin::Deleted, Some("ops")),
            (2, &Origin::Applied, Some("ci")),
            (1, &Origin::Start, None),
        ]
    );
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 b=1");
}

#[tokio::test]
async fn applying_the_live_definitions_restores_files_that_differ() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    scene.write("b.yaml", &chain("b", "1"));
    host.apply(&chain("a", "1"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "2 a=1 b=1");
    scene.write("c.yaml", &chain("c", "1"));
    let deleted = host
        .delete(&id("AdmissionChain/c"), &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!((deleted.revision, live_summary(&host).as_str()), (2, "2 a=1 b=1"));
    assert!(!scene.chains().join("c.yaml").exists());
    let wrong = chain("a", "1").replace("stages", "stagees");
    scene.write("a.yaml", &wrong);
    host.reload().await.unwrap_err();
    assert_eq!(live_summary(&host), "2 a=1 b=1 !");
    host.apply(&chain("a", "1"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "2 a=1 b=1");
    assert_eq!(scene.read("a.yaml"), chain("a", "1"));
}

#[tokio::test]
async fn an_invalid_change_changes_nothing() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    let unknown = chain("b", "1").replace("stages:", "stagse:");
    let table = [
        (unknown, "new.yaml:6:3: spec.stages: missing"),
        ("{".to_owned(), "new.yaml:"),
        (String::new(), "new.yaml"),
    ];
    for (text, expected) in table {
        let error = host
            .apply(&text, "new.yaml", &change_options_by("ci"))
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let error = host
        .delete(&id("AdmissionChain/b"), &change_options_by("ci"))
        .await
        .unwrap_err();
    assert!(matches!(error, ChangeError::Definitions(_)), "{error}");
    let error = host
        .promote(&"a/hook".parse().unwrap(), &change_options_by("ci"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("candidate"), "{error}");
    assert_eq!(live_summary(&host), "1 a=1");
    assert_eq!(host.history().len(), 1);
    assert_eq!(scene.read("a.yaml"), chain("a", "1"));
    assert_eq!(std::fs::read_dir(scene.chains()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_comparison_shows_changed_texts_and_modules() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    let Comparison { text, .. } = host.compare(1, 2).unwrap();
    assert!(
        text.contains("-        url: https://127.0.0.1:1/1\n+        url: https://127.0.0.1:1/2\n"),
        "{text}"
    );
    let back = host.compare(2, 1).unwrap();
    assert!(
        back.text.contains("+        url: https://127.0.0.1:1/1\n"),
        "{}",
        back.text
    );
    assert!(host.compare(1, 3).unwrap_err().to_string().contains("1 to 2 are kept"));
    let detail = host.revision(1).unwrap();
    assert_eq!(detail.files[0].text, chain("a", "1"));
}

#[tokio::test]
async fn applying_a_definition_warns_about_probably_unintended_settings() {
    let scene = ChangesScene::new();
    let forgets = chain("a", "1").replace(
        "[CREATE]\n      kinds: [Pod]",
        "[CREATE, UPDATE]\n      apiGroups: [\"\"]\n      apiVersions: [v1]\n      resources: [pods]",
    );
    scene.write("a.yaml", &forgets);
    let host = scene.start().await.unwrap();
    for (text, expected) in [
        (chain("b", "1"), None),
        (forgets.replace("name: a", "name: c"), Some("pods/ephemeralcontainers")),
    ] {
        for how in [dry_run_options(), change_options_by("ci")] {
            let warnings = host.apply(&text, "new", &how).await.unwrap().warnings;
            assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains(expected.unwrap())));
        }
    }
}
