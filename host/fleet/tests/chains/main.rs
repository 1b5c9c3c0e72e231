//! Tests of the store of chains, with an API server that keeps its resources in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "JSON in tests is what the test wrote")]

#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../cluster/tests/cluster/api_server.rs"]
mod api_server;
mod policies;
#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../cluster/tests/cluster/setting.rs"]
mod setting;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionSet, DefinitionStore, FileChange, StoreError};
use admittance_fleet::ChainStore;
use serde_json::{Value, json};

use crate::setting::Setting;

const CHAIN_PLURAL: &str = "admissionchains";
const NAMESPACED_CHAIN_PLURAL: &str = "namespacedadmissionchains";
const EXCEPTION_PLURAL: &str = "admissionexceptions";

/// A timeout that no operation of these tests reaches, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

fn chain(name: &str, stage: &str) -> Value {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": name},
        "spec": {
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": stage, "cel": {"validations": [{"expression": "true"}]}}],
        },
    })
}

fn id(kind: &str, name: &str) -> DefinitionId {
    DefinitionId {
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn file_change(path: &Path, before: Option<&Value>, after: Option<&Value>) -> FileChange {
    FileChange::new(path, before.map(Value::to_string), after.map(Value::to_string))
}

async fn open_store(setting: &Setting) -> ChainStore {
    ChainStore::new(&setting.cluster().await)
}

async fn read_chains(store: &ChainStore) -> Vec<(PathBuf, Value)> {
    let files: Vec<DefinitionFile> = store.read().await.unwrap();
    DefinitionSet::of_files(files.clone()).chains().unwrap();
    let files = files.into_iter();
    files
        .map(|file| (file.path, serde_json::from_str(&file.text).unwrap()))
        .collect()
}

#[tokio::test]
async fn written_chains_are_read_back() {
    let setting = Setting::new();
    let store = open_store(&setting).await;
    assert_eq!(read_chains(&store).await, []);
    let path = store.path_for(&id("AdmissionChain", "pods")).unwrap();
    assert_eq!(path, Path::new("kubernetes:AdmissionChain/pods"));
    assert!(store.owns(&path));
    let mut first = chain("pods", "first");
    first["metadata"]["labels"] = json!({"team": "a"});
    store.commit(&[]).await.unwrap();
    store.commit(&[file_change(&path, None, Some(&first))]).await.unwrap();
    assert_eq!(read_chains(&store).await, [(path.clone(), first.clone())]);

    let mut stored_chain = setting.server.object(CHAIN_PLURAL, "", "pods").unwrap();
    stored_chain["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    stored_chain["metadata"]["uid"] = json!("u");
    stored_chain["status"] = json!({"conditions": []});
    setting.server.put(CHAIN_PLURAL, stored_chain);
    assert_eq!(read_chains(&store).await, [(path.clone(), first.clone())]);

    let second = chain("pods", "second");
    store
        .commit(&[file_change(&path, Some(&first), Some(&second))])
        .await
        .unwrap();
    assert_eq!(read_chains(&store).await, [(path.clone(), second.clone())]);
    let updated_chain = setting.server.object(CHAIN_PLURAL, "", "pods").unwrap();
    assert_eq!(
        updated_chain["metadata"]["annotations"],
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    );
    assert_eq!(
        (&updated_chain["metadata"]["labels"], &updated_chain["metadata"]["uid"]),
        (&Value::Null, &json!("u"))
    );
    assert_eq!(updated_chain["status"], json!({"conditions": []}));

    for (before, after) in [
        (None, Some(&first)),
        (Some(&first), Some(&second)),
        (Some(&first), None),
    ] {
        let result = store.commit(&[file_change(&path, before, after)]).await;
        assert!(
            matches!(&result, Err(StoreError::ChangedMeanwhile { path: changed }) if *changed == path),
            "{result:?}"
        );
    }
    store.commit(&[file_change(&path, Some(&second), None)]).await.unwrap();
    assert_eq!(read_chains(&store).await, []);
}

#[tokio::test]
async fn the_store_notices_chains_that_other_clients_change() {
    let setting = Setting::new();
    let store = open_store(&setting).await;
    let until = async |expected: usize| {
        let wait = async {
            while store.read().await.map_or(usize::MAX, |files| files.len()) != expected {
                store.wait_for_change().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
    };
    until(0).await;
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    until(1).await;
    setting.server.put(CHAIN_PLURAL, chain("services", "first"));
    until(2).await;
    setting.server.delete(CHAIN_PLURAL, "", "pods");
    until(1).await;
    setting.server.become_unavailable();
    tokio::time::timeout(TEST_TIMEOUT, store.wait_for_change())
        .await
        .unwrap();
    let read_result = store.read().await;
    assert!(
        matches!(read_result, Err(StoreError::Unreachable { .. })),
        "{read_result:?}"
    );
    setting.server.become_available();
    until(1).await;
}

#[tokio::test]
async fn written_exceptions_are_read_back() {
    let setting = Setting::new();
    // After an update from an earlier version of this program, the CustomResourceDefinition of exceptions is missing.
    setting.server.remove_kind(EXCEPTION_PLURAL);
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let store = open_store(&setting).await;
    assert_eq!(read_chains(&store).await.len(), 1);
    setting.server.add_kind(EXCEPTION_PLURAL);
    let exception = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionException",
        "metadata": {"name": "shop"},
        "spec": {
            "owner": "shop@example.com",
            "reason": "a test",
            "expires": "2999-12-31",
            "stages": ["pods/first"],
            "namespaces": ["shop"],
        },
    });
    let path = store.path_for(&id("AdmissionException", "shop")).unwrap();
    assert_eq!(path, Path::new("kubernetes:AdmissionException/shop"));
    store
        .commit(&[file_change(&path, None, Some(&exception))])
        .await
        .unwrap();
    let files = store.read().await.unwrap();
    let definitions = DefinitionSet::of_files(files.clone()).definitions().unwrap();
    assert_eq!((definitions.chains.len(), definitions.exceptions.len()), (1, 1));
    for (plural, name) in [(EXCEPTION_PLURAL, "shop"), (CHAIN_PLURAL, "pods")] {
        let mut object = setting.server.object(plural, "", name).unwrap();
        object["metadata"]["labels"] = json!({"team": "a"});
        let before = store.read().await.unwrap();
        setting.server.put(plural, object);
        let wait = async {
            while store.read().await.is_ok_and(|files| files == before) {
                store.wait_for_change().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
    }
    setting.server.remove_kind(EXCEPTION_PLURAL);
    let read_result = store.read().await;
    assert!(
        matches!(read_result, Err(StoreError::Refused { .. })),
        "{read_result:?}"
    );
}

#[tokio::test]
async fn written_namespaced_chains_are_read_back() {
    let setting = Setting::new();
    let store = open_store(&setting).await;
    let in_namespace = |namespace: &str, stage: &str| {
        let mut chain = chain("pods", stage);
        chain["kind"] = json!("NamespacedAdmissionChain");
        chain["metadata"]["namespace"] = json!(namespace);
        chain
    };
    setting
        .server
        .put(NAMESPACED_CHAIN_PLURAL, in_namespace("bakery", "first"));
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let path = store.path_for(&id("NamespacedAdmissionChain", "shop/pods")).unwrap();
    assert_eq!(path, Path::new("kubernetes:NamespacedAdmissionChain/shop/pods"));
    assert!(store.owns(&path));
    let first = in_namespace("shop", "first");
    store.commit(&[file_change(&path, None, Some(&first))]).await.unwrap();
    assert_eq!(
        setting.server.object(NAMESPACED_CHAIN_PLURAL, "shop", "pods").unwrap()["spec"],
        first["spec"]
    );
    let files = store.read().await.unwrap();
    let chains = DefinitionSet::of_files(files).chains().unwrap();
    let names: Vec<_> = chains
        .iter()
        .map(|chain| (chain.name.as_str(), chain.namespace.as_deref()))
        .collect();
    assert_eq!(
        names,
        [
            ("bakery/pods", Some("bakery")),
            ("pods", None),
            ("shop/pods", Some("shop")),
        ]
    );
    let second = in_namespace("shop", "second");
    store
        .commit(&[file_change(&path, Some(&first), Some(&second))])
        .await
        .unwrap();
    let misplaced_change = file_change(&path, Some(&second), Some(&in_namespace("bakery", "second")));
    let error = store.commit(&[misplaced_change]).await.unwrap_err().to_string();
    assert!(error.contains("not NamespacedAdmissionChain/shop/pods"), "{error}");
    store.commit(&[file_change(&path, Some(&second), None)]).await.unwrap();
    assert_eq!(read_chains(&store).await.len(), 2);
    for name in ["pods", "Shop/pods", "shop/Pods", "shop/a/b", "a.b/pods"] {
        let invalid_path = store.path_for(&id("NamespacedAdmissionChain", name));
        assert_eq!(invalid_path, None, "{name}");
    }
}

#[tokio::test]
async fn definitions_at_the_wrong_path_or_of_the_wrong_kind_are_refused() {
    let setting = Setting::new();
    let store = open_store(&setting).await;
    for (kind, name) in [
        ("ValidatingWebhookConfiguration", "pods"),
        ("AdmissionChain", "Pods"),
        ("AdmissionChain", "a/b"),
    ] {
        assert_eq!(store.path_for(&id(kind, name)), None, "{kind}/{name}");
    }
    for path in [
        "kubernetes:AdmissionChain",
        "kubernetes:AdmissionChain/",
        "chains/pods.yaml",
    ] {
        assert!(!store.owns(Path::new(path)), "{path}");
    }
    let path = store.path_for(&id("AdmissionChain", "pods")).unwrap();
    for (definition, expected) in [
        (chain("other", "first"), "not AdmissionChain/pods"),
        (json!({"kind": "Pod"}), "not AdmissionChain/pods"),
        (json!("text"), "not JSON"),
    ] {
        let result = store.commit(&[file_change(&path, None, Some(&definition))]).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{definition}: {error}");
    }
    let changes = [
        file_change(&path, None, Some(&chain("pods", "first"))),
        file_change(&store.path_for(&id("AdmissionChain", "other")).unwrap(), None, None),
    ];
    let result = store.commit(&changes).await;
    assert!(matches!(result, Err(StoreError::OneAtATime { .. })), "{result:?}");
    assert_eq!(read_chains(&store).await, []);
    setting.server.remove_kind(CHAIN_PLURAL);
    let error = store.read().await.unwrap_err().to_string();
    assert!(
        error.contains("admittance kubernetes crds | kubectl apply -f -"),
        "{error}"
    );
}
