//! Documents and modules of Kubewarden: a policy built with its SDK, as waPC and as WASI module.

use admittance_tests::{Admittance, Artifacts, Finished};
use serde_json::{Value, json};

use super::server::{POD, Server, Verdict};
use crate::scene::{store, write};

fn module(name: &str) -> String {
    let path = Artifacts::find().unwrap().policy(name).unwrap();
    format!("file://{}", path.display())
}

/// A policy for Pods, with the rest of its `spec`.
fn policy(kind: &str, metadata: &str, module: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: policies.kubewarden.io/v1
kind: {kind}
metadata: {metadata}
spec:
  module: {module}
  rules: [ {{ apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE] }} ]
{spec}"
    )
}

fn documents() -> String {
    let (wapc, program) = (module("guest_policy"), module("guest_policy_program"));
    [
        policy(
            "ClusterAdmissionPolicy",
            "{ name: labels }",
            &wapc,
            "  mutating: true
  timeoutEvalSeconds: 1
  settings: { required: team, add: { checked: \"yes\" } }
  matchConditions: [ { name: elsewhere, expression: \"request.namespace != 'programs'\" } ]
",
        ),
        policy(
            "AdmissionPolicy",
            "{ name: owners, namespace: programs }",
            &program,
            "  message: ask the owners\n  timeoutEvalSeconds: 1\n  settings: { required: owner }\n",
        ),
        // Denies every request, and enforces nothing.
        policy(
            "ClusterAdmissionPolicy",
            "{ name: watched }",
            &wapc,
            "  mode: monitor\n  settings: { required: never }\n",
        ),
        // Would change every object, and may not.
        policy(
            "AdmissionPolicy",
            "{ name: lies, namespace: liars }",
            &wapc,
            "  settings: { add: { checked: again } }\n",
        ),
    ]
    .concat()
}

/// A review of a Pod in a namespace, with these labels and annotations.
fn pod(namespace: &str, labels: &Value, annotations: &Value) -> Value {
    let mut review = POD.review("p1");
    let request = &mut review["request"];
    request["namespace"] = json!(namespace);
    request["object"]["metadata"]["namespace"] = json!(namespace);
    request["object"]["metadata"]["labels"] = labels.clone();
    request["object"]["metadata"]["annotations"] = annotations.clone();
    review
}

async fn review(server: &Server, namespace: &str, labels: &Value, annotations: &Value) -> (Value, Verdict) {
    let review = pod(namespace, labels, annotations);
    let verdict = server.review("/admit", &review).await;
    (review["request"]["object"].clone(), verdict)
}

#[tokio::test]
async fn documents_of_kubewarden_are_served() {
    let server = Server::start("", &documents()).await;
    let (none, team) = (json!({}), json!({"team": "a"}));
    let (_, refused) = review(&server, "test", &none, &none).await;
    assert_eq!(refused.code(), 400);
    assert!(
        refused.message().contains("the label `team` is missing"),
        "{refused:?}"
    );
    assert!(
        refused.response["warnings"]
            .to_string()
            .contains("labels are checked"),
        "{refused:?}"
    );

    let (object, changed) = review(&server, "test", &team, &none).await;
    assert!(changed.is_allowed(), "{changed:?}");
    let labels = changed.applied_to(&object)["metadata"]["labels"].take();
    assert_eq!(labels, json!({"team": "a", "checked": "yes"}));

    // A policy of a namespace, with a message of its own.
    let (_, refused) = review(&server, "programs", &none, &none).await;
    assert!(refused.message().contains("ask the owners"), "{refused:?}");
    let causes = &refused.response["status"]["details"]["causes"];
    assert_eq!(
        *causes,
        json!([{"message": "the label `owner` is missing"}]),
        "{refused:?}"
    );
    let owned = json!({"owner": "b"});
    let (_, allowed) = review(&server, "programs", &owned, &none).await;
    assert!(allowed.is_allowed(), "{allowed:?}");

    let (_, refused) = review(&server, "liars", &team, &none).await;
    assert!(refused.message().contains("changes the object"), "{refused:?}");

    for (act, says) in [
        ("panic", "it was told to panic"),
        ("loop", "within"),
        ("fill", "bytes of memory"),
        ("fail", "it was told to fail"),
        ("open-file", "the plugin returned an error"),
        ("verify-image", "kubewarden/oci/v1/verify"),
    ] {
        let (_, refused) = review(&server, "test", &team, &json!({"act": act})).await;
        assert!(!refused.is_allowed(), "{act}");
        assert!(refused.message().contains(says), "{act}: {refused:?}");
    }
    // The program fails in the same ways.
    for (act, says) in [
        ("panic", "it was told to panic"),
        ("verify-image", "kubewarden/oci/v1/verify"),
    ] {
        let (_, refused) = review(&server, "programs", &owned, &json!({"act": act})).await;
        assert!(refused.message().contains(says), "{act}: {refused:?}");
    }
}

async fn admittance(arguments: &[&str]) -> Finished {
    Admittance::run(arguments.iter().copied()).await.unwrap()
}

#[tokio::test]
async fn inspect_and_check_know_policies() {
    for (name, interface) in [
        ("guest_policy", "kubewarden:wapc"),
        ("guest_policy_program", "kubewarden:wasi"),
    ] {
        let path = Artifacts::find().unwrap().policy(name).unwrap();
        let inspected = admittance(&["inspect", path.to_str().unwrap(), "--output", "json"]).await;
        assert_eq!(inspected.code, Some(0), "{}", inspected.stderr);
        let inspected: Value = serde_json::from_str(&inspected.stdout).unwrap();
        assert_eq!(inspected["interface"], interface);
        assert_eq!(
            (&inspected["name"], &inspected["version"]),
            (&json!("labels"), &json!("1.2.3"))
        );
        assert_eq!(inspected["mutates"], true);
        assert_eq!(inspected["capabilities"], json!([{"cluster": "v1/ConfigMap"}]));
    }
    let directory = tempfile::tempdir().unwrap();
    let text = policy(
        "ClusterAdmissionPolicy",
        "{ name: labels }",
        &module("guest_policy"),
        "  policyServer: other\n  settings: { required: \"\" }\n",
    );
    let store = store().display().to_string();
    for (text, code, says) in [
        (
            text.clone(),
            1,
            "policies.yaml:9:13: stage labels of chain clusterwide-labels: the plugin rejected its settings: `required` is empty; name a label",
        ),
        (
            text.replace("\"\"", "team"),
            0,
            "policies.yaml:8:17: spec.policyServer: policy labels: `policyServer` has no meaning here",
        ),
    ] {
        let file = write(&directory, "policies.yaml", &text);
        let check = admittance(&["check", file.to_str().unwrap(), "--store", &store]).await;
        assert_eq!(check.code, Some(code), "{}{}", check.stdout, check.stderr);
        assert!(
            check.stdout.contains(says),
            "{says}: {}{}",
            check.stdout,
            check.stderr
        );
    }
}
