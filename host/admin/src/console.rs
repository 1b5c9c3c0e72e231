//! The console: pages for browsers, rendered on the server. They show the API's data to users with a role in the API.

mod alerts;
mod applies;
mod assets;
mod candidates;
mod chains;
mod components;
mod decision;
mod diff;
mod form;
mod health;
mod history;
mod http_text;
mod layout;
mod live;
mod manual;
mod mistakes;
mod overview;
mod palette;
mod playground;
mod session;
mod sign_in;
#[cfg(debug_assertions)]
mod style;
mod switch;

use axum::{
    Router,
    middleware::map_response,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};

pub(crate) use self::session::Sessions;
use crate::Api;

/// The security headers of every reply. They forbid content of other origins, inline scripts and styles, and embedding.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

pub(crate) fn router() -> Router<Api> {
    let router = Router::new();
    #[cfg(debug_assertions)]
    let router = router.merge(style::router());
    router
        .merge(palette::router())
        .merge(overview::router())
        .merge(assets::router())
        .merge(sign_in::router())
        .merge(chains::router())
        .merge(history::router())
        .merge(switch::router())
        .merge(applies::router())
        .merge(playground::router())
        .merge(live::router())
        .merge(decision::router())
        .merge(health::router())
        .merge(manual::router())
        .layer(map_response(async |response: Response| with_security_headers(response)))
}

/// Returns the error page for an address without a page; `None` if the client is not a browser.
pub(crate) fn not_found(headers: &HeaderMap) -> Option<Response> {
    let accept = headers.get(ACCEPT)?.to_str().ok()?;
    let page = || {
        (
            StatusCode::NOT_FOUND,
            layout::plain_page("Not found", &layout::not_found()),
        )
    };
    accept
        .contains("text/html")
        .then(|| with_security_headers(page().into_response()))
}

fn with_security_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
