//! Headers that may appear only once in a request.

use http::{HeaderMap, HeaderValue, header::AsHeaderName};

/// Returns the value of a header; `None` if the header is missing or repeated. A repeated header is not usable, because
/// the next server could pick another of the values.
pub fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}
