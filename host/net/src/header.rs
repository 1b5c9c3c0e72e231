//! Headers that may appear only once in a request.

use http::{HeaderMap, HeaderValue, header::AsHeaderName};

/// Returns the value of a header, or `None` if the header is missing or repeated. A repeated header is ambiguous,
/// because the next server could use a different one of its values.
pub fn only_value(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}
