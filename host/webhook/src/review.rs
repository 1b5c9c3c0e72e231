//! The Kubernetes protocol for webhooks. The bodies of requests and responses are AdmissionReviews.
//!
//! All webhooks get the `uid` of the incoming request, so that their logs can be correlated with the host's. In
//! contrast, kube-apiserver creates a new `uid` for every call. This makes no difference to a webhook, which only
//! copies the `uid` to its response.

use admittance_admission::{Deadline, Failure, Request, Response, ReviewVersion, offload, read_response, write_review};
use http::{HeaderValue, StatusCode, header};

use crate::call::{FailedCall, WebhookCaller};

/// The maximum number of retries after responses with `Retry-After`. client-go, and thus kube-apiserver, has the same
/// maximum.
const MAX_RETRIES: u32 = 10;

const ACCEPTED_TYPES: HeaderValue = HeaderValue::from_static("application/json, */*");

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewForm {
    pub(crate) version: ReviewVersion,
    /// Whether the webhook may only allow or deny, because its chain is validating.
    pub(crate) is_validating: bool,
}

pub(crate) async fn call(
    caller: &WebhookCaller,
    form: ReviewForm,
    request: &Request,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let body = write_review(form.version, request);
    // Rounded up to full seconds, as in kube-apiserver, so that the webhook does not give up too early.
    let seconds = deadline.remaining().as_millis().div_ceil(1000).max(1);
    let uri = caller.endpoint.uri(Some(&format!("timeout={seconds}s")));
    let is_success = |status: StatusCode| (200..=206).contains(&status.as_u16());
    let mut retries = 0;
    let reply = loop {
        let posted = caller
            .post(
                uri.clone(),
                &[(header::ACCEPT, ACCEPTED_TYPES)],
                request.trace.as_ref(),
                body.clone(),
                is_success,
            )
            .await;
        match posted {
            Ok(reply) => break reply,
            Err(FailedCall {
                retry_after: Some(wait),
                ..
            }) if retries < MAX_RETRIES && wait < deadline.remaining() => {
                retries += 1;
                tokio::time::sleep(wait).await;
            }
            Err(refused) => return Err(refused.failure),
        }
    };
    let ReviewForm {
        version,
        is_validating: validating,
    } = form;
    let (uid, endpoint) = (request.uid.clone(), caller.endpoint.to_string());
    offload(reply.len(), deadline, move || {
        read_response(&reply, version, validating, &uid).map_err(|failure| {
            let problem = failure.message;
            let message = format!("{endpoint} did not answer with a valid AdmissionReview: {problem}");
            Failure::new(failure.kind, message)
        })
    })
    .await?
}
