//! Writes an outcome as an AdmissionReview, and the reply to a caller that sent none.

use std::collections::BTreeMap;

use admittance_admission::{
    Decision, FailurePolicy, Mode, NAME_PART_LENGTH, Outcome, Refusal, ReviewVersion, StageResult, TraceRow,
    Uid, bounded_warnings, is_name_part,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::json_reply;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Map<String, Value>>,
    code: u16,
}

/// The AdmissionReview that answers one of this version and uid. Without an outcome the request is allowed
/// as it is.
///
/// A patch is present only if the object changed, and never with a refusal: kube-apiserver takes any
/// patch for a change and calls other webhooks again. Warnings are kept within its limits. The audit
/// annotations of stages are named `{stage}.{key}`, and a failure ignored by its policy is noted as
/// `failed-open.{stage}`; names that kube-apiserver would drop are not sent.
pub fn write_review(version: ReviewVersion, uid: &Uid, outcome: Option<&Outcome>) -> Bytes {
    let mut response = Response {
        uid: uid.as_str(),
        allowed: true,
        status: None,
        patch: None,
        patch_type: None,
        audit_annotations: BTreeMap::new(),
        warnings: Vec::new(),
    };
    if let Some(outcome) = outcome {
        match &outcome.decision {
            Decision::Allowed => {
                if outcome.is_changed() {
                    response.patch = Some(BASE64_STANDARD.encode(outcome.patch.to_string()));
                    response.patch_type = Some("JSONPatch");
                }
            }
            Decision::Refused(refusal) => {
                response.allowed = false;
                response.status = Some(status(refusal));
            }
        }
        response.audit_annotations = audit_annotations(outcome);
        response.warnings = bounded_warnings(&outcome.warnings);
    }
    let envelope = Envelope {
        kind: "AdmissionReview",
        api_version: version.api_version(),
        response,
    };
    // Serializing strings, numbers and maps of strings does not fail.
    serde_json::to_vec(&envelope).map(Bytes::from).unwrap_or_default()
}

/// The reply to a caller that sent no review, or an invalid one: Kubernetes' `Status`, whose message kube-apiserver
/// passes on.
pub fn status_reply(status: StatusCode, message: &str) -> http::Response<Bytes> {
    let reason = match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    };
    status_with_reason(status, reason, message)
}

/// As [`status_reply`], with another reason than that of the HTTP status.
pub fn status_with_reason(status: StatusCode, reason: &str, message: &str) -> http::Response<Bytes> {
    reply(Status {
        status: "Failure",
        message: message.to_owned(),
        reason,
        details: None,
        code: status.as_u16(),
    })
}

/// The reply to a refused request of the Kubernetes API: its `Status`.
pub(crate) fn refusal_reply(refusal: &Refusal) -> http::Response<Bytes> {
    reply(status(refusal))
}

fn reply(status: Status<'_>) -> http::Response<Bytes> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Object<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: Map<String, Value>,
        #[serde(flatten)]
        status: Status<'a>,
    }
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::FORBIDDEN);
    let object = Object {
        kind: "Status",
        api_version: "v1",
        metadata: Map::new(),
        status,
    };
    // Serializing strings, numbers and maps of strings does not fail.
    json_reply(code, serde_json::to_vec(&object).unwrap_or_default())
}

fn status(refusal: &Refusal) -> Status<'_> {
    let details = match refusal {
        Refusal::Denied { denial, .. } => Some(&denial.details).filter(|details| !details.is_empty()),
        _ => None,
    };
    Status {
        status: "Failure",
        message: refusal.to_string(),
        reason: refusal.reason(),
        details,
        code: refusal.code(),
    }
}

fn audit_annotations(outcome: &Outcome) -> BTreeMap<String, &str> {
    let mut annotations = BTreeMap::new();
    for note in &outcome.audit_annotations {
        let long = format!("{}.{}", note.stage, note.key);
        // A stage's name may be as long as a whole key.
        let key = [long, note.key.clone()].into_iter().find(|key| is_name_part(key));
        match key {
            Some(key) => {
                annotations.entry(key).or_insert(note.value.as_str());
            }
            None => tracing::debug!(
                stage = %note.stage,
                key = note.key,
                "an audit annotation is not sent: its key is not a valid qualified name"
            ),
        }
    }
    for row in &outcome.trace {
        if let Some(kind) = failed_open(row) {
            // Native stages may have any name.
            let legal = |c: char| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '-'
                }
            };
            let key: String = "failed-open."
                .chars()
                .chain(row.stage.chars().map(legal))
                .take(NAME_PART_LENGTH)
                .collect();
            let key = key.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            annotations.entry(key.to_owned()).or_insert(kind);
        }
    }
    annotations
}

fn failed_open(row: &TraceRow) -> Option<&'static str> {
    match (&row.result, row.mode) {
        (
            StageResult::Failed {
                failure,
                policy: FailurePolicy::Ignore,
            },
            Mode::Enforce,
        ) => Some(failure.kind.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use admittance_admission::{AuditAnnotation, Denial, Failure, FailureKind, Patch, Phase};
    use serde_json::json;

    use super::*;

    fn outcome(decision: Decision) -> Outcome {
        Outcome::new(Uid::from("u".to_owned()), decision)
    }

    fn response(outcome: &Outcome) -> Value {
        let text = write_review(ReviewVersion::V1, &Uid::from("u".to_owned()), Some(outcome));
        let mut review: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        review["response"].take()
    }

    #[test]
    fn verdicts() {
        let mut changed = outcome(Decision::Allowed);
        changed.patch = Patch::parse(r#"[{"op":"add","path":"/a","value":1}]"#).unwrap();
        let refused = |refusal| outcome(Decision::Refused(refusal));
        let (chain, stage) = ("c".into(), "s".into());
        let mut denial = Denial::new(422, "Invalid", "no");
        denial.details = json!({"causes": [{"field": "spec"}]})
            .as_object()
            .unwrap()
            .clone();
        let failure = Failure::new(FailureKind::Timeout, "too slow");
        for (outcome, expected) in [
            (outcome(Decision::Allowed), json!({"uid": "u", "allowed": true})),
            (
                changed,
                json!({"uid": "u", "allowed": true, "patchType": "JSONPatch",
                       "patch": BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#)}),
            ),
            (
                refused(Refusal::Denied {
                    chain: std::sync::Arc::clone(&chain),
                    stage: std::sync::Arc::clone(&stage),
                    denial,
                }),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c denied the request: no",
                    "reason": "Invalid", "details": {"causes": [{"field": "spec"}]}, "code": 422}}),
            ),
            (
                refused(Refusal::Failed {
                    chain: std::sync::Arc::clone(&chain),
                    stage: std::sync::Arc::clone(&stage),
                    failure,
                }),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c failed (timeout): too slow",
                    "reason": "InternalError", "code": 500}}),
            ),
            (
                refused(Refusal::DryRunUnsupported { chain, stage }),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c does not support dry run",
                    "reason": "BadRequest", "code": 400}}),
            ),
        ] {
            assert_eq!(response(&outcome), expected);
        }
    }

    #[test]
    fn annotations_have_keys_that_are_kept() {
        let mut outcome = outcome(Decision::Allowed);
        let long = "a".repeat(60);
        for (stage, key) in [
            ("s", "k"),
            ("s", "a/b"),
            ("s", "bad*key"),
            (long.as_str(), "key"),
            ("s", ""),
        ] {
            outcome.audit_annotations.push(AuditAnnotation {
                stage: stage.into(),
                key: key.to_owned(),
                value: "v".to_owned(),
            });
        }
        let result = StageResult::Failed {
            failure: Failure::new(FailureKind::Trap, "x"),
            policy: FailurePolicy::Ignore,
        };
        let stage = format!("{}..", "b".repeat(60));
        outcome
            .trace
            .push(TraceRow::new("c", Phase::Mutating, stage, result));
        let expected = json!({"s.k": "v", "key": "v", format!("failed-open.{}", "b".repeat(51)): "trap"});
        assert_eq!(response(&outcome)["auditAnnotations"], expected);
    }
}
