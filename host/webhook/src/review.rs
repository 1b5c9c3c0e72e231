//! The Kubernetes protocol: an AdmissionReview is sent, and an AdmissionReview is returned.
//!
//! The `uid` of a review is the request's own, the same for every webhook that sees the request, so that the
//! logs of both sides can be correlated. kube-apiserver creates a new one for every call; a webhook does not
//! notice, because it only returns it.

use admittance_admission::{
    Deadline, Denial, Failure, FailureKind, GroupVersionKind, GroupVersionResource, Object, Patch, Request,
    Response, ReviewVersion, UserInfo, Verdict, is_name_part, offload,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use crate::call::{Caller, Refused};

/// The number of retries for answers with `Retry-After`; client-go, which kube-apiserver uses, has the same
/// limit.
const RETRIES: u32 = 10;

/// How much of an invalid key is logged, in bytes.
const KEY_SHOWN: usize = 128;

const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, */*");

/// A webhook of the Kubernetes protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Review {
    pub(crate) version: ReviewVersion,
    /// It may not change the object.
    pub(crate) validating: bool,
}

pub(crate) async fn call(
    caller: &Caller,
    form: Review,
    request: &Request,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let body = write_review(form.version, request)?;
    // Rounded up to a second, as in kube-apiserver: a webhook that obeys it never gives up early.
    let seconds = deadline.remaining().as_millis().div_ceil(1000).max(1);
    let uri = caller.endpoint.uri(Some(&format!("timeout={seconds}s")));
    let is_success = |status: StatusCode| (200..=206).contains(&status.as_u16());
    let mut retries = 0;
    let reply = loop {
        let posted = caller
            .post(
                uri.clone(),
                &[(header::ACCEPT, ACCEPT)],
                request.trace.as_ref(),
                body.clone(),
                is_success,
            )
            .await;
        match posted {
            Ok(reply) => break reply,
            Err(Refused {
                retry_after: Some(wait),
                ..
            }) if retries < RETRIES && wait < deadline.remaining() => {
                retries += 1;
                tokio::time::sleep(wait).await;
            }
            Err(refused) => return Err(refused.failure),
        }
    };
    let (uid, endpoint) = (request.uid.clone(), caller.endpoint.to_string());
    offload(reply.len(), deadline, move || {
        read(&reply, form, uid.as_str()).map_err(|unreadable| {
            Failure::new(
                unreadable.kind,
                format!(
                    "{endpoint} did not answer with a valid AdmissionReview: {}",
                    unreadable.message
                ),
            )
        })
    })
    .await?
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: ReviewRequest<'a>,
}

/// Empty fields are omitted, except for the objects, which are `null`, as in kube-apiserver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest<'a> {
    uid: &'a str,
    kind: &'a GroupVersionKind,
    resource: &'a GroupVersionResource,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_resource: Option<&'a str>,
    request_kind: &'a GroupVersionKind,
    request_resource: &'a GroupVersionResource,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_sub_resource: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    operation: &'static str,
    user_info: &'a UserInfo,
    object: Option<&'a RawValue>,
    old_object: Option<&'a RawValue>,
    dry_run: bool,
    options: Option<&'a RawValue>,
}

/// The text of an object, copied into the review verbatim.
fn raw(object: Option<&Object>) -> Result<Option<&RawValue>, serde_json::Error> {
    object
        .map(|object| serde_json::from_str(object.text()))
        .transpose()
}

/// The AdmissionReview of the request in this version, as kube-apiserver writes it.
pub fn write_review(version: ReviewVersion, request: &Request) -> Result<Bytes, Failure> {
    let broken = |error: serde_json::Error| {
        Failure::new(
            FailureKind::Error,
            format!("the AdmissionReview cannot be serialized: {error}"),
        )
    };
    let object = raw(request.object.as_ref()).map_err(broken)?;
    let old_object = raw(request.old_object.as_ref()).map_err(broken)?;
    let options = raw(request.options.as_ref()).map_err(broken)?;
    let sub_resource = request.subresource.as_deref();
    // The kind and resource that the client used, if the control plane converted the object.
    let requested = request.requested.as_deref();
    let review = Envelope {
        kind: "AdmissionReview",
        api_version: version.api_version(),
        request: ReviewRequest {
            uid: request.uid.as_str(),
            kind: &request.kind,
            resource: &request.resource,
            sub_resource,
            request_kind: requested.map_or(&request.kind, |requested| &requested.kind),
            request_resource: requested.map_or(&request.resource, |requested| &requested.resource),
            request_sub_resource: requested
                .map_or(sub_resource, |requested| requested.subresource.as_deref()),
            name: &request.name,
            namespace: request.namespace.as_deref(),
            operation: request.operation.as_str(),
            user_info: &request.user,
            object,
            old_object,
            dry_run: request.dry_run,
            options,
        },
    };
    serde_json::to_vec(&review).map(Bytes::from).map_err(broken)
}

/// Why an answer has no valid verdict.
struct Unreadable {
    kind: FailureKind,
    message: String,
}

impl From<String> for Unreadable {
    fn from(message: String) -> Self {
        Self {
            kind: FailureKind::InvalidResponse,
            message,
        }
    }
}

impl From<&str> for Unreadable {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// The verdict of an answer.
///
/// The checks are those of kube-apiserver, in its order, and just as lenient: a missing `allowed` is a
/// denial, unknown members are ignored, and `null` is the same as absent.
fn read(reply: &[u8], form: Review, uid: &str) -> Result<Response, Unreadable> {
    let version = form.version;
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let reply = reply.strip_prefix(BYTE_ORDER_MARK).unwrap_or(reply);
    if reply.trim_ascii().is_empty() {
        return Err("the body is empty".into());
    }
    let review: Value = serde_json::from_slice(reply).map_err(|error| format!("not JSON: {error}"))?;
    let review = Fields {
        map: review.as_object().ok_or("the body is not a JSON object")?,
        path: "",
    };
    let response = review.object("response")?.ok_or("`response` is absent")?;
    let response = Fields {
        map: response,
        path: "response.",
    };
    check_type(&review, version)?;
    let mut patch = base64(&response)?;
    let patch_type = response.text("patchType")?;
    if version == ReviewVersion::V1 {
        let got = response.text("uid")?.unwrap_or_default();
        if got != uid {
            return Err(format!("`response.uid` must be {uid:?}, found {got:?}").into());
        }
        if form.validating && patch.is_some() {
            return Err("there is `response.patch`, which a validating webhook may not return".into());
        }
        if form.validating && patch_type.is_some() {
            return Err("there is `response.patchType`, which a validating webhook may not return".into());
        }
        match (&patch, patch_type) {
            (None, Some(_)) => return Err("there is `response.patchType` but no `response.patch`".into()),
            (Some(_), None) => return Err("there is `response.patch` but no `response.patchType`".into()),
            (Some(_), Some("")) => return Err("`response.patchType` is empty; it must be JSONPatch".into()),
            _ => {}
        }
    }
    let warnings = response.texts("warnings")?;
    let audit_annotations = annotations(&response)?;
    let verdict = if response.bool("allowed")?.unwrap_or(false) {
        match patch.take() {
            None => Verdict::Allow,
            // v1 was refused above.
            Some(_) if form.validating => Verdict::Allow,
            Some(_) if version == ReviewVersion::V1 && patch_type != Some("JSONPatch") => {
                let got = patch_type.unwrap_or_default();
                return Err(format!("`response.patchType` must be \"JSONPatch\", found {got:?}").into());
            }
            Some(patch) => Verdict::Patch(Patch::parse(patch).map_err(|error| Unreadable {
                kind: error.kind(),
                message: format!("`response.patch` is {error}"),
            })?),
        }
    } else {
        Verdict::Deny(denial(&response)?)
    };
    let mut response = Response::new(verdict);
    response.warnings = warnings;
    response.audit_annotations = audit_annotations;
    Ok(response)
}

fn check_type(review: &Fields<'_>, version: ReviewVersion) -> Result<(), String> {
    let api_version = review.text("apiVersion")?.unwrap_or_default();
    let kind = review.text("kind")?.unwrap_or_default();
    let expected = version.api_version();
    let right = match version {
        ReviewVersion::V1 => api_version == expected && kind == "AdmissionReview",
        // Absent fields are accepted; kube-apiserver does not know other types, or does not convert them.
        ReviewVersion::V1Beta1 => {
            ["", expected].contains(&api_version) && ["", "AdmissionReview"].contains(&kind)
        }
    };
    if right {
        Ok(())
    } else {
        Err(format!(
            "expected apiVersion {expected:?}, kind \"AdmissionReview\", found {api_version:?}, {kind:?}"
        ))
    }
}

/// `response.patch`, decoded from base64. An empty one is treated as absent.
fn base64(response: &Fields<'_>) -> Result<Option<Vec<u8>>, String> {
    let Some(text) = response.text("patch")?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    // Go's decoder, which kube-apiserver uses, ignores line ends.
    let text = text.replace(['\r', '\n'], "");
    match BASE64_STANDARD.decode(text) {
        Ok(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
        Err(error) => Err(format!("`response.patch` is not base64: {error}")),
    }
}

/// The denial in `response.status`, with the wording and the codes of kube-apiserver.
fn denial(response: &Fields<'_>) -> Result<Denial, String> {
    const NO_EXPLANATION: &str = "the webhook denied the request without explanation";
    let Some(status) = response.object("status")? else {
        return Ok(Denial::new(400, "", NO_EXPLANATION));
    };
    let status = Fields {
        map: status,
        path: "response.status.",
    };
    let reason = status.text("reason")?.unwrap_or_default();
    let message = match (status.text("message")?.unwrap_or_default(), reason) {
        ("", "") => NO_EXPLANATION,
        ("", reason) => reason,
        (message, _) => message,
    };
    // A denial with a success code is a bad request in kube-apiserver; a code above 599 is not valid in HTTP.
    let code = status.integer("code")?.unwrap_or_default().max(400);
    let mut denial = Denial::new(u16::try_from(code).unwrap_or(u16::MAX), reason, message);
    denial.details = status.object("details")?.cloned().unwrap_or_default();
    Ok(denial)
}

/// `response.auditAnnotations`, without invalid keys, which kube-apiserver drops too.
fn annotations(response: &Fields<'_>) -> Result<Vec<(String, String)>, String> {
    let Some(annotations) = response.object("auditAnnotations")? else {
        return Ok(Vec::new());
    };
    let fields = Fields {
        map: annotations,
        path: "response.auditAnnotations.",
    };
    let mut kept = Vec::new();
    let mut dropped = Vec::new();
    for key in annotations.keys() {
        let value = fields.text(key)?.unwrap_or_default();
        if is_name_part(key) {
            kept.push((key.clone(), value.to_owned()));
        } else {
            dropped.push(key);
        }
    }
    if let Some(key) = dropped.first() {
        // One line, however many there are.
        let key = key.get(..key.floor_char_boundary(KEY_SHOWN)).unwrap_or_default();
        tracing::warn!(
            dropped = dropped.len(),
            key,
            "audit annotations of a webhook are dropped: their keys are not qualified names"
        );
    }
    Ok(kept)
}

/// Typed access to the members of an object. `null` is treated as absent.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The path of the object, for messages: empty, or ending with a dot.
    path: &'static str,
}

impl<'a> Fields<'a> {
    fn get<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| format!("`{}{name}` must be {expected}", self.path)),
        }
    }

    fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, String> {
        self.get(name, "an object", Value::as_object)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        self.get(name, "a string", Value::as_str)
    }

    fn bool(&self, name: &str) -> Result<Option<bool>, String> {
        self.get(name, "true or false", Value::as_bool)
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        self.get(name, "an integer", Value::as_i64)
    }

    /// A list of strings, without empty ones.
    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let read = |value: &'a Value| {
            let items = value.as_array()?.iter();
            let texts = items.map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>()
        };
        let mut texts = self.get(name, "a list of strings", read)?.unwrap_or_default();
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }
}
