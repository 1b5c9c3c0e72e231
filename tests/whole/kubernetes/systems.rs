//! Tests policies for other policy systems, such as Gatekeeper, that are resources of the cluster.

use serde_json::{Value, json};

use super::{
    resources::{CHAIN_PLURAL, chain, start_with_definitions},
    server::Server,
};
use crate::setting::{Setting, wait_until};

const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const TEMPLATES: &str = "constrainttemplates";
const POLICY_DEFINITIONS: &str = "definitions: [ { kubernetes: { policies: [Kubernetes, Gatekeeper, Kubewarden] } } ]";

/// Returns a policy that denies every Pod with this message.
fn policy(message: &str) -> Value {
    json!({
        "metadata": {"name": "pods"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
            ]},
            "validations": [{"expression": "false", "message": message}],
        },
    })
}

fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

fn define_policies(setting: &Setting) {
    let version = "admissionregistration.k8s.io/v1";
    setting
        .server
        .define_kind(version, POLICIES, "ValidatingAdmissionPolicy", false);
    setting
        .server
        .define_kind(version, BINDINGS, "ValidatingAdmissionPolicyBinding", false);
}

/// Returns a Gatekeeper template whose constraints deny every Pod with a message from their parameters.
fn template() -> Value {
    let validations = json!([{"expression": "false", "messageExpression": "string(variables.params.message)"}]);
    let message = json!({"type": "object", "properties": {"message": {"type": "string"}}});
    json!({
        "metadata": {"name": "never"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "Never"}, "validation": {"openAPIV3Schema": message}}},
            "targets": [{
                "target": "admission.k8s.gatekeeper.sh",
                "code": [{"engine": "K8sNativeValidation", "source": {"validations": validations}}],
            }],
        },
    })
}

fn constraint(message: Value) -> Value {
    json!({
        "metadata": {"name": "never"},
        "spec": {
            "match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]},
            "parameters": {"message": message},
        },
    })
}

async fn until_message(server: &Server, expected: &str) {
    let event = format!("the message {expected:?}");
    wait_until(&event, async || server.denial_message().await.contains(expected)).await;
}

async fn until_bad_definition(server: &Server, path: &str) {
    let is_reported = |status: &Value| status["problem"]["badDefinitions"].to_string().contains(path);
    server
        .program
        .wait_for_status("the bad policy", is_reported)
        .await
        .unwrap();
}

#[tokio::test]
async fn policies_stored_in_the_cluster_are_evaluated() {
    let setting = Setting::new();
    define_policies(&setting);
    setting.server.put(POLICIES, policy("by a policy"));
    setting.server.put(BINDINGS, binding("all", "pods"));
    setting.server.put(BINDINGS, binding("stray", "gone"));
    let server = start_with_definitions(&setting, POLICY_DEFINITIONS).await;
    assert!(server.denial_message().await.contains("by a policy"));
    // The status reports a binding whose policy does not exist. Changes of other definitions go live nevertheless.
    until_bad_definition(
        &server,
        "validatingadmissionpolicybindings.admissionregistration.k8s.io/stray",
    )
    .await;
    setting.server.put(POLICIES, policy("by another"));
    until_message(&server, "by another").await;
    // The last valid version of the policy stays in force, and changes of chains go live.
    let has_chain = |status: &Value| {
        let chains = status["chains"].as_array();
        chains.is_some_and(|chains| chains.iter().any(|chain| chain["name"] == "zother"))
    };
    let mut bad = policy("never said");
    bad["spec"]["validations"][0]["expression"] = json!("object.");
    setting.server.put(POLICIES, bad);
    setting.server.put(CHAIN_PLURAL, chain("zother", "by a chain"));
    until_bad_definition(&server, "validatingadmissionpolicies.admissionregistration.k8s.io/pods").await;
    server.program.wait_for_status("the chain", has_chain).await.unwrap();
    assert!(server.denial_message().await.contains("by another"));

    // Admittance only reads the policies of Kubernetes and their bindings. So it refuses to change them, and writes no
    // status to them.
    let name = "ValidatingAdmissionPolicyBinding/stray";
    let delete_output = server.run_command(&["delete", name]).await;
    assert!(
        delete_output.stderr.contains("change it with kubectl"),
        "{}{}",
        delete_output.stdout,
        delete_output.stderr
    );
    let listing = server.run_command(&["get"]).await;
    assert!(
        listing.stdout.contains("ValidatingAdmissionPolicy/pods"),
        "{}",
        listing.stdout
    );
    for (plural, name) in [(POLICIES, "pods"), (BINDINGS, "all"), (BINDINGS, "stray")] {
        let stored_object = setting.server.object(plural, "", name).unwrap();
        assert_eq!(stored_object.get("status"), None);
    }

    setting.server.delete(BINDINGS, "", "all");
    until_message(&server, "by a chain").await;
}

#[tokio::test]
async fn kinds_of_constraints_can_be_added_and_removed_while_running() {
    let setting = Setting::new();
    let server = start_with_definitions(&setting, POLICY_DEFINITIONS).await;
    assert_eq!(server.denial_message().await, "");
    // The kinds of Gatekeeper are defined while the program runs, as when Gatekeeper is installed.
    setting
        .server
        .define_kind("templates.gatekeeper.sh/v1", TEMPLATES, "ConstraintTemplate", false);
    setting.server.put(TEMPLATES, template());
    setting
        .server
        .define_kind("constraints.gatekeeper.sh/v1beta1", "never", "Never", false);
    setting.server.put("never", constraint(json!("first")));
    until_message(&server, "[never] first").await;
    // The last valid version of the constraint stays in force.
    setting.server.put("never", constraint(json!(1)));
    until_bad_definition(&server, "never.constraints.gatekeeper.sh/never").await;
    assert!(server.denial_message().await.contains("first"));
    setting.server.put("never", constraint(json!("second")));
    until_message(&server, "second").await;
    // Deleting a template deletes the kind of its constraints, and thus all of its constraints.
    setting.server.delete(TEMPLATES, "", "never");
    setting.server.remove_kind("never");
    wait_until("the end of the constraint", async || {
        server.denial_message().await.is_empty()
    })
    .await;
}
