use std::fs;

use axum::{Json, Router, body::Body, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BUNDLE, PREFIX, ROUTE, SUCCESS_REPLY, definition_json, parse_refusal};
use crate::{
    admin::guest::Guest,
    harness::{Setup, application, echo_upstream, request, serve, status_and_text},
};

async fn serve_marking_hook() -> String {
    let routes = Router::new().route(
        "/mark",
        post(async |Json(mut object): Json<Value>| {
            object["marked"] = json!(true);
            Json(object)
        }),
    );
    format!("http://{}/mark", serve(routes).await)
}

/// Returns the definition that the documentation of BCS has as an example, with a valid CA bundle.
fn documented_definition() -> Value {
    let hook = |name: &str, policy: &str, service: &str| {
        json!({
            "name": name,
            "failurePolicy": policy,
            "clientConfig": {
                "caBundle": *BUNDLE,
                "namespace": format!("{service}-webhook-namespace"),
                "name": format!("{service}-webhook-service"),
            },
        })
    };
    json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": "webhook-test", "namespace": "defaultGroup"},
        "resourcesRef": {"operation": "Create", "kind": "Application"},
        "admissionWebhooks": [
            hook("container-sidecar", "Ignore", "sidecar"),
            hook("container-images", "Fail", "image"),
        ],
    })
}

#[tokio::test]
async fn a_definition_is_created_read_updated_and_deleted() {
    for route in [ROUTE, "/crd/namespaces/defaultGroup/admissionwebhook"] {
        let directory = TempDir::new().unwrap();
        let driver = Setup::new(&[echo_upstream().await])
            .with_definition_files(directory.path())
            .start()
            .await;
        let definition_path = format!("{route}/webhook-test");

        assert_eq!(
            driver.reply_data("GET", "/admissionwebhooks").await,
            json!([]),
            "{route}"
        );
        let success = (200, SUCCESS_REPLY.to_owned());
        assert_eq!(
            driver
                .send_definition("POST", route, documented_definition().to_string())
                .await,
            success
        );
        assert_eq!(driver.live_chains().await, ["defaultGroup/webhook-test"]);

        let stored_definition = driver.reply_data("GET", &definition_path).await;
        let created = stored_definition["metadata"]["creationTimestamp"].clone();
        let mut expected = documented_definition();
        expected["metadata"]["creationTimestamp"] = created.clone();
        for hook in expected["admissionWebhooks"].as_array_mut().unwrap() {
            let client = hook["clientConfig"].clone();
            hook["clientConfig"] = json!({
                "url": "",
                "caBundle": client["caBundle"],
                "namespace": client["namespace"],
                "name": client["name"],
                "path": "",
                "port": 0,
            });
            hook["namespaceSelector"] = Value::Null;
        }
        assert_eq!(stored_definition.to_string(), expected.to_string());
        assert!(created.as_str().unwrap().starts_with("20"), "{created}");

        let mut update = documented_definition();
        update["apiVersion"] = json!("v5");
        update["metadata"]["labels"] = json!({"a": "b"});
        update["metadata"]["creationTimestamp"] = json!("2000-01-01T00:00:00Z");
        update["resourcesRef"]["operation"] = json!("Update");
        update["admissionWebhooks"].as_array_mut().unwrap().pop();
        assert_eq!(driver.send_definition("PUT", route, update.to_string()).await, success);
        expected["resourcesRef"]["operation"] = json!("Update");
        expected["admissionWebhooks"].as_array_mut().unwrap().pop();
        assert_eq!(driver.reply_data("GET", &definition_path).await, expected);
        assert_eq!(driver.reply_data("GET", "/admissionwebhooks").await, json!([expected]));

        assert_eq!(
            driver.send_definition("PUT", route, expected.to_string()).await,
            success
        );
        assert_eq!(driver.reply_data("GET", &definition_path).await, expected);

        assert_eq!(driver.send_definition("DELETE", &definition_path, "").await, success);
        assert_eq!(driver.live_chains().await, Vec::<String>::new());
        let (status, missing_reply) = driver.send_definition("GET", &definition_path, "").await;
        assert_eq!((status, parse_refusal(&missing_reply).0), (200, 1_405_200));
        assert_eq!(fs::read_dir(directory.path().join("chains")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_change_is_live_before_its_reply_is_sent() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    let marked = async || driver.post(application("good")).await.1.contains("marked");
    assert!(!marked().await);
    let body = definition_json("w", &serve_marking_hook().await).to_string();
    assert_eq!(
        driver.send_definition("POST", ROUTE, body.clone()).await.1,
        SUCCESS_REPLY
    );
    assert!(marked().await);
    let update = body.replace("\"Create\"", "\"Update\"");
    assert_eq!(driver.send_definition("PUT", ROUTE, update).await.1, SUCCESS_REPLY);
    assert!(!marked().await);
    assert_eq!(
        driver.send_definition("PUT", ROUTE, body.clone()).await.1,
        SUCCESS_REPLY
    );
    assert!(marked().await);
    let mut empty: Value = serde_json::from_str(&body).unwrap();
    empty["admissionWebhooks"] = json!([]);
    assert_eq!(
        driver.send_definition("PUT", ROUTE, empty.to_string()).await.1,
        SUCCESS_REPLY
    );
    assert!(!marked().await);
}

#[tokio::test]
async fn no_chain_can_refuse_a_change_of_definitions() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    // The driver of every test has a chain that denies objects named `bad`.
    assert_eq!(driver.post(application("bad")).await.0, 400);
    let body = definition_json("bad", "https://h.example").to_string();
    assert_eq!(driver.send_definition("POST", ROUTE, body).await.1, SUCCESS_REPLY);
    assert_eq!(driver.live_chains().await, ["defaultGroup/bad"]);
}

#[tokio::test]
async fn a_plugin_can_take_the_place_of_a_webhook() {
    let directory = TempDir::new().unwrap();
    let module = directory.path().join("allows.wasm");
    fs::write(&module, Guest::default().component()).unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    let plugin = json!({"source": format!("file:{}", module.display()), "settings": {"Key": 1}});
    let mut body = definition_json("w", "");
    body["admissionWebhooks"] = json!([{"name": "hook", "plugin": plugin, "timeout": "2s", "mode": "Audit"}]);
    assert_eq!(
        driver.send_definition("POST", ROUTE, body.to_string()).await.1,
        SUCCESS_REPLY
    );
    let stored_definition = driver.reply_data("GET", &format!("{ROUTE}/w")).await;
    let expected = json!([{
        "name": "hook",
        "failurePolicy": "",
        "clientConfig": null,
        "namespaceSelector": null,
        "plugin": plugin,
        "timeout": "2s",
        "mode": "Audit",
    }]);
    assert_eq!(stored_definition["admissionWebhooks"].to_string(), expected.to_string());
    assert_eq!(
        driver
            .send_definition("PUT", ROUTE, stored_definition.to_string())
            .await
            .1,
        SUCCESS_REPLY
    );
}

#[tokio::test]
async fn the_namespace_of_the_body_takes_precedence_over_the_path() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    for (operation, in_path, in_body, expected) in [("Create", "p", Some("b"), "b"), ("Update", "p", None, "p")] {
        let mut body = definition_json("w", "https://h.example");
        body["resourcesRef"]["operation"] = json!(operation);
        body["metadata"]["namespace"] = json!(in_body);
        let route = format!("/namespaces/{in_path}/admissionwebhook");
        for method in ["POST", "PUT"] {
            assert_eq!(
                driver.send_definition(method, &route, body.to_string()).await.1,
                SUCCESS_REPLY
            );
        }
        let definition_path = format!("/namespaces/{expected}/admissionwebhook/w");
        assert_eq!(
            driver.reply_data("GET", &definition_path).await["metadata"]["namespace"],
            expected
        );
    }
    assert_eq!(driver.live_chains().await, ["b/w", "p/w"]);
    let response = driver.reply_data("GET", "/admissionwebhooks").await;
    let namespaces: Vec<_> = response
        .as_array()
        .unwrap()
        .iter()
        .map(|object| &object["metadata"]["namespace"])
        .collect();
    assert_eq!(namespaces, ["b", "p"], "all of them, by namespace and name");
}

#[tokio::test]
async fn a_request_keeps_the_uid_that_its_client_sent() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let mut request = request("GET", "/mesosdriver/v4/admissionwebhooks", Body::empty());
    request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    let response = driver.send(request).await;
    assert_eq!(response.headers()["x-request-id"], "mine");
    let (_, body) = status_and_text(response).await;
    assert_eq!(body, SUCCESS_REPLY.replace("null", "[]"));
}

/// The commands in BCS's documentation create a CA with an RSA key of 1024 bits (`openssl genrsa 1024`).
#[tokio::test]
async fn a_webhook_ca_with_a_short_rsa_key_causes_a_warning() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    let mut definition = documented_definition();
    let pem = include_bytes!("../../../../webhook/tests/webhook/short_key/ca.pem");
    definition["admissionWebhooks"][1]["clientConfig"]["caBundle"] = json!(BASE64_STANDARD.encode(pem));
    let response = driver
        .send(request("POST", &format!("{PREFIX}{ROUTE}"), definition.to_string()))
        .await;
    let warnings: Vec<String> = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    assert_eq!(status_and_text(response).await, (200, SUCCESS_REPLY.to_owned()));
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    for part in ["container-images", "RSA key of 1024 bits", "admittance certs"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}
