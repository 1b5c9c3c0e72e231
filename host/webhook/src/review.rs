//! The Kubernetes protocol: an AdmissionReview is sent, and an AdmissionReview is returned.
//!
//! The `uid` of a review is the request's own, the same for every webhook that sees the request, so that the logs of
//! both sides can be correlated. kube-apiserver creates a new one for every call; a webhook does not notice, because it
//! only returns it.

use admittance_admission::{
    Deadline, Failure, Request, Response, ReviewVersion, offload, read_response, write_review,
};
use http::{HeaderValue, StatusCode, header};

use crate::call::{Caller, Refused};

/// The number of retries for answers with `Retry-After`; client-go, which kube-apiserver uses, has the same
/// limit.
const RETRIES: u32 = 10;

const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, */*");

/// A webhook of the Kubernetes protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewForm {
    pub(crate) version: ReviewVersion,
    /// Whether the webhook may not change the object.
    pub(crate) validating: bool,
}

pub(crate) async fn call(
    caller: &Caller,
    form: ReviewForm,
    request: &Request,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let body = write_review(form.version, request);
    // The timeout is rounded up to a second, as in kube-apiserver, so that the webhook does not give up early.
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
