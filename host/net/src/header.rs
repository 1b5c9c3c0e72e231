//! Headers that may be sent only once.

use http::{HeaderMap, HeaderValue, header::AsHeaderName};

/// Returns the value of a header. A repeated header has none, since the next program could use another of its values.
pub fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}
