//! Builds the requests to evaluate from the descriptions of users.

use admittance::admission::{GroupVersionKind, Object, Operation, Request, UserInfo, read_review};
use admittance_definitions::document;
use serde_json::Value;

use crate::{api::evaluation::DescribedRequest, error::ApiError};

impl DescribedRequest {
    /// Returns the request that is described. An error message begins with the name of the field.
    pub(crate) fn to_request(&self) -> Result<Request, ApiError> {
        let object = self
            .object
            .as_ref()
            .map(|value| parse_object("object", value))
            .transpose()?;
        if let Some(object) = &object
            && object.head().kind.as_deref() == Some("AdmissionReview")
        {
            return self.request_of_review(object);
        }
        let old_object = self
            .old_object
            .as_ref()
            .map(|value| self::parse_object("oldObject", value))
            .transpose()?;
        for (name, object) in [("object", &object), ("oldObject", &old_object)] {
            let kind = object
                .as_ref()
                .map(|object| object.head().kind.clone().unwrap_or_default());
            if kind.is_some_and(|kind| kind.is_empty()) {
                return Err(mistake(format!(
                    "{name}: it has no `kind`; write its `apiVersion` and `kind`, which rules and plugins need"
                )));
            }
        }
        let operation = self.parse_operation()?;
        let (resource, namespace) = (self.resource.as_deref(), self.namespace.as_deref());
        let mut request = match Request::from_objects(object, old_object, operation, resource, namespace) {
            Some(request) => request,
            None => self.request_of_kind(operation)?,
        };
        if request.object.is_none() && request.old_object.is_none() {
            request.namespace = self.namespace.clone().filter(|namespace| !namespace.is_empty());
            request.name = self.name.clone().unwrap_or_default();
        }
        request.user = UserInfo {
            username: self.user.clone().unwrap_or_default(),
            groups: self.groups.clone(),
            ..UserInfo::default()
        };
        Ok(request)
    }

    fn request_of_review(&self, review: &Object) -> Result<Request, ApiError> {
        let alone = Self {
            object: self.object.clone(),
            ..Self::default()
        };
        if *self != alone {
            return Err(mistake(
                "object: an AdmissionReview is a whole request; leave out everything else, or write its object alone"
                    .to_owned(),
            ));
        }
        let parsed_review = read_review(review.text().to_owned());
        let review = parsed_review.map_err(|error| mistake(format!("object: {error}")))?;
        Ok(review.request)
    }

    fn request_of_kind(&self, operation: Option<Operation>) -> Result<Request, ApiError> {
        let Some(kind) = self.kind.as_deref().filter(|kind| !kind.is_empty()) else {
            return Err(mistake(
                "write an object (`object` or `oldObject`), or at least its `kind`".to_owned(),
            ));
        };
        let kind = match kind.rsplit_once('/') {
            Some((api_version, kind)) if !kind.is_empty() => GroupVersionKind::from_api_version(api_version, kind),
            _ => {
                return Err(mistake(format!(
                    "kind: `{kind}` lacks the version; write `v1/Pod` or `apps/v1/Deployment`"
                )));
            }
        };
        let mut resource = kind.guess_resource();
        let mut subresource = None;
        if let Some(resource_path) = &self.resource {
            let (name, sub) = resource_path
                .split_once('/')
                .map_or((resource_path.as_str(), None), |(name, sub)| (name, Some(sub)));
            resource.resource = name.to_owned();
            subresource = sub.map(str::to_owned);
        }
        let mut request = Request::new(operation.unwrap_or(Operation::Create), kind, resource);
        request.subresource = subresource;
        Ok(request)
    }

    fn parse_operation(&self) -> Result<Option<Operation>, ApiError> {
        let operation = self.operation.as_deref().filter(|text| !text.is_empty());
        let parsed = operation.map(str::parse::<Operation>).transpose();
        parsed.map_err(|error| mistake(format!("operation: {error}")))
    }
}

/// Reads the value of a field: any JSON value, or a string that contains YAML or JSON.
pub(crate) fn parse_value(name: &str, value: &Value) -> Result<Value, ApiError> {
    match value {
        Value::String(text) => document::to_json(name, text)
            .map_err(|mistakes| ApiError::CannotEvaluate(mistakes.iter().map(ToString::to_string).collect())),
        value => Ok(value.clone()),
    }
}

fn parse_object(name: &str, input: &Value) -> Result<Object, ApiError> {
    let value = parse_value(name, input)?;
    Object::parse(value.to_string()).map_err(|error| mistake(format!("{name}: {error}")))
}

fn mistake(text: String) -> ApiError {
    ApiError::CannotEvaluate(vec![text])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(described: Value) -> Result<Request, String> {
        let described: DescribedRequest = serde_json::from_value(described).unwrap();
        described.to_request().map_err(|error| match error {
            ApiError::CannotEvaluate(mistakes) => mistakes.join("\n"),
            error => panic!("{error:?}"),
        })
    }

    #[test]
    fn missing_fields_of_a_request_are_taken_from_its_object() {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: prod}\n";
        let summary = |request: &Request| {
            let Request {
                operation,
                resource,
                subresource,
                name,
                namespace,
                ..
            } = request;
            let subresource = subresource.as_deref().unwrap_or_default();
            let namespace = namespace.as_deref().unwrap_or_default();
            format!("{operation} {resource} {subresource} {namespace}/{name}")
        };
        for (described, expected) in [
            (json!({"object": pod}), "CREATE v1/pods  prod/web"),
            (
                json!({"object": {"apiVersion": "v1", "kind": "Pod"}, "namespace": "a"}),
                "CREATE v1/pods  a/",
            ),
            (json!({"object": pod, "oldObject": pod}), "UPDATE v1/pods  prod/web"),
            (json!({"oldObject": pod}), "DELETE v1/pods  prod/web"),
            (
                json!({"object": pod, "operation": "delete"}),
                "DELETE v1/pods  prod/web",
            ),
            (
                json!({"object": pod, "resource": "pods/status"}),
                "CREATE v1/pods status prod/web",
            ),
            (
                json!({"kind": "apps/v1/Deployment", "namespace": "a", "name": "b", "operation": "UPDATE"}),
                "UPDATE apps/v1/deployments  a/b",
            ),
            (
                json!({"kind": "v1/Pod", "resource": "pods/log"}),
                "CREATE v1/pods log /",
            ),
        ] {
            let request = read(described.clone()).unwrap();
            assert_eq!(summary(&request), expected, "{described}");
        }
        let request = read(json!({"object": pod, "user": "ann", "groups": ["dev"]})).unwrap();
        assert_eq!((request.user.username.as_str(), request.user.groups.len()), ("ann", 1));
        assert!(request.object.unwrap().text().contains("prod"));
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u1", "operation": "CREATE", "userInfo": {"username": "ben"},
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": {"apiVersion": "v1", "kind": "Pod"},
            },
        });
        let request = read(json!({ "object": review })).unwrap();
        assert_eq!((request.uid.as_str(), request.user.username.as_str()), ("u1", "ben"));
    }

    #[test]
    fn messages_about_mistakes_name_the_field_of_the_request() {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        for (described, expected) in [
            (json!({}), "write an object"),
            (json!({"object": "a: b: c"}), "object:1:"),
            (json!({"object": "metadata: {}"}), "object: it has no `kind`"),
            (json!({"object": "- a"}), "object: "),
            (json!({"object": 5}), "object: "),
            (json!({"oldObject": {}}), "oldObject: it has no `kind`"),
            (json!({"kind": "Pod"}), "kind: `Pod` lacks the version"),
            (json!({"kind": "v1/Pod", "operation": "PUT"}), "operation: `PUT`"),
            (json!({"object": review}), "object: "),
            (json!({"object": review, "user": "ann"}), "leave out everything else"),
        ] {
            let error = read(described.clone()).unwrap_err();
            assert!(error.contains(expected), "{described}: {error}");
        }
    }
}
