//! The Kubernetes protocol: request and response bodies are AdmissionReviews.
//!
//! All webhooks get the request's own `uid`, so that the logs of both sides can be correlated. kube-apiserver creates a
//! new `uid` for every call; a webhook cannot tell the difference, because it only copies the `uid` to its response.

use admittance_admission::{
    Deadline, Failure, Request, Response, ReviewVersion, offload, read_response, write_review,
};
use http::{HeaderValue, StatusCode, header};

use crate::call::{Caller, FailedCall};

/// The number of retries after responses with `Retry-After`, as in client-go, which kube-apiserver uses.
const RETRIES: u32 = 10;

const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, */*");

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewForm {
    pub(crate) version: ReviewVersion,
    /// Whether the webhook must not change the object.
    pub(crate) validating: bool,
}

pub(crate) async fn call(
    caller: &Caller,
    form: ReviewForm,
    request: &Request,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let body = write_review(form.version, request);
    // The timeout is rounded up to a full second, as in kube-apiserver, so that the webhook does not give up early.
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
            Err(FailedCall {
                retry_after: Some(wait),
                ..
            }) if retries < RETRIES && wait < deadline.remaining() => {
                retries += 1;
                tokio::time::sleep(wait).await;
            }
            Err(refused) => return Err(refused.failure),
        }
    };
    let ReviewForm { version, validating } = form;
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
