//! Creates the definitions that tests write, and compares the definitions that they read.

use std::{path::Path, time::Duration};

use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionSet, DefinitionStore, FileChange, StoreError};
use serde_json::{Value, json};

/// Only a failed test reaches this timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Awaits a future, and panics with `event` after a timeout.
pub(crate) async fn with_test_timeout<T>(event: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, future).await {
        Ok(result) => result,
        Err(_) => panic!("it did not come about: {event}"),
    }
}

pub(crate) fn definition_id(namespace: &str, name: &str) -> DefinitionId {
    DefinitionId {
        kind: "admissionwebhook".to_owned(),
        name: format!("{namespace}/{name}"),
    }
}

const OPERATIONS: [&str; 2] = ["Create", "Update"];
const KINDS: [&str; 7] = [
    "application",
    "deployment",
    "process",
    "daemonset",
    "configmap",
    "secret",
    "service",
];

/// Returns a definition with a single hook. The definition's operation and kind depend on `namespace` and `name`,
/// because BCS allows only one definition for each operation and kind.
pub(crate) fn document(namespace: &str, name: &str, hook: &str) -> String {
    let letters = namespace.bytes().chain([b'/']).chain(name.bytes());
    document_for(letters.map(usize::from).sum(), namespace, name, hook)
}

/// Returns a definition of hooks. `subject` selects one of 14 pairs of an operation and a kind.
pub(crate) fn document_for(subject: usize, namespace: &str, name: &str, hook: &str) -> String {
    let (operation, kind) = (OPERATIONS[subject / 7 % 2], KINDS[subject % 7]);
    json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": name, "namespace": namespace},
        "resourcesRef": {"operation": operation, "kind": kind},
        "admissionWebhooks": [
            {"name": hook, "failurePolicy": "Fail", "clientConfig": {"url": "https://hooks.example.com/"}},
        ],
    })
    .to_string()
}

pub(crate) fn creation(path: &Path, text: &str) -> FileChange {
    FileChange::new(path, None, Some(text.to_owned()))
}

pub(crate) fn replacement(path: &Path, before: &str, after: &str) -> FileChange {
    FileChange::new(path, Some(before.to_owned()), Some(after.to_owned()))
}

pub(crate) fn deletion(path: &Path, before: &str) -> FileChange {
    FileChange::new(path, Some(before.to_owned()), None)
}

/// Asserts that a store returned exactly these paths and texts, and that each file contains one valid definition.
pub(crate) fn assert_files(files: &[DefinitionFile], expected: &[(&Path, &str)]) {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let mut expected: Vec<_> = expected
        .iter()
        .map(|(path, text)| (path.to_path_buf(), value(text)))
        .collect();
    expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    let actual: Vec<_> = files
        .iter()
        .map(|file| (file.path.clone(), value(&file.text)))
        .collect();
    assert_eq!(actual, expected);
    for file in files {
        let text = value(&file.text);
        let metadata = &text["metadata"];
        let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str());
        assert_eq!(
            definition_ids(std::slice::from_ref(file)),
            [definition_id(namespace.unwrap(), name.unwrap())]
        );
    }
}

pub(crate) fn definition_ids(files: &[DefinitionFile]) -> Vec<DefinitionId> {
    let only_id = |file: &DefinitionFile| {
        let set = DefinitionSet::of_files(vec![file.clone()]);
        let chains = set.chains();
        assert!(chains.is_ok(), "{}: {chains:?}", file.text);
        let documents = set.documents();
        assert_eq!(documents.len(), 1, "{}", file.text);
        documents[0].id.clone()
    };
    files.iter().map(only_id).collect()
}

pub(crate) fn assert_changed_meanwhile(result: Result<(), StoreError>, path: &Path) {
    match result {
        Err(error) => {
            let words = format!("{} was changed by someone else meanwhile", path.display());
            assert!(error.to_string().starts_with(&words), "{error}");
        }
        Ok(()) => panic!("{} was written", path.display()),
    }
}

/// Reads the store at once and after every change, until the result satisfies `is_expected`, and returns that result.
pub(crate) async fn read_until(
    store: &impl DefinitionStore,
    event: &str,
    is_expected: impl Fn(&Result<Vec<DefinitionFile>, StoreError>) -> bool,
) -> Result<Vec<DefinitionFile>, StoreError> {
    with_test_timeout(event, async {
        loop {
            let outcome = store.read().await;
            if is_expected(&outcome) {
                return outcome;
            }
            store.wait_for_change().await;
        }
    })
    .await
}

/// Reads the store until its only definition has this hook or, for `None`, until it is empty.
pub(crate) async fn wait_until_hook(store: &impl DefinitionStore, hook: Option<&str>) {
    let has_hook = |outcome: &Result<Vec<DefinitionFile>, StoreError>| match (outcome, hook) {
        (Ok(files), Some(hook)) => files.len() == 1 && files[0].text.contains(&format!("\"{hook}\"")),
        (Ok(files), None) => files.is_empty(),
        (Err(_), _) => false,
    };
    let event = format!("{hook:?} in {}", store.location());
    read_until(store, &event, has_hook).await.unwrap();
}
