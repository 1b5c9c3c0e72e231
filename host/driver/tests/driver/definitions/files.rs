use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ROUTE, SUCCESS_REPLY, definition_json, parse_refusal, refusals::start_driver};
use crate::harness::{Setup, echo_upstream};

const HANDWRITTEN_DEFINITION: &str = "# Sidecars, as agreed.
kind: AdmissionWebhook
metadata: { namespace: defaultGroup, name: sidecars }
resourcesRef: { operation: create, kind: application }
admissionWebhooks:
  - { name: hook, clientConfig: { url: 'https://a.example' } }
";

const NATIVE_CHAIN: &str = "# The chain of the pods.
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  rules: [ { operations: [DELETE], kinds: [Pod] } ]
  stages: [ { name: hook, webhook: { protocol: AdmissionReview, url: 'https://h.example' } } ]
---
kind: admissionwebhook
metadata: { namespace: defaultGroup, name: shared }
resourcesRef: { operation: Update, kind: Application }
admissionWebhooks: []
";

const RESOURCE: &str = "apiVersion: bkbcs.tencent.com/v2
kind: AdmissionWebhookConfiguration
metadata: { namespace: bkbcs, name: images }
spec:
  metadata: { namespace: defaultGroup, name: images, labels: { team: a } }
  resourcesRef: { operation: Create, kind: Deployment }
  admissionWebhooks: []
";

/// A List of definitions, as `kubectl get -o yaml` prints it.
const LIST: &str = "apiVersion: v1
kind: List
items:
  - apiVersion: v4
    kind: admissionwebhook
    metadata: { namespace: defaultGroup, name: listed }
    resourcesRef: { operation: Update, kind: Deployment }
    admissionWebhooks: []
";

#[tokio::test]
async fn definitions_written_by_hand_can_be_changed() {
    let directory = TempDir::new().unwrap();
    let setup = Setup::new(&[echo_upstream().await]).with_definition_files(directory.path());
    let chains = directory.path().join("chains");
    let files = [
        ("a.yaml", HANDWRITTEN_DEFINITION),
        ("b.yaml", RESOURCE),
        ("c.yaml", LIST),
        ("d.yaml", NATIVE_CHAIN),
    ];
    for (name, text) in files {
        fs::write(chains.join(name), text).unwrap();
    }
    let driver = setup.start().await;

    let all_definitions = driver.reply_data("GET", "/admissionwebhooks").await;
    let summary = |object: &Value| {
        json!([
            object["kind"],
            object["metadata"]["name"],
            object["metadata"]["creationTimestamp"],
            object["resourcesRef"]["kind"]
        ])
    };
    let summaries: Vec<_> = all_definitions.as_array().unwrap().iter().map(summary).collect();
    let never = "0001-01-01T00:00:00Z";
    assert_eq!(
        summaries,
        [
            json!(["admissionwebhook", "images", never, "Deployment"]),
            json!(["admissionwebhook", "listed", never, "Deployment"]),
            json!(["admissionwebhook", "shared", never, "Application"]),
            json!(["admissionwebhook", "sidecars", never, "application"]),
        ]
    );

    let update = |name: &str, fields: Value| {
        let mut body = all_definitions
            .as_array()
            .unwrap()
            .iter()
            .find(|object| object["metadata"]["name"] == name)
            .unwrap()
            .clone();
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        body.to_string()
    };
    let body = update(
        "sidecars",
        json!({"resourcesRef": {"operation": "Create", "kind": "process"}}),
    );
    assert_eq!(driver.send_definition("PUT", ROUTE, body).await.1, SUCCESS_REPLY);
    let text = fs::read_to_string(chains.join("a.yaml")).unwrap();
    assert!(text.contains("\"process\"") && !text.contains("agreed"), "{text}");

    let body = update(
        "images",
        json!({"resourcesRef": {"operation": "Create", "kind": "Service"}}),
    );
    assert_eq!(driver.send_definition("PUT", ROUTE, body).await.1, SUCCESS_REPLY);
    let text = fs::read_to_string(chains.join("b.yaml")).unwrap();
    let resource: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(resource["kind"], "AdmissionWebhookConfiguration");
    assert_eq!(resource["metadata"], json!({"namespace": "bkbcs", "name": "images"}));
    assert_eq!(resource["spec"]["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(resource["spec"]["resourcesRef"]["kind"], "Service");

    // If a file contains further definitions besides this one, the driver cannot change it. The error then asks the
    // user to edit the file.
    let other = json!({"resourcesRef": {"operation": "Create", "kind": "Secret"}});
    let (in_list, shares) = ("is an item of the list in", "is one of several documents in its file");
    for (method, path, body, why, file) in [
        ("PUT", ROUTE.to_owned(), update("listed", json!({})), in_list, "c.yaml"),
        ("DELETE", format!("{ROUTE}/listed"), String::new(), in_list, "c.yaml"),
        ("PUT", ROUTE.to_owned(), update("shared", other), shares, "d.yaml:9:1"),
        ("DELETE", format!("{ROUTE}/shared"), String::new(), shares, "d.yaml:9:1"),
    ] {
        let (_, answer) = driver.send_definition(method, &path, body).await;
        let (code, message) = parse_refusal(&answer);
        assert_eq!(code, 1_405_200);
        assert!(message.contains(why) && message.contains(file), "{message}");
    }
    for name in ["images", "listed", "shared", "sidecars"] {
        let (_, answer) = driver.send_definition("POST", ROUTE, update(name, json!({}))).await;
        assert_eq!(parse_refusal(&answer).0, 1_405_201, "{name}");
    }

    for name in ["images", "sidecars"] {
        assert_eq!(
            driver.send_definition("DELETE", &format!("{ROUTE}/{name}"), "").await.1,
            SUCCESS_REPLY
        );
    }
    assert_eq!(
        driver.live_chains().await,
        ["defaultGroup/listed", "defaultGroup/shared", "pods"]
    );
    for (name, is_there) in [("a.yaml", false), ("b.yaml", false), ("c.yaml", true), ("d.yaml", true)] {
        assert_eq!(chains.join(name).exists(), is_there, "{name}");
    }
}

#[tokio::test]
async fn an_invalid_definition_can_be_corrected_and_does_not_block_others() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(&directory).await;
    let broken = definition_json("broken", "x").to_string().replace("Create", "Update");
    let file = directory.path().join("chains/broken.json");
    fs::write(&file, &broken).unwrap();
    let mut new = definition_json("new", "https://h.example");
    new["resourcesRef"]["kind"] = json!("Deployment");
    assert_eq!(
        driver.send_definition("POST", ROUTE, new.to_string()).await.1,
        SUCCESS_REPLY
    );
    assert_eq!(driver.live_chains().await, ["defaultGroup/new", "defaultGroup/there"]);
    let stored_definition = driver.reply_data("GET", &format!("{ROUTE}/broken")).await;
    assert_eq!(stored_definition["admissionWebhooks"][0]["clientConfig"]["url"], "x");
    let mended = broken.replace("\"x\"", "\"https://h.example\"");
    assert_eq!(driver.send_definition("PUT", ROUTE, mended).await.1, SUCCESS_REPLY);
    assert_eq!(
        driver.live_chains().await,
        ["defaultGroup/broken", "defaultGroup/new", "defaultGroup/there"]
    );
}
