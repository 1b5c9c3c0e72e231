//! Tests of the behaviour that all stores of definitions have in common.

use std::path::Path;

use admittance_definitions::{DefinitionStore, StoreError};
use futures_util::FutureExt as _;

use crate::documents::{
    assert_changed_meanwhile, assert_files, creation, definition_id, definition_ids, deletion, document, document_for,
    read_until, replacement, wait_until_hook, with_test_timeout,
};

/// The definitions that the store of a test reads. The test can also change them without the store, to simulate a
/// change by another program.
pub(crate) trait StoreFixture: Sized {
    type Store: DefinitionStore;

    /// Whether the store writes several changes in one transaction.
    const TAKES_SEVERAL_CHANGES: bool;

    /// Whether the store has a schema. A store with a schema refuses a document that is not a JSON object.
    const HAS_SCHEMA: bool = false;

    /// Creates a fixture. `is_to_be_lost` is true for a test that calls [`make_unreachable`](Self::make_unreachable),
    /// which makes the server of the fixture unreachable. Such a fixture gets a server that no other test uses.
    async fn new(is_to_be_lost: bool) -> Self;

    /// Opens a new store of this fixture's definitions.
    async fn open_store(&self) -> Self::Store;

    /// Writes a definition directly, as another program such as BCS's scheduler does, and not through the tested store.
    async fn put(&self, path: &Path, text: &str);

    async fn remove(&self, path: &Path);

    /// Makes the definitions unreachable until `restore` is called, to simulate a failure of the server.
    async fn make_unreachable(&mut self);

    async fn restore(&mut self);
}

/// Calls the given macro with a fixture and the names of the tests that every store must pass.
macro_rules! each_rule {
    ($with:ident, $ground:ty) => {
        $with! {
            $ground:
            a_created_definition_exists
            an_existing_definition_is_not_created_again
            only_the_version_that_was_read_is_replaced
            only_the_version_that_was_read_is_deleted
            a_change_by_another_program_is_noticed
            two_stores_see_the_changes_of_each_other
            all_changes_of_a_commit_are_written_or_none
            an_unavailable_store_does_not_appear_empty
            a_definition_of_every_valid_name_is_stored
            definitions_that_bcs_wrote_are_read
        }
    };
}

/// Calls the given macro with the tests that every store must pass if several drivers share it.
macro_rules! each_rule_of_shared {
    ($with:ident, $ground:ty) => {
        $with! {
            $ground:
            one_of_two_writers_succeeds
            only_one_definition_for_an_operation_and_kind_is_created
            an_invalid_definition_can_be_read_and_replaced
        }
    };
}

macro_rules! tests {
    ($ground:ty: $($rule:ident)*) => {
        $(#[tokio::test]
        async fn $rule() {
            crate::conformance::$rule::<$ground>().await;
        })*
    };
}

pub(crate) use {each_rule, each_rule_of_shared, tests};

/// Returns the path of the definition `defaultGroup/hooks` in a store.
fn hooks_path(store: &impl DefinitionStore) -> std::path::PathBuf {
    store.path_for(&definition_id("defaultGroup", "hooks")).unwrap()
}

fn hooks_document(hook: &str) -> String {
    document("defaultGroup", "hooks", hook)
}

/// Creates a fixture with one definition, and returns that definition's path and text.
async fn fixture_with_hooks<G: StoreFixture>() -> (G, G::Store, std::path::PathBuf, String) {
    let ground = G::new(false).await;
    let store = ground.open_store().await;
    let (path, text) = (hooks_path(&store), hooks_document("first"));
    store.commit(&[creation(&path, &text)]).await.unwrap();
    (ground, store, path, text)
}

pub(crate) async fn a_created_definition_exists<G: StoreFixture>() {
    let ground = G::new(false).await;
    let store = ground.open_store().await;
    assert_files(&store.read().await.unwrap(), &[]);
    store.commit(&[]).await.unwrap();
    let (path, text) = (hooks_path(&store), hooks_document("first"));
    assert!(store.owns(&path), "{}", path.display());
    let is_of_system = path.is_absolute();
    let begins = path.to_str().unwrap().starts_with(&store.location());
    assert!(begins || is_of_system, "{}", path.display());
    store.commit(&[creation(&path, &text)]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);

    let other = store.path_for(&definition_id("other", "hooks")).unwrap();
    let other_text = document("other", "hooks", "other");
    store.commit(&[creation(&other, &other_text)]).await.unwrap();
    let expected = [(path.as_path(), text.as_str()), (&other, &other_text)];
    assert_files(&store.read().await.unwrap(), &expected);
}

pub(crate) async fn an_existing_definition_is_not_created_again<G: StoreFixture>() {
    let (_ground, store, path, text) = fixture_with_hooks::<G>().await;
    let result = store.commit(&[creation(&path, &hooks_document("second"))]).await;
    assert_changed_meanwhile(result, &path);
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
}

pub(crate) async fn only_the_version_that_was_read_is_replaced<G: StoreFixture>() {
    let (ground, store, path, text) = fixture_with_hooks::<G>().await;
    let (second, third) = (hooks_document("second"), hooks_document("third"));
    let result = store.commit(&[replacement(&path, &second, &third)]).await;
    assert_changed_meanwhile(result, &path);
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);

    store.commit(&[replacement(&path, &text, &second)]).await.unwrap();
    store.commit(&[replacement(&path, &second, &third)]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &third)]);

    ground.put(&path, &text).await;
    let result = store.commit(&[replacement(&path, &third, &second)]).await;
    assert_changed_meanwhile(result, &path);
    let files = store.read().await.unwrap();
    assert_files(&files, &[(&path, &text)]);
    store
        .commit(&[replacement(&path, &files[0].text, &second)])
        .await
        .unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &second)]);

    ground.remove(&path).await;
    let result = store.commit(&[replacement(&path, &second, &third)]).await;
    assert_changed_meanwhile(result, &path);
    assert_files(&store.read().await.unwrap(), &[]);
}

pub(crate) async fn only_the_version_that_was_read_is_deleted<G: StoreFixture>() {
    let (ground, store, path, text) = fixture_with_hooks::<G>().await;
    let result = store.commit(&[deletion(&path, &hooks_document("second"))]).await;
    assert_changed_meanwhile(result, &path);
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);

    let files = store.read().await.unwrap();
    store.commit(&[deletion(&path, &files[0].text)]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[]);
    let result = store.commit(&[deletion(&path, &text)]).await;
    assert_changed_meanwhile(result, &path);

    let second = hooks_document("second");
    store.commit(&[creation(&path, &second)]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &second)]);
    ground.remove(&path).await;
    assert_files(&store.read().await.unwrap(), &[]);
}

pub(crate) async fn a_change_by_another_program_is_noticed<G: StoreFixture>() {
    let ground = G::new(false).await;
    let store = ground.open_store().await;
    let path = hooks_path(&store);
    wait_until_hook(&store, None).await;
    ground.put(&path, &hooks_document("first")).await;
    wait_until_hook(&store, Some("first")).await;
    // This drops the future of `changed` before it completes. The store must nevertheless notice the next change.
    let _ = store.wait_for_change().now_or_never();
    ground.put(&path, &hooks_document("second")).await;
    let _ = store.wait_for_change().now_or_never();
    wait_until_hook(&store, Some("second")).await;
    ground.remove(&path).await;
    with_test_timeout("the definition that is gone", store.wait_for_change()).await;
    wait_until_hook(&store, None).await;
}

pub(crate) async fn two_stores_see_the_changes_of_each_other<G: StoreFixture>() {
    let ground = G::new(false).await;
    let (one, other) = (ground.open_store().await, ground.open_store().await);
    wait_until_hook(&other, None).await;
    let path = hooks_path(&one);
    one.commit(&[creation(&path, &hooks_document("first"))]).await.unwrap();
    with_test_timeout("the other's definition", other.wait_for_change()).await;
    let files = other.read().await.unwrap();
    assert_files(&files, &[(&path, &hooks_document("first"))]);
    let change = replacement(&path, &files[0].text, &hooks_document("second"));
    other.commit(&[change]).await.unwrap();
    assert_files(&one.read().await.unwrap(), &[(&path, &hooks_document("second"))]);
    other
        .commit(&[deletion(&path, &hooks_document("second"))])
        .await
        .unwrap();
    let result = one
        .commit(&[replacement(&path, &hooks_document("second"), &hooks_document("third"))])
        .await;
    assert_changed_meanwhile(result, &path);
    assert_files(&one.read().await.unwrap(), &[]);
}

pub(crate) async fn all_changes_of_a_commit_are_written_or_none<G: StoreFixture>() {
    let (_ground, store, path, text) = fixture_with_hooks::<G>().await;
    let a = store.path_for(&definition_id("a", "a")).unwrap();
    let b = store.path_for(&definition_id("b", "b")).unwrap();
    let (in_a, in_b) = (document("a", "a", "a"), document("b", "b", "b"));
    let valid_changes = [
        creation(&a, &in_a),
        replacement(&path, &text, &hooks_document("second")),
        creation(&b, &in_b),
    ];
    if !G::TAKES_SEVERAL_CHANGES {
        let result = store.commit(&valid_changes).await;
        assert!(matches!(result, Err(StoreError::OneAtATime { .. })), "{result:?}");
        assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
        return;
    }
    // (changes of one commit, path of the change that fails)
    for (changes, failing_path) in [
        (vec![creation(&a, &in_a), creation(&path, &in_b)], &path),
        (
            vec![
                creation(&a, &in_a),
                replacement(&path, &text, &hooks_document("second")),
                deletion(&b, &in_b),
            ],
            &b,
        ),
        (
            vec![
                deletion(&path, &text),
                creation(&a, &in_a),
                replacement(&b, &in_b, &text),
            ],
            &b,
        ),
    ] {
        assert_changed_meanwhile(store.commit(&changes).await, failing_path);
        assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
    }
    store.commit(&valid_changes).await.unwrap();
    let second = hooks_document("second");
    let expected = [(path.as_path(), second.as_str()), (&a, &in_a), (&b, &in_b)];
    assert_files(&store.read().await.unwrap(), &expected);
    let rest = [
        deletion(&a, &in_a),
        replacement(&path, &second, &text),
        deletion(&b, &in_b),
    ];
    store.commit(&rest).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
}

pub(crate) async fn one_of_two_writers_succeeds<G: StoreFixture>() {
    let (ground, store, path, text) = fixture_with_hooks::<G>().await;
    let other = ground.open_store().await;
    let mut stored_text = text;
    for round in 0..10 {
        let (first_text, second_text) = (
            hooks_document(&format!("mine-{round}")),
            hooks_document(&format!("yours-{round}")),
        );
        let (one, two) = (
            [replacement(&path, &stored_text, &first_text)],
            [replacement(&path, &stored_text, &second_text)],
        );
        let results = tokio::join!(store.commit(&one), other.commit(&two));
        stored_text = match results {
            (Ok(()), Err(StoreError::ChangedMeanwhile { .. })) => first_text,
            (Err(StoreError::ChangedMeanwhile { .. }), Ok(())) => second_text,
            results => panic!("{results:?}"),
        };
        assert_files(&store.read().await.unwrap(), &[(&path, &stored_text)]);
    }
}

pub(crate) async fn only_one_definition_for_an_operation_and_kind_is_created<G: StoreFixture>() {
    let ground = G::new(false).await;
    let (one, other) = (ground.open_store().await, ground.open_store().await);
    let first_path = one.path_for(&definition_id("n", "mine")).unwrap();
    let second_path = other.path_for(&definition_id("n", "yours")).unwrap();
    let text = |name: &str| document_for(0, "n", name, "hook");
    for round in 0..10 {
        let first = [creation(&first_path, &text("mine"))];
        let second = [creation(&second_path, &text("yours"))];
        let results = tokio::join!(one.commit(&first), other.commit(&second));
        let (path, name) = match &results {
            (Ok(()), Err(StoreError::Conflict { .. })) => (&first_path, "mine"),
            (Err(StoreError::Conflict { .. }), Ok(())) => (&second_path, "yours"),
            results => panic!("{round}: {results:?}"),
        };
        let stored_text = text(name);
        assert_files(&one.read().await.unwrap(), &[(path, &stored_text)]);
        let third = one.path_for(&definition_id("n", "third")).unwrap();
        let creation_result = one.commit(&[creation(&third, &text("third"))]).await;
        assert!(
            matches!(creation_result, Err(StoreError::Conflict { .. })),
            "{creation_result:?}"
        );
        let elsewhere = document_for(1, "n", "third", "hook");
        one.commit(&[creation(&third, &elsewhere)]).await.unwrap();
        let replacement_result = one.commit(&[replacement(&third, &elsewhere, &text("third"))]).await;
        assert!(
            matches!(replacement_result, Err(StoreError::Conflict { .. })),
            "{replacement_result:?}"
        );
        let changed = document_for(0, "n", name, "another");
        one.commit(&[replacement(path, &stored_text, &changed)]).await.unwrap();
        one.commit(&[deletion(&third, &elsewhere)]).await.unwrap();
        one.commit(&[deletion(path, &changed)]).await.unwrap();
    }
}

pub(crate) async fn an_invalid_definition_can_be_read_and_replaced<G: StoreFixture>() {
    let (ground, store, path, text) = fixture_with_hooks::<G>().await;
    let invalid_path = store.path_for(&definition_id("bkbcs", "bad")).unwrap();
    for junk in [
        "\"junk\"",
        "[]",
        r#"{"metadata":{"name":"bad","namespace":"bkbcs"},"admissionWebhooks":7}"#,
    ] {
        if G::HAS_SCHEMA && !junk.starts_with('{') {
            continue;
        }
        ground.put(&invalid_path, junk).await;
        let files = store.read().await.unwrap();
        let invalid_file = files.iter().find(|file| file.path == invalid_path).unwrap();
        assert_eq!(invalid_file.expected_id, Some(definition_id("bkbcs", "bad")), "{junk}");
        let valid_file = files.iter().find(|file| file.path == path).unwrap();
        assert_files(std::slice::from_ref(valid_file), &[(&path, &text)]);
        let repaired = document("bkbcs", "bad", "repaired");
        store
            .commit(&[replacement(&invalid_path, &invalid_file.text, &repaired)])
            .await
            .unwrap();
        assert_files(
            &store.read().await.unwrap(),
            &[(&path, &text), (&invalid_path, &repaired)],
        );
        ground.put(&invalid_path, junk).await;
        let reread_files = store.read().await.unwrap();
        let junk_file = reread_files.iter().find(|file| file.path == invalid_path).unwrap();
        store.commit(&[deletion(&invalid_path, &junk_file.text)]).await.unwrap();
        assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
    }
}

pub(crate) async fn an_unavailable_store_does_not_appear_empty<G: StoreFixture>() {
    let mut ground = G::new(true).await;
    let store = ground.open_store().await;
    let (path, text) = (hooks_path(&store), hooks_document("first"));
    store.commit(&[creation(&path, &text)]).await.unwrap();
    wait_until_hook(&store, Some("first")).await;
    ground.make_unreachable().await;
    with_test_timeout("the loss", store.wait_for_change()).await;
    let outcome = read_until(&store, "no answer", Result::is_err).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(&store.location()), "{error}");
    let change = replacement(&path, &text, &hooks_document("second"));
    let result = store.commit(std::slice::from_ref(&change)).await;
    assert!(result.is_err());
    assert!(store.read().await.is_err());

    let (_, ()) = tokio::join!(
        with_test_timeout("that it is there again", store.wait_for_change()),
        ground.restore()
    );
    wait_until_hook(&store, Some("first")).await;
    ground.put(&path, &hooks_document("third")).await;
    wait_until_hook(&store, Some("third")).await;
    let result = store.commit(&[change]).await;
    assert_changed_meanwhile(result, &path);
}

pub(crate) async fn a_definition_of_every_valid_name_is_stored<G: StoreFixture>() {
    let ground = G::new(false).await;
    let store = ground.open_store().await;
    let long = "l".repeat(200);
    let names = [
        ("bkbcs", "webhook-test"),
        ("defaultGroup", "webhook-test"),
        ("defaultgroup", "webhook-test"),
        ("defaultGroup", "WEBHOOK_test"),
        ("defaultGroup-webhook", "test"),
        ("BCS.1", "a.b..c"),
        ("n", "-a-"),
        ("n", "钩子"),
        ("钩", "子"),
        (long.as_str(), long.as_str()),
    ];
    let mut expected = Vec::new();
    for (subject, (namespace, name)) in names.into_iter().enumerate() {
        let path = store.path_for(&definition_id(namespace, name)).unwrap();
        assert!(store.owns(&path), "{}", path.display());
        let text = document_for(subject, namespace, name, "hook");
        store.commit(&[creation(&path, &text)]).await.unwrap();
        expected.push((path, text));
    }
    let files = store.read().await.unwrap();
    let pairs: Vec<_> = expected
        .iter()
        .map(|(path, text)| (path.as_path(), text.as_str()))
        .collect();
    assert_files(&files, &pairs);
    for file in &files {
        let change = deletion(&file.path, &file.text);
        store.commit(&[change]).await.unwrap();
    }
    assert_files(&store.read().await.unwrap(), &[]);
}

pub(crate) async fn definitions_that_bcs_wrote_are_read<G: StoreFixture>() {
    let ground = G::new(false).await;
    let store = ground.open_store().await;
    // BCS's scheduler wrote definitions like `old` until October 2019. Since then, it has written definitions like
    // `new`.
    let old = r#"{"ResourcesRef":{"Operation":"Create","Kind":"Application"},"admissionWebhooks":[
        {"Name":"old","FailurePolicy":"Ignore","ClientConfig":{"Url":"https://hooks.example.com/","CaBundle":"",
         "Namespace":"","Name":"","Path":"","Port":0},"NamespaceSelector":null}],
        "apiVersion":"v4","kind":"admissionwebhook",
        "metadata":{"name":"hooks","namespace":"defaultGroup","creationTimestamp":"0001-01-01T00:00:00Z"}}"#;
    let new = r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"name":"hooks","namespace":"defaultGroup",
        "creationTimestamp":"0001-01-01T00:00:00Z","labels":{"a":"b"}},
        "resourcesRef":{"operation":"Create","kind":"application"},"admissionWebhooks":[
        {"name":"new","failurePolicy":"","clientConfig":{"caBundle":"","namespace":"","name":"","path":"","port":0,
         "url":"https://hooks.example.com/"},"namespaceSelector":{"operator":"NotIn","values":["a"]}}]}"#;
    let path = hooks_path(&store);
    for bcs_text in [old, new] {
        ground.put(&path, bcs_text).await;
        let files = store.read().await.unwrap();
        assert_eq!(definition_ids(&files), [definition_id("defaultGroup", "hooks")]);
        let second = hooks_document("second");
        store
            .commit(&[replacement(&path, &files[0].text, &second)])
            .await
            .unwrap();
        assert_files(&store.read().await.unwrap(), &[(&path, &second)]);
        ground.put(&path, bcs_text).await;
        let reread_files = store.read().await.unwrap();
        store.commit(&[deletion(&path, &reread_files[0].text)]).await.unwrap();
        assert_files(&store.read().await.unwrap(), &[]);
    }
}
