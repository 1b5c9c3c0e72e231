//! The messages of policies: JSON in the form of Kubernetes's AdmissionReview.

use std::collections::BTreeMap;

use admittance_admission::{Object, Request, write_request};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::invalid_response;
use crate::contract::bindings::admittance::plugin::types;

/// The status of a denial in which the policy gives none. kube-apiserver uses the same one.
const BAD_REQUEST: u16 = 400;

pub(super) fn policy_message(request: &Request, settings: &str) -> Vec<u8> {
    let mut text = br#"{"request":"#.to_vec();
    write_request(&mut text, request);
    text.extend_from_slice(br#","settings":"#);
    text.extend_from_slice(settings.as_bytes());
    text.push(b'}');
    text
}

#[derive(Deserialize)]
struct PolicyAnswer<'a> {
    accepted: bool,
    message: Option<String>,
    code: Option<u16>,
    #[serde(borrow)]
    mutated_object: Option<&'a RawValue>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

pub(super) fn response_from_answer(
    answer: &[u8],
    request: &Request,
    mutates: bool,
) -> wasmtime::Result<types::Response> {
    let answer: PolicyAnswer<'_> =
        serde_json::from_slice(answer).map_err(|error| invalid_response(error.to_string()))?;
    let verdict = match (answer.accepted, answer.mutated_object) {
        (false, _) => types::Verdict::Deny(types::Denial {
            code: answer.code.filter(|code| *code >= BAD_REQUEST).unwrap_or(BAD_REQUEST),
            reason: String::new(),
            message: answer.message.unwrap_or_default(),
        }),
        (true, None) => types::Verdict::Allow,
        (true, Some(object)) => {
            let Some(before) = &request.object else {
                return Err(invalid_response("it changes an object, but the request has none"));
            };
            if mutates {
                types::Verdict::Replace(object.get().to_owned())
            } else if Object::parse(object.get()).is_ok_and(|object| object == *before) {
                types::Verdict::Allow
            } else {
                return Err(invalid_response(
                    "it changes the object, but its metadata does not say `mutating: true`",
                ));
            }
        }
    };
    Ok(types::Response {
        verdict,
        warnings: answer.warnings.unwrap_or_default(),
        audit_annotations: answer.audit_annotations.unwrap_or_default().into_iter().collect(),
    })
}

#[derive(Deserialize)]
struct SettingsAnswer {
    valid: bool,
    message: Option<String>,
}

/// Parses the policy's answer about its settings. The inner error is the mistake that the policy found in them.
pub(super) fn parse_settings_answer(answer: &[u8]) -> Result<Result<(), String>, serde_json::Error> {
    let SettingsAnswer { valid, message } = serde_json::from_slice(answer)?;
    Ok(if valid {
        Ok(())
    } else {
        Err(message.unwrap_or_else(|| "the policy does not say why".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use admittance_admission::{GroupVersionKind, Operation};
    use serde_json::{Value, json};

    use super::*;

    fn pod_request() -> Request {
        let kind = GroupVersionKind::from_api_version("v1", "Pod");
        let resource = kind.guess_resource();
        let object = Object::parse(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n"}}"#);
        let mut request = Request::new(Operation::Update, kind, resource).with_object(object.unwrap());
        request.old_object = request.object.clone();
        request.user.username = "\"eve\"".to_owned();
        request
    }

    #[test]
    fn a_message_contains_the_request_of_an_admission_review() {
        let mut pod = pod_request();
        pod.subresource = Some("status".to_owned());
        let text = policy_message(&pod, r#"{"a":[1]}"#);
        let value: Value = serde_json::from_slice(&text).unwrap();
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let resource = json!({"group": "", "version": "v1", "resource": "pods"});
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(
            value,
            json!({
                "request": {
                    "uid": pod.uid.as_str(),
                    "kind": kind, "resource": resource, "subResource": "status",
                    "requestKind": kind, "requestResource": resource, "requestSubResource": "status",
                    "name": "a", "namespace": "n", "operation": "UPDATE",
                    "userInfo": {"username": "\"eve\""}, "dryRun": false,
                    "object": object, "oldObject": object, "options": null,
                },
                "settings": {"a": [1]},
            })
        );
    }

    #[test]
    fn a_policys_answer_becomes_a_verdict() {
        let same = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"n","name":"a"}}"#;
        let changed = same.replace("\"a\"", "\"b\"");
        let answer_with = |object: &str| format!(r#"{{"accepted":true,"mutated_object":{object}}}"#);
        for (answer, mutates, expected) in [
            (r#"{"accepted":true}"#.to_owned(), false, Ok("allow".to_owned())),
            (answer_with("null"), false, Ok("allow".to_owned())),
            (answer_with(same), false, Ok("allow".to_owned())),
            (answer_with(&changed), true, Ok(format!("replace {changed}"))),
            (answer_with(&changed), false, Err("does not say `mutating: true`")),
            (answer_with("[]"), false, Err("does not say `mutating: true`")),
            (
                r#"{"accepted":false,"message":"no","code":422}"#.to_owned(),
                false,
                Ok("deny 422 no".to_owned()),
            ),
            (
                r#"{"accepted":false,"code":0}"#.to_owned(),
                false,
                Ok("deny 400 ".to_owned()),
            ),
            (r#"{"accepted":false}"#.to_owned(), false, Ok("deny 400 ".to_owned())),
            (r#"{"message":"no"}"#.to_owned(), false, Err("missing field `accepted`")),
            (String::new(), false, Err("EOF while parsing")),
        ] {
            let result =
                response_from_answer(answer.as_bytes(), &pod_request(), mutates).map(|response| {
                    match response.verdict {
                        types::Verdict::Allow => "allow".to_owned(),
                        types::Verdict::Patch(patch) => format!("patch {patch}"),
                        types::Verdict::Replace(object) => format!("replace {object}"),
                        types::Verdict::Deny(denial) => format!("deny {} {}", denial.code, denial.message),
                    }
                });
            match (result, expected) {
                (Ok(verdict), Ok(expected)) => assert_eq!(verdict, expected, "{answer}"),
                (Err(error), Err(message)) => {
                    assert!(error.to_string().contains(message), "{error} of {answer}")
                }
                (result, expected) => panic!("{result:?} instead of {expected:?} of {answer}"),
            }
        }
        let mut deletion = pod_request();
        deletion.object = None;
        let error = response_from_answer(answer_with(&changed).as_bytes(), &deletion, true).unwrap_err();
        assert!(error.to_string().contains("the request has none"), "{error}");
    }

    #[test]
    fn warnings_and_annotations_of_a_policy_are_returned() {
        let answer = r#"{"accepted":true,"audit_annotations":{"b":"2","a":"1"},"warnings":["w"],"new":1}"#;
        let response = response_from_answer(answer.as_bytes(), &pod_request(), false).unwrap();
        assert_eq!(response.warnings, ["w"]);
        let expected = [("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(response.audit_annotations, expected);
    }
}
