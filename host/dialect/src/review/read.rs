//! Parses an AdmissionReview into a request.

use admittance_admission::{
    GroupVersionKind, GroupVersionResource, Object, ObjectError, Operation, Request, Requested,
    ReviewVersion, SpellingError, Uid, UnknownOperation, UserInfo,
};
use bytes::Bytes;
use bytestring::ByteString;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Review;

/// Why an AdmissionReview is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or a field of another type.
    #[error("not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Not UTF-8.
    #[error("not an AdmissionReview: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// Another object, or an unknown version.
    #[error(
        "not an AdmissionReview of admission.k8s.io/v1 or v1beta1: apiVersion is `{api_version}`, kind is `{kind}`"
    )]
    NotAReview {
        /// The value in the text.
        api_version: String,
        /// The value in the text.
        kind: String,
    },
    /// Without `request`.
    #[error("the AdmissionReview has no `request`: it is a response, or is truncated")]
    RequestMissing,
    /// `request.operation` is not a valid operation.
    #[error("request.operation: {0}")]
    Operation(#[from] UnknownOperation),
    /// One of its objects is not a JSON object.
    #[error("request.{field}: {source}")]
    Object {
        /// The field of `request`.
        field: &'static str,
        /// The reason.
        source: ObjectError,
    },
    /// The object has one of the keys of its identity twice, or in another spelling.
    #[error("request.object is ambiguous: {0}")]
    Ambiguous(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<ReviewRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: GroupVersionKind,
    #[serde(default)]
    resource: GroupVersionResource,
    #[serde(default)]
    sub_resource: String,
    request_kind: Option<GroupVersionKind>,
    request_resource: Option<GroupVersionResource>,
    #[serde(default)]
    request_sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
    dry_run: Option<bool>,
}

/// Read an AdmissionReview of version `v1` or `v1beta1`. A request without `uid` gets a fresh one. Its objects are parts
/// of the text, and are not copied.
///
/// # Errors
///
/// If the text is not such a review, or its request is invalid.
pub fn read_review(text: impl Into<Bytes>) -> Result<Review, ReviewError> {
    let text = ByteString::try_from(text.into())?;
    let envelope: Envelope<'_> = serde_json::from_str(&text)?;
    let version =
        ReviewVersion::of_api_version(&envelope.api_version).filter(|_| envelope.kind == "AdmissionReview");
    let Some(version) = version else {
        return Err(ReviewError::NotAReview {
            api_version: envelope.api_version,
            kind: envelope.kind,
        });
    };
    let review = envelope.request.ok_or(ReviewError::RequestMissing)?;
    let object = |field, raw: Option<&RawValue>| {
        raw.map(|raw| Object::within(&text, raw))
            .transpose()
            .map_err(|source| ReviewError::Object { field, source })
    };
    let operation = review.operation.parse::<Operation>()?;
    let mut request = Request::new(operation, review.kind, review.resource);
    if !review.uid.is_empty() {
        request.uid = Uid::from(review.uid);
    }
    request.subresource = Some(review.sub_resource).filter(|name| !name.is_empty());
    // Reviews name what the client used even where nothing was converted.
    let requested = Requested {
        kind: review.request_kind.unwrap_or_else(|| request.kind.clone()),
        resource: review
            .request_resource
            .unwrap_or_else(|| request.resource.clone()),
        subresource: Some(review.request_sub_resource)
            .filter(|name| !name.is_empty())
            .or_else(|| request.subresource.clone()),
    };
    let is_other = requested.kind != request.kind
        || requested.resource != request.resource
        || requested.subresource != request.subresource;
    if is_other {
        request.requested = Some(Box::new(requested));
    }
    request.name = review.name;
    request.namespace = Some(review.namespace).filter(|name| !name.is_empty());
    request.user = review.user_info;
    request.object = object("object", review.object)?;
    if let Some(object) = request.object.as_ref().filter(|object| object.is_ambiguous()) {
        match request.spelling.canonical(object.text()) {
            Ok(None) => {}
            // kube-apiserver reads only the exact spelling, and the patch applies to its own object.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review() -> Value {
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
    fn every_field_is_read() {
        let Review { version, request } = read_review(review().to_string()).unwrap();
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
        assert_eq!(
            request.user.extra,
            [("a".to_owned(), vec!["b".to_owned()])].into()
        );
        assert_eq!(request.object.unwrap().text(), r#"{"kind":"Scale"}"#);
        assert!(request.old_object.is_none() && request.options.is_some() && request.dry_run);
    }

    #[test]
    fn what_the_client_used_is_kept_where_it_differs() {
        let mut review = review();
        let request = read_review(review.to_string()).unwrap().request;
        assert_eq!(request.requested, None);
        review["request"]["requestResource"] =
            json!({"group": "extensions", "version": "v1beta1", "resource": "deployments"});
        let request = read_review(review.to_string()).unwrap().request;
        let requested = request.requested.unwrap();
        assert_eq!(requested.resource.to_string(), "extensions/v1beta1/deployments");
        assert_eq!(requested.kind, request.kind);
        assert_eq!(requested.subresource.as_deref(), Some("scale"));
        let mut review = self::review();
        review["request"]["requestSubResource"] = json!("resize");
        let request = read_review(review.to_string()).unwrap().request;
        assert_eq!(request.requested.unwrap().subresource.as_deref(), Some("resize"));
    }

    #[test]
    #[rustfmt::skip]
    fn invalid_reviews() {
        let with = |pointer: &str, value: Value| {
            let mut review = review();
            *review.pointer_mut(pointer).unwrap() = value;
            review.to_string()
        };
        for (text, message) in [
            ("{".to_owned(), "not an AdmissionReview: EOF"),
            (with("/apiVersion", json!("admission.k8s.io/v2")), "apiVersion is `admission.k8s.io/v2`"),
            (with("/kind", json!("Pod")), "kind is `Pod`"),
            (with("/request", json!(null)), "has no `request`"),
            (with("/request/operation", json!("PATCH")), "request.operation: `PATCH` is not an operation"),
            (with("/request/object", json!([])), "request.object: not a JSON object"),
            (with("/request/namespace", json!(1)), "expected a string"),
            (with("/request/object", json!({"kind": "Scale", "Kind": "Pod"})), "request.object is ambiguous: `kind` and `Kind` are two spellings of one key"),
            (with("/request/object", json!({"metadata": {"NAME": "x"}})), "request.object is ambiguous"),
        ] {
            let error = read_review(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
