//! Defines example documents that together contain every field of the schemas.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value as Json, json};

use super::document;

const OCI: &str = "oci://registry.example.com/images:1.0";

pub(super) struct ExampleDocument {
    pub(super) document: Json,
    pub(super) start_pointer: &'static str,
}

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

fn allow() -> Json {
    json!({
        "cluster": ["v1/Node"],
        "http": ["https://policy.example.com", {
            "origin": "https://policy.example.com", "methods": ["GET"], "paths": ["/v1/"],
            "networks": ["10.0.0.0/8"], "credential": "policy",
        }],
        "images": ["ghcr.io/acme"],
        "environment": {"REGION": "eu"},
    })
}

fn rule() -> Json {
    json!({
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"],
        "resources": ["pods", "pods/status"], "kinds": ["Pod"], "scope": "Namespaced",
    })
}

fn label_selector() -> Json {
    let expressions = json!([
        {"key": "team", "operator": "In", "values": ["shop"]},
        {"key": "checked", "operator": "Exists", "values": []},
    ]);
    json!({"matchLabels": {"inject": "yes"}, "matchExpressions": expressions})
}

fn ca_bundle() -> String {
    let certified = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
    BASE64_STANDARD.encode(certified.cert.pem())
}

pub(super) fn examples() -> Vec<ExampleDocument> {
    let file = format!("{}/src/main.rs", env!("CARGO_MANIFEST_DIR"));
    let plugin = json!({
        "source": OCI, "digest": digest(), "settings": {"allowed": ["a"]}, "allow": allow(), "memory": "64MiB",
    });
    let candidate = json!({
        "source": "https://plugins.example.com/images.wasm", "share": "50%", "settings": {}, "allow": allow(),
        "memory": 1 << 26, "refresh": "1m",
        "rollout": {
            "percent": 10, "steps": [25, 50, 100], "by": "user", "pause": "10m",
            "abortOn": {"failures": "1%", "refusals": 3},
        },
    });
    let condition = json!({"name": "not-job", "expression": "object.kind != 'Job'"});
    let full_stage = json!({
        "name": "images", "plugin": plugin, "candidate": candidate, "rules": [rule()],
        "namespaceSelector": {"operator": "NotIn", "values": ["kube-system"]}, "objectSelector": label_selector(),
        "failurePolicy": "Ignore", "timeout": "250ms", "mode": "Enforce",
        "sideEffects": "None", "reinvocationPolicy": "IfNeeded",
    });
    let chain =
        |stage: Json| json!({"phase": "Mutating", "matchPolicy": "Equivalent", "rules": [rule()], "stages": [stage]});
    let stage = |hook: &str, value: Json| {
        let stage = Map::from_iter([("name".to_owned(), json!("a")), (hook.to_owned(), value)]);
        document("AdmissionChain", chain(stage.into()))
    };
    let pinned = json!({
        "name": "a", "plugin": {"source": "https://plugins.example.com/a.wasm", "refresh": "1m"},
        "candidate": {"source": OCI, "digest": digest()}, "namespaceSelector": label_selector(),
        "matchConditions": [condition],
    });
    let mutations = json!({
        "variables": [{"name": "images", "expression": "object.spec.containers.map(c, c.image)"}],
        "auditAnnotations": [{"key": "images", "valueExpression": "string(object.kind)"}],
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}},
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 1}}"},
            },
        ],
    });
    let validations = json!({"validations": [{
        "expression": "object.spec.replicas <= 5", "message": "too many", "messageExpression": "'too many'",
        "reason": "Forbidden",
    }]});
    let url = json!({
        "protocol": "AdmissionReview", "versions": ["v1", "v1beta1"], "url": "https://hooks.example.com/a",
        "caBundle": ca_bundle(),
    });
    let service = json!({
        "protocol": "AdmissionReview", "caBundle": ca_bundle(),
        "service": {"name": "hooks", "namespace": "shop", "port": 8443, "path": "/pods"},
    });
    let rego = json!({
        "text": "package a", "entrypoint": "data.a.deny", "parameters": {"most": 3}, "libs": [file], "version": "v1",
        "allow": allow(),
    });
    let mut member = plugin.clone();
    member["timeout"] = json!("100ms");
    let group = json!({
        "plugins": {"signed": member, "internal": {"source": "oci://registry.example.com/a:1", "refresh": "1m"}},
        "expression": "signed() || internal()", "message": "not signed",
    });
    let mut namespaced = document("NamespacedAdmissionChain", chain(full_stage.clone()));
    namespaced["metadata"]["namespace"] = json!("shop");
    let with_metadata = |mut document: Json| {
        document["metadata"]["labels"] = json!({"team": "shop"});
        document["metadata"]["annotations"] = json!({"why": "a test"});
        document
    };
    let exception = json!({
        "owner": "a@example.com", "reason": "a test", "expires": "2999-01-31", "stages": ["pods/a"],
        "rules": [rule()], "namespaces": ["test"], "names": ["web-*"], "users": ["alice"], "groups": ["admins"],
    });
    let mut conditional = exception.clone();
    conditional["matchConditions"] = json!([condition]);
    [
        (document("AdmissionChain", chain(full_stage)), ""),
        (with_metadata(namespaced), "/metadata"),
        (document("AdmissionChain", chain(pinned)), "/spec/stages/0"),
        (stage("cel", mutations), "/spec/stages/0/cel"),
        (stage("cel", validations), "/spec/stages/0/cel"),
        (stage("webhook", url), "/spec/stages/0/webhook"),
        (stage("webhook", service), "/spec/stages/0/webhook"),
        (
            stage(
                "webhook",
                json!({"protocol": "BcsResource", "url": "https://hooks.example.com/a"}),
            ),
            "/spec/stages/0/webhook",
        ),
        (stage("rego", rego), "/spec/stages/0/rego"),
        (
            stage("rego", json!({"file": file, "entrypoint": "data.a.deny"})),
            "/spec/stages/0/rego",
        ),
        (stage("group", group), "/spec/stages/0/group"),
        (with_metadata(document("AdmissionException", exception)), ""),
        (document("AdmissionException", conditional), "/spec/matchConditions"),
    ]
    .map(|(document, under)| ExampleDocument {
        document,
        start_pointer: under,
    })
    .into()
}
