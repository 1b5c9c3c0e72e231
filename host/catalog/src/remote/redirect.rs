//! Follows redirects with cookies, which the HTTP client itself does not store. Some servers in front of registries
//! need them: they set a cookie and redirect to the same URL, to see whether the client returns the cookie.

use admittance_net::client::{ClientRequest, ClientResponse, RequestBody};
use http::{
    Method, StatusCode,
    header::{
        AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, LOCATION,
        SET_COOKIE, TRANSFER_ENCODING,
    },
};
use url::{Origin, Url};

const MAX_REDIRECTS: usize = 10;

const BODY_HEADERS: [HeaderName; 4] = [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING];

/// The redirects that a request has followed, and their cookies, each of which is sent only to the origin that set it.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    followed_count: usize,
    cookies: Vec<Cookie>,
}

#[derive(Debug)]
struct Cookie {
    origin: Origin,
    name: String,
    value: String,
}

impl Redirects {
    /// Returns the request that follows the redirect; `None` if there is none to follow.
    pub(super) fn follow(
        &mut self,
        mut next: ClientRequest,
        response: &ClientResponse,
    ) -> Result<Option<ClientRequest>, &'static str> {
        let becomes_get = match response.status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => true,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return Ok(None),
        };
        let Some(target) = redirect_target(response).filter(|_| !next.body.is_counted()) else {
            return Ok(None);
        };
        let source_url = &response.url;
        if source_url.scheme() == "https" && target.scheme() != "https" {
            return Err("the server redirects to an address without TLS");
        }
        self.followed_count += 1;
        if self.followed_count > MAX_REDIRECTS {
            return Err("too many redirects");
        }
        self.keep_cookies(response);
        let headers = &mut next.headers;
        headers.remove(COOKIE);
        if source_url.origin() != target.origin() {
            headers.remove(AUTHORIZATION);
        }
        headers.extend(self.cookies_for(&target).map(|cookies| (COOKIE, cookies)));
        if becomes_get && !matches!(next.method, Method::GET | Method::HEAD) {
            for header in BODY_HEADERS {
                next.headers.remove(header);
            }
            next.method = Method::GET;
            next.body = RequestBody::default();
        }
        next.url = target;
        Ok(Some(next))
    }

    fn keep_cookies(&mut self, response: &ClientResponse) {
        let origin = response.url.origin();
        for header in response.headers.get_all(SET_COOKIE) {
            let pair = header.to_str().ok().and_then(|text| text.split(';').next());
            let Some((name, value)) = pair.and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            self.cookies
                .retain(|cookie| cookie.name != name || cookie.origin != origin);
            let origin = origin.clone();
            self.cookies.push(Cookie { origin, name, value });
        }
    }

    fn cookies_for(&self, target: &Url) -> Option<HeaderValue> {
        let origin = target.origin();
        let cookies = self.cookies.iter().filter(|cookie| cookie.origin == origin);
        let pairs: Vec<_> = cookies
            .map(|Cookie { name, value, .. }| format!("{name}={value}"))
            .collect();
        (!pairs.is_empty())
            .then(|| HeaderValue::from_str(&pairs.join("; ")).ok())
            .flatten()
    }
}

/// Returns the URL to which a response redirects, without its user name and password.
fn redirect_target(response: &ClientResponse) -> Option<Url> {
    let location = response.headers.get(LOCATION)?.to_str().ok()?;
    let mut target = response.url.join(location).ok()?;
    let is_http = matches!(target.scheme(), "http" | "https");
    let _ = target.set_username("");
    let _ = target.set_password(None);
    is_http.then_some(target)
}
