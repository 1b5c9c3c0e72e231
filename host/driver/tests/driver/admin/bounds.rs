//! Tests that a client of the admin port cannot delay other clients or lock them out.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

use admittance::{
    DecisionsConfig, Host,
    admission::{Chain, Labels, NamespaceLookupError, NamespaceSource, Operation, Rule, Stage, async_trait},
};
use admittance_admin::{AdminConfig, AdminRole, AdminToken, TokenSource};
use admittance_net::bearer::TokenDigest;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::guest::{Guest, GuestAnswer};
use crate::{
    harness::{
        HarnessHook, Setup, application, echo_upstream, loopback, post_request, read_rest, request, status_and_text,
        within_timeout, write,
    },
    tls::wait_until,
};

const READER_TOKEN: &str = "the-token-of-who-reads";
const ADMIN_TOKEN: &str = "the-token-of-who-changes";

fn guarded_config() -> AdminConfig {
    let token = |name: &str, role, text: &str| AdminToken {
        name: name.to_owned(),
        role,
        source: TokenSource::Digest(TokenDigest::of_token(text)),
    };
    let tokens = vec![
        token("board", AdminRole::Read, READER_TOKEN),
        token("ops", AdminRole::Admin, ADMIN_TOKEN),
    ];
    AdminConfig::new(loopback()).with_tokens(tokens).unwrap()
}

fn authorized_request(token: &str, method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .body(body.into())
        .unwrap()
}

/// Namespaces whose lookups block their thread until the test releases them, or for 20 s.
struct BlockingNamespaces {
    is_held: Arc<AtomicBool>,
    has_timed_out: Arc<AtomicBool>,
    release: Mutex<Receiver<()>>,
}

#[async_trait]
impl NamespaceSource for BlockingNamespaces {
    async fn labels(&self, _: &str) -> Result<Labels, NamespaceLookupError> {
        self.is_held.store(true, Ordering::SeqCst);
        let released = self.release.lock().unwrap().recv_timeout(Duration::from_secs(20));
        let is_over = released == Err(RecvTimeoutError::Timeout);
        self.has_timed_out.fetch_or(is_over, Ordering::SeqCst);
        Ok(Labels::default())
    }
}

#[tokio::test]
async fn a_slow_reply_delays_no_probe_and_no_connection() {
    let directory = tempfile::tempdir().unwrap();
    let chain = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\nspec:\n  \
                 rules: [{ operations: [CREATE], kinds: [application] }]\n  stages:\n  - name: s\n    \
                 namespaceSelector: { matchLabels: { team: a } }\n    \
                 cel: { validations: [{ expression: 'true' }] }\n";
    std::fs::write(directory.path().join("a.yaml"), chain).unwrap();
    let (is_held, gave_up) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (release, released) = channel::<()>();
    let host = Host::builder()
        .definitions(directory.path())
        .namespaces(BlockingNamespaces {
            is_held: is_held.clone(),
            has_timed_out: gave_up.clone(),
            release: Mutex::new(released),
        })
        .build()
        .await
        .unwrap();
    let driver = Arc::new(Setup::new(&[echo_upstream().await]).start_with(host).await);
    let question = json!({"kind": "v4/application", "namespace": "n"}).to_string();
    let pending_reply = tokio::spawn({
        let driver = driver.clone();
        async move { driver.call_admin("POST", "/v1/applies", question).await }
    });
    wait_until("the question is being answered", async || {
        is_held.load(Ordering::SeqCst)
    })
    .await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(driver.get_from_admin(path).await.0, 200, "{path}");
    }
    let request = request("GET", "/not/hooked", Body::empty());
    assert_eq!(driver.send(request).await.status(), 200);
    drop(release);
    let (status, reply) = within_timeout(pending_reply).await.unwrap();
    assert_eq!(status, 200, "{reply}");
    assert!(!gave_up.load(Ordering::SeqCst), "something waited for the reply");
}

#[tokio::test]
async fn request_bodies_and_parameters_have_size_limits() {
    let log = crate::log::TestLog::of_audits();
    let driver = Setup::new(&[echo_upstream().await])
        .admin(guarded_config())
        .start()
        .await;
    let form = |body: String| {
        Request::post("/sign-in")
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(body))
            .unwrap()
    };
    let long = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let parameters = vec!["a=1"; 129].join("&");
    for (case, request, status, part) in [
        ("a long form", form("a".repeat((64 << 10) + 1)), 413, "65536 bytes"),
        (
            "a form with many fields",
            form(parameters.clone()),
            400,
            "more than 128 fields",
        ),
        (
            "many parameters",
            authorized_request(
                READER_TOKEN,
                "GET",
                &format!("/v1/decisions?{parameters}"),
                Body::empty(),
            ),
            400,
            "more than 128 fields",
        ),
        (
            "a long description of a request",
            authorized_request(READER_TOKEN, "POST", "/v1/applies", long(4 << 20)),
            413,
            "4194304 bytes",
        ),
        (
            "a long number",
            authorized_request(ADMIN_TOKEN, "POST", "/v1/rollback", long(64 << 10)),
            413,
            "65536 bytes",
        ),
        (
            "a body of who may not send it",
            authorized_request(READER_TOKEN, "POST", "/v1/rollback", long(64 << 10)),
            403,
            "role Admin",
        ),
    ] {
        let (reply_status, reply) = status_and_text(driver.send_to_admin(request).await).await;
        assert!(
            reply_status == status && reply.contains(part),
            "{case}: {reply_status} {reply}"
        );
    }
    let is_noted = |line: &str| line.contains("/sign-in") && line.contains("65536 bytes");
    assert!(log.text().lines().any(is_noted), "a refused form is in the audit log");
}

#[tokio::test]
async fn one_token_cannot_take_all_streams_of_decisions() {
    let driver = Setup::new(&[echo_upstream().await])
        .admin(guarded_config())
        .start()
        .await;
    let follow = |token| driver.send_to_admin(authorized_request(token, "GET", "/v1/decisions/events", Body::empty()));
    let mut streams = Vec::new();
    let refusal = loop {
        let response = follow(READER_TOKEN).await;
        match response.status().as_u16() {
            200 => streams.push(response),
            _ => break status_and_text(response).await,
        }
    };
    assert_eq!((streams.len(), refusal.0), (48, 503), "{}", refusal.1);
    assert_eq!(follow(ADMIN_TOKEN).await.status(), 200);
    streams.pop();
    wait_until("room for one more", async || follow(READER_TOKEN).await.status() == 200).await;
}

#[tokio::test]
async fn probes_are_answered_even_beyond_the_connection_limit_of_an_address() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let mut connections = Vec::new();
    for _ in 0..400 {
        connections.push(within_timeout(TcpStream::connect(driver.admin)).await.unwrap());
    }
    for (path, status, part) in [
        ("/healthz", 200, "ok"),
        ("/readyz", 200, "true"),
        ("/v1/status", 503, "too many connections of this client"),
    ] {
        let (reply_status, reply) = driver.get_from_admin(path).await;
        assert!(
            reply_status == status && reply.contains(part),
            "{path}: {reply_status} {reply}"
        );
    }
    let mut stream = within_timeout(TcpStream::connect(driver.admin)).await.unwrap();
    write(&mut stream, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(read_rest(&mut stream).await.contains("connection: close"));
    drop(connections);
    wait_until("the connections are closed", async || {
        driver.get_from_admin("/v1/status").await.0 == 200
    })
    .await;
}

#[tokio::test]
async fn decisions_with_one_uid_are_read_page_by_page() {
    let rules = vec![Rule::for_operations([Operation::Create])];
    let host = Host::builder().decisions(DecisionsConfig::default()).chain(Chain::new(
        "c",
        rules,
        vec![Stage::new("judge", HarnessHook)],
    ));
    let driver = Setup::new(&[echo_upstream().await])
        .start_with(host.build().await.unwrap())
        .await;
    for _ in 0..25 {
        let mut request = post_request(application("good"));
        request.headers_mut().insert("x-request-id", "chosen".parse().unwrap());
        assert_eq!(driver.send(request).await.status(), 200);
    }
    let ids = |page: &Value| -> Vec<u64> {
        let decisions = page["decisions"].as_array().unwrap();
        decisions
            .iter()
            .map(|decision| decision["id"].as_u64().unwrap())
            .collect()
    };
    let (_, newest) = driver.call_admin("GET", "/v1/decisions/chosen", "").await;
    let newest_ids = ids(&newest);
    assert_eq!((newest_ids.len(), &newest["older"]), (20, &json!(5)));
    assert_eq!(newest["next"], newest_ids[0]);
    let path = format!("/v1/decisions/chosen?before={}", newest_ids[0]);
    let (_, oldest) = driver.call_admin("GET", &path, "").await;
    assert_eq!(
        (ids(&oldest).len(), oldest.get("older"), oldest.get("next")),
        (5, None, None)
    );
    assert!(ids(&oldest).iter().max() < newest_ids.iter().min());
    let (status, page) = driver.get_from_admin("/decisions/chosen").await;
    assert!(
        status == 200 && page.contains("5 older decisions of this uid"),
        "{page}"
    );
    let older = format!("/decisions/chosen?before={}", newest_ids[0]);
    assert!(page.contains(&older), "{page}");
    assert_eq!(driver.get_from_admin(&older).await.0, 200);
}

#[tokio::test]
async fn no_route_shows_values_of_objects_to_readers() {
    let directory = tempfile::tempdir().unwrap();
    for (name, patch) in [
        (
            "plugin",
            r#"[{"op":"add","path":"/spec","value":{"a":"s3cret-plugin"}}]"#,
        ),
        (
            "candidate",
            r#"[{"op":"add","path":"/spec","value":{"a":"s3cret-candidate"}}]"#,
        ),
    ] {
        let guest = Guest::answering(&GuestAnswer::Patch(patch)).component();
        std::fs::write(directory.path().join(format!("{name}.wasm")), guest).unwrap();
    }
    let chains = directory.path().join("chains");
    std::fs::create_dir(&chains).unwrap();
    let chain = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\nspec:\n  \
                 rules: [{ operations: [CREATE], kinds: [application] }]\n  stages:\n  - name: s\n    \
                 plugin: { source: \"file:../plugin.wasm\" }\n    \
                 candidate: { source: \"file:../candidate.wasm\", share: 100% }\n";
    std::fs::write(chains.join("a.yaml"), chain).unwrap();
    let host = Host::builder()
        .definitions(&chains)
        .decisions(DecisionsConfig::default())
        .build()
        .await
        .unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .admin(guarded_config())
        .start_with(host)
        .await;
    let mut request = post_request(application("a"));
    request.headers_mut().insert("x-request-id", "u1".parse().unwrap());
    let (status, reply) = status_and_text(driver.send(request).await).await;
    assert!(status == 200 && reply.contains("s3cret-plugin"), "{reply}");
    let get = async |token, path: &str| {
        status_and_text(
            driver
                .send_to_admin(authorized_request(token, "GET", path, Body::empty()))
                .await,
        )
        .await
    };
    wait_until("the difference", async || {
        get(ADMIN_TOKEN, "/v1/candidates").await.1.contains("s3cret-candidate")
    })
    .await;
    let document: Value = serde_json::from_str(&get(READER_TOKEN, "/v1/openapi.json").await.1).unwrap();
    let mut secret_reply_count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        // The loop leaves out the routes whose reply is a stream of events, because such a reply has no end.
        if methods.get("get").is_none() || path.ends_with("/events") || path == "/v1/requests" {
            continue;
        }
        let path = path.replace("{uid}", "u1");
        let (_, reply) = get(READER_TOKEN, &path).await;
        assert!(!reply.contains("s3cret"), "{path}: {reply}");
        secret_reply_count += usize::from(get(ADMIN_TOKEN, &path).await.1.contains("s3cret"));
    }
    // The administrator sees the secret in the replies of three routes: one decision, the list of decisions, and the
    // list of candidates.
    assert_eq!(secret_reply_count, 3);
}
