//! Tests that a changed definition is written to the store that contains it.

use admittance::{Application, AppliedEffect, ChangeError, ExpectedDefinitions, Host, Origin, definitions::StoreError};

use crate::{
    memory_store::MemoryStore,
    scene::{ChangesScene, chain, change_options_by, dry_run_options, live_summary},
    stores::{FollowTask, bcs_definition, builder, id},
};

fn options_expecting(expected: ExpectedDefinitions) -> Application {
    let mut application = Application::default();
    application.expected = expected;
    application
}

#[tokio::test]
async fn changed_definitions_are_written_back_to_their_store() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    scene.write("a.yaml", &chain("a", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    host.reload().await.unwrap();
    let _following = FollowTask::start(&host);

    let new = bcs_definition("x", "Application", "2");
    host.apply(&new, "new", &dry_run_options()).await.unwrap();
    assert_eq!(
        (live_summary(&host).as_str(), memory.commit_count()),
        ("2 a=1 n/x=1", 0)
    );
    let applied = host.apply(&new, "new", &change_options_by("ci")).await.unwrap();
    assert_eq!(applied.definitions[0].effect, AppliedEffect::Changed);
    assert_eq!(live_summary(&host), "3 a=1 n/x=2");
    assert!(memory.text("n/x").contains("http://127.0.0.1:1/2"));
    let yaml = "kind: admissionwebhook\napiVersion: v4\nmetadata: { namespace: 'n', name: x }\nresourcesRef: { operation: \
                Create, kind: Application }\nadmissionWebhooks: [ { name: hook, failurePolicy: Fail, clientConfig: { url: \
                http://127.0.0.1:1/2 } } ]\n";
    let again = host.apply(yaml, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!(again.definitions[0].effect, AppliedEffect::Unchanged);
    assert_eq!((again.revision, memory.commit_count()), (3, 1));
    // The text that is applied here is YAML. The host has to convert it to JSON before it writes it to the store,
    // because other programs that read the store expect JSON.
    let yaml = yaml.replace("/2", "/3");
    host.apply(&yaml, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!(live_summary(&host), "4 a=1 n/x=3");
    serde_json::from_str::<serde_json::Value>(&memory.text("n/x")).unwrap();

    host.delete(&id("admissionwebhook/n/x"), &change_options_by("ops"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "5 a=1");
    assert_eq!(memory.names(), [""; 0]);
    let origins: Vec<_> = host.history().into_iter().map(|one| (one.origin, one.by)).collect();
    assert_eq!(
        origins,
        [
            (Origin::Deleted, Some("ops".to_owned())),
            (Origin::Applied, Some("ci".to_owned())),
            (Origin::Applied, Some("ci".to_owned())),
            (Origin::Files, None),
            (Origin::Start, None),
        ]
    );
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "5 a=1");
}

#[tokio::test]
async fn an_apply_fails_if_its_expectations_are_not_met() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    scene.write("a.yaml", &chain("a", "1"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    let [x, y] = [
        bcs_definition("x", "Application", "2"),
        bcs_definition("y", "Secret", "1"),
    ];
    // (text to apply, whether its definition must be new or must exist, expected error)
    let table = [
        (
            &x,
            ExpectedDefinitions::New,
            "admissionwebhook/n/x already exists in memory:/a/n/x:1:1".to_owned(),
        ),
        (
            &y,
            ExpectedDefinitions::Existing,
            "there is no admissionwebhook/n/y; did you mean admissionwebhook/n/x?".to_owned(),
        ),
        (
            &chain("a", "2"),
            ExpectedDefinitions::New,
            format!(
                "AdmissionChain/a already exists in {}:1:1",
                scene.chains().join("a.yaml").display()
            ),
        ),
    ];
    for (text, expected, message) in table {
        let error = host.apply(text, "new", &options_expecting(expected)).await.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(
            (live_summary(&host).as_str(), memory.commit_count()),
            ("1 a=1 n/x=1", 0)
        );
    }
    host.apply(&x, "new", &options_expecting(ExpectedDefinitions::Existing))
        .await
        .unwrap();
    host.apply(&y, "new", &options_expecting(ExpectedDefinitions::New))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "3 a=1 n/x=2 n/y=1");
}

#[tokio::test]
async fn a_concurrent_write_to_the_store_fails_the_change() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    let new = bcs_definition("x", "Application", "2");
    memory.conflict_once();
    let error = host.apply(&new, "new", &change_options_by("ci")).await.unwrap_err();
    assert!(
        matches!(error, ChangeError::Store(StoreError::ChangedMeanwhile { .. })),
        "{error}"
    );
    assert_eq!(live_summary(&host), "1 n/x=1");
    assert_eq!(host.history().len(), 1);
    host.apply(&new, "new", &change_options_by("ci")).await.unwrap();
    assert_eq!(live_summary(&host), "2 n/x=2");
}

#[tokio::test]
async fn a_new_definition_goes_to_the_first_store_that_accepts_it() {
    let (scene, first, second) = (ChangesScene::new(), MemoryStore::new("1"), MemoryStore::new("2"));
    scene.write("a.yaml", &chain("a", "1"));
    let history = scene.folder.path().join("history");
    let file = scene.chains().join("a.yaml");
    let [x, y] = [
        bcs_definition("x", "Application", "1"),
        bcs_definition("y", "Secret", "1"),
    ];
    // Each character of `order` adds definitions: `f` from a file, `d` from a directory, `1` and `2` from the two
    // stores.
    let orders = |order: &str| {
        let builder = Host::builder().history(&history);
        order.chars().fold(builder, |builder, source| match source {
            'f' => builder.definitions(&file),
            'd' => builder.definitions(scene.chains()),
            '1' => builder.definition_store(first.clone()),
            _ => builder.definition_store(second.clone()),
        })
    };
    for (order, chain_destination, x_destination) in [
        ("d1", "AdmissionChain-b.yaml", "admissionwebhook-n-x.yaml"),
        ("1d", "AdmissionChain-b.yaml", "1"),
        ("f21d", "AdmissionChain-b.yaml", "2"),
        ("f12", "nowhere", "1"),
        ("f", "nowhere", "nowhere"),
    ] {
        let host = orders(order).build().await.unwrap();
        let destination_of = async |text: &str, file: &str, id: &str| {
            if let Err(error) = host.apply(text, "new", &change_options_by("ci")).await {
                assert!(error.to_string().contains("is new, and there is no"), "{error}");
                return "nowhere".to_owned();
            }
            let destination = if scene.chains().join(file).exists() {
                file.to_owned()
            } else if first.names().is_empty() {
                "2".to_owned()
            } else {
                "1".to_owned()
            };
            host.delete(&id.parse().unwrap(), &change_options_by("ci"))
                .await
                .unwrap();
            destination
        };
        assert_eq!(
            destination_of(&chain("b", "1"), "AdmissionChain-b.yaml", "AdmissionChain/b").await,
            chain_destination,
            "{order}"
        );
        assert_eq!(
            destination_of(&x, "admissionwebhook-n-x.yaml", "admissionwebhook/n/x").await,
            x_destination,
            "{order}"
        );
    }

    second.put("n/y", &y);
    let host = orders("d12").build().await.unwrap();
    let both = format!("{}\n---\n{}", chain("a", "2"), y.replace("1:1/1", "1:1/2"));
    let error = host
        .apply(&both, "new", &change_options_by("ci"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("this changes definitions in "), "{error}");
    assert!(
        error.ends_with(" and in memory:/2; change one store at a time"),
        "{error}"
    );
    assert_eq!(scene.read("a.yaml"), chain("a", "1"));
    assert_eq!(second.commit_count() + first.commit_count(), 6);
    assert_eq!(live_summary(&host).split_once(' ').unwrap().1, "a=1 n/y=1");
}

/// A store changes atomically, so it needs no history to complete a change after a crash.
#[tokio::test]
async fn a_store_can_be_changed_without_a_history() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    scene.write("a.yaml", &chain("a", "1"));
    let host = Host::builder()
        .definitions(scene.chains().join("a.yaml"))
        .definition_store(memory.clone())
        .build()
        .await
        .unwrap();
    host.apply(
        &bcs_definition("x", "Application", "1"),
        "new",
        &change_options_by("ci"),
    )
    .await
    .unwrap();
    assert_eq!(live_summary(&host), "2 a=1 n/x=1");
    let error = host
        .apply(&chain("a", "2"), "new", &change_options_by("ci"))
        .await
        .unwrap_err();
    assert!(matches!(error, ChangeError::NoHistory), "{error}");
    assert_eq!(scene.read("a.yaml"), chain("a", "1"));
}

/// The host may read the definitions again while a change is prepared, and find a mistake in another definition. The
/// host must still report this mistake when the change is live.
#[tokio::test]
async fn a_change_does_not_hide_a_problem_found_while_it_is_prepared() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    let [x, y] = [
        bcs_definition("x", "Application", "1"),
        bcs_definition("y", "Secret", "1"),
    ];
    memory.put("n/x", &x);
    memory.put("n/y", &y);
    let host = builder(&scene, &memory).build().await.unwrap();
    let (has_read, release) = memory.hold_reading();
    let applying = {
        let host = host.clone();
        tokio::spawn(async move { host.apply(&y, "new", &change_options_by("ci")).await })
    };
    has_read.await.unwrap();
    memory.put("n/x", "nonsense");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "1 n/x=1 n/y=1 !");
    drop(release);
    assert_eq!(applying.await.unwrap().unwrap().revision, 1);
    assert_eq!(live_summary(&host), "1 n/x=1 n/y=1 !");
}
