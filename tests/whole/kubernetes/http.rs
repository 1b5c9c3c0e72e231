//! Tests the replies to invalid AdmissionReviews, and how replies are sent.

use std::{fs, sync::Arc};

use admittance_tests::{Client, ClientTrust};
use http::{Method, Request, Version};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use super::{
    hooks::{HookAnswer, Hooks, configuration},
    server::{POD, Server, certificates, review_request},
};
use crate::scene::source;

/// The maximum size of an AdmissionReview in bytes.
const REVIEW_SIZE_LIMIT: usize = 7 * 1024 * 1024;

fn chains() -> String {
    let plugin_source = source("image-policy");
    let chain = |phase: &str, name: &str| {
        format!(
            "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  phase: {phase}
  rules: [{{ operations: [CREATE], resources: [pods] }}]
  stages: [{{ name: images, plugin: {{ source: \"{plugin_source}\", settings: {{ refuseLatest: true }} }} }}]
"
        )
    };
    chain("Mutating", "mirror") + &*chain("Validating", "tags")
}

const PLAIN_CONFIG: &str = "
dialect: { kubernetes: {} }
definitions: [chains.yaml]
";

/// Starts a server without TLS, so that the test can see the bytes of its replies.
async fn start_without_tls(definitions: &str) -> Server {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    Server::start_in(directory, PLAIN_CONFIG, definitions).await
}

#[tokio::test]
async fn invalid_reviews_are_answered_with_a_status_and_its_reason() {
    const JSON: Option<&str> = Some("application/json");
    let server = Server::start("", &chains()).await;
    let review = POD.review("u");
    let review_with = |pointer: &str, value: Value| {
        let mut review = review.clone();
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string()
    };
    let valid_review = review.to_string();
    let response_review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": true},
    });
    // (method, path, Content-Type, Content-Encoding, body, expected status, part of the expected message)
    let table: Vec<(&str, &str, Option<&str>, Option<&str>, String, u16, &str)> = vec![
        ("POST", "/admit", JSON, None, valid_review.clone(), 200, ""),
        ("POST", "/admit?timeout=30s", JSON, None, valid_review.clone(), 200, ""),
        ("POST", "/mutate/mirror?x=y", JSON, None, valid_review.clone(), 200, ""),
        ("POST", "/validate/tags", JSON, None, valid_review.clone(), 200, ""),
        (
            "POST",
            "/admit",
            Some("application/json; charset=utf-8"),
            None,
            valid_review.clone(),
            200,
            "",
        ),
        (
            "POST",
            "/admit",
            Some("Application/JSON"),
            Some("identity"),
            valid_review.clone(),
            200,
            "",
        ),
        (
            "GET",
            "/admit",
            JSON,
            None,
            String::new(),
            405,
            "sent with POST, not GET",
        ),
        (
            "PUT",
            "/mutate/mirror",
            JSON,
            None,
            valid_review.clone(),
            405,
            "sent with POST, not PUT",
        ),
        (
            "POST",
            "/",
            JSON,
            None,
            valid_review.clone(),
            404,
            "\"/\" is not a path for reviews",
        ),
        (
            "POST",
            "/admission",
            JSON,
            None,
            valid_review.clone(),
            404,
            "use /mutate, /validate or /admit",
        ),
        (
            "POST",
            "/admit/mirror",
            JSON,
            None,
            valid_review.clone(),
            404,
            "is not a path for reviews",
        ),
        (
            "POST",
            "/mutate/absent",
            JSON,
            None,
            valid_review.clone(),
            404,
            "there is no chain absent of the phase Mutating; the chains of this phase: mirror",
        ),
        (
            "POST",
            "/mutate/tags",
            JSON,
            None,
            valid_review.clone(),
            404,
            "the chain tags is of the phase Validating: use /validate/tags",
        ),
        (
            "POST",
            "/validate/mirror",
            JSON,
            None,
            valid_review.clone(),
            404,
            "the chain mirror is of the phase Mutating: use /mutate/mirror",
        ),
        (
            "POST",
            "/admit?timeout=soon",
            JSON,
            None,
            valid_review.clone(),
            400,
            "the timeout \"soon\"",
        ),
        (
            "POST",
            "/admit",
            None,
            None,
            valid_review.clone(),
            415,
            "has no Content-Type",
        ),
        (
            "POST",
            "/admit",
            Some("text/plain"),
            None,
            valid_review.clone(),
            415,
            "\"text/plain\"",
        ),
        ("POST", "/admit", JSON, Some("gzip"), valid_review.clone(), 415, "gzip"),
        (
            "POST",
            "/admit",
            JSON,
            None,
            String::new(),
            400,
            "not an AdmissionReview: EOF",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            valid_review[..100].to_owned(),
            400,
            "not an AdmissionReview: EOF",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            format!("{valid_review}x"),
            400,
            "trailing characters",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            "apiVersion: admission.k8s.io/v1".into(),
            400,
            "not an AdmissionReview",
        ),
        ("POST", "/admit", JSON, None, "[]".into(), 400, "not an AdmissionReview"),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review["request"]["object"].to_string(),
            400,
            "kind is `Pod`",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/apiVersion", json!("admission.k8s.io/v2")),
            400,
            "apiVersion is `admission.k8s.io/v2`",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            response_review.to_string(),
            400,
            "has no `request`",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/request/operation", json!("PATCH")),
            400,
            "request.operation: `PATCH`",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/request/object", json!([1])),
            400,
            "request.object",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/request/oldObject", json!("x")),
            400,
            "request.oldObject",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/request/dryRun", json!("no")),
            400,
            "expected a boolean",
        ),
        (
            "POST",
            "/admit",
            JSON,
            None,
            review_with("/request/userInfo", json!(1)),
            400,
            "not an AdmissionReview",
        ),
    ];
    for (method, path, content_type, encoding, body, status, words) in table {
        let case = format!(
            "{method} {path} {content_type:?} {encoding:?} {}",
            body.get(..60).unwrap_or(&body)
        );
        let mut request = Request::builder()
            .method(Method::try_from(method).unwrap())
            .uri(server.program.tls_url(path));
        for (name, value) in [("content-type", content_type), ("content-encoding", encoding)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let reply = server.client.send(request.body(body).unwrap()).await.unwrap();
        assert_eq!(reply.status, status, "{case}: {}", reply.text());
        assert_eq!(reply.headers["content-type"], "application/json", "{case}");
        let answer = reply.json().unwrap();
        if status == 200 {
            assert_eq!(answer["response"]["allowed"], true, "{case}");
            continue;
        }
        assert_eq!(
            (answer["kind"].as_str(), answer["code"].as_u64()),
            (Some("Status"), Some(status.into()))
        );
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(words), "{case}: {message}");
        let allow = reply.headers.get("allow").map(|value| value.to_str().unwrap());
        assert_eq!(allow, (status == 405).then_some("POST"), "{case}");
    }
}

fn review_of_size(size: usize) -> String {
    let mut review = POD.review("large");
    review["request"]["object"]["metadata"]["annotations"] = json!({"pad": ""});
    let room = size - review.to_string().len();
    review["request"]["object"]["metadata"]["annotations"]["pad"] = json!("x".repeat(room));
    let text = review.to_string();
    assert_eq!(text.len(), size);
    text
}

async fn connect(server: &Server) -> TcpStream {
    let url = server.program.url("");
    let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

const REQUEST_HEAD: &str = "POST /admit HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Reads the only reply on a connection, and returns its status.
async fn read_status(stream: &mut TcpStream) -> u16 {
    let mut reply_bytes = Vec::new();
    while !reply_bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut reply_bytes).await.unwrap(), 0, "no reply");
    }
    let text = String::from_utf8_lossy(&reply_bytes).into_owned();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_review_of_seven_mebibytes_is_accepted() {
    let server = start_without_tls(&chains()).await;
    let largest_review = review_of_size(REVIEW_SIZE_LIMIT);

    let mut stream = connect(&server).await;
    let head = format!("{REQUEST_HEAD}content-length: {REVIEW_SIZE_LIMIT}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(largest_review.as_bytes()).await.unwrap();
    assert_eq!(read_status(&mut stream).await, 200);

    // If the head of a request declares too long a body, the request is refused before the client sends the body.
    let mut stream = connect(&server).await;
    let head = format!("{REQUEST_HEAD}content-length: {}\r\n\r\n", REVIEW_SIZE_LIMIT + 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_status(&mut stream).await, 413);

    for (final_chunk, expected) in [("0\r\n\r\n", 200), ("1\r\nx\r\n", 413)] {
        let mut stream = connect(&server).await;
        let head = format!("{REQUEST_HEAD}transfer-encoding: chunked\r\n\r\n{REVIEW_SIZE_LIMIT:x}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(largest_review.as_bytes()).await.unwrap();
        stream.write_all(format!("\r\n{final_chunk}").as_bytes()).await.unwrap();
        assert_eq!(read_status(&mut stream).await, expected, "{final_chunk:?}");
    }
}

/// A reply must be one segment: a second would wait up to 40 ms, until kube-apiserver acknowledges the first.
#[tokio::test]
async fn a_reply_is_sent_in_one_segment_and_the_connection_is_kept() {
    let server = start_without_tls(&chains()).await;
    let mut stream = connect(&server).await;
    for number in 0..20 {
        let review = POD.review(&format!("u{number}")).to_string();
        let request = format!("{REQUEST_HEAD}content-length: {}\r\n\r\n{review}", review.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut buffer = vec![0; 16 * 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("half a head: {text}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(!head.to_lowercase().contains("connection: close"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["response"]["uid"], format!("u{number}"));
    }
}

#[tokio::test]
async fn ten_concurrent_reviews_share_an_http2_connection() {
    const REVIEW_COUNT: usize = 10;
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    let hooks = Hooks::start(directory.path(), |_, mut arrivals| async move {
        arrivals.wait_for("/together", REVIEW_COUNT).await;
        HookAnswer::allow()
    })
    .await;
    let chain = configuration(
        "Validating",
        "together",
        &[hooks.webhook("together", "/together", &json!({"timeoutSeconds": 30}))],
    );
    let config = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
limits: { requestTimeout: 60s }
definitions: [chains.yaml]
";
    let server = Server::start_in(directory, &format!("{config}{}", hooks.resolve_config()), &chain).await;
    let client = Arc::new(server.http2_client());
    let other_url = server.program.tls_url("/mutate");
    let reply = client
        .send(review_request(&other_url, &POD.review("first")))
        .await
        .unwrap();
    assert_eq!((reply.status.as_u16(), reply.version), (200, Version::HTTP_2));

    let mut tasks = JoinSet::new();
    for number in 0..REVIEW_COUNT {
        let (client, url) = (client.clone(), server.program.tls_url("/validate/together"));
        tasks.spawn(async move {
            let review = POD.review(&format!("u{number}"));
            let reply = client.send(review_request(&url, &review)).await.unwrap();
            assert_eq!(reply.json().unwrap()["response"]["uid"], format!("u{number}"));
            reply.version
        });
    }
    let versions = tasks.join_all().await;
    assert_eq!(versions, [Version::HTTP_2; REVIEW_COUNT]);
    let metrics = server.program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_http_connections", &[]), Some(1.0));
}

/// kube-apiserver presents a client certificate to webhook servers if its admission configuration names one.
#[tokio::test]
async fn callers_can_be_required_to_present_a_client_certificate() {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &["--client", "kube-apiserver"]).await;
    let foreign_directory = tempfile::tempdir().unwrap();
    certificates(&foreign_directory, &["--client", "kube-apiserver"]).await;
    let config = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key, clientCa: ca.pem } }
definitions: [chains.yaml]
";
    let server = Server::start_in(directory, config, &chains()).await;
    let pem = |folder: &tempfile::TempDir, name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let authorities = pem(&server.directory, "ca.pem");
    for (name, identity, is_served) in [
        ("of the CA", Some(&server.directory), true),
        ("none", None, false),
        ("of another CA", Some(&foreign_directory), false),
    ] {
        let identity = identity.map(|folder| (pem(folder, "kube-apiserver.pem"), pem(folder, "kube-apiserver.key")));
        let identity = identity
            .as_ref()
            .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        let trust = ClientTrust {
            authorities: &authorities,
            identity,
        };
        let client = Client::with_trust(trust).unwrap();
        let url = server.program.tls_url("/admit");
        let reply = client.send(review_request(&url, &POD.review("u"))).await;
        assert_eq!(
            reply.is_ok_and(|reply| reply.status == 200),
            is_served,
            "a certificate {name}"
        );
    }
}
