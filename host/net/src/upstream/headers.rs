//! Removes and adds the headers that a proxy must change (RFC 9110, section 7.6).

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Version,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
};

use crate::listener::ConnectedClient;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

const HOP_BY_HOP_HEADERS: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Returns whether the request wants to switch to another protocol.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        && request.headers().contains_key(UPGRADE)
        && header_tokens(request.headers(), &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Prepares the head of a client's request for the upstream, and adds the `X-Forwarded-` headers.
pub(super) fn prepare_request(head: &mut Parts, upgrades: bool) {
    let wants_trailers = header_tokens(&head.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let upgrade = head.headers.get(UPGRADE).cloned().filter(|_| upgrades);
    strip_hop_by_hop(&mut head.headers);
    let headers = &mut head.headers;
    // `Expect` is not forwarded. hyper answers `Expect: 100-continue` as soon as this program reads the request's body.
    headers.remove(EXPECT);
    if wants_trailers && !upgrades {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let host = headers.remove(HOST).or_else(|| {
        let authority = head.uri.authority()?;
        HeaderValue::from_str(authority.as_str()).ok()
    });
    match host {
        Some(host) => headers.insert(X_FORWARDED_HOST, host),
        None => headers.remove(X_FORWARDED_HOST),
    };
    headers.remove(X_FORWARDED_PROTO);
    if let Some(client) = head.extensions.get::<ConnectedClient>() {
        let proto = if client.is_tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
        if let Ok(address) = HeaderValue::from_str(&client.address.ip().to_canonical().to_string()) {
            headers.append(X_FORWARDED_FOR, address);
        }
    }
}

pub(super) fn prepare_response<B>(response: &mut Response<B>, switches: bool) {
    let upgrade = response.headers().get(UPGRADE).cloned().filter(|_| switches);
    strip_hop_by_hop(response.headers_mut());
    if let Some(upgrade) = upgrade {
        response.headers_mut().insert(UPGRADE, upgrade);
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    *response.version_mut() = Version::HTTP_11;
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // If a message has the header `Transfer-Encoding`, the header `Content-Length` says nothing about its size and must
    // be ignored (RFC 9112, section 6.3). So `Content-Length` is not forwarded.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let connection_headers: Vec<HeaderName> = header_tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .collect();
    for name in connection_headers.iter().chain(&HOP_BY_HOP_HEADERS) {
        headers.remove(name);
    }
}

fn header_tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut head = request.body(()).unwrap().into_parts().0;
        head.extensions.insert(ConnectedClient {
            address: "[::ffff:192.0.2.1]:5".parse().unwrap(),
            is_tls: true,
        });
        head
    }

    fn sorted_pairs(headers: &HeaderMap) -> Vec<(&str, &str)> {
        let mut all: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn hop_by_hop_headers_are_removed_and_forwarding_headers_are_set() {
        let mut request = head(&[
            ("host", "proxy:80"),
            ("connection", "close, X-Once ,te"),
            ("x-once", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "x"),
            ("te", "gzip, trailers"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "other"),
            ("x-kept", "1"),
        ]);
        assert!(!is_upgrade(&Request::from_parts(request.clone(), ())));
        prepare_request(&mut request, false);
        assert_eq!(
            sorted_pairs(&request.headers),
            [
                ("connection", "te"),
                ("te", "trailers"),
                ("x-forwarded-for", "192.0.2.1"),
                ("x-forwarded-for", "198.51.100.7"),
                ("x-forwarded-host", "proxy:80"),
                ("x-forwarded-proto", "https"),
                ("x-kept", "1"),
            ]
        );
    }

    #[test]
    fn requests_to_upgrade_are_recognized() {
        let mut request = head(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert!(is_upgrade(&Request::from_parts(request.clone(), ())));
        prepare_request(&mut request, true);
        assert_eq!(request.headers[CONNECTION], "upgrade");
        assert_eq!(request.headers[UPGRADE], "websocket");

        let response = || {
            Response::builder()
                .header("connection", "upgrade, x-once")
                .header("upgrade", "websocket")
                .header("x-once", "1")
                .body(())
                .unwrap()
        };
        let mut switching = response();
        prepare_response(&mut switching, true);
        assert_eq!(
            sorted_pairs(switching.headers()),
            [("connection", "upgrade"), ("upgrade", "websocket")]
        );
        let mut plain = response();
        prepare_response(&mut plain, false);
        assert!(plain.headers().is_empty());
    }
}
