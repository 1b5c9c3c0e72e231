//! Before the chains get a request that changes a stored object, the object is fetched from the inner service.

use std::{future::poll_fn, time::Duration};

use admittance_dialect::{EndReason, Rejection, RejectionKind, StoredQuery, StoredState};
use admittance_net::budget::NoBodyMemory;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ETAG, IF_MATCH},
    request::Parts,
};
use http_body::Body;
use tower_service::Service;

use crate::{
    Passage,
    requests::body::{BodyError, BodyLimits},
    requests::layer::{REQUEST_ID, StopReason},
};

enum StoredObjectError<R, E> {
    /// The inner service answered the request for the stored object with this reply. The client gets the reply.
    Replied(Response<R>),
    Failed(E),
    /// The inner service's reply does not contain a usable object. The text completes the sentence "The reply ...".
    Unusable(String),
    Late(Duration),
    NoMemory(NoBodyMemory),
}

/// The object that the inner service has stored, and the `ETag` header in the inner service's reply.
type StoredObject = (StoredState, Option<HeaderValue>);

/// Fetches the stored object, adds it to `head` as [`StoredState`], and makes the request conditional on its `ETag`.
pub(crate) async fn add_stored_state<S, B, R>(
    query: StoredQuery,
    head: &mut Parts,
    inner: S,
    limits: BodyLimits,
    end: impl Fn(&EndReason<'_>) -> Response<Bytes>,
) -> Result<(), StopReason<R, S::Error>>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: From<Bytes>,
    R: Body<Data = Bytes> + From<Bytes>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = query.request.uri().clone();
    let query_outcome = tokio::time::timeout(limits.time, fetch_stored_object(query, head, inner, limits)).await;
    let stop = |end: Response<Bytes>| StopReason::Reply(end.map(R::from));
    let reason = match query_outcome.unwrap_or(Err(StoredObjectError::Late(limits.time))) {
        Ok((state, version)) => {
            head.extensions.insert(state);
            return match version {
                Some(version) => require_version(&mut head.headers, version)
                    .map_err(|rejection| stop(end(&EndReason::Rejected(&rejection)))),
                None => Ok(()),
            };
        }
        Err(StoredObjectError::Replied(reply)) => return Err(StopReason::Reply(reply)),
        Err(StoredObjectError::Failed(error)) => return Err(StopReason::Failed(error)),
        Err(StoredObjectError::Unusable(reason)) => reason,
        Err(StoredObjectError::NoMemory(error)) => return Err(stop(end(&BodyError::NoMemory(error).end_reason()))),
        Err(StoredObjectError::Late(limit)) => format!("did not arrive within {limit:?}"),
    };
    let reason = &format!("the upstream's reply to GET {path} {reason}");
    Err(stop(end(&EndReason::StoredUnknown { reason })))
}

async fn fetch_stored_object<S, B, R>(
    query: StoredQuery,
    head: &Parts,
    mut inner: S,
    limits: BodyLimits,
) -> Result<StoredObject, StoredObjectError<R, S::Error>>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: From<Bytes>,
    R: Body<Data = Bytes>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut request = query.request.clone().map(|()| B::from(Bytes::new()));
    // The inner service may need what the extensions contain, such as the address of the client.
    *request.extensions_mut() = head.extensions.clone();
    if let Some(id) = head.headers.get(REQUEST_ID) {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    poll_fn(|cx| inner.poll_ready(cx))
        .await
        .map_err(StoredObjectError::Failed)?;
    let reply = inner.call(request).await.map_err(StoredObjectError::Failed)?;
    // If the reply has a `Passage`, this program wrote the reply, for example because the upstream is unreachable.
    if reply.extensions().get::<Passage>().is_some() {
        return Err(StoredObjectError::Replied(reply));
    }
    match reply.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND if query.may_be_absent => return Ok(StoredObject::default()),
        // A status such as 403 means that the client made a mistake, for example that it lacks a permission. So the
        // client gets the inner service's reply.
        status if status.is_client_error() => {
            return Err(StoredObjectError::Replied(
                Passage::Ended("refused-by-upstream").mark_response(reply),
            ));
        }
        status => return Err(StoredObjectError::Unusable(format!("has the status {status}"))),
    }
    let (mut reply, body) = reply.into_parts();
    let received_body = limits.receive(&head.extensions, &reply.headers, body).await;
    let body = received_body.map_err(|error| match error {
        BodyError::TooLarge(limit) => StoredObjectError::Unusable(format!("has more than {limit} bytes")),
        BodyError::TooSlow(limit) => StoredObjectError::Late(limit),
        BodyError::NoMemory(error) => StoredObjectError::NoMemory(error),
        BodyError::Broken(reason) | BodyError::Stalled(reason) => {
            StoredObjectError::Unusable(format!("broke off: {reason}"))
        }
        BodyError::Encoded(encoding) => StoredObjectError::Unusable(format!("has the Content-Encoding `{encoding}`")),
    })?;
    let located_object = query.read_object(&body);
    let object = located_object.map_err(|reason| StoredObjectError::Unusable(format!("has no object: {reason}")))?;
    let state = StoredState {
        object: Some(object),
        patched_object: None,
    };
    // A weak `ETag` is not used, because it never matches in `If-Match` (RFC 9110, section 13.1.1).
    let etag = reply.headers.remove(ETAG);
    let version = etag.filter(|etag| etag.as_bytes().starts_with(b"\""));
    Ok((state, version))
}

/// Adds `If-Match` with this `ETag` to the request, so that it fails if the object has changed meanwhile. If the client
/// itself sent an `If-Match` that does not contain this `ETag`, returns an error.
fn require_version(headers: &mut HeaderMap, version: HeaderValue) -> Result<(), Rejection> {
    let mut if_match_values = headers.get_all(IF_MATCH).iter().peekable();
    let is_any = if_match_values.peek().is_none();
    let has_version = |value: &HeaderValue| {
        let value = value.as_bytes();
        let mut tags = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        tags.any(|tag| tag == b"*" || tag == version.as_bytes())
    };
    if !is_any && !if_match_values.any(has_version) {
        return Err(Rejection::new(
            RejectionKind::Precondition,
            "the stored object is another version than the header if-match asks for",
        ));
    }
    headers.insert(IF_MATCH, version);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_conditional_on_the_version_that_the_chains_saw() {
        for (if_match_values, expected) in [
            (&[][..], Some("\"a\"")),
            (&["*"], Some("\"a\"")),
            (&["\"a\""], Some("\"a\"")),
            (&["\"b\" , \"a\""], Some("\"a\"")),
            (&["\"b\"", "\"a\""], Some("\"a\"")),
            (&["\"b\""], None),
            (&["W/\"a\""], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in if_match_values {
                headers.append(IF_MATCH, HeaderValue::from_static(value));
            }
            let required = require_version(&mut headers, HeaderValue::from_static("\"a\""));
            match expected {
                Some(version) => {
                    assert_eq!(required, Ok(()), "{if_match_values:?}");
                    let values: Vec<_> = headers.get_all(IF_MATCH).iter().collect();
                    assert_eq!(values, [version], "{if_match_values:?}");
                }
                None => assert_eq!(
                    required.unwrap_err().kind,
                    RejectionKind::Precondition,
                    "{if_match_values:?}"
                ),
            }
        }
    }
}
