//! Tests webhook configurations of Kubernetes as definitions: the order of the webhooks, what each of them sees, and
//! plugins in their place.

use serde_json::{Value, json};

use super::{
    hooks::{HookAnswer, HookCall, Hooks, configuration},
    server::{POD, Server},
};
use crate::scene::{source, write};

/// Like kube-apiserver, Admittance sorts configurations by name and calls mutating webhooks one after another.
#[tokio::test]
async fn mutating_webhooks_are_called_in_order_and_see_earlier_changes() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |call, _| async move {
        HookAnswer::add_label(call.path.trim_start_matches('/'), "seen")
    })
    .await;
    let webhook = |name: &str| hooks.webhook(name, &format!("/{name}"), &json!({}));
    // The second webhook matches only objects with the label that the first webhook adds.
    let selecting = hooks.webhook(
        "selecting",
        "/selecting",
        &json!({"objectSelector": {"matchLabels": {"z": "seen"}}}),
    );
    let documents = configuration("Mutating", "2-later", &[webhook("y"), selecting])
        + &*configuration("Mutating", "10-between", &[webhook("a")])
        + &*configuration("Mutating", "1-first", &[webhook("z"), webhook("b")]);
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    let review = POD.review("order");
    let verdict = server.review("/mutate", &review).await;
    let call_labels: Vec<_> = hooks.calls("/").iter().map(path_and_labels).collect();
    let expected = [
        ("/z", ["remove"].as_slice()),
        ("/b", &["remove", "z"]),
        ("/a", &["remove", "z", "b"]),
        ("/y", &["remove", "z", "b", "a"]),
        ("/selecting", &["remove", "z", "b", "a", "y"]),
    ]
    .map(|(path, labels)| (path.to_owned(), labels.iter().map(|&s| s.to_owned()).collect()));
    assert_eq!(call_labels, expected);
    let object = verdict.patched_object(&review["request"]["object"]);
    let mut expected_object = review["request"]["object"].clone();
    expected_object["metadata"]["labels"] = json!({
        "remove": "me", "z": "seen", "b": "seen", "a": "seen", "y": "seen", "selecting": "seen",
    });
    assert_eq!(object, expected_object);
}

fn path_and_labels(call: &HookCall) -> (String, Vec<String>) {
    let labels = call.review["request"]["object"]["metadata"]["labels"]
        .as_object()
        .unwrap();
    (call.path.clone(), labels.keys().cloned().collect())
}

/// Each webhook answers only after all have been called, so without concurrent calls, none would answer.
#[tokio::test]
async fn validating_webhooks_are_called_at_once_with_the_final_object() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |call, mut arrivals| async move {
        if call.path == "/mutates" {
            return HookAnswer::add_label("added", "test");
        }
        arrivals.wait_for("/validates", 4).await;
        match call.path.as_str() {
            "/validates/3" => HookAnswer::Review(json!({
                "allowed": false, "warnings": ["mind the gap"], "status": {"code": 422, "reason": "Invalid", "message": "no"},
            })),
            _ => HookAnswer::Review(json!({"allowed": true, "warnings": [call.path]})),
        }
    })
    .await;
    let webhook = |path: &str| {
        let name = path.trim_start_matches('/').replace('/', "-");
        hooks.webhook(&name, path, &json!({"timeoutSeconds": 30}))
    };
    let documents = configuration("Mutating", "mutates", &[webhook("/mutates")])
        + &*configuration("Validating", "a", &[webhook("/validates/1"), webhook("/validates/2")])
        + &*configuration("Validating", "b", &[webhook("/validates/3"), webhook("/validates/4")]);
    let additions = format!("limits: {{ requestTimeout: 60s }}\n{}", hooks.resolve_config());
    let server = Server::start(&additions, &documents).await;
    let verdict = server.review("/admit", &POD.review("at-once")).await;
    assert_eq!(
        (verdict.code(), verdict.response["status"]["reason"].as_str()),
        (422, Some("Invalid"))
    );
    assert_eq!(
        verdict.message(),
        "stage validates-3.hooks.example of chain b denied the request: no"
    );
    assert_eq!(
        verdict.response["warnings"],
        json!(["/validates/1", "/validates/2", "mind the gap", "/validates/4"])
    );
    for call in hooks.calls("/validates") {
        assert_eq!(call.label("added"), Some("test"), "{}", call.path);
    }
}

#[tokio::test]
async fn webhooks_are_informed_of_a_dry_run() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let with = json!({"sideEffects": "NoneOnDryRun"});
    let documents = configuration("Mutating", "dry", &[hooks.webhook("dry", "/dry", &with)]);
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for dry_run in [false, true] {
        let mut review = POD.review("dry");
        review["request"]["dryRun"] = json!(dry_run);
        assert!(server.review("/mutate/dry", &review).await.is_allowed());
        let last = hooks.calls("/dry").pop().unwrap();
        assert_eq!(last.review["request"]["dryRun"], dry_run);
    }
}

/// If a webhook has the field `plugin` instead of `clientConfig`, Admittance calls the plugin in its place.
#[tokio::test]
async fn a_webhook_can_be_swapped_for_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async {
        HookAnswer::patch(&json!([
            {"op": "add", "path": "/metadata/annotations", "value": {"well-behaved": "true"}}
        ]))
    })
    .await;
    let remote = hooks.webhook("annotates", "/annotates", &json!({"timeoutSeconds": 30}));
    let mut local = remote.clone();
    let fields = local.as_object_mut().unwrap();
    fields.remove("clientConfig");
    let plugin = json!({"source": source("guest-misbehaves"), "settings": {"behaviour": "well-behaved"}});
    fields.insert("plugin".into(), plugin);
    let document = |webhook: &Value| configuration("Mutating", "annotates", std::slice::from_ref(webhook));

    let mut server = Server::start(&hooks.resolve_config(), &document(&remote)).await;
    let review = POD.review("swap");
    let before = server.review("/admit", &review).await;
    assert_eq!(hooks.calls("/").len(), 1);
    write(&server.directory, "chains.yaml", document(&local));
    let live = server.program.wait_for_log("the changed definitions", |line| {
        line.message() == "the changed definitions are live"
    });
    live.await.unwrap();
    let after = server.review("/admit", &review).await;
    assert_eq!(before.response, after.response);
    assert!(after.patch().is_some());
    assert_eq!(hooks.calls("/").len(), 1, "the plugin answered");
}
