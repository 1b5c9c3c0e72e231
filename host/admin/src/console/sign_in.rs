//! Shows the sign-in page, and refuses clients that may not use the console.

use admittance_net::bearer::TokenDigest;
use axum::{
    Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderValue, Request, StatusCode, header::WWW_AUTHENTICATE, request::Parts};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    form, layout,
    session::{self, SESSION_LIFETIME},
};
use crate::{
    Api,
    access::{self, AccessDenied, log_refusal},
    config::AdminRole,
    route::{self, SMALL_BODY_LIMIT},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInReason {
    First,
    /// The cookie names an unknown session: the session has expired, or the program has restarted.
    Ended,
    /// The token of the session is no longer accepted.
    Revoked,
    Unknown,
    SignedOut,
}

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/sign-in", get(show_sign_in).post(sign_in))
        .route("/sign-out", post(sign_out))
}

#[derive(Debug, Deserialize)]
struct SignIn {
    #[serde(default)]
    token: String,
    #[serde(default)]
    next: String,
}

async fn show_sign_in(State(api): State<Api>, request: Request<Body>) -> Response {
    let (head, _) = request.into_parts();
    if !api.access.has_tokens() {
        return Redirect::to("/").into_response();
    }
    let query = head.uri.query().unwrap_or_default();
    let next = route::parse_parameters::<SignIn>("query", query).map_or_else(|_| String::new(), |query| query.next);
    layout::plain_page("Sign in", &sign_in_form(SignInReason::First, &next)).into_response()
}

async fn sign_in(State(api): State<Api>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    if let Err(denied) = access::check_own_page(&head, true) {
        return refuse(&head, &denied);
    }
    let text = form::read_text(&head, body, SMALL_BODY_LIMIT).await;
    let SignIn { token, next } = match text.and_then(|text| route::parse_parameters("form", &text)) {
        Ok(fields) => fields,
        Err(error) => {
            log_refusal(&head, &error);
            return layout::plain_refusal(&error);
        }
    };
    let digest = TokenDigest::of_token(token.trim());
    let Some((caller, role)) = api.access.caller_of_token(&digest) else {
        log_refusal(&head, &AccessDenied::UnknownToken);
        return unauthorized(SignInReason::Unknown, &next);
    };
    match api.sessions.begin(digest, caller.clone()) {
        Ok(id) => {
            tracing::info!(target: "admittance::audit", by = %caller, action = "sign in", %role, "{caller}: signed in to the console");
            ([id.cookie(&head)], Redirect::to(own_address(&next))).into_response()
        }
        Err(error) => layout::plain_refusal(&error),
    }
}

async fn sign_out(State(api): State<Api>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head.clone(), body);
    match form::read_form::<IgnoredForm>(request, &api, AdminRole::Read, SMALL_BODY_LIMIT).await {
        Ok((session, IgnoredForm {})) => {
            if let Some(id) = &session.id {
                api.sessions.end(id);
            }
            let page = layout::plain_page("Sign in", &sign_in_form(SignInReason::SignedOut, ""));
            ([session::expired_cookie(&head)], page).into_response()
        }
        Err(refused) => refused,
    }
}

#[derive(Debug, Deserialize)]
struct IgnoredForm {}

/// Returns the address to open after the user has signed in: `next`, or `/` if `next` leads to another site.
fn own_address(next: &str) -> &str {
    let is_own = next.starts_with('/')
        && !next.starts_with("//")
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own { next } else { "/" }
}

/// The user gets the requested page after signing in.
pub(super) fn require_sign_in(head: &Parts, reason: SignInReason) -> Response {
    let next = match head.method {
        http::Method::GET => head.uri.path_and_query().map_or("", |next| next.as_str()),
        _ => "",
    };
    // The cookie of the ended session is not removed. The next page finds out from this cookie why the session ended,
    // and tells the user.
    unauthorized(reason, next)
}

fn unauthorized(reason: SignInReason, next: &str) -> Response {
    let challenge = HeaderValue::from_static("Bearer realm=\"admittance\"");
    (
        StatusCode::UNAUTHORIZED,
        [(WWW_AUTHENTICATE, challenge)],
        layout::plain_page("Sign in", &sign_in_form(reason, next)),
    )
        .into_response()
}

/// Replies with a page that opens the same address again. When a browser follows a link on another site, its request
/// lacks the session cookie. When this page opens the address, the request has the cookie.
pub(super) fn sign_in_again(head: &Parts) -> Response {
    let address = head.uri.path_and_query().map_or("/", |next| next.as_str());
    layout::forwarding_page(address).into_response()
}

pub(super) fn refuse(head: &Parts, denied: &AccessDenied) -> Response {
    if denied.is_notable() {
        log_refusal(head, denied);
    }
    layout::plain_refusal(&denied.clone().into())
}

fn sign_in_form(reason: SignInReason, next: &str) -> Markup {
    let hours = SESSION_LIFETIME.as_secs() / 3600;
    html! {
        form.sign-in method="post" action="/sign-in" {
            @match reason {
                SignInReason::First => {}
                SignInReason::Ended => {
                    p.notice.warn role="status" {
                        "Your session has ended: sessions last " (hours)
                        " hours, and until the program is restarted. Sign in again."
                    }
                }
                SignInReason::Revoked => {
                    p.notice.warn role="status" {
                        "The token of your session is no longer valid: it was revoked or replaced. Sign in with another one."
                    }
                }
                SignInReason::Unknown => {
                    p.notice.bad role="alert" {
                        "This token is unknown. Paste one of those that " code { "admin.tokens" }
                        " of the configuration lists."
                    }
                }
                SignInReason::SignedOut => { p.notice.good role="status" { "You are signed out." } }
            }
            label for="token" { "Token" }
            input #token name="token" type="password" autocomplete="current-password" spellcheck="false" required autofocus;
            input type="hidden" name="next" value=(own_address(next));
            button.primary type="submit" { "Sign in" }
            p.hint {
                "A token of " code { "admin.tokens" } ". With the role " code { "Read" } " you see everything, with "
                code { "Admin" } " you may also change what is live. The token is sent once, and the session lasts " (hours) " hours."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_redirects_only_to_paths_of_the_console() {
        for (next, expected) in [
            ("/decisions/a?b=c", "/decisions/a?b=c"),
            ("/", "/"),
            ("", "/"),
            ("live", "/"),
            ("//example.com", "/"),
            ("/\\example.com", "/"),
            ("https://example.com/", "/"),
            ("/a\r\nb", "/"),
            ("/ä", "/"),
        ] {
            assert_eq!(own_address(next), expected, "{next:?}");
        }
    }
}
