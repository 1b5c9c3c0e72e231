//! Tests of invalid definitions in a store: all other definitions are served, and the invalid ones can be repaired.

use admittance::{Application, ChangeError, ExpectedDefinitions, Host, HostBuilder, OnBadDefinition, Served};

use crate::{
    memory_store::MemoryStore,
    scene::{ChangesScene, chain, change_options_by, live_summary},
    stores::{bcs_definition, builder, id},
};

fn invalid_texts() -> [String; 6] {
    [
        String::new(),
        "{".to_owned(),
        "7".to_owned(),
        r#"{"metadata":[1]}"#.to_owned(),
        bcs_definition("y", "Secret", "1").replace("Fail\"", "Fial\""),
        // A definition that conflicts with another one: the store contains the definition `n/x` for the kind
        // `Application`, and only one definition is allowed for each kind.
        bcs_definition("y", "Application", "2"),
    ]
}

fn options_expecting(expected: ExpectedDefinitions) -> Application {
    let mut application = change_options_by("ci");
    application.expected = expected;
    application
}

/// Returns the locations of the invalid definitions, with a `+` if the previous version is in force.
fn bad_locations(host: &Host) -> Vec<String> {
    let problem = host.status().problem;
    let bad = problem.into_iter().flat_map(|problem| problem.bad_definitions);
    bad.map(|bad| {
        assert!(!bad.reasons.is_empty());
        let marker = match bad.served {
            Served::LastVersion => "+",
            _ => "",
        };
        format!("{}{marker}", bad.location)
    })
    .collect()
}

/// Returns the builder of a host without a history, which knows no previous versions of definitions.
fn builder_without_history(scene: &ChangesScene, memory: &MemoryStore, on_bad: OnBadDefinition) -> HostBuilder {
    Host::builder()
        .definitions(scene.chains())
        .definition_store(memory.clone())
        .on_bad_definition(on_bad)
}

#[tokio::test]
async fn an_invalid_store_entry_is_served_in_its_last_version_or_left_out() {
    for text in invalid_texts() {
        // (policy for invalid definitions, expected live table, expected live table after `n/x` was changed, expected
        // location of the invalid definition)
        for (on_bad, served, changed, place) in [
            (
                OnBadDefinition::KeepLast,
                "1 n/x=1 n/y=1 !",
                "2 n/x=2 n/y=1 !",
                "memory:/a/n/y+",
            ),
            (OnBadDefinition::ServeRest, "2 n/x=1 !", "3 n/x=2 !", "memory:/a/n/y"),
        ] {
            let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
            memory.put("n/x", &bcs_definition("x", "Application", "1"));
            memory.put("n/y", &bcs_definition("y", "Secret", "1"));
            let begin = || builder(&scene, &memory).on_bad_definition(on_bad);
            let host = begin().build().await.unwrap();
            memory.put("n/y", &text);
            host.reload().await.unwrap();
            assert_eq!(live_summary(&host), served, "{text}");
            assert_eq!(bad_locations(&host), [place], "{text}");
            drop(host);
            let host = begin().build().await.unwrap();
            assert_eq!(live_summary(&host), served, "{text}");
            memory.put("n/x", &bcs_definition("x", "Application", "2"));
            host.reload().await.unwrap();
            assert_eq!(live_summary(&host), changed, "{text}");
            assert_eq!(bad_locations(&host), [place], "{text}");
            memory.put("n/y", &bcs_definition("y", "Secret", "3"));
            host.reload().await.unwrap();
            assert!(live_summary(&host).ends_with(" n/x=2 n/y=3"), "{}", live_summary(&host));
            assert_eq!(bad_locations(&host), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_new_host_starts_with_an_invalid_entry_in_its_store() {
    for text in invalid_texts() {
        for on_bad in OnBadDefinition::ALL {
            let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
            scene.write("a.yaml", &chain("a", "1"));
            memory.put("n/x", &bcs_definition("x", "Application", "1"));
            memory.put("n/y", &text);
            let host = builder_without_history(&scene, &memory, on_bad).build().await.unwrap();
            assert_eq!(live_summary(&host), "1 a=1 n/x=1 !", "{text}");
            assert_eq!(bad_locations(&host), ["memory:/a/n/y"], "{text}");
        }
    }
}

#[tokio::test]
async fn definitions_can_be_changed_despite_an_invalid_entry() {
    for text in invalid_texts() {
        for on_bad in OnBadDefinition::ALL {
            let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
            memory.put("n/x", &bcs_definition("x", "Application", "1"));
            memory.put("n/y", &text);
            let begin = async || {
                let host = builder(&scene, &memory).on_bad_definition(on_bad);
                host.build().await.unwrap()
            };
            let host = begin().await;
            let new = bcs_definition("z", "Process", "1");
            host.apply(&new, "new", &options_expecting(ExpectedDefinitions::New))
                .await
                .unwrap();
            host.apply(
                &bcs_definition("x", "Application", "2"),
                "new",
                &options_expecting(ExpectedDefinitions::Existing),
            )
            .await
            .unwrap();
            assert_eq!(live_summary(&host), "3 n/x=2 n/z=1 !", "{text}");
            host.delete(&id("admissionwebhook/n/z"), &change_options_by("ci"))
                .await
                .unwrap();
            assert_eq!(live_summary(&host), "4 n/x=2 !", "{text}");
            assert_eq!(memory.text("n/y"), text);
            let stored = host.definitions().await.unwrap();
            let stored_definition = stored
                .iter()
                .find(|definition| definition.id == id("admissionwebhook/n/y"))
                .unwrap();
            assert_eq!((&stored_definition.chain, &stored_definition.text), (&None, &text));
            let mended = bcs_definition("y", "Secret", "1");
            let refused = host
                .apply(&mended, "new", &options_expecting(ExpectedDefinitions::New))
                .await;
            assert!(refused.unwrap_err().to_string().contains("already exists"), "{text}");
            host.apply(&mended, "new", &options_expecting(ExpectedDefinitions::Existing))
                .await
                .unwrap();
            assert_eq!(live_summary(&host), "5 n/x=2 n/y=1", "{text}");
            memory.put("n/y", &text);
            host.reload().await.unwrap();
            host.delete(&id("admissionwebhook/n/y"), &change_options_by("ci"))
                .await
                .unwrap();
            assert!(
                live_summary(&host).ends_with(" n/x=2"),
                "{text}: {}",
                live_summary(&host)
            );
            assert_eq!(bad_locations(&host), [""; 0]);
            let unknown = host
                .delete(&id("admissionwebhook/n/y"), &change_options_by("ci"))
                .await
                .unwrap_err();
            assert!(matches!(unknown, ChangeError::Definitions(_)), "{unknown}");
        }
    }
}

/// The definitions `n/b` and `n/x` are for the same kind, so only one of them can be served. If one of them is live
/// already, it stays live. If neither is live, the first in alphabetical order is served.
#[tokio::test]
async fn a_definition_in_force_wins_over_a_conflicting_definition() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    let host = builder(&scene, &memory).build().await.unwrap();
    memory.put("n/b", &bcs_definition("b", "Application", "1"));
    host.reload().await.unwrap();
    assert_eq!(
        (live_summary(&host).as_str(), bad_locations(&host)),
        ("1 n/x=1 !", vec!["memory:/a/n/b".to_owned()])
    );
    let other = builder_without_history(&scene, &memory, OnBadDefinition::KeepLast)
        .build()
        .await
        .unwrap();
    assert_eq!(
        (live_summary(&other).as_str(), bad_locations(&other)),
        ("1 n/b=1 !", vec!["memory:/a/n/x".to_owned()])
    );
    host.apply(
        &bcs_definition("x", "Application", "2"),
        "new",
        &options_expecting(ExpectedDefinitions::Existing),
    )
    .await
    .unwrap();
    assert_eq!(live_summary(&host), "2 n/x=2 !");
    host.delete(&id("admissionwebhook/n/x"), &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(
        (live_summary(&host).as_str(), bad_locations(&host)),
        ("3 n/b=1", Vec::new())
    );
}

#[tokio::test]
async fn a_definition_without_its_module_is_reported_and_the_rest_is_served() {
    let client = r#""clientConfig":{"url":"http://127.0.0.1:1/1"}"#;
    let plugin = |path: &str| format!(r#""plugin":{{"source":"file:{path}"}}"#);
    let missing = bcs_definition("y", "Secret", "1").replace(client, &plugin("/nonexistent/x.wasm"));
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    memory.put("n/y", &missing);
    let serving = builder(&scene, &memory).on_bad_definition(OnBadDefinition::ServeRest);
    let host = serving.build().await.unwrap();
    assert_eq!(
        (live_summary(&host).as_str(), bad_locations(&host)),
        ("1 n/x=1 !", vec!["memory:/a/n/y".to_owned()])
    );
    let unloadable_text = bcs_definition("z", "Process", "1").replace(client, &plugin("/nonexistent/z.wasm"));
    host.apply(&unloadable_text, "new", &change_options_by("ci"))
        .await
        .unwrap_err();
    host.apply(&bcs_definition("z", "Process", "1"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(live_summary(&host), "2 n/x=1 n/z=1 !");
    memory.put("n/y", &bcs_definition("y", "Secret", "1"));
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "3 n/x=1 n/y=1 n/z=1");
    drop(host);
    let restarted_host = builder(&scene, &memory).build().await.unwrap();
    memory.put("n/y", &missing);
    restarted_host.reload().await.unwrap();
    assert_eq!(
        (live_summary(&restarted_host).as_str(), bad_locations(&restarted_host)),
        ("3 n/x=1 n/y=1 n/z=1 !", vec!["memory:/a/n/y+".to_owned()])
    );
}
