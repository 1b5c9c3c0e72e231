use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use admittance_admin::{AdminConfig, AdminRole, AdminTls, AdminToken, CertificateHolder, TokenFile, TokenSource};
use admittance_net::{
    bearer::TokenDigest,
    tls::{Identity, ServerTls},
};
use axum::body::Body;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DnType};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::guest::Guest;
use crate::{
    harness::{RunningDriver, Setup, echo_upstream, loopback, status_and_text, within_timeout},
    tls::{FileAuthority, wait_until},
};

const READER_TOKEN: &str = "the-token-of-who-reads";
const STEERER_TOKEN: &str = "the-token-of-who-steers";

fn admin_token(name: &str, role: AdminRole, text: &str) -> AdminToken {
    AdminToken {
        name: name.to_owned(),
        role,
        source: TokenSource::Digest(TokenDigest::of_token(text)),
    }
}

fn admin_tokens() -> Vec<AdminToken> {
    vec![
        admin_token("board", AdminRole::Read, READER_TOKEN),
        admin_token("ci", AdminRole::Admin, STEERER_TOKEN),
    ]
}

fn all_interfaces() -> SocketAddr {
    ([0, 0, 0, 0], 0).into()
}

async fn reply_from_admin(driver: &RunningDriver, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    status_and_text(driver.send_to_admin(request.body(Body::empty()).unwrap()).await).await
}

enum AdminPortAccess {
    /// The admin port listens on loopback, and needs no token.
    Open,
    /// The admin port is reachable from other machines, but no tokens are configured, so only a few routes are allowed.
    Closed,
    /// The admin port listens on loopback, and requires a token.
    Guarded,
}

impl AdminPortAccess {
    async fn start_driver(&self) -> RunningDriver {
        let config = match self {
            Self::Open => AdminConfig::new(loopback()),
            Self::Closed => AdminConfig::new(all_interfaces()),
            Self::Guarded => AdminConfig::new(loopback()).with_tokens(admin_tokens()).unwrap(),
        };
        Setup::new(&[echo_upstream().await]).admin(config).start().await
    }
}

/// A client with a read-only token can read definitions. The values that a definition grants to a plugin are redacted
/// for this client, because they may be secrets.
#[tokio::test]
async fn readers_do_not_see_granted_values() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("x.wasm"), Guest::default().component()).unwrap();
    let config = AdminConfig::new(loopback()).with_tokens(admin_tokens()).unwrap();
    let setup = Setup::new(&[echo_upstream().await]).admin(config);
    let driver = setup.with_definition_files(directory.path()).start().await;
    let call = async |token: &str, method: &str, path: &str, body: &str| {
        let authorization = format!("Bearer {token}");
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", authorization)
            .body(Body::from(body.to_owned()))
            .unwrap();
        status_and_text(driver.send_to_admin(request).await).await
    };
    for value in ["s3cret-one", "s3cret-two"] {
        let chain = format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: a }}\nspec:\n  \
             rules: [{{ operations: [CREATE], kinds: [application] }}]\n  stages:\n  - name: s # stays\n    \
             plugin: {{ source: \"file:../x.wasm\", allow: {{ environment: {{ KEY: {value} }} }} }}\n"
        );
        let (status, body) = call(STEERER_TOKEN, "POST", "/v1/definitions", &chain).await;
        assert_eq!(status, 200, "{body}");
    }
    let history: Value = serde_json::from_str(&call(STEERER_TOKEN, "GET", "/v1/history", "").await.1).unwrap();
    let revision = history["revisions"][0]["number"].as_u64().unwrap();
    for path in [
        "/v1/definitions".to_owned(),
        "/v1/definitions/AdmissionChain/a".to_owned(),
        format!("/v1/history/{revision}"),
        format!("/v1/diff?from={}&to={revision}", revision - 2),
        "/v1/status".to_owned(),
    ] {
        let (status, body) = call(READER_TOKEN, "GET", &path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains("s3cret"), "{path}: {body}");
        if path != "/v1/status" {
            assert!(
                body.contains("[redacted]") && body.contains("# stays"),
                "{path}: {body}"
            );
            let (_, body) = call(STEERER_TOKEN, "GET", &path, "").await;
            assert!(body.contains("s3cret-two"), "{path}: {body}");
        }
    }
    let path = format!("/v1/diff?from={}&to={revision}", revision - 1);
    let (_, body) = call(READER_TOKEN, "GET", &path, "").await;
    assert!(!body.contains("s3cret"), "{body}");
}

#[tokio::test]
async fn each_role_may_use_only_its_routes() {
    let reader = format!("Bearer {READER_TOKEN}");
    let steerer = format!("Bearer {STEERER_TOKEN}");
    let (reader, steerer) = (("authorization", &*reader), ("authorization", &*steerer));
    let status = ("GET", "/v1/status");
    let requests = ("GET", "/v1/requests?seconds=0");
    let rollback = ("POST", "/v1/rollback");
    let disable = ("POST", "/v1/stages/disable");
    type Row<'r> = ((&'r str, &'r str), &'r [(&'r str, &'r str)], u16, &'r str);
    // (kind of admin port, rows of (method and path, headers, expected status, part of the expected reply))
    let table: [(AdminPortAccess, &[Row<'_>]); 3] = [
        (
            AdminPortAccess::Open,
            &[
                (status, &[], 200, "\"revision\":1"),
                // The client may use this route. The reply is 400 because the content of the request is invalid.
                (requests, &[], 400, "seconds"),
                (rollback, &[], 400, "body"),
                (status, &[("origin", "https://example.com")], 403, "web pages"),
                (status, &[("origin", "null")], 403, "web pages"),
                (status, &[("sec-fetch-site", "cross-site")], 403, "web pages"),
                (status, &[("sec-fetch-site", "none")], 200, ""),
                (status, &[("host", "admittance.example.com")], 403, "127.0.0.1"),
                (status, &[("host", "localhost:1")], 200, ""),
                (status, &[("host", "[::1]")], 200, ""),
                (status, &[("authorization", "Bearer x")], 200, ""),
                (("GET", "/healthz"), &[("origin", "null")], 200, "ok"),
                (("GET", "/readyz"), &[("host", "example.com")], 200, "ready"),
                (("GET", "/v1"), &[], 404, "/v1/openapi.json"),
                (("PUT", "/v1/status"), &[], 405, "/v1/openapi.json"),
            ],
        ),
        (
            AdminPortAccess::Closed,
            &[
                (status, &[], 403, "admin.tokens"),
                (status, &[steerer], 403, "admin.tokens"),
                (rollback, &[], 403, "admin.tokens"),
                (("GET", "/healthz"), &[], 200, "ok"),
                (("GET", "/readyz"), &[], 200, "ready"),
                (("GET", "/metrics"), &[], 200, "a_metric"),
            ],
        ),
        (
            AdminPortAccess::Guarded,
            &[
                (status, &[], 401, "Bearer"),
                (status, &[("authorization", "Basic YTpi")], 401, "Bearer"),
                (
                    status,
                    &[("authorization", "Bearer ")],
                    401,
                    "must be `Bearer` and a token",
                ),
                (
                    status,
                    &[("authorization", "Bearer another-token")],
                    401,
                    "unknown token",
                ),
                (status, &[reader], 200, ""),
                (status, &[steerer], 200, ""),
                (("GET", "/v1/openapi.json"), &[reader], 200, "openapi"),
                (requests, &[reader], 403, "token board has the role Read"),
                (requests, &[steerer], 400, "seconds"),
                (rollback, &[reader], 403, "token board has the role Read"),
                (disable, &[reader], 403, "token board has the role Read"),
                (disable, &[steerer], 400, "body"),
                (rollback, &[steerer], 400, "body"),
                // A request with a token may have any origin, because a page of another site does not know the token.
                (status, &[reader, ("origin", "https://example.com")], 200, ""),
                (status, &[reader, ("host", "admittance.example.com")], 200, ""),
                (("GET", "/healthz"), &[], 200, "ok"),
                (("GET", "/metrics"), &[], 200, "a_metric"),
            ],
        ),
    ];
    for (port, rows) in table {
        let driver = port.start_driver().await;
        for ((method, path), headers, expected, part) in rows {
            let (status, text) = reply_from_admin(&driver, method, path, headers).await;
            assert_eq!(status, *expected, "{method} {path} {headers:?}: {text}");
            assert!(text.contains(part), "{method} {path} {headers:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_refusal_explains_how_to_authenticate() {
    let driver = AdminPortAccess::Guarded.start_driver().await;
    for (value, expected) in [
        (None, "Bearer realm=\"admittance\""),
        (Some("Bearer x"), "Bearer realm=\"admittance\", error=\"invalid_token\""),
    ] {
        let mut request = Request::builder().uri("/v1/status");
        if let Some(value) = value {
            request = request.header("authorization", value);
        }
        let response = driver.send_to_admin(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["www-authenticate"], expected);
        assert_eq!(response.headers()["cache-control"], "no-store");
        let reply: Value = serde_json::from_str(&status_and_text(response).await.1).unwrap();
        assert!(reply["error"]["message"].is_string(), "{reply}");
    }
}

#[tokio::test]
async fn every_route_requires_its_documented_role() {
    let driver = AdminPortAccess::Guarded.start_driver().await;
    let reader = format!("Bearer {READER_TOKEN}");
    let reader = [("authorization", &*reader)];
    let (_, document) = reply_from_admin(&driver, "GET", "/v1/openapi.json", &reader).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut routes = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let mut path = path.replace(['{', '}'], "");
            if path.ends_with("/events") {
                // A stream of events has no end, so the test would wait for it forever. With this invalid query, the
                // stream ends immediately.
                path += "?verdict=none";
            }
            let anonymous_status = reply_from_admin(&driver, &method, &path, &[]).await.0;
            let reader_status = reply_from_admin(&driver, &method, &path, &reader).await.0;
            match operation["x-admittance-role"].as_str() {
                None => assert_eq!((anonymous_status, reader_status), (200, 200), "{method} {path}"),
                Some("Admin") => assert_eq!((anonymous_status, reader_status), (401, 403), "{method} {path}"),
                Some(_) => {
                    assert_eq!(anonymous_status, 401, "{method} {path}");
                    assert!(
                        reader_status != 401 && reader_status != 403,
                        "{method} {path}: {reader_status}"
                    );
                }
            }
            assert!(path.starts_with("/v1/") == operation["x-admittance-role"].is_string());
            routes += 1;
        }
    }
    assert!(routes > 10, "{routes}");
}

fn write_token(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn a_token_file_is_reloaded_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let (first_token, second_token) = ("the first of two tokens", "the second of two tokens");
    let (first, second) = (first_token.replace(' ', "-"), second_token.replace(' ', "-"));
    write_token(&path, &first);
    let tokens = vec![AdminToken {
        name: "ci".to_owned(),
        role: AdminRole::Read,
        source: TokenSource::File(TokenFile::read(&path).unwrap()),
    }];
    let config = AdminConfig::new(loopback()).with_tokens(tokens).unwrap();
    let driver = Setup::new(&[echo_upstream().await]).admin(config).start().await;
    let statuses = async || {
        let mut codes = [0; 2];
        for (token, code) in [&first, &second].into_iter().zip(&mut codes) {
            let value = format!("Bearer {token}");
            let headers = [("authorization", &*value)];
            *code = reply_from_admin(&driver, "GET", "/v1/status", &headers).await.0;
        }
        codes
    };
    assert_eq!(statuses().await, [200, 401]);
    write_token(&path, &second);
    wait_until("the second token", async || statuses().await == [401, 200]).await;
    write_token(&path, "short");
    wait_until("a file that is no good", async || statuses().await == [401, 401]).await;
    write_token(&path, &format!("{first}\n"));
    wait_until("the first token again", async || statuses().await == [200, 401]).await;
    fs::remove_file(&path).unwrap();
    wait_until("no file", async || statuses().await == [401, 401]).await;
}

async fn reply_over_tls(
    driver: &RunningDriver,
    config: ClientConfig,
    mut request: Request<Body>,
) -> Option<Response<Incoming>> {
    let name = ServerName::try_from("localhost").unwrap();
    let stream = within_timeout(TcpStream::connect(driver.admin)).await.unwrap();
    let stream = within_timeout(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let host = HeaderValue::from_static("localhost");
    request.headers_mut().insert("host", host);
    within_timeout(sender.send_request(request)).await.ok()
}

fn get_request(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn certificates_identify_clients_of_the_admin_port() {
    let authority = FileAuthority::new();
    let strangers = FileAuthority::new();
    let sign_named = |authority: &FileAuthority, common_name: &str, alternative: &str| -> Identity {
        let mut params = CertificateParams::new(vec![alternative.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        authority.sign_with(common_name, params)
    };
    let ops = sign_named(&authority, "ops", "ops.example.com");
    let board = sign_named(&authority, "board", "board.example.com");
    let other_client = sign_named(&authority, "other", "other.example.com");
    let stranger = sign_named(&strangers, "ops", "ops.example.com");
    let server = ServerTls::of_admin_files(authority.sign("localhost"), Some(authority.file_path("ca.pem"))).unwrap();
    let clients = vec![
        CertificateHolder {
            name: "ops".to_owned(),
            role: AdminRole::Admin,
        },
        CertificateHolder {
            name: "board.example.com".to_owned(),
            role: AdminRole::Read,
        },
    ];
    let certificate_config = AdminConfig::new(all_interfaces()).with_tls(AdminTls {
        server: server.clone(),
        clients: clients.clone(),
    });
    let either_config = certificate_config.clone().with_tokens(admin_tokens()).unwrap();
    let mut drivers = Vec::new();
    for config in [certificate_config, either_config] {
        drivers.push(Setup::new(&[echo_upstream().await]).admin(config).start().await);
    }
    let [by_certificate, by_either] = &drivers[..] else {
        unreachable!("there are two");
    };
    let reader = format!("Bearer {READER_TOKEN}");
    let reader = ("authorization", &*reader);
    type Row<'r> = (
        &'r RunningDriver,
        Option<&'r Identity>,
        &'r str,
        &'r [(&'r str, &'r str)],
        Option<u16>,
        &'r str,
    );
    // (driver, client certificate, path, headers, expected status or 0 for a refused connection, part of the reply)
    let table: [Row<'_>; 18] = [
        (by_certificate, Some(&ops), "/v1/status", &[], Some(200), ""),
        (
            by_certificate,
            Some(&ops),
            "/v1/requests?seconds=0",
            &[],
            Some(400),
            "seconds",
        ),
        (by_certificate, Some(&board), "/v1/status", &[], Some(200), ""),
        (
            by_certificate,
            Some(&board),
            "/v1/requests?seconds=0",
            &[],
            Some(403),
            "certificate board.example.com has the role Read",
        ),
        (
            by_certificate,
            Some(&other_client),
            "/v1/status",
            &[],
            Some(403),
            "other.example.com",
        ),
        (by_certificate, None, "/v1/status", &[], Some(403), "certificate"),
        (by_certificate, None, "/healthz", &[], Some(200), "ok"),
        (by_certificate, Some(&stranger), "/healthz", &[], None, ""),
        // A browser presents the user's certificate even if a page of another site sends the request. So the origin
        // decides, and a foreign origin is refused.
        (
            by_certificate,
            Some(&ops),
            "/v1/status",
            &[("origin", "https://example.com")],
            Some(403),
            "web pages",
        ),
        (by_either, None, "/v1/status", &[], Some(401), "Bearer"),
        (by_either, Some(&board), "/v1/status", &[], Some(200), ""),
        (by_either, Some(&other_client), "/v1/status", &[reader], Some(200), ""),
        // If a client presents both a token and a certificate, the token counts. A client sends a token deliberately,
        // but a certificate on every connection.
        (
            by_either,
            Some(&ops),
            "/v1/requests?seconds=0",
            &[reader],
            Some(403),
            "token board",
        ),
        (
            by_certificate,
            Some(&ops),
            "/live",
            &[],
            Some(200),
            "certificate ops, Admin",
        ),
        (
            by_certificate,
            Some(&board),
            "/live",
            &[],
            Some(200),
            "certificate board.example.com, Read",
        ),
        (by_certificate, None, "/live", &[], Some(403), "certificate"),
        (by_either, Some(&ops), "/live", &[], Some(200), "certificate ops, Admin"),
        (by_either, None, "/live", &[], Some(401), "Sign in"),
    ];
    for (index, (driver, identity, path, headers, expected, part)) in table.into_iter().enumerate() {
        let config = FileAuthority::client_config(&authority, identity, b"http/1.1");
        let (status, reply) = match reply_over_tls(driver, config, get_request(path, headers)).await {
            Some(reply) => {
                let (status, reply) = status_and_text(reply).await;
                (Some(status), reply)
            }
            None => (None, String::new()),
        };
        assert_eq!(status, expected, "row {index}: {reply:?}");
        assert!(reply.contains(part), "row {index}: {reply}");
    }
    let client = || authority.client_config(None, b"http/1.1");
    let driver_status = reply_over_tls(by_either, client(), get_request("/v1/status", &[reader])).await;
    let detail: Value = serde_json::from_str(&status_and_text(driver_status.unwrap()).await.1).unwrap();
    assert_eq!(detail["certificates"][0]["certificate"], "admin");

    // The cookie of a TLS session is sent neither without TLS nor to another host.
    let form = Request::post("/sign-in")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .body(Body::from(format!("token={READER_TOKEN}")));
    let sign_in_reply = reply_over_tls(by_either, client(), form.unwrap()).await.unwrap();
    assert_eq!(sign_in_reply.status(), 303);
    let cookie = sign_in_reply.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.starts_with("__Host-admittance=") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
    let session = cookie.split(';').next().unwrap();
    let page = reply_over_tls(by_either, client(), get_request("/live", &[("cookie", session)])).await;
    let (status, page) = status_and_text(page.unwrap()).await;
    assert!(status == 200 && page.contains("token board, Read"), "{page}");
}
