//! Tests of the store of custom resources, with an API server that keeps resources in memory.

use std::path::Path;

use admittance_bcs::stores::CustomResourceStore;
use admittance_definitions::{DefinitionId, DefinitionStore, StoreError};
use serde_json::{Value, json};

use crate::{
    conformance::{StoreFixture, each_rule, each_rule_of_shared, tests},
    documents::{
        assert_changed_meanwhile, assert_files, creation, definition_id, definition_ids, deletion, document,
        read_until, replacement, wait_until_hook,
    },
    setting::{Setting, wait_until},
};

const PLURAL: &str = "admissionwebhookconfigurations";

pub(crate) fn resource_of(path: &Path) -> (&str, &str) {
    let full_name = path.to_str().unwrap().strip_prefix("customresources:").unwrap();
    full_name.split_once('/').unwrap()
}

impl StoreFixture for Setting {
    type Store = CustomResourceStore;

    const TAKES_SEVERAL_CHANGES: bool = false;

    async fn new(_is_to_be_lost: bool) -> Self {
        Self::new()
    }

    async fn open_store(&self) -> CustomResourceStore {
        CustomResourceStore::new(&self.cluster().await, CustomResourceStore::DEFAULT_NAMESPACE)
    }

    async fn put(&self, path: &Path, text: &str) {
        put_resource(self, resource_of(path), serde_json::from_str(text).unwrap());
    }

    async fn remove(&self, path: &Path) {
        let (namespace, name) = resource_of(path);
        self.server.delete(PLURAL, namespace, name);
    }

    async fn make_unreachable(&mut self) {
        self.server.become_unavailable();
    }

    async fn restore(&mut self) {
        self.server.become_available();
    }
}

each_rule!(tests, Setting);
each_rule_of_shared!(tests, Setting);

fn put_resource(setting: &Setting, (namespace, name): (&str, &str), spec: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    let object = json!({"metadata": metadata, "spec": spec});
    setting.server.put(PLURAL, object);
}

#[tokio::test]
async fn resources_have_the_names_that_bcs_gives_them() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    // (kind, name, expected resource or `None`). A star at the end of a resource's name stands for a digest.
    for (kind, name, expected) in [
        ("admissionwebhook", "bkbcs/hooks", Some("bkbcs/hooks")),
        ("AdmissionWebhook", "bkbcs/hooks", Some("bkbcs/hooks")),
        (
            "admissionwebhook",
            "defaultGroup/hooks",
            Some("bkbcs/defaultgroup-hooks-*"),
        ),
        ("admissionwebhook", "bkbcs/Hooks", Some("bkbcs/bkbcs-hooks-*")),
        ("AdmissionChain", "hooks", None),
        ("AdmissionWebhookConfiguration", "bkbcs/hooks", None),
    ] {
        let id = DefinitionId {
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let path = store.path_for(&id);
        let full_name = path.as_deref().map(|path| {
            let (namespace, name) = resource_of(path);
            format!("{namespace}/{name}")
        });
        match (&full_name, expected) {
            (Some(actual), Some(expected)) => match expected.strip_suffix('*') {
                Some(start) => assert!(actual.starts_with(start), "{actual}"),
                None => assert_eq!(actual, expected),
            },
            (other, expected) => assert_eq!(other.as_deref(), expected, "{kind} {name}"),
        }
    }
    for path in [
        "customresources:a",
        "customresources:/a",
        "customresources:a/",
        "customresources:a/b/c",
        "zookeeper:/a/b",
        "a/b",
    ] {
        assert!(!store.owns(Path::new(path)), "{path}");
    }
}

#[tokio::test]
async fn missing_metadata_is_taken_from_the_resource() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    let definition: Value = serde_json::from_str(&document("", "", "hook")).unwrap();
    // (namespace and name of the resource, metadata in the resource's spec, expected name of the definition)
    for (resource, metadata, expected) in [
        (("bkbcs", "a"), None, definition_id("bkbcs", "a")),
        (("elsewhere", "a"), Some(json!(null)), definition_id("elsewhere", "a")),
        (
            ("bkbcs", "b"),
            Some(json!({"creationTimestamp": null})),
            definition_id("bkbcs", "b"),
        ),
        (("bkbcs", "c"), Some(json!({"name": "d"})), definition_id("bkbcs", "d")),
        (
            ("bkbcs", "e"),
            Some(json!({"name": "F", "namespace": "defaultGroup"})),
            definition_id("defaultGroup", "F"),
        ),
    ] {
        let mut spec = json!({
            "resourcesRef": definition["resourcesRef"],
            "admissionWebhooks": definition["admissionWebhooks"],
        });
        if let Some(metadata) = metadata {
            spec["metadata"] = metadata;
        }
        put_resource(&setting, resource, spec);
        let files = store.read().await.unwrap();
        assert_eq!(definition_ids(&files), std::slice::from_ref(&expected), "{resource:?}");
        let path = files[0].path.clone();
        assert_eq!(resource_of(&path), resource);
        let (namespace, name) = expected.name.split_once('/').unwrap();
        let text = document(namespace, name, "other");
        let change = replacement(&path, &files[0].text, &text);
        store.commit(&[change]).await.unwrap();
        assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
        store.commit(&[deletion(&path, &text)]).await.unwrap();
    }
}

#[tokio::test]
async fn parsing_an_invalid_definition_reports_the_mistake() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    // (resource, expected error when its definition is parsed)
    for (object, expected) in [
        (json!({}), "spec: missing"),
        (json!({"spec": "text"}), "spec"),
        (json!({"spec": {}}), "resourcesRef: missing"),
        (json!({"spec": {"metadata": 7}}), "metadata"),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "a", "namespace": "bkbcs"});
        setting.server.put(PLURAL, object.clone());
        let files = store.read().await.unwrap();
        let mistakes = admittance_definitions::load_text("a", &files[0].text).unwrap_err();
        assert!(mistakes.to_string().contains(expected), "{object}: {mistakes}");
        let change = deletion(&files[0].path, &files[0].text);
        store.commit(&[change]).await.unwrap();
    }
    for text in ["kind: admissionwebhook", r#"{"kind":"AdmissionChain"}"#] {
        let path = store.path_for(&definition_id("a", "b")).unwrap();
        let result = store.commit(&[creation(&path, text)]).await;
        assert!(matches!(result, Err(StoreError::Mistakes(_))), "{result:?}");
    }
}

#[tokio::test]
async fn a_concurrent_write_conflicts_only_if_it_changes_the_definition() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    let path = store.path_for(&definition_id("bkbcs", "a")).unwrap();
    let text = document("bkbcs", "a", "first");
    store.commit(&[creation(&path, &text)]).await.unwrap();

    let mut labelled = setting.server.object(PLURAL, "bkbcs", "a").unwrap();
    labelled["metadata"]["labels"] = json!({"team": "x"});
    setting.server.put_before("replace", PLURAL, labelled);
    let second = document("bkbcs", "a", "second");
    let change = replacement(&path, &text, &second);
    store.commit(&[change]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &second)]);
    let stored_object = setting.server.object(PLURAL, "bkbcs", "a").unwrap();
    assert_eq!(stored_object["metadata"]["labels"]["team"], "x", "{stored_object}");

    let mut other = stored_object.clone();
    other["spec"] = serde_json::from_str(&text).unwrap();
    for verb in ["replace", "delete"] {
        setting.server.put_before(verb, PLURAL, other.clone());
        let change = match verb {
            "replace" => replacement(&path, &second, &text),
            _ => deletion(&path, &second),
        };
        assert_changed_meanwhile(store.commit(&[change]).await, &path);
        assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
        let change = replacement(&path, &text, &second);
        store.commit(&[change]).await.unwrap();
    }
    store.commit(&[deletion(&path, &second)]).await.unwrap();
    setting.server.put_before("create", PLURAL, other);
    let result = store.commit(&[creation(&path, &second)]).await;
    assert_changed_meanwhile(result, &path);
}

#[tokio::test]
async fn changed_definitions_are_noticed_without_a_watch() {
    let setting = Setting::new();
    setting.server.forbid("watch", PLURAL);
    let store = setting.open_store().await;
    wait_until_hook(&store, None).await;
    put_resource(
        &setting,
        ("bkbcs", "a"),
        serde_json::from_str(&document("bkbcs", "a", "first")).unwrap(),
    );
    wait_until_hook(&store, Some("first")).await;
    setting.server.delete(PLURAL, "bkbcs", "a");
    wait_until_hook(&store, None).await;
}

#[tokio::test]
async fn a_forbidden_operation_is_reported() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    setting.server.forbid("create", PLURAL);
    let path = store.path_for(&definition_id("bkbcs", "a")).unwrap();
    let text = document("bkbcs", "a", "first");
    let error = store.commit(&[creation(&path, &text)]).await.unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, StoreError::Refused { .. }), "{words}");
    assert!(
        words.starts_with("customresources refused the request: https://"),
        "{words}"
    );
    assert!(words.contains("give this program's account `create`"), "{words}");

    setting.server.remove_kind(PLURAL);
    let outcome = read_until(&store, "no such kind", Result::is_err).await;
    let words = outcome.unwrap_err().to_string();
    assert!(words.contains("install their CustomResourceDefinition"), "{words}");
}

#[tokio::test]
async fn after_an_unanswered_write_the_store_checks_whether_it_was_made() {
    let setting = Setting::new();
    let store = setting.open_store().await;
    let path = store.path_for(&definition_id("bkbcs", "a")).unwrap();
    let (text, second) = (document("bkbcs", "a", "first"), document("bkbcs", "a", "second"));
    store.commit(&[creation(&path, &text)]).await.unwrap();
    // (whether the server made the change before the connection broke, expected error)
    for (is_written, expected) in [
        (false, Some("whether customresources:bkbcs/a was written")),
        (true, None),
    ] {
        let before = setting.server.count_requests("replace", PLURAL);
        setting.server.hold("replace", PLURAL);
        let change = [replacement(&path, &text, &second)];
        let interrupted = async {
            wait_until("the request", async || {
                setting.server.count_requests("replace", PLURAL) > before
            })
            .await;
            if is_written {
                StoreFixture::put(&setting, &path, &second).await;
            }
            setting.server.break_connections();
        };
        let (result, ()) = tokio::join!(store.commit(&change), interrupted);
        setting.server.release("replace", PLURAL);
        match (result, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
            (result, _) => panic!("{result:?}"),
        }
    }
}
