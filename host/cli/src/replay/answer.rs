//! Compares two answers to one request.

use std::fmt::Display;

use admittance::admission::{Outcome, Patch, Request, ReviewVersion, write_response};
use admittance_admin::api::Difference;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The chains' answer to a request. Patches are compared by the objects that result from them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayAnswer {
    pub(crate) allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<Value>,
    /// The object after the patch was applied; `None` if the patch changes nothing.
    #[serde(skip)]
    pub(super) object: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedResponse {
    allowed: bool,
    #[serde(default)]
    status: Option<ResponseStatus>,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    code: Option<u16>,
}

/// The text that stands for a redacted value in a recording.
const REDACTED: &str = "[redacted]";

impl ReplayAnswer {
    pub(super) fn from_outcome(request: &Request, outcome: &Outcome) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ReplayedReview {
            response: RecordedResponse,
        }
        let text = write_response(ReviewVersion::V1, &request.uid, Some(outcome));
        let review: ReplayedReview = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        Self::from_response(request, &review.response)
    }

    pub(super) fn from_response(request: &Request, response: &RecordedResponse) -> Result<Self, String> {
        let (patch, object) = match &response.patch {
            None => (None, None),
            Some(patch) => patch_and_object(request, patch)?,
        };
        let status = response.status.as_ref().filter(|_| !response.allowed);
        Ok(Self {
            allowed: response.allowed,
            code: status.and_then(|status| status.code),
            message: status.and_then(|status| status.message.clone()),
            warnings: response.warnings.clone(),
            patch,
            object,
        })
    }

    /// Compares two answers to the same request. If `is_redacted`, some values in `self` may be replaced with
    /// `[redacted]`. Such a value counts as equal to every value in `other`.
    pub(super) fn differences(&self, other: &Self, is_redacted: bool) -> Vec<Difference> {
        let objects = match (&self.object, &other.object) {
            (Some(this), Some(other)) => is_same(this, other, is_redacted),
            (this, other) => this == other,
        };
        let parts = [
            (
                Difference::Verdict,
                (self.allowed, self.code) == (other.allowed, other.code),
            ),
            (Difference::Message, self.message == other.message),
            (Difference::Patch, objects),
            (Difference::Warnings, self.warnings == other.warnings),
        ];
        let different = parts.into_iter().filter(|(_, is_same)| !is_same);
        different.map(|(part, _)| part).collect()
    }

    pub(super) fn verdict(&self) -> String {
        match (self.allowed, self.code) {
            (true, _) => "allowed".to_owned(),
            (false, Some(code)) => format!("refused ({code})"),
            (false, None) => "refused".to_owned(),
        }
    }
}

/// Returns the patch and the object that results from it, unless the patch changes nothing.
fn patch_and_object(request: &Request, patch: &str) -> Result<(Option<Value>, Option<Value>), String> {
    let invalid = |error: &dyn Display| format!("its patch is not a valid JSON Patch: {error}");
    let text = BASE64_STANDARD
        .decode(patch)
        .map_err(|error| format!("its patch is not base64: {error}"))?;
    let patch = Patch::parse(&text).map_err(|error| invalid(&error))?;
    let Some(before) = &request.object else {
        return Ok((None, None));
    };
    let after = patch.apply(before).map_err(|error| invalid(&error))?;
    if after.value() == before.value() {
        return Ok((None, None));
    }
    let patch = serde_json::from_slice(&text).map_err(|error| invalid(&error))?;
    Ok((Some(patch), Some(after.value().clone())))
}

fn is_same(recorded: &Value, now: &Value, is_redacted: bool) -> bool {
    match (recorded, now) {
        (Value::String(text), _) if is_redacted && text == REDACTED => true,
        (Value::Object(recorded), Value::Object(now)) => {
            recorded.len() == now.len()
                && recorded
                    .iter()
                    .all(|(key, value)| now.get(key).is_some_and(|now| is_same(value, now, is_redacted)))
        }
        (Value::Array(recorded), Value::Array(now)) => {
            recorded.len() == now.len()
                && recorded
                    .iter()
                    .zip(now)
                    .all(|(recorded, now)| is_same(recorded, now, is_redacted))
        }
        (recorded, now) => recorded == now,
    }
}

#[cfg(test)]
mod tests {
    use admittance::admission::{GroupVersionKind, Object, Operation};
    use serde_json::json;

    use super::*;

    fn request() -> Request {
        let kind = GroupVersionKind::from_api_version("v1", "Pod");
        let object = Object::parse(r#"{"kind":"Pod","spec":{"a":1}}"#).unwrap();
        Request::new(Operation::Create, kind.clone(), kind.guess_resource()).with_object(object)
    }

    fn answer_from(mut response: Value) -> ReplayAnswer {
        if let Some(patch) = response.get_mut("patch") {
            *patch = BASE64_STANDARD.encode(patch.to_string()).into();
        }
        ReplayAnswer::from_response(&request(), &serde_json::from_value(response).unwrap()).unwrap()
    }

    #[test]
    fn patches_are_compared_by_the_resulting_object() {
        let add = |value: &str| json!([{"op": "add", "path": "/spec/b", "value": value}]);
        let denied = |code: u16, message: &str| json!({"allowed": false, "status": {"code": code, "message": message}});
        for (before, after, expected) in [
            (json!({"allowed": true}), json!({"allowed": true}), vec![]),
            (
                json!({"allowed": true}),
                denied(403, "no"),
                vec![Difference::Verdict, Difference::Message],
            ),
            (denied(403, "no"), denied(422, "no"), vec![Difference::Verdict]),
            (denied(403, "no"), denied(403, "never"), vec![Difference::Message]),
            (
                json!({"allowed": true, "patch": add("x")}),
                json!({"allowed": true, "patch": add("x")}),
                vec![],
            ),
            (
                json!({"allowed": true, "patch": add("x")}),
                json!({"allowed": true, "patch": [{"op": "replace", "path": "/spec", "value": {"b": "x", "a": 1}}]}),
                vec![],
            ),
            (
                json!({"allowed": true, "patch": add("x")}),
                json!({"allowed": true, "patch": add("y")}),
                vec![Difference::Patch],
            ),
            (
                json!({"allowed": true, "patch": add("x")}),
                json!({"allowed": true}),
                vec![Difference::Patch],
            ),
            (
                json!({"allowed": true, "patch": [{"op": "replace", "path": "/spec/a", "value": 1}]}),
                json!({"allowed": true}),
                vec![],
            ),
            (
                json!({"allowed": true, "warnings": ["old"]}),
                json!({"allowed": true}),
                vec![Difference::Warnings],
            ),
            (
                json!({"allowed": true, "status": {"message": "fine"}}),
                json!({"allowed": true}),
                vec![],
            ),
        ] {
            let differences = answer_from(before.clone()).differences(&answer_from(after.clone()), false);
            assert_eq!(differences, expected, "{before} and {after}");
        }
    }

    #[test]
    fn redacted_values_match_anything() {
        let patch =
            |value: Value| json!({"allowed": true, "patch": [{"op": "add", "path": "/spec/b", "value": value}]});
        for (recorded, now, is_redacted, is_same) in [
            (json!(REDACTED), json!("secret"), true, true),
            (json!(REDACTED), json!({"a": 1}), true, true),
            (json!(REDACTED), json!("secret"), false, false),
            (json!([REDACTED, 1]), json!(["secret", 1]), true, true),
            (json!([REDACTED, 1]), json!(["secret", 2]), true, false),
            (json!("secret"), json!(REDACTED), true, false),
        ] {
            let differences = answer_from(patch(recorded.clone())).differences(&answer_from(patch(now)), is_redacted);
            assert_eq!(differences.is_empty(), is_same, "{recorded}");
        }
    }

    #[test]
    fn invalid_patches_are_errors() {
        for (patch, expected) in [
            ("!", "base64"),
            (&BASE64_STANDARD.encode("{}"), "JSON Patch"),
            (
                &BASE64_STANDARD.encode(r#"[{"op":"remove","path":"/none"}]"#),
                "JSON Patch",
            ),
        ] {
            let response = serde_json::from_value(json!({"allowed": true, "patch": patch})).unwrap();
            let error = ReplayAnswer::from_response(&request(), &response).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
