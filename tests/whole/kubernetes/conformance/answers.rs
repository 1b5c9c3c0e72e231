//! Tests valid and invalid answers of webhooks, and the denials that users see.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::assert_rows;
use crate::kubernetes::{
    hooks::{HookAnswer, Hooks, configuration},
    server::{POD, ReviewedResource, Server},
};

#[derive(Clone, Copy)]
enum ExpectedAnswer {
    Allowed,
    /// The request is allowed, with this audit annotation.
    Noted(&'static str, &'static str),
    /// The request is allowed, and the object has the label that the webhook's patch adds.
    Changed,
    /// The request is denied with this code, this reason, and a message that ends with this text.
    Denied(u64, &'static str, &'static str),
    /// The webhook's answer is invalid. The error message contains this text.
    Invalid(&'static str),
}

use ExpectedAnswer::{Allowed, Changed, Denied, Invalid, Noted};

const NO_EXPLANATION: &str = "the webhook denied the request without explanation";

/// (case of the conformance list, phase of the webhook, version of the AdmissionReview that it gets, its answer,
/// expected result). In an answer, `UID` stands for the uid of the request.
type AnswerRow = (&'static str, &'static str, &'static str, Value, ExpectedAnswer);

fn encoded_patch() -> Value {
    let patch = json!([{"op": "add", "path": "/metadata/labels/added", "value": "test"}]);
    json!(BASE64_STANDARD.encode(patch.to_string()))
}

fn answer_with_response(version: &str, response: &Value) -> Value {
    json!({
        "apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "response": response,
    })
}

/// Returns a webhook's answer that allows the request. The members of `with` are added, or replace the default members.
fn allow_answer(version: &str, with: &Value) -> Value {
    let mut response = json!({"uid": "UID", "allowed": true});
    response
        .as_object_mut()
        .unwrap()
        .extend(with.as_object().unwrap().clone());
    answer_with_response(version, &response)
}

fn answer_rows() -> Vec<AnswerRow> {
    const MUTATING: &str = "Mutating";
    const VALIDATING: &str = "Validating";
    let none = json!({});
    let noted = json!({"auditAnnotations": {"foo": "bar"}});
    let patched = json!({"patch": encoded_patch(), "patchType": "JSONPatch"});
    let deny_answer = |version| {
        let status = json!({"status": "Failure", "message": "unauthorized", "code": 401});
        answer_with_response(version, &json!({"uid": "UID", "allowed": false, "status": status}))
    };
    let typed = |api_version: &str, kind: &str| {
        json!({
            "apiVersion": api_version, "kind": kind, "response": {"uid": "UID", "allowed": true},
        })
    };
    vec![
        ("C5.1", VALIDATING, "v1", allow_answer("v1", &none), Allowed),
        ("C5.2", VALIDATING, "v1beta1", allow_answer("v1beta1", &none), Allowed),
        ("C5.3", MUTATING, "v1", allow_answer("v1", &none), Allowed),
        ("C5.4", MUTATING, "v1beta1", allow_answer("v1beta1", &none), Allowed),
        (
            "C5.5",
            VALIDATING,
            "v1",
            allow_answer("v1", &noted),
            Noted("foo", "bar"),
        ),
        (
            "C5.6",
            MUTATING,
            "v1beta1",
            allow_answer("v1beta1", &noted),
            Noted("foo", "bar"),
        ),
        ("C5.7", MUTATING, "v1", allow_answer("v1", &patched), Changed),
        ("C5.8", MUTATING, "v1beta1", allow_answer("v1beta1", &patched), Changed),
        (
            "C5.9",
            VALIDATING,
            "v1",
            deny_answer("v1"),
            Denied(401, "", "unauthorized"),
        ),
        (
            "C5.10",
            MUTATING,
            "v1beta1",
            deny_answer("v1beta1"),
            Denied(401, "", "unauthorized"),
        ),
        (
            "C5.11",
            MUTATING,
            "v1",
            answer_with_response("v1", &json!(null)),
            Invalid("`response` is absent"),
        ),
        (
            "C5.12",
            VALIDATING,
            "v1beta1",
            answer_with_response("v1beta1", &json!(null)),
            Invalid("`response` is absent"),
        ),
        (
            "C5.13",
            VALIDATING,
            "v1",
            typed("admission.k8s.io2/v1", "AdmissionReview"),
            Invalid("\"admission.k8s.io2/v1\""),
        ),
        (
            "C5.14",
            VALIDATING,
            "v1",
            typed("admission.k8s.io/v2", "AdmissionReview"),
            Invalid("\"admission.k8s.io/v2\""),
        ),
        (
            "C5.15",
            VALIDATING,
            "v1",
            typed("admission.k8s.io/v1", "AdmissionReview2"),
            Invalid("\"AdmissionReview2\""),
        ),
        (
            "C5.16",
            VALIDATING,
            "v1",
            allow_answer("v1", &json!({"uid": "other"})),
            Invalid("found \"other\""),
        ),
        (
            "C5.17",
            MUTATING,
            "v1",
            allow_answer("v1", &json!({"patch": encoded_patch()})),
            Invalid("no `response.patchType`"),
        ),
        (
            "C5.18",
            MUTATING,
            "v1",
            allow_answer("v1", &json!({"patchType": "JSONPatch"})),
            Invalid("no `response.patch`"),
        ),
        (
            "C5.19",
            MUTATING,
            "v1",
            allow_answer("v1", &json!({"patch": encoded_patch(), "patchType": ""})),
            Invalid("`response.patchType` is empty"),
        ),
        (
            "C5.20",
            MUTATING,
            "v1",
            allow_answer("v1", &json!({"patch": encoded_patch(), "patchType": "MergePatch"})),
            Invalid("\"MergePatch\""),
        ),
        (
            "C5.21",
            VALIDATING,
            "v1",
            allow_answer("v1", &patched),
            Invalid("there is `response.patch`"),
        ),
        (
            "C5.22",
            VALIDATING,
            "v1",
            allow_answer("v1", &json!({"patchType": "JSONPatch"})),
            Invalid("there is `response.patchType`"),
        ),
        (
            "C5.23",
            VALIDATING,
            "v1beta1",
            typed("admission.k8s.io2/v2", "AdmissionReview2"),
            Invalid("\"admission.k8s.io2/v2\""),
        ),
        (
            "C5.24",
            VALIDATING,
            "v1beta1",
            allow_answer("v1beta1", &json!({"uid": "other"})),
            Allowed,
        ),
        (
            "C5.25",
            VALIDATING,
            "v1beta1",
            allow_answer("v1beta1", &patched),
            Allowed,
        ),
        (
            "C5.26",
            MUTATING,
            "v1beta1",
            allow_answer("v1beta1", &json!({"patch": encoded_patch(), "patchType": ""})),
            Changed,
        ),
        (
            "C5.27",
            MUTATING,
            "v1beta1",
            allow_answer("v1beta1", &json!({"patch": encoded_patch(), "patchType": "MergePatch"})),
            Changed,
        ),
    ]
}

fn denial_rows() -> Vec<AnswerRow> {
    let deny_answer =
        |status: Value| answer_with_response("v1", &json!({"uid": "UID", "allowed": false, "status": status}));
    let rows = [
        ("C6.1", json!(null), Denied(400, "", NO_EXPLANATION)),
        (
            "C6.2",
            json!({"message": "you shall not pass"}),
            Denied(400, "", "you shall not pass"),
        ),
        (
            "C6.3",
            json!({"reason": "Forbidden"}),
            Denied(400, "Forbidden", "Forbidden"),
        ),
        (
            "C6.4",
            json!({"message": "you shall not pass", "reason": "Forbidden"}),
            Denied(400, "Forbidden", "you shall not pass"),
        ),
        ("C6.5", json!({}), Denied(400, "", NO_EXPLANATION)),
        ("C6.6", json!({"code": 401}), Denied(401, "", NO_EXPLANATION)),
        ("C6.7", json!({"code": 500}), Denied(500, "", NO_EXPLANATION)),
        ("C6.8", json!({"code": 200}), Denied(400, "", NO_EXPLANATION)),
        ("C6.9", json!({"code": 300}), Denied(400, "", NO_EXPLANATION)),
        ("C6.10", json!({"code": 399}), Denied(400, "", NO_EXPLANATION)),
        ("C6.11", json!({"code": 403}), Denied(403, "", NO_EXPLANATION)),
        (
            "C6.12",
            json!({"code": 403, "status": "Success"}),
            Denied(403, "", NO_EXPLANATION),
        ),
        (
            "C6.13",
            json!({"code": 403, "status": "Failure"}),
            Denied(403, "", NO_EXPLANATION),
        ),
    ];
    let row = |(name, status, expected)| (name, "Validating", "v1", deny_answer(status), expected);
    rows.map(row).to_vec()
}

#[tokio::test]
async fn answers_of_webhooks_are_validated() {
    let rows = [answer_rows(), denial_rows()].concat();
    let directory = tempfile::tempdir().unwrap();
    let hook_rows = rows.clone();
    let hooks = Hooks::start(directory.path(), move |call, _| {
        let name = call.path.trim_start_matches('/').to_uppercase();
        let (.., answer, _) = hook_rows.iter().find(|(row, ..)| *row == name).unwrap();
        let uid = call.review["request"]["uid"].as_str().unwrap();
        let answer = answer.to_string().replace("UID", uid);
        async move { HookAnswer::Text(200, answer) }
    })
    .await;
    let mut documents = String::new();
    for (name, phase, version, ..) in &rows {
        let name = name.to_lowercase();
        let with = json!({"admissionReviewVersions": [version]});
        let webhook = hooks.webhook("answers", &format!("/{name}"), &with);
        documents += &configuration(phase, &name, &[webhook]);
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (name, phase, _, _, expected) in &rows {
        let root = if *phase == "Mutating" { "mutate" } else { "validate" };
        let path = format!("/{root}/{}", name.to_lowercase());
        let review = POD.review(name);
        let verdict = server.review(&path, &review).await;
        let message = verdict.message();
        let stage = format!("stage answers.hooks.example of chain {}", name.to_lowercase());
        match *expected {
            Allowed | Noted(..) => assert_eq!(
                (verdict.is_allowed(), verdict.patch()),
                (true, None),
                "{name}: {verdict:?}"
            ),
            Changed => {
                let object = verdict.patched_object(&review["request"]["object"]);
                assert_eq!(
                    object["metadata"]["labels"],
                    json!({"remove": "me", "added": "test"}),
                    "{name}"
                );
            }
            Denied(code, reason, words) => {
                assert_eq!(message, format!("{stage} denied the request: {words}"), "{name}");
                let status = &verdict.response["status"];
                assert_eq!(
                    (status["code"].as_u64(), status["status"].as_str()),
                    (Some(code), Some("Failure"))
                );
                assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{name}");
            }
            Invalid(words) => {
                assert_eq!(verdict.code(), 500, "{name}: {verdict:?}");
                assert!(
                    message.starts_with(&format!("{stage} failed (invalid-response): ")),
                    "{name}: {message}"
                );
                assert!(message.contains(words), "{name}: {message}");
            }
        }
        if let Noted(key, value) = *expected {
            assert_eq!(
                verdict.annotation(&format!("answers.hooks.example.{key}")),
                Some(value),
                "{name}"
            );
        }
    }
    let request_rows = check_requests().await;
    assert_rows(
        "C5",
        rows.iter()
            .map(|(name, ..)| *name)
            .filter(|name| name.starts_with("C5."))
            .chain(request_rows),
    );
    assert_rows(
        "C6",
        rows.iter()
            .map(|(name, ..)| *name)
            .filter(|name| name.starts_with("C6.")),
    );
}

async fn check_requests() -> [&'static str; 4] {
    let directory = tempfile::tempdir().unwrap();
    let directory = &directory;
    let unknown = |versions: Value| async move {
        let document = configuration(
            "Mutating",
            "c5",
            &[json!({
                "name": "a.hooks.example",
                "clientConfig": {"url": "https://hooks.example/"},
                "sideEffects": "None",
                "admissionReviewVersions": versions,
            })],
        );
        let file = crate::scene::write(directory, "unknown.yaml", document);
        let check = admittance_tests::Admittance::run(["check".into(), file.into_os_string()])
            .await
            .unwrap();
        assert_eq!(check.code, Some(1), "{}", check.stdout);
        assert!(check.stdout.contains("admissionReviewVersions"), "{}", check.stdout);
    };
    unknown(json!([])).await;
    unknown(json!(["v2", "invalid"])).await;

    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let mut documents = String::new();
    for version in ["v1", "v1beta1"] {
        let webhook = hooks.webhook(
            "a",
            &format!("/{version}"),
            &json!({"admissionReviewVersions": ["v2", version]}),
        );
        documents += &configuration("Mutating", version, &[webhook]);
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    let scale = ReviewedResource {
        operation: "UPDATE",
        resource: "apps/v1/deployments/scale",
        kind: "Scale",
    };
    let mut review = scale.review("every-field");
    let request = &mut review["request"];
    request["requestKind"] = json!({"group": "extensions", "version": "v1beta1", "kind": "OldScale"});
    request["requestResource"] = json!({"group": "extensions", "version": "v1beta1", "resource": "olddeployments"});
    request["requestSubResource"] = json!("oldscale");
    request["userInfo"] = json!({
        "username": "myusername", "uid": "myuid", "groups": ["mygroup"], "extra": {"key": ["value1", "value2"]},
    });
    request["dryRun"] = json!(true);
    request["options"] = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"});
    for version in ["v1", "v1beta1"] {
        let verdict = server.review(&format!("/mutate/{version}"), &review).await;
        assert!(verdict.is_allowed(), "{verdict:?}");
        let calls = hooks.calls(&format!("/{version}"));
        let call = calls.iter().find(|call| call.path == format!("/{version}")).unwrap();
        let mut expected = review.clone();
        expected["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
        assert_eq!(call.review, expected);
    }
    ["C5.28", "C5.29", "C5.30", "C5.31"]
}
