//! The BCS protocol for webhooks. The body of a request is the object, and the body of the response is the whole object
//! after the webhook's changes.

use admittance_admission::{Deadline, Failure, FailureKind, Object, Request, Response, Verdict, offload};
use bytes::Bytes;

use crate::call::WebhookCaller;

pub(crate) async fn call(caller: &WebhookCaller, request: &Request, deadline: Deadline) -> Result<Response, Failure> {
    let Some(object) = &request.object else {
        return Err(Failure::new(
            FailureKind::Error,
            format!(
                "a BcsResource webhook is sent the object, but this {} request has none; remove {0} from \
                 the chain's rules",
                request.operation
            ),
        ));
    };
    let body = Bytes::copy_from_slice(object.text().as_bytes());
    // Like the BCS driver, accepts no status except 200.
    let reply = caller
        .post(caller.endpoint.uri(None), &[], request.trace.as_ref(), body, |status| {
            status.as_u16() == 200
        })
        .await?;
    let endpoint = caller.endpoint.to_string();
    let object = offload(reply.len(), deadline, move || read_object(&reply, &endpoint)).await??;
    Ok(Response::new(Verdict::Replace(object)))
}

fn read_object(reply: &[u8], endpoint: &str) -> Result<Object, Failure> {
    let invalid = |reason: String| {
        Failure::new(
            FailureKind::InvalidResponse,
            format!("{endpoint} answered {reason}; a BcsResource webhook must answer with the whole object"),
        )
    };
    if reply.trim_ascii().is_empty() {
        return Err(invalid("200 with an empty body".into()));
    }
    Object::parse(reply).map_err(|error| invalid(format!("a body that is {error}")))
}
