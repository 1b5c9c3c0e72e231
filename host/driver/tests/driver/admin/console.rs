//! Tests the console without a browser: which requests it accepts, and its replies.

use std::net::SocketAddr;

use admittance_admin::{AdminConfig, AdminRole, AdminToken, TokenSource};
use admittance_net::bearer::TokenDigest;
use axum::body::Body;
use http::{HeaderMap, Request};

use crate::harness::{RunningDriver, Setup, echo_upstream, loopback, status_and_text};

const READER_TOKEN: &str = "the-token-of-who-reads";
const ADMIN_TOKEN: &str = "the-token-of-who-changes";

async fn start_open_driver() -> RunningDriver {
    Setup::new(&[echo_upstream().await])
        .admin(AdminConfig::new(loopback()))
        .start()
        .await
}

async fn start_guarded_driver() -> RunningDriver {
    let token = |name: &str, role, text: &str| AdminToken {
        name: name.to_owned(),
        role,
        source: TokenSource::Digest(TokenDigest::of_token(text)),
    };
    let tokens = vec![
        token("board", AdminRole::Read, READER_TOKEN),
        token("ops", AdminRole::Admin, ADMIN_TOKEN),
    ];
    let config = AdminConfig::new(loopback()).with_tokens(tokens).unwrap();
    Setup::new(&[echo_upstream().await]).admin(config).start().await
}

struct ConsoleReply {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl ConsoleReply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request with these headers, as a browser does; with `form`, it is a POST.
async fn send_to_console(
    driver: &RunningDriver,
    path: &str,
    headers: &[(&str, &str)],
    form: Option<&str>,
) -> ConsoleReply {
    let mut request = Request::builder()
        .method(if form.is_some() { "POST" } else { "GET" })
        .uri(path)
        .header("host", driver.admin.to_string())
        .header("accept", "text/html,*/*;q=0.8");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if form.is_some() {
        request = request.header("content-type", "application/x-www-form-urlencoded");
    }
    let body = Body::from(form.unwrap_or_default().to_owned());
    let response = driver.send_to_admin(request.body(body).unwrap()).await;
    let headers = response.headers().clone();
    let (status, body) = status_and_text(response).await;
    ConsoleReply { status, headers, body }
}

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn sign_in(driver: &RunningDriver, token: &str) -> String {
    let form = format!("token={token}&next=%2Fhealth");
    let reply = send_to_console(driver, "/sign-in", &[SAME_ORIGIN], Some(&form)).await;
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, "/health"),
        "{}",
        reply.body
    );
    let cookie = reply.header("set-cookie");
    for attribute in ["; Path=/;", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    cookie.split_once(';').unwrap().0.to_owned()
}

fn read_form_key(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"form_key\" value=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn every_reply_has_security_headers() {
    let driver = start_open_driver().await;
    for (path, status) in [
        ("/", 200),
        ("/live", 200),
        ("/live?verdict=nothing", 400),
        ("/decisions/unknown", 404),
        ("/health", 200),
        ("/docs", 200),
        ("/docs?q=rollout", 200),
        ("/docs/metrics", 200),
        ("/docs/nothing", 404),
        ("/nothing", 404),
    ] {
        let reply = send_to_console(&driver, path, &[], None).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
        assert_eq!(
            reply.header("content-security-policy"),
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
            "{path}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
        if status != 303 {
            assert!(reply.body.contains("<h1>"), "{path}: {}", reply.body);
            assert!(
                !reply.body.contains(" style=") && !reply.body.contains(" onclick="),
                "{path}"
            );
        }
    }
    let (status, body) = driver.call_admin("GET", "/nothing", "").await;
    assert_eq!(
        (
            status,
            body["error"]["message"].as_str().unwrap().contains("/v1/openapi.json")
        ),
        (404, true)
    );
}

#[tokio::test]
async fn assets_are_cached_by_browsers() {
    let driver = start_open_driver().await;
    let page = send_to_console(&driver, "/health", &[], None).await.body;
    let mut assets = 0;
    for part in page.split('"').filter(|part| part.starts_with("/assets/")) {
        let reply = send_to_console(&driver, part, &[], None).await;
        assert_eq!(reply.status, 200, "{part}");
        assert_eq!(
            reply.header("cache-control"),
            "public, max-age=31536000, immutable",
            "{part}"
        );
        let old_path = format!("/assets/old/{}", part.rsplit_once('/').unwrap().1);
        let reply = send_to_console(&driver, &old_path, &[], None).await;
        assert_eq!(
            (reply.status, reply.header("cache-control")),
            (200, "no-store"),
            "{old_path}"
        );
        assets += 1;
    }
    assert_eq!(assets, 3);
    assert_eq!(
        send_to_console(&driver, "/assets/old/none.js", &[], None).await.status,
        404
    );
}

#[tokio::test]
async fn a_session_lasts_from_sign_in_to_sign_out() {
    let driver = start_guarded_driver().await;
    let reply = send_to_console(&driver, "/live?verdict=denied", &[], None).await;
    assert_eq!(reply.status, 401);
    assert!(
        reply.body.contains("name=\"next\" value=\"/live?verdict=denied\""),
        "{}",
        reply.body
    );
    let wrong_token_reply =
        send_to_console(&driver, "/sign-in", &[SAME_ORIGIN], Some("token=nobody-has-this-one")).await;
    assert_eq!(
        (wrong_token_reply.status, wrong_token_reply.header("set-cookie")),
        (401, "")
    );
    assert!(
        wrong_token_reply.body.contains("This token is unknown"),
        "{}",
        wrong_token_reply.body
    );

    let reader = sign_in(&driver, READER_TOKEN).await;
    let admin = sign_in(&driver, ADMIN_TOKEN).await;
    assert_ne!(reader, admin);
    let page = send_to_console(&driver, "/health", &[("cookie", &reader)], None).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("token board, Read"), "{}", page.body);
    assert_eq!(
        send_to_console(&driver, "/v1/status", &[("cookie", &admin)], None)
            .await
            .status,
        401
    );
    let unknown = send_to_console(&driver, "/health", &[("cookie", "admittance=0123")], None).await;
    assert_eq!(unknown.status, 401);
    assert!(unknown.body.contains("Your session has ended"), "{}", unknown.body);

    let key = read_form_key(&page.body);
    let form = format!("form_key={key}");
    let sign_out_reply = send_to_console(&driver, "/sign-out", &[SAME_ORIGIN, ("cookie", &reader)], Some(&form)).await;
    assert_eq!(sign_out_reply.status, 200, "{}", sign_out_reply.body);
    assert!(sign_out_reply.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(
        send_to_console(&driver, "/health", &[("cookie", &reader)], None)
            .await
            .status,
        401
    );
    assert_eq!(
        send_to_console(&driver, "/health", &[("cookie", &admin)], None)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn pages_of_other_sites_cannot_use_the_console() {
    let driver = start_guarded_driver().await;
    let cookie = sign_in(&driver, ADMIN_TOKEN).await;
    let own_origin = format!("http://{}", driver.admin);
    let other_port = "http://127.0.0.1:1";
    let page = send_to_console(&driver, "/health", &[("cookie", &cookie)], None)
        .await
        .body;
    let form = format!("form_key={}", read_form_key(&page));
    type Row<'r> = (&'r [(&'r str, &'r str)], u16, u16);
    // (headers, expected status of the reply to a page request, expected status of the reply to a form)
    let table: [Row<'_>; 11] = [
        (&[SAME_ORIGIN], 200, 200),
        (&[SAME_ORIGIN, ("origin", &own_origin)], 200, 200),
        // The console's pages tell browsers to send no referrer. Browsers then send the forms of these pages with
        // `Origin: null`.
        (&[SAME_ORIGIN, ("origin", "null")], 200, 200),
        (&[("sec-fetch-site", "none")], 200, 403),
        (&[], 200, 403),
        // Old browsers send no header but `Origin`.
        (&[("origin", &own_origin)], 200, 200),
        (&[("origin", "null")], 403, 403),
        (&[("origin", other_port)], 403, 403),
        (&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")], 403, 403),
        (
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
            403,
            403,
        ),
        // The user follows a link on another site. The test sends the cookie, but browsers leave it out of such a
        // request.
        (
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
            200,
            403,
        ),
    ];
    for (headers, of_page, of_form) in table {
        let cookie = sign_in(&driver, ADMIN_TOKEN).await;
        let headers = [headers, &[("cookie", &*cookie)]].concat();
        let page = send_to_console(&driver, "/health", &headers, None).await;
        assert_eq!(page.status, of_page, "{headers:?}");
        let own_page = send_to_console(&driver, "/health", &[SAME_ORIGIN, ("cookie", &cookie)], None)
            .await
            .body;
        let form = format!("form_key={}", read_form_key(&own_page));
        let reply = send_to_console(&driver, "/sign-out", &headers, Some(&form)).await;
        assert_eq!(reply.status, of_form, "{headers:?}: {}", reply.body);
        let token = format!("token={ADMIN_TOKEN}");
        let signed_in = send_to_console(&driver, "/sign-in", &headers, Some(&token)).await;
        assert_eq!(signed_in.status, if of_form == 200 { 303 } else { 403 }, "{headers:?}");
    }
    let other = sign_in(&driver, ADMIN_TOKEN).await;
    for form in [&*form, "", "form_key="] {
        let reply = send_to_console(&driver, "/sign-out", &[SAME_ORIGIN, ("cookie", &other)], Some(form)).await;
        assert_eq!(reply.status, 400, "{form:?}");
        assert!(reply.body.contains("open it again"), "{}", reply.body);
    }
    // The user follows a link on another site, so the browser sends no cookie. The reply makes the browser request the
    // same URL again, this time with the cookie.
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    let reply = send_to_console(&driver, "/live?chain=a&stage=b", &link, None).await;
    assert_eq!(reply.status, 200);
    assert!(
        reply.body.contains("content=\"0; url=/live?chain=a&amp;stage=b\""),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn a_console_without_tokens_is_only_for_loopback() {
    let driver = start_open_driver().await;
    let page = send_to_console(&driver, "/health", &[], None).await;
    assert!(page.body.contains("loopback, Admin"), "{}", page.body);
    assert!(!page.body.contains("Sign out"), "{}", page.body);
    assert_eq!(
        send_to_console(&driver, "/sign-in", &[], None).await.header("location"),
        "/"
    );
    // A page could make its own host name resolve to this machine (DNS rebinding), so such a host is refused.
    let request = Request::get("/health").header("host", "console.example.com");
    let response = driver.send_to_admin(request.body(Body::empty()).unwrap()).await;
    let (status, body) = status_and_text(response).await;
    assert_eq!(status, 403);
    assert!(body.contains("console.example.com"), "{body}");

    let everywhere: SocketAddr = ([0, 0, 0, 0], 0).into();
    let driver = Setup::new(&[echo_upstream().await])
        .admin(AdminConfig::new(everywhere))
        .start()
        .await;
    for path in ["/live", "/health", "/sign-in"] {
        let reply = send_to_console(&driver, path, &[], None).await;
        let reply = match reply.status {
            303 => send_to_console(&driver, reply.header("location"), &[], None).await,
            _ => reply,
        };
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.body.contains("admin.tokens"), "{path}: {}", reply.body);
    }
}
