//! Bearer tokens in `Sec-WebSocket-Protocol`, the only header of a WebSocket that scripts in a browser can set.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};

/// The beginning of a WebSocket protocol that contains a token in base64url. kube-apiserver uses this form, too.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

fn encoded_token(protocol: &str) -> Option<&str> {
    let (start, token) = protocol.split_at_checked(PREFIX.len())?;
    start.eq_ignore_ascii_case(PREFIX).then_some(token)
}

/// Returns the token in the WebSocket protocols, or `None` if they contain no token or several.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut tokens = protocols(headers).filter_map(encoded_token);
    let token = tokens.next().filter(|_| tokens.next().is_none())?;
    BASE64_URL_SAFE_NO_PAD.decode(token).ok()
}

pub(crate) fn remove_tokens(headers: &mut HeaderMap) {
    let other_protocols: Vec<_> = protocols(headers)
        .filter(|protocol| encoded_token(protocol).is_none())
        .collect();
    let header_value = HeaderValue::from_str(&other_protocols.join(", ")).ok();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(value) = header_value.filter(|header_value| !header_value.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

/// Returns the first WebSocket protocol in the request that is not a token. The gateway chooses this protocol, because
/// browsers require that the server chooses one of the protocols in the request.
pub(crate) fn first_other_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let other = protocols(headers).find(|protocol| encoded_token(protocol).is_none())?;
    HeaderValue::from_str(other).ok()
}
