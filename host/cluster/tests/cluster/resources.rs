//! Tests of resources that are read and written.

use admittance_cluster::{Resource, ResourceError, ResourceKind, WatchedResources};
use serde_json::{Map, Value, json};

use crate::setting::{Setting, wait_until};

const KIND: ResourceKind = ResourceKind {
    group: "bkbcs.tencent.com",
    version: "v2",
    kind: "AdmissionWebhookConfiguration",
    plural: "admissionwebhookconfigurations",
    is_namespaced: true,
};

fn spec_setter(number: u32) -> impl Fn(&mut Map<String, Value>) {
    move |object| {
        object.insert("spec".to_owned(), json!({ "number": number }));
    }
}

async fn create_resource(resources: &WatchedResources) -> Resource {
    resources.create("bkbcs", "a", spec_setter(1)).await.unwrap();
    resources.get("bkbcs", "a").await.unwrap().unwrap()
}

#[tokio::test]
async fn resources_that_were_written_can_be_read() {
    let setting = Setting::new();
    let resources = setting.cluster().await.resources(&KIND);
    assert!(resources.list().await.unwrap().is_empty());
    assert_eq!(resources.get("bkbcs", "a").await.unwrap(), None);
    let mut stored_resource = create_resource(&resources).await;
    assert!(
        setting.server.object("namespaces", "", "bkbcs").is_some(),
        "the namespace is made"
    );
    assert_eq!(stored_resource.object["spec"]["number"], 1);
    assert!(stored_resource.metadata("resourceVersion").is_some());
    assert!(stored_resource.metadata("managedFields").is_none());

    spec_setter(2)(&mut stored_resource.object);
    resources.replace(&stored_resource).await.unwrap();
    resources.create("bkbcs", "b", spec_setter(3)).await.unwrap();
    setting.server.set_page_size(1);
    let numbers: Vec<_> = resources
        .list()
        .await
        .unwrap()
        .iter()
        .map(|resource| resource.object["spec"]["number"].clone())
        .collect();
    assert_eq!(numbers, [2, 3], "of all pages");
    let replaced_resource = resources.get("bkbcs", "a").await.unwrap().unwrap();
    resources.delete(&replaced_resource).await.unwrap();
    assert_eq!(resources.get("bkbcs", "a").await.unwrap(), None);
}

#[tokio::test]
async fn a_resource_that_was_recreated_is_not_deleted() {
    let setting = Setting::new();
    let resources = setting.cluster().await.resources(&KIND);
    let old = create_resource(&resources).await;
    let mut new = old.clone();
    spec_setter(2)(&mut new.object);
    resources.replace(&new).await.unwrap();
    for result in [
        resources.create("bkbcs", "a", spec_setter(3)).await.map(drop),
        resources.replace(&old).await.map(drop),
        resources.delete(&old).await,
    ] {
        assert!(matches!(result, Err(ResourceError::Conflict(_))), "{result:?}");
    }
    let second_version = resources.get("bkbcs", "a").await.unwrap().unwrap();
    assert_eq!(second_version.object["spec"]["number"], 2);
    let other = json!({"metadata": {"name": "a", "namespace": "bkbcs"}, "spec": {"number": 4}});
    setting.server.put_before("delete", KIND.plural, other);
    let result = resources.delete(&second_version).await;
    assert!(matches!(result, Err(ResourceError::Conflict(_))), "{result:?}");
    let third_version = resources.get("bkbcs", "a").await.unwrap().unwrap();
    assert_eq!(third_version.object["spec"]["number"], 4);
    resources.delete(&third_version).await.unwrap();
    let replacement = resources.replace(&third_version).await;
    assert!(
        matches!(replacement, Err(ResourceError::NotFound(_))),
        "{replacement:?}"
    );
}

#[tokio::test]
async fn a_refused_request_names_the_missing_permission() {
    let setting = Setting::new();
    let resources = setting.cluster().await.resources(&KIND);
    let resource = create_resource(&resources).await;
    let namespace = resources.create("other", "a", spec_setter(1));
    setting.server.forbid("create", "namespaces");
    let error = namespace.await.unwrap_err().to_string();
    assert!(error.contains("`kubectl create namespace other`"), "{error}");
    for verb in ["list", "get", "create", "replace", "delete"] {
        setting.server.forbid(verb, KIND.plural);
    }
    for (result, verb) in [
        (resources.list().await.map(|_| ()), "`list`"),
        (resources.get("bkbcs", "a").await.map(|_| ()), "`get`"),
        (
            resources.create("bkbcs", "b", spec_setter(1)).await.map(drop),
            "`create`",
        ),
        (resources.replace(&resource).await.map(drop), "`update`"),
        (resources.delete(&resource).await, "`delete`"),
    ] {
        let words = format!("account {verb} on `admissionwebhookconfigurations` of the API group");
        match result {
            Err(ResourceError::Refused(error)) => assert!(error.contains(&words), "{error}"),
            result => panic!("{verb}: {result:?}"),
        }
    }
    let setting = Setting::new();
    setting.server.remove_kind(KIND.plural);
    let resources = setting.cluster().await.resources(&KIND);
    for result in [
        resources.list().await.map(|_| ()),
        resources.create("bkbcs", "a", spec_setter(1)).await.map(drop),
    ] {
        match result {
            Err(ResourceError::NotFound(error)) => assert!(error.contains("install"), "{error}"),
            result => panic!("{result:?}"),
        }
    }
    setting.server.add_kind(KIND.plural);
    assert_eq!(resources.list().await.unwrap(), []);
}

#[tokio::test]
async fn changed_resources_and_a_failed_watch_are_signalled() {
    let setting = Setting::new();
    let resources = setting.cluster().await.resources(&KIND);
    wait_until("the watch is up", async || resources.is_watched()).await;
    let begin = resources.changes();
    resources.create("bkbcs", "a", spec_setter(1)).await.unwrap();
    resources.changed_since(begin).await;

    let before = resources.changes();
    setting.server.become_unavailable();
    resources.changed_since(before).await;
    assert!(!resources.is_watched());
    let error = resources.list().await.unwrap_err();
    assert!(matches!(error, ResourceError::Unavailable(_)), "{error:?}");

    let before = resources.changes();
    setting.server.become_available();
    resources.changed_since(before).await;
    assert_eq!(resources.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_of_only_the_status_is_not_signalled() {
    const CHAIN: ResourceKind = ResourceKind {
        group: "admittance.dev",
        version: "v1alpha1",
        kind: "AdmissionChain",
        plural: "admissionchains",
        is_namespaced: false,
    };
    let setting = Setting::new();
    let chain = json!({"metadata": {"name": "a"}, "spec": {"number": 1}});
    setting.server.put(CHAIN.plural, chain);
    let resources = setting.cluster().await.resources(&CHAIN);
    wait_until("a watch", async || resources.is_watched()).await;
    let before = resources.read().await.unwrap();
    let mut changed = std::pin::pin!(resources.changed());
    let status = json!({"revision": 1, "modules": []});
    resources.apply_status("", "a", &status).await.unwrap();
    resources.apply_status("", "a", &json!({"revision": 2})).await.unwrap();
    let resource = resources.get("", "a").await.unwrap().unwrap();
    assert_eq!(resource.object["status"], json!({"revision": 2}));
    assert_eq!(resource.object["spec"], before[0].object["spec"]);
    let change_count = resources.changes();
    resources.create("", "b", spec_setter(1)).await.unwrap();
    resources.changed_since(change_count).await;
    assert_eq!(resources.changes(), change_count + 1);
    changed.as_mut().await;

    let missing = resources.apply_status("", "c", &status).await;
    assert!(matches!(missing, Err(ResourceError::NotFound(_))), "{missing:?}");
    let old_resources = setting.cluster().await.resources(&KIND);
    old_resources.create("bkbcs", "a", spec_setter(1)).await.unwrap();
    match old_resources.apply_status("bkbcs", "a", &status).await {
        Err(ResourceError::Refused(error)) => assert!(error.contains("an earlier version"), "{error}"),
        result => panic!("{result:?}"),
    }
}
