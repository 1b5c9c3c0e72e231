//! Access reviews of users.

use std::time::Duration;

use admittance_admission::{Access, AccessAttributes, AuthorizerError, UserInfo};
use http::{Method, Request, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    connection::Connection,
    metrics::Verb,
    request_error::{RequestError, permission},
};

/// The timeout of a review.
const REVIEW_LIMIT: Duration = Duration::from_secs(2);

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[derive(Deserialize)]
struct Review {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Status {
    allowed: bool,
    denied: bool,
    reason: String,
    evaluation_error: String,
}

/// Sends a SubjectAccessReview. Answers are not cached: roles may change between two requests.
pub(crate) async fn review(
    connection: &Connection,
    user: &UserInfo,
    attributes: &AccessAttributes,
) -> Result<Access, AuthorizerError> {
    if user.username.is_empty() && user.groups.is_empty() {
        return Err(AuthorizerError(
            "the request has neither a user nor groups, so their permissions cannot be checked".to_owned(),
        ));
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec(user, attributes),
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(PATH)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let client = connection.client();
    let ask = async {
        let request = request.map_err(kube::Error::HttpError)?;
        client.request::<Review>(request).await
    };
    match connection
        .ask(Verb::Review, Instant::now() + REVIEW_LIMIT, ask)
        .await
    {
        Ok(Review { status }) => answer(status),
        Err(failure) => Err(error(connection, &failure)),
    }
}

fn spec(user: &UserInfo, attributes: &AccessAttributes) -> Value {
    let mut spec = Map::new();
    spec.insert("user".to_owned(), user.username.clone().into());
    spec.insert("uid".to_owned(), user.uid.clone().into());
    spec.insert("groups".to_owned(), user.groups.clone().into());
    spec.insert("extra".to_owned(), json!(user.extra));
    let (field, value) = match attributes {
        AccessAttributes::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } => (
            "resourceAttributes",
            json!({"verb": verb, "group": group, "version": version, "resource": resource,
                   "subresource": subresource, "namespace": namespace, "name": name}),
        ),
        AccessAttributes::Path { verb, path } => {
            ("nonResourceAttributes", json!({"verb": verb, "path": path}))
        }
    };
    spec.insert(field.to_owned(), value);
    Value::Object(spec)
}

/// A denial with an evaluation error is treated as an error, as in kube-apiserver.
fn answer(status: Status) -> Result<Access, AuthorizerError> {
    let allowed = status.allowed && !status.denied;
    if !allowed && !status.denied && !status.evaluation_error.is_empty() {
        return Err(AuthorizerError(status.evaluation_error));
    }
    Ok(Access {
        allowed,
        reason: status.reason,
    })
}

fn error(connection: &Connection, failure: &RequestError) -> AuthorizerError {
    let permission = permission("`create`", "subjectaccessreviews", "authorization.k8s.io");
    let reason = failure.advice(&permission);
    let url = connection.url();
    AuthorizerError(format!("{url} did not answer the SubjectAccessReview: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_means() {
        // (status of the review, access or error): kube-apiserver's webhook authorizer, and the conversion
        // of an authorizer's decision into the status of a review.
        for (status, expected) in [
            (json!({"allowed": true, "reason": "RBAC"}), Ok((true, "RBAC"))),
            (json!({"allowed": false}), Ok((false, ""))),
            (
                json!({"allowed": false, "denied": true, "reason": "no"}),
                Ok((false, "no")),
            ),
            (json!({"allowed": true, "denied": true}), Ok((false, ""))),
            (
                json!({"allowed": true, "evaluationError": "a role is gone"}),
                Ok((true, "")),
            ),
            (
                json!({"allowed": false, "evaluationError": "a role is gone"}),
                Err("a role is gone"),
            ),
            (
                json!({"allowed": false, "denied": true, "evaluationError": "a role is gone"}),
                Ok((false, "")),
            ),
        ] {
            let review: Review = serde_json::from_value(json!({"status": status})).unwrap();
            let answer = answer(review.status);
            let answer = answer
                .as_ref()
                .map(|access| (access.allowed, access.reason.as_str()))
                .map_err(|error| error.0.as_str());
            assert_eq!(answer, expected, "{status}");
        }
    }
}
