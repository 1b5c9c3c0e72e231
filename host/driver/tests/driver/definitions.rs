//! Tests the BCS API for definitions, with clients, a real host, and a directory of files.

mod callers;
mod early_refusals;
mod files;
mod lifecycle;
mod refusals;
mod stores;

use std::sync::LazyLock;

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::harness::{RunningDriver, request, status_and_text};

const PREFIX: &str = "/mesosdriver/v4";

const ROUTE: &str = "/namespaces/defaultGroup/admissionwebhook";

const SUCCESS_REPLY: &str = r#"{"result":true,"code":0,"message":"success","data":null}"#;

static BUNDLE: LazyLock<String> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    BASE64_STANDARD.encode(certificate.pem())
});

impl RunningDriver {
    async fn send_definition(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, String) {
        self.send_definition_request(request(method, &format!("{PREFIX}{path}"), body))
            .await
    }

    async fn send_definition_request(&self, request: Request<Body>) -> (u16, String) {
        let response = self.send(request).await;
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/json");
        assert!(headers.contains_key("x-request-id"));
        status_and_text(response).await
    }

    async fn reply_data(&self, method: &str, path: &str) -> Value {
        let (status, body) = self.send_definition(method, path, Body::empty()).await;
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["code"]), (200, &json!(0)), "{body}");
        answer["data"].take()
    }

    /// Returns the names of the live chains, without the chain `c` that every test has.
    async fn live_chains(&self) -> Vec<String> {
        let (_, status) = self.call_admin("GET", "/v1/status", "").await;
        let chains = status["chains"].as_array().unwrap().iter();
        let names = chains.map(|chain| chain["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "c").collect()
    }
}

fn definition_json(name: &str, url: &str) -> Value {
    json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": name, "namespace": "defaultGroup"},
        "resourcesRef": {"operation": "Create", "kind": "Application"},
        "admissionWebhooks": [{"name": "hook", "failurePolicy": "Fail", "clientConfig": {"url": url}}],
    })
}

fn parse_refusal(body: &str) -> (u64, String) {
    let answer: Value = serde_json::from_str(body).unwrap();
    assert_eq!(answer["result"], false, "{body}");
    let message = answer["message"].as_str().unwrap().to_owned();
    (answer["code"].as_u64().unwrap(), message)
}
