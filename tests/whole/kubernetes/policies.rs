//! Kubewarden's documents and modules. One policy is built with Kubewarden's SDK, as a waPC and as a WASI module.

use admittance_tests::{Admittance, Artifacts, FinishedProgram};
use serde_json::{Value, json};

use super::server::{POD, ReviewVerdict, Server};
use crate::scene::{store, write};

fn module_url(name: &str) -> String {
    let path = Artifacts::find().unwrap().policy(name).unwrap();
    format!("file://{}", path.display())
}

/// Returns a Kubewarden policy for Pods. `spec` has further fields of its specification.
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
    let (wapc, program) = (module_url("guest_policy"), module_url("guest_policy_program"));
    [
        policy(
            "ClusterAdmissionPolicy",
            "{ name: labels }",
            &wapc,
            "  mutating: true
  timeoutEvalSeconds: 1
  settings: { required: team, add: { checked: \"yes\" } }
  matchConditions: [ { name: elsewhere, expression: \"!(request.namespace in ['programs', 'groups'])\" } ]
",
        ),
        policy(
            "AdmissionPolicy",
            "{ name: owners, namespace: programs }",
            &program,
            "  message: ask the owners\n  timeoutEvalSeconds: 1\n  settings: { required: owner }\n",
        ),
        // This policy would deny every request, but its mode is `monitor`, so it only reports.
        policy(
            "ClusterAdmissionPolicy",
            "{ name: watched }",
            &wapc,
            "  mode: monitor\n  settings: { required: never }\n",
        ),
        // This policy changes every object, but it does not have the permission to do so (`mutating`). So it fails.
        policy(
            "AdmissionPolicy",
            "{ name: lies, namespace: liars }",
            &wapc,
            "  settings: { add: { checked: again } }\n",
        ),
        policy_group(&wapc, &program),
    ]
    .concat()
}

fn policy_group(wapc: &str, program: &str) -> String {
    format!(
        "---
apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicyGroup
metadata: {{ name: known, namespace: groups }}
spec:
  rules: [ {{ apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE] }} ]
  expression: labelled() || (owned() && unchanged())
  message: nobody knows it
  policies:
    labelled: {{ module: {wapc}, settings: {{ required: team }}, timeoutEvalSeconds: 1 }}
    owned: {{ module: {program}, settings: {{ required: owner }} }}
    unchanged: {{ module: {wapc}, settings: {{ add: {{ checked: \"yes\" }} }} }}
"
    )
}

fn pod_review(namespace: &str, labels: &Value, annotations: &Value) -> Value {
    let mut review = POD.review("p1");
    let request = &mut review["request"];
    request["namespace"] = json!(namespace);
    request["object"]["metadata"]["namespace"] = json!(namespace);
    request["object"]["metadata"]["labels"] = labels.clone();
    request["object"]["metadata"]["annotations"] = annotations.clone();
    review
}

async fn send_review(server: &Server, namespace: &str, labels: &Value, annotations: &Value) -> (Value, ReviewVerdict) {
    let review = pod_review(namespace, labels, annotations);
    let verdict = server.review("/admit", &review).await;
    (review["request"]["object"].clone(), verdict)
}

#[tokio::test]
async fn kubewarden_policies_are_served() {
    let server = Server::start("", &documents()).await;
    let (none, team) = (json!({}), json!({"team": "a"}));
    let (_, refused) = send_review(&server, "test", &none, &none).await;
    assert_eq!(refused.code(), 400);
    assert!(refused.message().contains("the label `team` is missing"), "{refused:?}");
    assert!(
        refused.response["warnings"].to_string().contains("labels are checked"),
        "{refused:?}"
    );

    let (object, changed) = send_review(&server, "test", &team, &none).await;
    assert!(changed.is_allowed(), "{changed:?}");
    let labels = changed.patched_object(&object)["metadata"]["labels"].take();
    assert_eq!(labels, json!({"team": "a", "checked": "yes"}));

    let (_, refused) = send_review(&server, "programs", &none, &none).await;
    assert!(refused.message().contains("ask the owners"), "{refused:?}");
    let causes = &refused.response["status"]["details"]["causes"];
    assert_eq!(
        *causes,
        json!([{"message": "the label `owner` is missing"}]),
        "{refused:?}"
    );
    let owned = json!({"owner": "b"});
    let (_, allowed) = send_review(&server, "programs", &owned, &none).await;
    assert!(allowed.is_allowed(), "{allowed:?}");

    let (_, refused) = send_review(&server, "liars", &team, &none).await;
    assert!(refused.message().contains("changes the object"), "{refused:?}");

    for (act, message) in [
        ("panic", "it was told to panic"),
        ("loop", "within"),
        ("fill", "bytes of memory"),
        ("fail", "it was told to fail"),
        ("open-file", "the plugin returned an error"),
        ("verify-image", "no signer is named"),
    ] {
        let (_, refused) = send_review(&server, "test", &team, &json!({"act": act})).await;
        assert!(!refused.is_allowed(), "{act}");
        assert!(refused.message().contains(message), "{act}: {refused:?}");
    }
    for (act, message) in [
        ("panic", "it was told to panic"),
        ("verify-image", "no signer is named"),
    ] {
        let (_, refused) = send_review(&server, "programs", &owned, &json!({"act": act})).await;
        assert!(refused.message().contains(message), "{act}: {refused:?}");
    }
}

#[tokio::test]
async fn kubewarden_policy_groups_are_served() {
    let server = Server::start("", &documents()).await;
    let none = json!({});
    let (_, refused) = send_review(&server, "groups", &none, &none).await;
    assert_eq!(refused.code(), 400);
    assert!(refused.message().contains("nobody knows it"), "{refused:?}");
    let causes = &refused.response["status"]["details"]["causes"];
    assert_eq!(
        *causes,
        json!([
            {"field": "spec.policies.labelled", "message": "the label `team` is missing"},
            {"field": "spec.policies.owned", "message": "the label `owner` is missing"},
        ]),
        "{refused:?}"
    );
    assert_eq!(
        refused.response["warnings"],
        json!(["labels are checked"]),
        "{refused:?}"
    );
    for (labels, annotations, message) in [
        (json!({"team": "a"}), none.clone(), ""),
        // The object has the label that the policy `unchanged` would add, so the policy changes nothing.
        (json!({"owner": "b", "checked": "yes"}), none.clone(), ""),
        (
            json!({"owner": "b"}),
            none.clone(),
            "plugin unchanged of the group: the verdict changes the object",
        ),
        (
            json!({"team": "a"}),
            json!({"act": "fail"}),
            "plugin labelled of the group: the plugin returned an error: it was told to fail",
        ),
        // With `act: loop`, each policy of the group runs in an endless loop until its timeout stops it. If several
        // policies fail because of their timeouts, the message names only the first one.
        (
            json!({"team": "a"}),
            json!({"act": "loop"}),
            "plugin labelled of the group",
        ),
    ] {
        let (_, verdict) = send_review(&server, "groups", &labels, &annotations).await;
        assert_eq!(
            verdict.is_allowed(),
            message.is_empty(),
            "{labels} {annotations}: {verdict:?}"
        );
        if !message.is_empty() {
            assert!(verdict.message().contains(message), "{message}: {verdict:?}");
        }
    }
}

async fn run_admittance(arguments: &[&str]) -> FinishedProgram {
    Admittance::run(arguments.iter().copied()).await.unwrap()
}

#[tokio::test]
async fn inspect_and_check_accept_kubewarden_policies() {
    for (name, interface) in [
        ("guest_policy", "kubewarden:wapc"),
        ("guest_policy_program", "kubewarden:wasi"),
    ] {
        let path = Artifacts::find().unwrap().policy(name).unwrap();
        let inspected = run_admittance(&["inspect", path.to_str().unwrap(), "--output", "json"]).await;
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
        &module_url("guest_policy"),
        "  policyServer: other\n  settings: { required: \"\" }\n",
    );
    let store = store().display().to_string();
    let group_text = policy_group(&module_url("guest_policy"), &module_url("guest_policy_program"));
    for (text, code, message) in [
        (
            group_text.replace("required: team", "required: \"\""),
            1,
            "policies.yaml:10:",
        ),
        (
            group_text.replace("required: team", "required: \"\""),
            1,
            "stage known/labelled of chain namespaced-group-groups-known: the plugin rejected its settings: `required` is empty",
        ),
        (
            group_text.replace(" && unchanged()", ""),
            0,
            "spec.policies.unchanged: the expression does not use it; write `unchanged()` in the expression",
        ),
        (
            group_text.replace("unchanged()", "changed()"),
            1,
            "there is no `changed` in the group",
        ),
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
        let check = run_admittance(&["check", file.to_str().unwrap(), "--store", &store]).await;
        assert_eq!(check.code, Some(code), "{}{}", check.stdout, check.stderr);
        assert!(
            check.stdout.contains(message),
            "{message}: {}{}",
            check.stdout,
            check.stderr
        );
    }
}
