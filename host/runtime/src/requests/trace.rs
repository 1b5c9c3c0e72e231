use admittance_admission::{TraceContext, Uid};
use admittance_net::trace::{TRACEPARENT, TRACESTATE};
use http::HeaderMap;
use tracing::{Span, field::display};

/// Reads the trace context from the headers of a request, and removes headers that are invalid, so that they are not
/// forwarded. It is public for services that should behave like an [`AdmissionLayer`](crate::AdmissionLayer).
pub fn trace_context(headers: &mut HeaderMap) -> Option<TraceContext> {
    let context = parse_trace_headers(headers);
    if context.is_none() {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
    }
    context
}

fn parse_trace_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    // A trace state may be spread over several headers, which are joined.
    let values = headers.get_all(TRACESTATE).iter().map(|value| value.to_str());
    let states: Result<Vec<_>, _> = values.collect();
    TraceContext::parse(parent, states.ok().map(|states| states.join(",")).as_deref())
}

/// Creates a span with the uid and the trace of the request, so that each log line about the request contains them.
pub fn request_span(uid: &Uid, trace: Option<&TraceContext>) -> Span {
    let trace_id = trace.map(|trace| display(trace.trace_id()));
    tracing::info_span!("request", uid = uid.as_str(), trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn invalid_trace_headers_are_removed() {
        for (case, sent, expected) in [
            ("none", &[][..], None),
            ("a parent", &[("traceparent", PARENT)], Some(None)),
            (
                "several states",
                &[("tracestate", "a=1"), ("traceparent", PARENT), ("tracestate", "b=2")],
                Some(Some("a=1,b=2")),
            ),
            ("a state alone", &[("tracestate", "a=1")], None),
            ("a bad parent", &[("traceparent", "00-1"), ("tracestate", "a=1")], None),
            ("two parents", &[("traceparent", PARENT), ("traceparent", PARENT)], None),
            (
                "a bad state",
                &[("traceparent", PARENT), ("tracestate", "a=\u{e4}")],
                Some(None),
            ),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                let value = http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
                headers.append(*name, value);
            }
            let context = trace_context(&mut headers);
            let state = context.as_ref().map(TraceContext::state);
            assert_eq!(state, expected, "{case}");
            let expected_count = if context.is_some() { sent.len() } else { 0 };
            assert_eq!(headers.len(), expected_count, "{case}");
        }
    }
}
