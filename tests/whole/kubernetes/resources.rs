//! Tests chains that are resources of the cluster.

use std::path::Path;

use admittance_tests::{Admittance, FinishedProgram};
use serde_json::{Value, json};

use super::server::{POD, ReviewedResource, Server, certificates};
use crate::{
    scene::{store, write},
    setting::{Setting, TOKEN, wait_until},
};

pub(super) const CHAIN_PLURAL: &str = "admissionchains";
pub(super) const NAMESPACED_PLURAL: &str = "namespacedadmissionchains";
const EXCEPTION_PLURAL: &str = "admissionexceptions";

/// Returns a chain that denies every Pod with this message.
pub(super) fn chain(name: &str, message: &str) -> Value {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": name},
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": "deny", "cel": {"validations": [{"expression": "false", "message": message}]}}],
        },
    })
}

pub(super) async fn start(setting: &Setting) -> Server {
    start_with_additions(setting, "").await
}

pub(super) async fn start_with_additions(setting: &Setting, additions: &str) -> Server {
    start_with_resources(setting, "", additions).await
}

/// Starts a server that reads chains from the cluster. `resources` configures how it reads them, and `additions` has
/// further keys.
pub(super) async fn start_with_resources(setting: &Setting, resources: &str, additions: &str) -> Server {
    start_with_definitions(
        setting,
        &format!("definitions: [ {{ kubernetes: {{ {resources} }} }} ]\n{additions}"),
    )
    .await
}

/// Starts a server. `definitions` is the part of its configuration that begins with the key `definitions`.
pub(super) async fn start_with_definitions(setting: &Setting, definitions: &str) -> Server {
    start_with_definitions_and_store(setting, definitions, store()).await
}

pub(super) async fn start_with_store(setting: &Setting, additions: &str, store: &Path) -> Server {
    start_with_definitions_and_store(
        setting,
        &format!("definitions: [ {{ kubernetes: {{}} }} ]\n{additions}"),
        store,
    )
    .await
}

async fn start_with_definitions_and_store(setting: &Setting, definitions: &str, store: &Path) -> Server {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let config = format!(
        "
dialect: {{ kubernetes: {{}} }}
listen: {{ tls: {{ certificate: localhost.pem, key: localhost.key }} }}
cluster: {{ kubeconfig: {} }}
{definitions}
",
        kubeconfig.display()
    );
    Server::start_with_store(directory, &config, store).await
}

impl Server {
    pub(super) async fn denial_message(&self) -> String {
        let verdict = self.review("/validate", &POD.review("p1")).await;
        if verdict.is_allowed() {
            String::new()
        } else {
            verdict.message().to_owned()
        }
    }

    pub(super) async fn until_revision(&self, revision: u64) {
        let is_live = |status: &Value| status["revision"] == revision;
        self.program.wait_for_status("the change", is_live).await.unwrap();
    }

    pub(super) async fn run_command(&self, arguments: &[&str]) -> FinishedProgram {
        let server = self.program.admin_url("");
        let connection = ["--server", &server];
        Admittance::run([arguments, &connection].concat()).await.unwrap()
    }
}

#[tokio::test]
async fn chains_are_read_from_resources() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let server = start(&setting).await;
    assert!(server.denial_message().await.contains("first"));

    setting.server.put(CHAIN_PLURAL, chain("pods", "second"));
    server.until_revision(2).await;
    assert!(server.denial_message().await.contains("second"));

    // The last valid version of the invalid chain stays in force. Other changes go live.
    let mut bad = chain("pods", "third");
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    setting.server.put(CHAIN_PLURAL, bad);
    setting.server.put(CHAIN_PLURAL, chain("zother", "fourth"));
    let is_reported = |status: &Value| {
        status["problem"]["badDefinitions"][0]
            .to_string()
            .contains("kubernetes:AdmissionChain/pods")
            && status["chains"].as_array().is_some_and(|chains| chains.len() == 2)
    };
    server
        .program
        .wait_for_status("the bad chain", is_reported)
        .await
        .unwrap();
    assert!(server.denial_message().await.contains("second"));

    // `admittance apply` replaces the invalid version in the cluster. Fields that other clients wrote are kept.
    let file = write(&server.directory, "new.json", chain("pods", "fifth").to_string());
    let applied = server.run_command(&["apply", "-f", file.to_str().unwrap()]).await;
    assert_eq!(applied.code, Some(0), "{}{}", applied.stdout, applied.stderr);
    assert!(server.denial_message().await.contains("fifth"));
    let stored_chain = setting.server.object(CHAIN_PLURAL, "", "pods").unwrap();
    assert_eq!(stored_chain["spec"], chain("pods", "fifth")["spec"]);
    let listing = server.run_command(&["get"]).await;
    assert!(
        listing.stdout.contains("kubernetes:AdmissionChain/zother"),
        "{}",
        listing.stdout
    );

    // While the API server is down, the program serves the chains that were live before.
    setting.server.become_unavailable();
    assert!(server.denial_message().await.contains("fifth"));
    setting.server.become_available();
    let deleted = server.run_command(&["delete", "AdmissionChain/pods"]).await;
    assert_eq!(deleted.code, Some(0), "{}{}", deleted.stdout, deleted.stderr);
    assert!(setting.server.object(CHAIN_PLURAL, "", "pods").is_none());
    assert!(server.denial_message().await.contains("fourth"));
}

#[tokio::test]
async fn exceptions_are_read_from_resources() {
    let setting = Setting::new();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let server = start(&setting).await;
    assert!(server.denial_message().await.contains("first"));
    let exception = |expires: &str| {
        json!({
            "apiVersion": "admittance.dev/v1alpha1",
            "kind": "AdmissionException",
            "metadata": {"name": "test"},
            "spec": {
                "owner": "a@example.com",
                "reason": "a test",
                "expires": expires,
                "stages": ["pods/deny", "gone/stage"],
                "namespaces": ["test"],
            },
        })
    };
    let live = async |generation: u64| {
        let mut status = Value::Null;
        wait_until("the status of the exception", async || {
            let stored_exception = setting.server.object(EXCEPTION_PLURAL, "", "test").unwrap();
            status = stored_exception["status"].clone();
            status["observedGeneration"] == generation
        })
        .await;
        let conditions = status["conditions"].as_array().unwrap();
        let live = conditions.iter().find(|condition| condition["type"] == "Live").unwrap();
        assert!(status["mistakes"][0].to_string().contains("gone/stage"), "{status}");
        live["reason"].as_str().unwrap().to_owned()
    };
    setting.server.put(EXCEPTION_PLURAL, exception("2999-12-31"));
    server.until_revision(2).await;
    assert_eq!(server.denial_message().await, "");
    assert_eq!(live(1).await, "Live");
    setting.server.put(EXCEPTION_PLURAL, exception("2020-12-31"));
    server.until_revision(3).await;
    assert!(server.denial_message().await.contains("first"));
    assert_eq!(live(2).await, "Expired");
    let deleted = server.run_command(&["delete", "AdmissionException/test"]).await;
    assert_eq!(deleted.code, Some(0), "{}{}", deleted.stdout, deleted.stderr);
    assert!(setting.server.object(EXCEPTION_PLURAL, "", "test").is_none());
}

pub(super) fn chain_in_namespace(mut chain: Value, namespace: &str) -> Value {
    chain["kind"] = json!("NamespacedAdmissionChain");
    chain["metadata"]["namespace"] = json!(namespace);
    chain
}

#[tokio::test]
async fn chains_of_a_namespace_apply_only_in_that_namespace() {
    let setting = Setting::new();
    // This chain of the namespace `other` has rules that match everything, but it applies only in its namespace.
    let mut other_chain = chain("all", "other");
    other_chain["spec"]["rules"] = json!([{"operations": ["*"], "resources": ["*/*"]}]);
    setting
        .server
        .put(NAMESPACED_PLURAL, chain_in_namespace(other_chain, "other"));
    let server = start(&setting).await;
    assert_eq!(server.denial_message().await, "");
    setting
        .server
        .put(NAMESPACED_PLURAL, chain_in_namespace(chain("pods", "first"), "test"));
    server.until_revision(2).await;
    assert!(server.denial_message().await.contains("first"));

    // In paths and in arguments of commands, a chain of a namespace is called `test/pods`: namespace, slash, name.
    let verdict = server.review("/validate/test/pods", &POD.review("p1")).await;
    assert!(verdict.message().contains("first"), "{}", verdict.message());
    for arguments in [
        &["disable", "test/pods/deny", "--for", "1h", "--reason", "a test"][..],
        &["enable", "test/pods/deny"],
        &["get", "NamespacedAdmissionChain/test/pods"],
    ] {
        let output = server.run_command(arguments).await;
        assert_eq!(
            output.code,
            Some(0),
            "{arguments:?}: {}{}",
            output.stdout,
            output.stderr
        );
    }

    // This chain belongs to a namespace and needs a capability. The operator has not allowed this capability to chains
    // of namespaces.
    let mut wanting = chain_in_namespace(chain("pods", "second"), "test");
    wanting["spec"]["stages"][0] = json!({"name": "calls", "webhook": {
        "protocol": "AdmissionReview", "url": "https://elsewhere.example.com/",
    }});
    setting.server.put(NAMESPACED_PLURAL, wanting.clone());
    let mut status = Value::Null;
    wait_until("the refusal", async || {
        status = setting.server.object(NAMESPACED_PLURAL, "test", "pods").unwrap()["status"].clone();
        status["observedGeneration"] == 2
    })
    .await;
    assert_eq!(
        status["conditions"][0]["type"], "Accepted",
        "the first condition: {status}"
    );
    assert_eq!(status["conditions"][0]["status"], "False", "{status}");
    let mistake = status["mistakes"][0].as_str().unwrap();
    assert!(
        mistake.contains("spec.stages[0].webhook")
            && mistake.contains("https://elsewhere.example.com/")
            && mistake.contains("`definitions[].kubernetes.namespaced.webhooks`"),
        "{mistake}"
    );
    assert!(
        server.denial_message().await.contains("first"),
        "its last version stays"
    );
    // The configuration does not grant the permission that this chain needs, so `admittance apply` refuses the chain.
    // It does so whether the stage has the same name as in the stored chain or another name.
    for stage in [wanting["spec"]["stages"][0]["name"].clone(), json!("other")] {
        wanting["spec"]["stages"][0]["name"] = stage;
        let file = write(&server.directory, "new.json", wanting.to_string());
        let applied = server.run_command(&["apply", "-f", file.to_str().unwrap()]).await;
        assert_eq!(applied.code, Some(2), "{}", applied.stdout);
        assert!(applied.stderr.contains("namespaced.webhooks"), "{}", applied.stderr);
    }
}

/// Returns an AdmissionReview about a definition. The API server sends such a review to the program before it stores
/// the definition.
fn definition_review(operation: &str, plural: &str, object: &Value, old: Value) -> Value {
    let kind = object["kind"].as_str().unwrap();
    let resource = format!("admittance.dev/v1alpha1/{plural}");
    let subject = ReviewedResource {
        operation,
        resource: &resource,
        kind,
    };
    let mut review = subject.review("d1");
    // The API server adds these metadata fields before it sends the review.
    let mut object = object.clone();
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["generation"] = json!(1);
    object["metadata"]["managedFields"] = json!([]);
    review["request"]["name"] = object["metadata"]["name"].clone();
    review["request"]["namespace"] = object["metadata"]["namespace"].clone();
    if review["request"]["namespace"].is_null() {
        review["request"]["namespace"] = json!("");
    }
    review["request"]["object"] = object;
    review["request"]["oldObject"] = old;
    review["request"]["dryRun"] = json!(true);
    review
}

#[tokio::test]
async fn definitions_are_checked_before_they_are_stored() {
    let setting = Setting::new();
    // A chain that denies every request must not deny requests that repair definitions.
    let mut all = chain("all", "never");
    all["spec"]["rules"] = json!([{"operations": ["*"], "resources": ["*/*"]}]);
    setting.server.put(CHAIN_PLURAL, all);
    let server = start(&setting).await;
    let good = chain("pods", "first");
    let create = |object: &Value| {
        let plural = match object["kind"].as_str().unwrap() {
            "AdmissionChain" => CHAIN_PLURAL,
            "NamespacedAdmissionChain" => NAMESPACED_PLURAL,
            _ => EXCEPTION_PLURAL,
        };
        definition_review("CREATE", plural, object, Value::Null)
    };
    for path in ["/definitions?timeout=10s", "/validate", "/admit"] {
        let verdict = server.review(path, &create(&good)).await;
        assert!(verdict.is_allowed(), "{path}: {}", verdict.message());
    }

    let mut bad = good.clone();
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    bad["spec"]["stages"][0]["failurePolicy"] = json!("fial");
    let verdict = server.review("/definitions", &create(&bad)).await;
    let message = verdict.message().to_owned();
    assert!(!verdict.is_allowed());
    assert!(
        message.contains("spec.stages[0].failurePolicy: \"fial\" is not a valid failure policy")
            && message.contains("spec.stages[0].cel.validations[0].expression: ")
            && !message.contains("kubernetes:"),
        "{message}"
    );
    assert_eq!(verdict.code(), 422);
    assert_eq!(
        verdict.response["status"]["details"]["causes"]
            .as_array()
            .unwrap()
            .len(),
        message.lines().count()
    );

    let with_source = |source: &str| {
        let mut chain = good.clone();
        chain["spec"]["stages"][0] = json!({"name": "a", "plugin": {"source": source}});
        chain
    };
    for (source, expected) in [
        ("http://example.com/a.wasm", "spec.stages[0].plugin.source: "),
        ("file:a.wasm", "the path \"a.wasm\" is relative"),
        ("file:/nowhere/a.wasm", "there is no file /nowhere/a.wasm"),
        ("oci://127.0.0.1:1/a:1", ""),
    ] {
        let verdict = server.review("/definitions", &create(&with_source(source))).await;
        assert_eq!(verdict.is_allowed(), expected.is_empty(), "{source}");
        if !expected.is_empty() {
            assert!(verdict.message().contains(expected), "{}", verdict.message());
        }
    }

    let mut large = with_source("oci://127.0.0.1:1/a:1");
    large["spec"]["stages"][0]["plugin"]["memory"] = json!("2GiB");
    let verdict = server.review("/definitions", &create(&large)).await;
    let expected = "spec.stages[0].plugin.memory: 2147483648 bytes are above this host's maximum of 1073741824 bytes";
    assert!(
        !verdict.is_allowed() && verdict.message().contains(expected),
        "{}",
        verdict.message()
    );

    let mut unreached = good.clone();
    unreached["spec"]["rules"] = json!([
        {"operations": ["CREATE"], "apiGroups": ["authentication.k8s.io"], "apiVersions": ["*"], "resources": ["tokenreviews"]},
    ]);
    let verdict = server.review("/definitions", &create(&unreached)).await;
    assert!(verdict.is_allowed(), "{}", verdict.message());
    let warnings = verdict.response["warnings"].to_string();
    assert!(warnings.contains("it is never called: spec.rules[0]"), "{warnings}");

    let calls = json!({"name": "calls", "webhook": {
        "protocol": "AdmissionReview", "url": "https://elsewhere.example.com/",
    }});
    let mut of_namespace = chain_in_namespace(good.clone(), "test");
    assert!(server.review("/definitions", &create(&of_namespace)).await.is_allowed());
    of_namespace["spec"]["stages"][0] = calls;
    let verdict = server.review("/definitions", &create(&of_namespace)).await;
    assert!(
        verdict.message().contains("namespaced.webhooks"),
        "{}",
        verdict.message()
    );
    let exception = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionException",
        "metadata": {"name": "test"},
        "spec": {"owner": "a", "reason": "b", "expires": "2027-02-30", "stages": ["all/deny"], "namespaces": ["test"]},
    });
    let verdict = server.review("/definitions", &create(&exception)).await;
    assert!(verdict.message().contains("spec.expires: "), "{}", verdict.message());

    // The stored definition is invalid. It may get a label or be repaired, but not replaced by another invalid one.
    let mut labelled = bad.clone();
    labelled["metadata"]["labels"] = json!({"team": "a"});
    let mut other = bad.clone();
    other["spec"]["stages"][0]["failurePolicy"] = json!("other");
    for (object, is_allowed) in [(&labelled, true), (&good, true), (&other, false)] {
        let review = definition_review("UPDATE", CHAIN_PLURAL, object, bad.clone());
        let verdict = server.review("/definitions", &review).await;
        assert_eq!(verdict.is_allowed(), is_allowed, "{}", verdict.message());
    }
    assert!(server.review("/definitions", &POD.review("p1")).await.is_allowed());
}
