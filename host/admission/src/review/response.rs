//! Reads and writes the `response` of an AdmissionReview.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    Decision, Denial, Failure, FailureKind, FailurePolicy, Mode, NAME_PART_LENGTH, Outcome, Patch, RequestRefusal,
    Response, ReviewVersion, StageResult, TraceRow, Uid, Verdict, bounded_warnings, is_name_part, shortened,
};

/// The maximum length of an invalid annotation key in the log, in bytes. A longer key is cut.
const MAX_LOGGED_KEY_SIZE: usize = 128;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseEnvelope<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: ReviewResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RefusalStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The Kubernetes `Status` of a refused request.
#[derive(Debug, Serialize)]
pub struct RefusalStatus<'a> {
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Map<String, Value>>,
    /// The HTTP status code with which the request is refused.
    pub code: u16,
}

impl<'a> RefusalStatus<'a> {
    /// Creates a status with this HTTP status code, reason and message, without details.
    pub fn new(code: u16, reason: &'a str, message: String) -> Self {
        Self {
            status: "Failure",
            message,
            reason,
            details: None,
            code,
        }
    }

    /// Creates the status of a refusal, with the details of its denial.
    pub fn from_refusal(refusal: &'a RequestRefusal) -> Self {
        let mut status = Self::new(refusal.code(), refusal.reason(), refusal.to_string());
        if let Some(denial) = refusal.denial() {
            status.details = Some(&denial.details).filter(|details| !details.is_empty());
        }
        status
    }
}

/// Writes the response to the review that has this version and UID. If there is no outcome, the response allows the
/// request unchanged.
///
/// The response has a patch only if the request is allowed and its object changed, because kube-apiserver takes any
/// patch for a change, and then calls other webhooks again. Warnings are kept within kube-apiserver's limits. The audit
/// annotations of stages are named `{stage}.{key}`. A failure that the stage's failure policy ignores is recorded as
/// `failed-open.{stage}`. Annotations whose names kube-apiserver would refuse are left out.
pub fn write_response(version: ReviewVersion, uid: &Uid, outcome: Option<&Outcome>) -> Bytes {
    let mut response = ReviewResponse {
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
                response.status = Some(RefusalStatus::from_refusal(refusal));
            }
        }
        response.audit_annotations = response_annotations(outcome);
        response.warnings = bounded_warnings(&outcome.warnings);
    }
    let envelope = ResponseEnvelope {
        kind: "AdmissionReview",
        api_version: version.api_version(),
        response,
    };
    // Serializing strings, numbers and maps of strings cannot fail.
    serde_json::to_vec(&envelope).map(Bytes::from).unwrap_or_default()
}

fn response_annotations(outcome: &Outcome) -> BTreeMap<String, &str> {
    let mut annotations = BTreeMap::new();
    for note in &outcome.audit_annotations {
        let key_with_stage = format!("{}.{}", note.stage, note.key);
        // The key of an audit annotation begins with the name of the stage. If this makes the key invalid, for example
        // because it is too long, the key is sent without the name.
        let key = [key_with_stage, note.key.clone()]
            .into_iter()
            .find(|key| is_name_part(key));
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
        if let Some(kind) = ignored_failure_kind(row) {
            // A native stage may have any characters in its name, so those that are not allowed in keys are replaced.
            let legal = |c: char| {
                if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }
            };
            let truncated: String = "failed-open."
                .chars()
                .chain(row.stage.chars().map(legal))
                .take(NAME_PART_LENGTH)
                .collect();
            let key = truncated.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            annotations.entry(key.to_owned()).or_insert(kind);
        }
    }
    annotations
}

fn ignored_failure_kind(row: &TraceRow) -> Option<&'static str> {
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

/// Reads the response of a webhook to a review. The response must have the version and the UID of the review. A
/// validating webhook may not change the object.
///
/// The response is checked as in kube-apiserver, in the same order. A response without `allowed` is a denial, unknown
/// members are ignored, and a member with the value `null` counts as absent.
///
/// # Errors
///
/// Fails when the response has no valid verdict.
pub fn read_response(reply: &[u8], version: ReviewVersion, validating: bool, uid: &Uid) -> Result<Response, Failure> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let reply = reply.strip_prefix(BYTE_ORDER_MARK).unwrap_or(reply);
    if reply.trim_ascii().is_empty() {
        return Err(invalid_response("the body is empty"));
    }
    let review: Value =
        serde_json::from_slice(reply).map_err(|error| invalid_response(format!("not JSON: {error}")))?;
    let review = ReplyFields {
        map: review
            .as_object()
            .ok_or_else(|| invalid_response("the body is not a JSON object"))?,
        path: "",
    };
    let response = review
        .object("response")?
        .ok_or_else(|| invalid_response("`response` is absent"))?;
    let response = ReplyFields {
        map: response,
        path: "response.",
    };
    check_type(&review, version)?;
    let mut patch = decode_patch(&response)?;
    let patch_type = response.text("patchType")?;
    if version == ReviewVersion::V1 {
        let response_uid = response.text("uid")?.unwrap_or_default();
        if response_uid != uid.as_str() {
            return Err(invalid_response(format!(
                "`response.uid` must be {:?}, found {response_uid:?}",
                uid.as_str()
            )));
        }
        if validating && patch.is_some() {
            return Err(invalid_response(
                "there is `response.patch`, which a validating webhook may not return",
            ));
        }
        if validating && patch_type.is_some() {
            return Err(invalid_response(
                "there is `response.patchType`, which a validating webhook may not return",
            ));
        }
        match (&patch, patch_type) {
            (None, Some(_)) => {
                return Err(invalid_response(
                    "there is `response.patchType` but no `response.patch`",
                ));
            }
            (Some(_), None) => {
                return Err(invalid_response(
                    "there is `response.patch` but no `response.patchType`",
                ));
            }
            (Some(_), Some("")) => {
                return Err(invalid_response("`response.patchType` is empty; it must be JSONPatch"));
            }
            _ => {}
        }
    }
    let warnings = response.texts("warnings")?;
    let audit_annotations = read_annotations(&response)?;
    let verdict = if response.bool("allowed")?.unwrap_or(false) {
        match patch.take() {
            None => Verdict::Allow,
            // A validating webhook cannot change the object, so its patch is ignored. Only a v1beta1 response gets
            // here: in a v1 response, such a patch is refused above.
            Some(_) if validating => Verdict::Allow,
            Some(_) if version == ReviewVersion::V1 && patch_type != Some("JSONPatch") => {
                let unsupported_type = patch_type.unwrap_or_default();
                return Err(invalid_response(format!(
                    "`response.patchType` must be \"JSONPatch\", found {unsupported_type:?}"
                )));
            }
            Some(patch) => Verdict::Patch(
                Patch::parse(patch)
                    .map_err(|error| Failure::new(error.kind(), format!("`response.patch` is {error}")))?,
            ),
        }
    } else {
        Verdict::Deny(read_denial(&response)?)
    };
    let mut response = Response::new(verdict);
    response.warnings = warnings;
    response.audit_annotations = audit_annotations;
    Ok(response)
}

fn invalid_response(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::InvalidResponse, message)
}

fn check_type(review: &ReplyFields<'_>, version: ReviewVersion) -> Result<(), Failure> {
    let api_version = review.text("apiVersion")?.unwrap_or_default();
    let kind = review.text("kind")?.unwrap_or_default();
    let expected = version.api_version();
    let is_expected_type = match version {
        ReviewVersion::V1 => api_version == expected && kind == "AdmissionReview",
        // In a v1beta1 response, `apiVersion` and `kind` may be missing, as in kube-apiserver. If they are present,
        // they must be those of a v1beta1 AdmissionReview.
        ReviewVersion::V1Beta1 => ["", expected].contains(&api_version) && ["", "AdmissionReview"].contains(&kind),
    };
    if is_expected_type {
        Ok(())
    } else {
        Err(invalid_response(format!(
            "expected apiVersion {expected:?}, kind \"AdmissionReview\", found {api_version:?}, {kind:?}"
        )))
    }
}

fn decode_patch(response: &ReplyFields<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(text) = response.text("patch")?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    // kube-apiserver uses Go's decoder, which ignores line breaks. So they are removed.
    match BASE64_STANDARD.decode(text.replace(['\r', '\n'], "")) {
        Ok(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
        Err(error) => Err(invalid_response(format!("`response.patch` is not base64: {error}"))),
    }
}

/// Reads the denial from `response.status`, with the messages and codes that kube-apiserver would use.
fn read_denial(response: &ReplyFields<'_>) -> Result<Denial, Failure> {
    const NO_EXPLANATION: &str = "the webhook denied the request without explanation";
    let Some(status) = response.object("status")? else {
        return Ok(Denial::new(400, "", NO_EXPLANATION));
    };
    let status = ReplyFields {
        map: status,
        path: "response.status.",
    };
    let reason = status.text("reason")?.unwrap_or_default();
    let message = match (status.text("message")?.unwrap_or_default(), reason) {
        ("", "") => NO_EXPLANATION,
        ("", reason) => reason,
        (message, _) => message,
    };
    // If the code of a denial is missing or below 400, such as 200, kube-apiserver replies with 400. Codes above 599
    // are not valid in HTTP, and `Denial::new` replaces them.
    let code = status.integer("code")?.unwrap_or_default().max(400);
    let mut denial = Denial::new(u16::try_from(code).unwrap_or(u16::MAX), reason, message);
    denial.details = status.object("details")?.cloned().unwrap_or_default();
    Ok(denial)
}

/// Reads `response.auditAnnotations`. Annotations with invalid keys are dropped, as in kube-apiserver.
fn read_annotations(response: &ReplyFields<'_>) -> Result<Vec<(String, String)>, Failure> {
    let Some(annotations) = response.object("auditAnnotations")? else {
        return Ok(Vec::new());
    };
    let fields = ReplyFields {
        map: annotations,
        path: "response.auditAnnotations.",
    };
    let mut kept_annotations = Vec::new();
    let mut dropped_keys = Vec::new();
    for key in annotations.keys() {
        let value = fields.text(key)?.unwrap_or_default();
        if is_name_part(key) {
            kept_annotations.push((key.clone(), value.to_owned()));
        } else {
            dropped_keys.push(key);
        }
    }
    if let Some(key) = dropped_keys.first() {
        let key = &*shortened(key, MAX_LOGGED_KEY_SIZE);
        tracing::warn!(
            dropped = dropped_keys.len(),
            key,
            "audit annotations of a webhook are dropped: their keys are not qualified names"
        );
    }
    Ok(kept_annotations)
}

/// Reads the members of an object in a webhook's response. Their types are checked. A `null` counts as absent.
struct ReplyFields<'a> {
    map: &'a Map<String, Value>,
    /// The path of this object and a dot, such as `response.`. Error messages add the name of a member to it, as in
    /// `response.allowed`. The path is empty at the top level.
    path: &'static str,
}

impl<'a> ReplyFields<'a> {
    fn get<T>(
        &self,
        name: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => convert(value)
                .map(Some)
                .ok_or_else(|| invalid_response(format!("`{}{name}` must be {expected}", self.path))),
        }
    }

    fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, Failure> {
        self.get(name, "an object", Value::as_object)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        self.get(name, "a string", Value::as_str)
    }

    fn bool(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.get(name, "true or false", Value::as_bool)
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.get(name, "an integer", Value::as_i64)
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, Failure> {
        let parse_texts = |value: &'a Value| {
            let items = value.as_array()?.iter();
            let texts = items.map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>()
        };
        let mut texts = self.get(name, "a list of strings", parse_texts)?.unwrap_or_default();
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;
    use crate::{AuditAnnotation, Phase, RefusalCause};

    fn new_outcome(decision: Decision) -> Outcome {
        Outcome::new(Uid::from("u".to_owned()), decision)
    }

    fn written_response(outcome: &Outcome) -> Value {
        let text = write_response(ReviewVersion::V1, &Uid::from("u".to_owned()), Some(outcome));
        let mut review: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        review["response"].take()
    }

    #[test]
    fn a_review_response_has_the_verdict_and_the_patch() {
        let mut changed_outcome = new_outcome(Decision::Allowed);
        changed_outcome.patch = Patch::parse(r#"[{"op":"add","path":"/a","value":1}]"#).unwrap();
        let refused_outcome = |cause| {
            new_outcome(Decision::Refused(RequestRefusal {
                chain: "c".into(),
                stage: "s".into(),
                cause,
            }))
        };
        let mut denial = Denial::new(422, "Invalid", "no");
        denial.details = json!({"causes": [{"field": "spec"}]}).as_object().unwrap().clone();
        let failure = Failure::new(FailureKind::Timeout, "too slow");
        for (outcome, expected) in [
            (new_outcome(Decision::Allowed), json!({"uid": "u", "allowed": true})),
            (
                changed_outcome,
                json!({"uid": "u", "allowed": true, "patchType": "JSONPatch",
                       "patch": BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#)}),
            ),
            (
                refused_outcome(RefusalCause::Denied(denial)),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c denied the request: no",
                    "reason": "Invalid", "details": {"causes": [{"field": "spec"}]}, "code": 422}}),
            ),
            (
                refused_outcome(RefusalCause::Failed(failure)),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c failed (timeout): too slow",
                    "reason": "InternalError", "code": 500}}),
            ),
            (
                refused_outcome(RefusalCause::DryRunUnsupported),
                json!({"uid": "u", "allowed": false, "status": {
                    "status": "Failure", "message": "stage s of chain c does not support dry run",
                    "reason": "BadRequest", "code": 400}}),
            ),
        ] {
            assert_eq!(written_response(&outcome), expected);
        }
    }

    #[test]
    fn audit_annotations_have_keys_that_kube_apiserver_accepts() {
        let mut outcome = new_outcome(Decision::Allowed);
        let long_stage = "a".repeat(60);
        for (stage, key) in [
            ("s", "k"),
            ("s", "a/b"),
            ("s", "bad*key"),
            (long_stage.as_str(), "key"),
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
        outcome.trace.push(TraceRow::new("c", Phase::Mutating, stage, result));
        let expected = json!({"s.k": "v", "key": "v", format!("failed-open.{}", "b".repeat(51)): "trap"});
        assert_eq!(written_response(&outcome)["auditAnnotations"], expected);
    }
}
