//! Asks the API server by access reviews what a user may do.

use std::time::Duration;

use admittance_admission::{AccessAttributes, AccessCheckResult, AuthorizerError, ClusterError, Deadline, UserInfo};
use http::{Method, Request, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    connection::Connection,
    metrics::Verb,
    request_error::{RequestError, permission},
};

const REVIEW_LIMIT: Duration = Duration::from_secs(2);

pub(crate) const NO_USER_MESSAGE: &str =
    "the request has neither a user nor groups, so their permissions cannot be checked";

const REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[derive(Deserialize)]
struct SubjectReview {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
    evaluation_error: String,
}

enum SubjectReviewError {
    Refused(String),
    Request(RequestError),
}

pub(crate) async fn review_access(
    connection: &Connection,
    user: &UserInfo,
    attributes: &AccessAttributes,
) -> Result<AccessCheckResult, AuthorizerError> {
    let answer = send_review(connection, user, attributes, Instant::now() + REVIEW_LIMIT).await;
    answer.map_err(|error| match error {
        SubjectReviewError::Refused(words) => AuthorizerError(words),
        SubjectReviewError::Request(failure) => {
            let (url, reason) = (connection.url(), failure.advice(&needed_permission()));
            AuthorizerError(format!("{url} did not answer the SubjectAccessReview: {reason}"))
        }
    })
}

pub(crate) async fn check_access(
    connection: &Connection,
    user: &UserInfo,
    attributes: &AccessAttributes,
    deadline: Deadline,
) -> Result<AccessCheckResult, ClusterError> {
    let answer = send_review(connection, user, attributes, deadline.within(REVIEW_LIMIT).instant()).await;
    answer.map_err(|error| match error {
        SubjectReviewError::Refused(words) => ClusterError::Refused(words),
        SubjectReviewError::Request(failure) => failure.to_plugin_error(&needed_permission()),
    })
}

/// Sends a SubjectAccessReview. Results are not cached, because roles may change between two requests.
async fn send_review(
    connection: &Connection,
    user: &UserInfo,
    attributes: &AccessAttributes,
    deadline: Instant,
) -> Result<AccessCheckResult, SubjectReviewError> {
    if user.username.is_empty() && user.groups.is_empty() {
        return Err(SubjectReviewError::Refused(NO_USER_MESSAGE.to_owned()));
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": review_spec(user, attributes),
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(REVIEW_PATH)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let client = connection.client();
    let ask = async {
        let request = request.map_err(kube::Error::HttpError)?;
        client.request::<SubjectReview>(request).await
    };
    match connection.ask(Verb::Review, deadline, ask).await {
        Ok(SubjectReview { status }) => access_of_status(status).map_err(SubjectReviewError::Refused),
        Err(failure) => Err(SubjectReviewError::Request(failure)),
    }
}

fn review_spec(user: &UserInfo, attributes: &AccessAttributes) -> Value {
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
            field_selector,
            label_selector,
        } => {
            let texts = [
                ("verb", verb),
                ("group", group),
                ("version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("namespace", namespace),
                ("name", name),
            ];
            let selectors = [("fieldSelector", field_selector), ("labelSelector", label_selector)]
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(field, text)| (field.to_owned(), json!({"rawSelector": text})));
            let attributes: Map<_, _> = texts
                .into_iter()
                .map(|(field, text)| (field.to_owned(), Value::from(text.as_str())))
                .chain(selectors)
                .collect();
            ("resourceAttributes", Value::Object(attributes))
        }
        AccessAttributes::Path { verb, path } => ("nonResourceAttributes", json!({"verb": verb, "path": path})),
    };
    spec.insert(field.to_owned(), value);
    Value::Object(spec)
}

/// Returns the access that a review's status grants. As in kube-apiserver, an evaluation error is returned as an error
/// unless the status allows or denies the action.
fn access_of_status(status: ReviewStatus) -> Result<AccessCheckResult, String> {
    let allowed = status.allowed && !status.denied;
    if !allowed && !status.denied && !status.evaluation_error.is_empty() {
        return Err(status.evaluation_error);
    }
    Ok(AccessCheckResult {
        allowed,
        reason: status.reason,
    })
}

fn needed_permission() -> String {
    permission("`create`", "subjectaccessreviews", "authorization.k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_review_with_an_evaluation_error_is_an_error() {
        // (status of an access review, expected access or error)
        // The rows follow the code of kube-apiserver that reads such a status.
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
            let review: SubjectReview = serde_json::from_value(json!({"status": status})).unwrap();
            let outcome = access_of_status(review.status);
            let answer = outcome
                .as_ref()
                .map(|access| (access.allowed, access.reason.as_str()))
                .map_err(String::as_str);
            assert_eq!(answer, expected, "{status}");
        }
    }
}
