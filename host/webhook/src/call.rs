use std::{error::Error as StdError, sync::Arc, time::Duration};

use admittance_admission::{Failure, FailureKind, TraceContext, shorten};
use admittance_net::{
    causes::{chain, find},
    informational::TooManyInformational,
    trace::{SPANS, TRACEPARENT, TRACESTATE, inject_context},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tracing::{Instrument, Span, debug_span, field::Empty};

use crate::{client::PooledClient, endpoint::WebhookEndpoint, tls};

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("admittance/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The maximum number of bytes that are read of the body of an error response.
const EXCERPT_BYTES: usize = 8 * 1024;

/// The maximum number of bytes that a message quotes from the body of an error response.
const MAX_EXCERPT_LENGTH: usize = 300;

/// Posts JSON to the server of one webhook. Every webhook owns one caller.
pub(crate) struct WebhookCaller {
    pub(crate) client: Arc<PooledClient>,
    pub(crate) endpoint: WebhookEndpoint,
    pub(crate) response_limit: usize,
}

impl WebhookCaller {
    /// Posts `body` to `uri`. Returns the body of the response, or a failure if `is_accepted` does not allow its
    /// status.
    pub(crate) async fn post(
        &self,
        uri: Uri,
        headers: &[(header::HeaderName, HeaderValue)],
        trace: Option<&TraceContext>,
        body: Bytes,
        is_accepted: fn(StatusCode) -> bool,
    ) -> Result<Bytes, FailedCall> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        request.headers_mut().insert(header::CONTENT_TYPE, JSON);
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        let span = debug_span!(
            target: SPANS,
            "webhook",
            otel.kind = "client",
            url.full = %self.endpoint,
            http.request.method = "POST",
            http.response.status_code = Empty,
        );
        if let Some(trace) = trace {
            add_trace(request.headers_mut(), trace);
        }
        inject_context(&span, request.headers_mut());
        self.exchange(request, is_accepted, &span)
            .instrument(span.clone())
            .await
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        is_accepted: fn(StatusCode) -> bool,
        span: &Span,
    ) -> Result<Bytes, FailedCall> {
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| self.connection_failure(&error))?;
        span.record("http.response.status_code", response.status().as_u16());
        if !is_accepted(response.status()) {
            return Err(FailedCall {
                retry_after: retry_after(&response),
                failure: self.status_failure(response).await,
            });
        }
        self.check_encoding(response.headers())?;
        Ok(self.read_body(response.into_body()).await?)
    }

    async fn read_body(&self, body: Incoming) -> Result<Bytes, Failure> {
        let limit = self.response_limit;
        let too_large = || {
            Failure::new(
                FailureKind::OutputTooLarge,
                format!("{} answered with more than {limit} bytes", self.endpoint),
            )
        };
        if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        match Limited::new(body, limit).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(self.connection_failure(&*error)),
        }
    }

    /// Refuses a response with a `Content-Encoding`, because the request does not allow any encoding.
    fn check_encoding(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match headers.get(header::CONTENT_ENCODING) {
            Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Err(Failure::new(
                FailureKind::InvalidResponse,
                format!(
                    "{} answered with Content-Encoding {}, which the request does not accept; send plain JSON",
                    self.endpoint,
                    printable_line(encoding.as_bytes()),
                ),
            )),
            _ => Ok(()),
        }
    }

    async fn status_failure(&self, response: Response<Incoming>) -> Failure {
        let status = response.status();
        let endpoint = &self.endpoint;
        if status.is_redirection() {
            let location = response.headers().get(header::LOCATION).map_or_else(
                || "an unknown location".to_owned(),
                |location| printable_line(location.as_bytes()),
            );
            return Failure::new(
                FailureKind::BadStatus,
                format!(
                    "{endpoint} answered {status} to {location}; redirects are not followed: write the \
                     final URL into the definition"
                ),
            );
        }
        let text = printable_line(&read_beginning(response.into_body()).await);
        let body_text = if text.is_empty() { "empty body" } else { &text };
        Failure::new(
            FailureKind::BadStatus,
            format!("{endpoint} answered {status}: {body_text}"),
        )
    }

    fn connection_failure(&self, error: &(dyn StdError + 'static)) -> Failure {
        if let Some(failure) = find::<Failure>(error) {
            return failure.clone();
        }
        // If the server ends an HTTP/2 connection with a TLS alert, for example because of a missing client
        // certificate, the error contains the alert only as text. Therefore the messages of the error and its causes
        // are searched for it.
        let chain = chain(error);
        if let Some(error) = find::<rustls::Error>(error) {
            return tls::tls_failure(error, &self.endpoint.to_string(), self.endpoint.host());
        }
        if let Some(alert) = tls::find_alert(&chain) {
            return tls::tls_failure(&alert, &self.endpoint.to_string(), self.endpoint.host());
        }
        if let Some(error) = find::<TooManyInformational>(error) {
            return Failure::new(FailureKind::InvalidResponse, format!("{}: {error}", self.endpoint));
        }
        let (kind, problem) = match find::<hyper::Error>(error) {
            Some(error) if error.is_parse() => (
                FailureKind::InvalidResponse,
                "the answer is not HTTP, or its headers are too large",
            ),
            _ => (
                FailureKind::Unreachable,
                "the connection was closed before the answer was complete",
            ),
        };
        Failure::new(kind, format!("{}: {problem}: {chain}", self.endpoint))
    }
}

/// Adds the trace headers of the incoming request, so that the webhook continues its trace.
fn add_trace(headers: &mut HeaderMap, trace: &TraceContext) {
    if let Ok(parent) = HeaderValue::try_from(trace.to_string()) {
        headers.insert(TRACEPARENT, parent);
    }
    if let Some(Ok(state)) = trace.state().map(HeaderValue::try_from) {
        headers.insert(TRACESTATE, state);
    }
}

pub(crate) struct FailedCall {
    pub(crate) failure: Failure,
    /// The time that the server asked the client to wait before a retry; `None` if it did not ask for a retry.
    pub(crate) retry_after: Option<Duration>,
}

impl From<Failure> for FailedCall {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            retry_after: None,
        }
    }
}

impl From<FailedCall> for Failure {
    fn from(failed: FailedCall) -> Self {
        failed.failure
    }
}

/// Returns the seconds in `Retry-After` if the status is 429 or at least 500. client-go retries the same responses.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let value = response.headers().get(header::RETRY_AFTER)?;
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Reads the beginning of a body: frames until there are at least `EXCERPT_BYTES`, or until the body ends or fails.
async fn read_beginning(mut body: Incoming) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend(frame.data_ref().into_iter().flatten()),
            Some(Err(_)) | None => break,
        }
    }
    bytes
}

fn printable_line(bytes: &[u8]) -> String {
    let clean: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let mut line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&mut line, MAX_EXCERPT_LENGTH);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_server_text_becomes_one_bounded_line() {
        for (bytes, expected) in [
            (&b"plain"[..], "plain".to_owned()),
            (b"", String::new()),
            (b" \r\n ", String::new()),
            (b"two\r\nlines\t\x1b[31m", "two lines [31m".to_owned()),
            (b"a\xffb", "a\u{fffd}b".to_owned()),
            ("é".repeat(150).as_bytes(), "é".repeat(150)),
            ("é".repeat(151).as_bytes(), "é".repeat(148) + "..."),
        ] {
            assert_eq!(printable_line(bytes), expected);
        }
    }
}
