//! Asks the API server for the stored object and for the result of a patch, which the chains need besides the request.

use admittance::{BodyError, BodyLimits, Passage};
use admittance_admission::{Object, Operation};
use admittance_dialect::{Class, Dialect, EndReason, Inspection, KubernetesApi, ResourceTarget, StoredState};
use admittance_net::upstream::Upstream;
use axum::body::Body;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, IF_MATCH,
        IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
    },
    request::Parts,
};

use super::{end_reply, send};

const APPLY_TYPE_PREFIX: &str = "application/apply-patch";

/// The headers of a client's request that the gateway does not copy to its own requests for the stored object.
const UNCOPIED_HEADERS: [HeaderName; 13] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    EXPECT,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    RANGE,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(super) struct StateRequest<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) limits: BodyLimits,
}

/// A reply that ends the client's request before it is forwarded.
type EarlyReply = Box<Response<Body>>;

impl StateRequest<'_> {
    /// Adds the [`StoredState`] to the head of the request, if the chains need it. Returns the body to forward, or a
    /// reply that ends the request. If the API server refuses to return the stored object, this refusal is the reply to
    /// the client, because the API server would refuse the client's request, too.
    pub(super) async fn add_stored_state(
        &self,
        head: &mut Parts,
        body: Body,
        may_match: impl Fn(&Inspection) -> bool,
    ) -> Result<Body, EarlyReply> {
        let Class::Inspect(mut inspection) = KubernetesApi.classify(head) else {
            return Ok(body);
        };
        let is_patch = head.method == Method::PATCH;
        let is_asked = is_patch || [Method::PUT, Method::DELETE].contains(&head.method);
        let target = inspection.detail.get::<ResourceTarget>().cloned();
        let Some(target) = target.filter(|target| is_asked && target.name.is_some() && !target.is_connect()) else {
            return Ok(body);
        };
        let matches = may_match(&inspection) || {
            inspection.operation = Operation::Create;
            head.method != Method::DELETE && may_match(&inspection)
        };
        if !matches {
            return Ok(body);
        }
        let may_create = head.method == Method::PUT || (is_patch && is_apply(&head.headers));
        let object = self.stored_object(head, &target, may_create).await?;
        if !is_patch {
            head.extensions.insert(StoredState {
                object,
                patched_object: None,
            });
            return Ok(body);
        }
        let collected = self.limits.collect(head, body).await;
        let bytes = collected.map_err(|error| early_reply(&error.end_reason()))?;
        let reply = self
            .ask(Method::PATCH, dry_run_uri(&head.uri), head, Body::from(bytes.clone()))
            .await?;
        let patched = Some(self.object_in_reply(head, reply).await?);
        head.extensions.insert(StoredState {
            object,
            patched_object: patched,
        });
        Ok(Body::from(bytes))
    }

    /// Returns the stored object that the request wants to change. If the object does not exist and the request can
    /// create it (`may_create`), returns `None`.
    async fn stored_object(
        &self,
        head: &Parts,
        target: &ResourceTarget,
        may_create: bool,
    ) -> Result<Option<Object>, EarlyReply> {
        let path = head.uri.path();
        let mut reply = self.ask(Method::GET, path.to_owned(), head, Body::empty()).await?;
        if reply.status() == StatusCode::METHOD_NOT_ALLOWED
            && target.subresource.is_some()
            && let Some((resource, _)) = path.trim_end_matches('/').rsplit_once('/')
        {
            // Some subresources, such as `finalize`, can be written but not read, so the API server replies 405 to a
            // GET. Then the object itself is read instead.
            reply = self.ask(Method::GET, resource.to_owned(), head, Body::empty()).await?;
        }
        if reply.status() == StatusCode::NOT_FOUND && may_create {
            return Ok(None);
        }
        self.object_in_reply(head, reply).await.map(Some)
    }

    async fn ask(&self, method: Method, uri: String, head: &Parts, body: Body) -> Result<Response<Body>, EarlyReply> {
        let mut headers = head.headers.clone();
        for name in UNCOPIED_HEADERS {
            headers.remove(name);
        }
        if method == Method::GET {
            headers.remove(CONTENT_TYPE);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse::<Uri>().unwrap_or_default();
        *request.headers_mut() = headers;
        send(self.upstream, request).await.map_err(Box::new)
    }

    async fn object_in_reply(&self, request: &Parts, reply: Response<Body>) -> Result<Object, EarlyReply> {
        if !reply.status().is_success() {
            return Err(Box::new(Passage::Ended("refused-by-cluster").mark_response(reply)));
        }
        let unreadable = |reason: &str| {
            tracing::warn!(reason, "a reply of an API server that chains need cannot be read");
            let reason = "the API server's reply, which the chains need, cannot be read";
            early_reply(&EndReason::UpstreamUnreachable { reason })
        };
        let (head, body) = reply.into_parts();
        let bytes = self
            .limits
            .receive(&request.extensions, &head.headers, body)
            .await
            .map_err(|error| match error {
                BodyError::NoMemory(_) => early_reply(&error.end_reason()),
                error => unreadable(&error.end_reason().to_string()),
            })?;
        let object = Object::parse(&bytes).map_err(|error| unreadable(&error.to_string()))?;
        // The reply can be a `Status` instead of the object. It is refused here, because it would otherwise be taken
        // for the stored object.
        if object.head().kind.as_deref() == Some("Status") {
            Err(unreadable("it is a Status instead of the object"))
        } else {
            Ok(object)
        }
    }
}

fn early_reply(end: &EndReason<'_>) -> EarlyReply {
    tracing::info!(end = end.as_str(), "the request ends here: {end}");
    Box::new(end_reply(end))
}

fn is_apply(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    types.any(|value| value.as_bytes().starts_with(APPLY_TYPE_PREFIX.as_bytes()))
}

fn dry_run_uri(uri: &Uri) -> String {
    let path = uri.path();
    match uri.query() {
        None | Some("") => format!("{path}?dryRun=All"),
        Some(query) => {
            let is_dry = form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == "dryRun" && value == "All");
            if is_dry {
                format!("{path}?{query}")
            } else {
                format!("{path}?{query}&dryRun=All")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_turns_a_write_into_a_dry_run() {
        for (uri, expected) in [
            ("/a", "/a?dryRun=All"),
            ("/a?", "/a?dryRun=All"),
            ("/a?fieldManager=x", "/a?fieldManager=x&dryRun=All"),
            ("/a?dryRun=All", "/a?dryRun=All"),
            ("/a?dry%52un=All", "/a?dry%52un=All"),
            // A request with any other value of `dryRun` gets the parameter `dryRun=All` in addition. The API server
            // refuses such a request.
            ("/a?dryRun=None", "/a?dryRun=None&dryRun=All"),
        ] {
            assert_eq!(dry_run_uri(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
