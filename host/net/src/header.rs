//! Headers that may be sent only once.

use http::{HeaderMap, HeaderValue, header::AsHeaderName};

/// The value of a header. None if it is missing, or repeated: the next program could use another value.
pub fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}
