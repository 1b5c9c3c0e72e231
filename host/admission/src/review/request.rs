//! Reads and writes the `request` of an AdmissionReview.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Review;
use crate::{
    GroupVersionKind, GroupVersionResource, Object, ObjectError, Operation, Request, RequestedKind, ReviewVersion,
    SpellingError, Uid, UnknownOperation, UserInfo,
};

/// The reason why an AdmissionReview cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The text is not JSON, or a field of the AdmissionReview has a wrong type.
    #[error("not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The text is not UTF-8.
    #[error("not an AdmissionReview: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// The text is a JSON object, but not an AdmissionReview, or its version is unknown.
    #[error(
        "not an AdmissionReview of admission.k8s.io/v1 or v1beta1: apiVersion is `{api_version}`, kind is `{kind}`"
    )]
    NotAReview {
        /// The `apiVersion` that was found in the text.
        api_version: String,
        /// The `kind` that was found in the text.
        kind: String,
    },
    /// The review has no `request`.
    #[error("the AdmissionReview has no `request`: it is a response, or is truncated")]
    RequestMissing,
    /// The field `request.operation` does not name an operation.
    #[error("request.operation: {0}")]
    Operation(#[from] UnknownOperation),
    /// The field `object`, `oldObject` or `options` of the request is not a JSON object.
    #[error("request.{field}: {source}")]
    Object {
        /// The field of the request that contains the invalid object.
        field: &'static str,
        /// The reason why the object is invalid.
        source: ObjectError,
    },
    /// The object has a key that identifies it twice, or in a wrong spelling. This text is a sentence about the key.
    #[error("request.object is ambiguous: {0}")]
    Ambiguous(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestEnvelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<ReviewRequest<'a>>,
}

/// The `request` of an AdmissionReview without the objects, which are appended as text.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewRequest<'a> {
    uid: Cow<'a, str>,
    kind: Cow<'a, GroupVersionKind>,
    resource: Cow<'a, GroupVersionResource>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: Cow<'a, str>,
    request_kind: Option<Cow<'a, GroupVersionKind>>,
    request_resource: Option<Cow<'a, GroupVersionResource>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: Cow<'a, str>,
    operation: Cow<'a, str>,
    user_info: Cow<'a, UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(borrow, skip_serializing)]
    object: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing)]
    options: Option<&'a RawValue>,
}

/// Reads an AdmissionReview of `v1` or `v1beta1`. If `uid` is missing, the request gets a random one. The request's
/// objects share the text of the review.
///
/// # Errors
///
/// Fails if the text is not a review of these versions, or its request is invalid.
pub fn read_review(text: impl Into<Bytes>) -> Result<Review, ReviewError> {
    let text = ByteString::try_from(text.into())?;
    let envelope: RequestEnvelope<'_> = serde_json::from_str(&text)?;
    let version = ReviewVersion::of_api_version(&envelope.api_version).filter(|_| envelope.kind == "AdmissionReview");
    let Some(version) = version else {
        return Err(ReviewError::NotAReview {
            api_version: envelope.api_version,
            kind: envelope.kind,
        });
    };
    let review = envelope.request.ok_or(ReviewError::RequestMissing)?;
    let object = |field, raw: Option<&RawValue>| {
        raw.map(|raw| Object::parse_within(&text, raw))
            .transpose()
            .map_err(|source| ReviewError::Object { field, source })
    };
    let operation = review.operation.parse::<Operation>()?;
    let mut request = Request::new(operation, review.kind.into_owned(), review.resource.into_owned());
    if !review.uid.is_empty() {
        request.uid = Uid::from(review.uid.into_owned());
    }
    let non_empty = |name: Cow<'_, str>| (!name.is_empty()).then(|| name.into_owned());
    request.subresource = non_empty(review.sub_resource);
    // kube-apiserver may convert an object to another version before the review. `requested_kind` has the kind and
    // resource that the client used. If nothing was converted, they are equal to those of the request.
    let requested_kind = RequestedKind {
        kind: review
            .request_kind
            .map_or_else(|| request.kind.clone(), Cow::into_owned),
        resource: review
            .request_resource
            .map_or_else(|| request.resource.clone(), Cow::into_owned),
        subresource: non_empty(review.request_sub_resource).or_else(|| request.subresource.clone()),
    };
    let is_other = requested_kind.kind != request.kind
        || requested_kind.resource != request.resource
        || requested_kind.subresource != request.subresource;
    if is_other {
        request.requested_kind = Some(Box::new(requested_kind));
    }
    request.name = review.name.into_owned();
    request.namespace = non_empty(review.namespace);
    request.user = review.user_info.into_owned();
    request.object = object("object", review.object)?;
    if let Some(object) = request.object.as_ref().filter(|object| object.is_ambiguous()) {
        match request.spelling.canonical_text(object.text()) {
            Ok(None) => {}
            // The object has keys in a wrong spelling, so the request is refused. Correcting the keys here would not
            // help: kube-apiserver applies the response's patch to its own copy of the object, where they stay wrong.
            Ok(Some(_)) => {
                return Err(ReviewError::Ambiguous(
                    "a key of its identity is not spelled as documented".into(),
                ));
            }
            Err(SpellingError::Json(error) | SpellingError::Ambiguous(error)) => {
                return Err(ReviewError::Ambiguous(error.to_string()));
            }
        }
    }
    request.old_object = object("oldObject", review.old_object)?;
    request.options = object("options", review.options)?;
    request.dry_run = review.dry_run.unwrap_or_default();
    Ok(Review { version, request })
}

/// Writes an AdmissionReview of this version for a request, as kube-apiserver does.
pub fn write_review(version: ReviewVersion, request: &Request) -> Bytes {
    let version = version.api_version();
    let mut text = format!(r#"{{"kind":"AdmissionReview","apiVersion":"{version}","request":"#).into_bytes();
    write_request(&mut text, request);
    text.push(b'}');
    text.into()
}

/// Appends the `request` of an AdmissionReview. Objects are copied verbatim; a missing object becomes `null`.
pub fn write_request(text: &mut Vec<u8>, request: &Request) {
    let requested_kind = request.requested_kind.as_deref();
    let sub_resource = request.subresource.as_deref();
    let fields = ReviewRequest {
        uid: request.uid.as_str().into(),
        kind: Cow::Borrowed(&request.kind),
        resource: Cow::Borrowed(&request.resource),
        sub_resource: sub_resource.unwrap_or_default().into(),
        request_kind: Some(Cow::Borrowed(
            requested_kind.map_or(&request.kind, |requested| &requested.kind),
        )),
        request_resource: Some(Cow::Borrowed(
            requested_kind.map_or(&request.resource, |requested| &requested.resource),
        )),
        request_sub_resource: requested_kind
            .map_or(sub_resource, |requested| requested.subresource.as_deref())
            .unwrap_or_default()
            .into(),
        name: request.name.as_str().into(),
        namespace: request.namespace.as_deref().unwrap_or_default().into(),
        operation: request.operation.as_str().into(),
        user_info: Cow::Borrowed(&request.user),
        dry_run: Some(request.dry_run),
        ..ReviewRequest::default()
    };
    // Writing strings and maps of strings to memory cannot fail.
    let _ = serde_json::to_writer(&mut *text, &fields);
    text.pop();
    for (key, object) in [
        (r#","object":"#, &request.object),
        (r#","oldObject":"#, &request.old_object),
        (r#","options":"#, &request.options),
    ] {
        text.extend_from_slice(key.as_bytes());
        text.extend_from_slice(object.as_ref().map_or("null", Object::text).as_bytes());
    }
    text.push(b'}');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review_json() -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u1",
                "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
                "subResource": "scale",
                "requestKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "name": "web", "namespace": "prod", "operation": "UPDATE",
                "userInfo": {"username": "alice", "groups": ["dev"], "extra": {"a": ["b"]}},
                "object": {"kind": "Scale"}, "oldObject": null,
                "dryRun": true, "options": {"kind": "UpdateOptions"},
            },
        })
    }

    #[test]
    fn every_field_of_a_review_is_read() {
        let Review { version, request } = read_review(review_json().to_string()).unwrap();
        assert_eq!(version, ReviewVersion::V1);
        assert_eq!(request.uid.as_str(), "u1");
        assert_eq!(request.kind.to_string(), "autoscaling/v1/Scale");
        assert_eq!(request.resource.to_string(), "apps/v1/deployments");
        assert_eq!(request.subresource.as_deref(), Some("scale"));
        assert_eq!(
            (request.name.as_str(), request.namespace.as_deref()),
            ("web", Some("prod"))
        );
        assert_eq!(request.operation, Operation::Update);
        assert_eq!(
            (request.user.username.as_str(), request.user.groups.len()),
            ("alice", 1)
        );
        assert_eq!(request.user.extra, [("a".to_owned(), vec!["b".to_owned()])].into());
        assert_eq!(request.object.unwrap().text(), r#"{"kind":"Scale"}"#);
        assert!(request.old_object.is_none() && request.options.is_some() && request.dry_run);
    }

    #[test]
    fn the_clients_kind_and_resource_are_kept_if_the_object_was_converted() {
        let mut review = review_json();
        let request = read_review(review.to_string()).unwrap().request;
        assert_eq!(request.requested_kind, None);
        review["request"]["requestResource"] =
            json!({"group": "extensions", "version": "v1beta1", "resource": "deployments"});
        let request = read_review(review.to_string()).unwrap().request;
        let requested = request.requested_kind.unwrap();
        assert_eq!(requested.resource.to_string(), "extensions/v1beta1/deployments");
        assert_eq!(requested.kind, request.kind);
        assert_eq!(requested.subresource.as_deref(), Some("scale"));
        let mut review = self::review_json();
        review["request"]["requestSubResource"] = json!("resize");
        let request = read_review(review.to_string()).unwrap().request;
        assert_eq!(request.requested_kind.unwrap().subresource.as_deref(), Some("resize"));
    }

    #[test]
    #[rustfmt::skip]
    fn an_invalid_review_is_refused_with_the_reason() {
        let review_with = |pointer: &str, value: Value| {
            let mut review = review_json();
            *review.pointer_mut(pointer).unwrap() = value;
            review.to_string()
        };
        for (text, message) in [
            ("{".to_owned(), "not an AdmissionReview: EOF"),
            (review_with("/apiVersion", json!("admission.k8s.io/v2")), "apiVersion is `admission.k8s.io/v2`"),
            (review_with("/kind", json!("Pod")), "kind is `Pod`"),
            (review_with("/request", json!(null)), "has no `request`"),
            (review_with("/request/operation", json!("PATCH")), "request.operation: `PATCH` is not an operation"),
            (review_with("/request/object", json!([])), "request.object: not a JSON object"),
            (review_with("/request/namespace", json!(1)), "expected a string"),
            (review_with("/request/object", json!({"kind": "Scale", "Kind": "Pod"})), "request.object is ambiguous: `kind` and `Kind` are two spellings of one key"),
            (review_with("/request/object", json!({"metadata": {"NAME": "x"}})), "request.object is ambiguous"),
        ] {
            let error = read_review(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
