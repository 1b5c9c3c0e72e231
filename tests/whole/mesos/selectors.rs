//! The namespaces for which a hook is called, from section 2.5 of the reference of bcs-mesos-driver.

use http::Method;
use serde_json::json;

use super::{
    hooks::MesosHooks,
    scene::{MesosScene, code_and_message},
};
use crate::scene::application;

/// (operator of the hook's selector, its values, namespace of the object, whether the hook is called)
const SELECTORS: [(&str, &str, Option<&str>, bool); 9] = [
    ("In", "shop", Some("shop"), true),
    ("In", "shop", Some("other"), false),
    ("In", "shop", None, false),
    ("In", "", Some("shop"), false),
    ("NotIn", "shop", Some("shop"), false),
    ("NotIn", "shop", Some("other"), true),
    ("NotIn", "shop", None, true),
    ("NotIn", "", Some("shop"), true),
    ("NotIn", "", None, true),
];

/// The hook has a selector for namespaces. The selector is compared with the namespace of the object in the body,
/// whatever namespace is in the path.
#[tokio::test]
async fn a_selector_matches_the_namespace_of_the_body() {
    let hooks = MesosHooks::start().await;
    let mut stages = Vec::new();
    for (operator, values) in [("In", "shop"), ("In", ""), ("NotIn", "shop"), ("NotIn", "")] {
        let path = format!("/{operator}-{values}/passes");
        let values: Vec<&str> = values.split_terminator(',').collect();
        stages.push(json!({
            "name": path.trim_matches('/').replace('/', "-"),
            "failurePolicy": "Fail",
            "clientConfig": {"namespace": "hooks", "name": "hook", "path": path, "caBundle": hooks.bundle},
            "namespaceSelector": {"operator": operator, "values": values},
        }));
    }
    let document = json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": "selectors", "namespace": "defaultGroup"},
        "resourcesRef": {"operation": "Create", "kind": "application"},
        "admissionWebhooks": stages,
    });
    let mesos = MesosScene::new(&document.to_string(), &[("hook.hooks", hooks.address)]).await;
    for (index, (operator, values, namespace, is_called)) in SELECTORS.into_iter().enumerate() {
        let before = hooks.calls(namespace).len();
        let name = format!("web-{index}");
        let mut object = application("", &name, "docker.io/library/nginx:1.29");
        match namespace {
            Some(namespace) => object["metadata"]["namespace"] = namespace.into(),
            None => drop(object["metadata"].as_object_mut().unwrap().remove("namespace")),
        }
        // The namespace in the path is always `shop`, and has no effect.
        let path = "/namespaces/shop/applications";
        let reply = mesos.send(Method::POST, path, object.to_string()).await;
        assert_eq!(code_and_message(&reply).0, 0, "{}", reply.text());
        let called = hooks.calls(namespace).split_off(before);
        let path = format!("/{operator}-{values}/passes");
        let was_called = called.iter().any(|call| call.path == path);
        assert_eq!(was_called, is_called, "{operator} [{values}] for {namespace:?}");
    }
    assert_eq!(mesos.scheduler.problems(), [""; 0]);
}
