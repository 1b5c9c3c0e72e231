//! Checks and converts the requests of plugins.

use admittance_admission::{HttpError, HttpRequest, path::header_key};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header, request};

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("admittance/", env!("CARGO_PKG_VERSION")));

/// The largest body of a plugin's HTTP request, in bytes.
const BODY_LIMIT: usize = 1 << 20;

/// The maximum number of headers in a plugin's HTTP request. Servers commonly accept this many.
const HEADERS_LIMIT: usize = 64;
const HEADERS_SIZE_LIMIT: usize = 16 << 10;

/// The headers that concern the connection. A plugin may not set them, because the host does.
const HEADERS_SET_BY_HOST: [HeaderName; 11] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Checks and converts a plugin's HTTP request. The request must not contain the header `credential`, because the host
/// adds the credential to the request itself.
pub(crate) fn parse_request(
    request: HttpRequest,
    credential: Option<&HeaderName>,
) -> Result<(request::Parts, Bytes), HttpError> {
    let invalid = |reason: String| HttpError::Invalid(reason);
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::from_bytes(request.method.as_bytes())
        .ok()
        .filter(|method| method != Method::CONNECT)
        .ok_or_else(|| invalid(format!("the method {:?} cannot be sent", request.method)))?;
    parts.uri = request
        .url
        .as_str()
        .parse::<Uri>()
        .map_err(|error| invalid(format!("the URL cannot be sent: {error}")))?;
    if request.body.len() > BODY_LIMIT {
        return Err(invalid(format!(
            "the body has {} bytes; the limit is {BODY_LIMIT}",
            request.body.len()
        )));
    }
    let size: usize = request
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if request.headers.len() > HEADERS_LIMIT || size > HEADERS_SIZE_LIMIT {
        return Err(invalid(format!(
            "the limit is {HEADERS_LIMIT} headers with {HEADERS_SIZE_LIMIT} bytes"
        )));
    }
    parts.headers.insert(header::USER_AGENT, USER_AGENT);
    for (name, value) in &request.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| invalid(format!("{name:?} is not a valid name of a header")))?;
        let key = header_key(name);
        if HEADERS_SET_BY_HOST.iter().any(|reserved| reserved.as_str() == key) {
            return Err(invalid(format!("the host sets the header `{parsed}`; remove it")));
        }
        if credential.is_some_and(|credential| header_key(credential.as_str()) == key) {
            let reason = "the stage has a credential for it";
            return Err(invalid(format!(
                "the host sets the header `{parsed}`: {reason}; remove it"
            )));
        }
        let value = HeaderValue::from_str(value)
            .map_err(|_| invalid(format!("the value of the header `{parsed}` is not valid")))?;
        if parsed == header::USER_AGENT {
            parts.headers.insert(parsed, value);
        } else {
            parts.headers.append(parsed, value);
        }
    }
    Ok((parts, request.body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_is_refused() {
        let url = || "https://a.example/".parse().unwrap();
        let with = |name: &str, value: &str| {
            let mut request = HttpRequest::new("GET", url());
            request.headers.push((name.to_owned(), value.to_owned()));
            request
        };
        let mut large_body = HttpRequest::new("POST", url());
        large_body.body = vec![0; BODY_LIMIT + 1];
        let mut many_headers = HttpRequest::new("GET", url());
        many_headers.headers = vec![("a".to_owned(), "b".to_owned()); HEADERS_LIMIT + 1];
        for (request, expected) in [
            (HttpRequest::new("GET", url()), None),
            (HttpRequest::new("PURGE", url()), None),
            (with("X-Api-Version", "1"), None),
            (
                HttpRequest::new("CONNECT", url()),
                Some("the method \"CONNECT\" cannot be sent"),
            ),
            (
                HttpRequest::new("G T", url()),
                Some("the method \"G T\" cannot be sent"),
            ),
            (with("Host", "b.example"), Some("the host sets the header `host`")),
            (
                with("transfer-encoding", "chunked"),
                Some("the host sets the header `transfer-encoding`"),
            ),
            (with("Keep-Alive", "1"), Some("the host sets the header `keep-alive`")),
            (
                with("transfer_encoding", "chunked"),
                Some("the host sets the header `transfer_encoding`"),
            ),
            (with("x-api-key", "x"), Some("the stage has a credential for it")),
            (with("X_Api_Key", "x"), Some("the stage has a credential for it")),
            (with("a b", "x"), Some("\"a b\" is not a valid name of a header")),
            (with("a", "x\r\nb: c"), Some("the value of the header `a` is not valid")),
            (
                with("a", &"x".repeat(HEADERS_SIZE_LIMIT)),
                Some("the limit is 64 headers"),
            ),
            (many_headers, Some("the limit is 64 headers")),
            (large_body, Some("the body has 1048577 bytes; the limit is 1048576")),
        ] {
            let case = format!("{} {:?}", request.method, request.headers.first());
            let parsed = parse_request(request, Some(&HeaderName::from_static("x-api-key")));
            match (parsed, expected) {
                (Ok(_), None) => {}
                (Err(HttpError::Invalid(reason)), Some(part)) if reason.contains(part) => {}
                (parsed, _) => panic!("{case}: {parsed:?}"),
            }
        }
    }
}
