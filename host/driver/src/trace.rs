//! Records a span for each request, and exports spans.

mod export;

use admittance::trace_context;
use admittance_admission::TraceContext;
use admittance_net::{
    listener::ConnectedClient,
    trace::{SPANS, inject_context},
};
use http::{Method, Request, StatusCode};
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use tracing::{Span, debug_span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

pub use self::export::{Traces, TracesError};

/// The maximum number of bytes of a request's path that its span contains.
const PATH_LIMIT: usize = 1024;

/// Begins the span of a request, and writes it to the request's headers.
pub(crate) fn begin_span<B>(request: &mut Request<B>, client: &ConnectedClient) -> (Span, Option<TraceContext>) {
    let incoming_context = trace_context(request.headers_mut());
    let path = request.uri().path();
    let span = debug_span!(
        target: SPANS,
        parent: None,
        "request",
        otel.name = span_name(request.method()),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        http.response.status_code = Empty,
        url.path = &path[..path.floor_char_boundary(PATH_LIMIT)],
        client.address = %client.address.ip(),
        admittance.uid = Empty,
        admittance.passage = Empty,
    );
    if span.is_disabled() {
        return (span, incoming_context);
    }
    if let Some(parent_context) = incoming_context {
        // This fails if the span is handled by another `tracing` subscriber than the one that this program installs.
        // Then the span has no ids, and the error is ignored.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote_span_context(&parent_context)));
    }
    inject_context(&span, request.headers_mut());
    (span, trace_context(request.headers_mut()))
}

pub(crate) fn end_span(span: &Span, uid: &str, status: StatusCode, passage: &str) {
    span.record("admittance.uid", uid);
    span.record("admittance.passage", passage);
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Returns the name of a request's span. Unknown methods share a name, because clients can invent any number of them.
fn span_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "HTTP",
    }
}

fn remote_span_context(context: &TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from(context.trace_id().as_u128()),
        SpanId::from(context.span_id()),
        TraceFlags::new(context.flags()),
        true,
        context
            .state()
            .and_then(|state| state.parse::<TraceState>().ok())
            .unwrap_or_default(),
    )
}
