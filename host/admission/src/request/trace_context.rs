use std::sync::Arc;

/// The trace and the parent span of a request, as in the headers of [W3C Trace Context].
///
/// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("00-{trace_id}-{span_id:016x}-{flags:02x}")]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: u64,
    flags: u8,
    state: Option<Arc<str>>,
}

/// The ID of a trace. Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display, derive_more::Debug)]
#[debug("{}", self)]
#[display("{_0:032x}")]
pub struct TraceId(u128);

impl TraceContext {
    /// The maximum size of a `tracestate` that is kept, in bytes. The specification requires at least this size.
    const STATE_LIMIT: usize = 512;
    /// The flags that the specification defines: sampled, and random trace ID.
    const KNOWN_FLAGS: u8 = 0b11;

    /// Parses the headers of a request; `None` if `traceparent` is invalid. A `tracestate` is dropped if it exceeds 512
    /// bytes or has characters other than visible ASCII and spaces.
    ///
    /// ```
    /// # use admittance_admission::TraceContext;
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let context = TraceContext::parse(parent, Some("vendor=1")).unwrap();
    /// assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    /// assert_eq!(context.to_string(), parent);
    /// ```
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace_id = hexadecimal(parts.next()?, 32)?;
        let span_id = hexadecimal(parts.next()?, 16)?;
        let flags = hexadecimal(parts.next()?, 2)?;
        // A later version of `traceparent` may have more parts, which are ignored.
        let has_valid_length = match version {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        if !has_valid_length || trace_id == 0 || span_id == 0 {
            return None;
        }
        let has_valid_bytes = |state: &&str| state.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        Some(Self {
            trace_id: TraceId(trace_id),
            span_id: u64::try_from(span_id).ok()?,
            flags: u8::try_from(flags).ok()? & Self::KNOWN_FLAGS,
            state: state
                .filter(|state| (1..=Self::STATE_LIMIT).contains(&state.len()))
                .filter(has_valid_bytes)
                .map(Arc::from),
        })
    }

    /// Returns the ID of the trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// Returns the ID of the parent span, which is never 0.
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Returns the trace flags. The lowest bit is set if the trace is sampled.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns the value of `tracestate`, if the request has one.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

fn hexadecimal(part: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_valid = part.len() == digits && part.bytes().all(is_digit);
    is_valid.then(|| u128::from_str_radix(part, 16).ok()).flatten()
}

impl TraceId {
    /// Returns the trace ID as a number, which is never 0.
    pub fn as_u128(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    /// The rules are from W3C Trace Context, section 3.2.
    #[test]
    fn a_valid_traceparent_round_trips_through_text() {
        let zeros = "0".repeat(32);
        let valid = format!("00-{TRACE}-{SPAN}-01");
        for (parent, expected) in [
            (valid.clone(), Some(valid.clone())),
            (format!("00-{TRACE}-{SPAN}-00"), Some(format!("00-{TRACE}-{SPAN}-00"))),
            (format!("00-{TRACE}-{SPAN}-ff"), Some(format!("00-{TRACE}-{SPAN}-03"))),
            (format!("01-{TRACE}-{SPAN}-01"), Some(valid.clone())),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes"), Some(valid.clone())),
            (format!("cc-{TRACE}-{SPAN}-01."), None),
            (format!("00-{TRACE}-{SPAN}-01-what-comes"), None),
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!("00-{zeros}-{SPAN}-01"), None),
            (format!("00-{TRACE}-0000000000000000-01"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-+{}-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-{TRACE}-{SPAN}0-01"), None),
            (format!(" {valid}"), None),
            (String::new(), None),
        ] {
            let context = TraceContext::parse(&parent, None);
            assert_eq!(context.map(|context| context.to_string()), expected, "{parent}");
        }
    }

    #[test]
    fn a_tracestate_within_the_limits_is_kept() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let (longest, too_long) = ("a".repeat(512), "a".repeat(513));
        for (state, expected) in [
            (None, None),
            (Some(""), None),
            (Some("a=1, b@c=2"), Some("a=1, b@c=2")),
            (Some("a=\n"), None),
            (Some("a=\u{e4}"), None),
            (Some(longest.as_str()), Some(longest.as_str())),
            (Some(too_long.as_str()), None),
        ] {
            let context = TraceContext::parse(&parent, state).unwrap();
            assert_eq!(context.state(), expected);
        }
    }
}
