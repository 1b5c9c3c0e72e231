//! W3C Trace Context, and the spans that are exported as traces.
//!
//! Exported spans have the target [`SPANS`]. They are enabled only if traces are exported, and never appear in the log.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{Context, trace::TraceContextExt as _};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The header with the ID of the trace and the ID of the parent span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header in which tracing systems pass on their own data.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

pub const SPANS: &str = "admittance::otel";

/// Returns whether the current task handles a request whose trace is exported.
pub fn is_traced() -> bool {
    Context::map_current(Context::has_active_span)
}

/// Puts this span as the parent span into the headers of a request, if the span is exported.
pub fn inject_context(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    if !context.is_valid() {
        return;
    }
    let sampled = u8::from(context.is_sampled());
    let parent = format!("00-{}-{}-{sampled:02x}", context.trace_id(), context.span_id());
    if let Ok(parent) = HeaderValue::try_from(parent) {
        headers.insert(TRACEPARENT, parent);
    }
    match HeaderValue::try_from(context.trace_state().header()) {
        Ok(state) if !state.is_empty() => headers.insert(TRACESTATE, state),
        _ => headers.remove(TRACESTATE),
    };
}
