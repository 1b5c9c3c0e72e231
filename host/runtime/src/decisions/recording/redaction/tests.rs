use admittance_admission::{GroupVersionKind, Operation};
use serde_json::json;

use super::*;

fn redact_in_place(
    request: &Request,
    redactions: &[Redaction],
    request_json: &mut Value,
    response_json: &mut Value,
) -> usize {
    let (review_request, review_response, count) =
        redact_review(request, redactions, request_json.clone(), response_json.clone());
    (*request_json, *response_json) = (review_request.into_inner(), review_response.into_inner());
    count
}

fn redact_answer_in_place(answer: &mut HttpAnswer, redactions: &[Redaction]) -> usize {
    let (redacted, count) = redact_answer(answer.clone(), redactions);
    *answer = redacted.into_inner();
    count
}

fn request(kind: &str) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", kind);
    let resource = kind.guess_resource();
    Request::new(Operation::Create, kind, resource)
}

#[test]
fn values_at_configured_paths_are_redacted_in_objects() {
    let object = json!({"a": {"b": "1", "c/d": "2"}, "list": [{"v": 1}, {"v": 2}, {"w": 3}], "null": null});
    for (redaction, expected, count) in [
        ("/a/b", json!({"a": {"b": REDACTED, "c/d": "2"}}), 1),
        ("/a/c~1d", json!({"a": {"b": "1", "c/d": REDACTED}}), 1),
        ("/a", json!({"a": REDACTED}), 1),
        ("/a/*", json!({"a": {"b": REDACTED, "c/d": REDACTED}}), 2),
        (
            "/list/*/v",
            json!({"list": [{"v": REDACTED}, {"v": REDACTED}, {"w": 3}]}),
            2,
        ),
        ("/list/1/v", json!({"list": [{"v": 1}, {"v": REDACTED}, {"w": 3}]}), 1),
        ("/a/b/c", json!({}), 0),
        ("/null", json!({}), 0),
        ("/none", json!({}), 0),
    ] {
        let parsed: Redaction = redaction.parse().unwrap();
        assert_eq!(parsed.to_string(), redaction);
        let mut review_request = json!({"object": object, "oldObject": object});
        let redacted_count = redact_in_place(&request("Pod"), &[parsed], &mut review_request, &mut json!({}));
        let mut expected_object = object.clone();
        for (key, value) in expected.as_object().unwrap() {
            expected_object[key] = value.clone();
        }
        assert_eq!(
            review_request,
            json!({"object": expected_object, "oldObject": expected_object}),
            "{redaction}"
        );
        assert_eq!(redacted_count, 2 * count, "{redaction}");
    }
    for wrong in ["", "/", "a/b"] {
        assert!(wrong.parse::<Redaction>().is_err(), "{wrong}");
    }
}

#[test]
fn values_at_configured_paths_are_redacted_in_patches() {
    let patch = json!([
        {"op": "add", "path": "/a/b", "value": "secret"},
        {"op": "add", "path": "/a", "value": {"b": "secret", "c": "open"}},
        {"op": "replace", "path": "/a/b/deep", "value": "secret"},
        {"op": "add", "path": "/list/-", "value": {"v": "secret"}},
        {"op": "add", "path": "/c", "value": "open"},
        {"op": "remove", "path": "/a/b"},
    ]);
    let redactions = ["/a/b", "/list/*/v"].map(|text| text.parse().unwrap());
    let mut review_response = json!({"patch": BASE64_STANDARD.encode(patch.to_string())});
    let count = redact_in_place(&request("Pod"), &redactions, &mut json!({}), &mut review_response);
    let text = BASE64_STANDARD
        .decode(review_response["patch"].as_str().unwrap())
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains("secret"), "{text}");
    assert_eq!((text.matches("open").count(), count), (2, 4), "{text}");
}

#[test]
fn the_content_of_secrets_is_never_recorded() {
    let secret = json!({"data": {"a": "x"}, "stringData": {"b": "x"}, "type": "Opaque"});
    let mut review_request = json!({"object": secret, "oldObject": null});
    assert_eq!(
        redact_in_place(&request("Secret"), &[], &mut review_request, &mut json!({})),
        2
    );
    let expected = json!({"data": {"a": REDACTED}, "stringData": {"b": REDACTED}, "type": "Opaque"});
    assert_eq!(review_request["object"], expected);
    let mut review_request = json!({"object": secret});
    assert_eq!(
        redact_in_place(&request("ConfigMap"), &[], &mut review_request, &mut json!({})),
        0
    );
}

#[test]
fn secrets_in_http_responses_to_plugins_are_never_recorded() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "s3cret"}});
    let item = json!({"metadata": {"name": "a"}, "stringData": {"a": "s3cret"}});
    for (body, count) in [
        (secret.clone(), 1),
        (json!({"review": [{"object": secret}]}), 1),
        (
            json!({"apiVersion": "v1", "kind": "SecretList", "items": [item, item]}),
            2,
        ),
        (json!({"apiVersion": "v1", "kind": "List", "items": [secret]}), 1),
    ] {
        let answer = json!({"url": "https://a.example/x?token=s3cret", "body": body});
        let mut answer = serde_json::from_value(answer).unwrap();
        assert_eq!(redact_answer_in_place(&mut answer, &[]), count + 1, "{body}");
        let text = serde_json::to_string(&answer).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
    }
    for body in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "open"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"data": {"a": "open"}}]}),
        json!({"apiVersion": "example.com/v1", "kind": "Secret", "data": {"a": "open"}}),
        json!([{"data": {"a": "open"}}]),
    ] {
        let answer = json!({"url": "https://a.example/x", "body": body});
        let mut answer = serde_json::from_value(answer).unwrap();
        assert_eq!(redact_answer_in_place(&mut answer, &[]), 0, "{body}");
    }
    let mut answer = serde_json::from_value(json!({"url": "https://a.example/x", "body": {"a": "s3cret"}})).unwrap();
    assert_eq!(redact_answer_in_place(&mut answer, &["/a".parse().unwrap()]), 1);
}

#[test]
fn a_patch_that_is_too_long_loses_values_first_and_operations_later() {
    let request = request("Pod");
    let patch = |value: &str, count: usize| {
        let operation = json!({"op": "add", "path": "/spec/a", "value": value});
        let patch = Patch::parse(json!(vec![operation; count]).to_string()).unwrap();
        redact_patch(&request, &[], &patch).unwrap()
    };
    for (value, count, has_values, removed) in [
        ("x", 2, true, 0),
        (&*"x".repeat(1000), 2, false, 0),
        ("x", 100, false, 75),
    ] {
        let mut shortened = patch(value, count);
        assert_eq!(shortened.shorten_patch(750), removed, "{count}");
        let operations = shortened.as_array().unwrap();
        assert_eq!(operations.len(), count - removed);
        assert!(
            operations
                .iter()
                .all(|operation| operation.get("value").is_some() == has_values)
        );
    }
    assert!(redact_patch(&request, &[], &Patch::default()).is_none());
}

#[test]
fn patches_of_secrets_have_no_values() {
    let text = r#"[{"op":"add","path":"/metadata/annotations/a","value":"s3cret"}]"#;
    let patch = redact_patch(&request("Secret"), &[], &Patch::parse(text).unwrap()).unwrap();
    assert_eq!(*patch, json!([{"op": "add", "path": "/metadata/annotations/a"}]));
}
