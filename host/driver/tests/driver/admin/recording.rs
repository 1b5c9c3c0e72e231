use admittance_admin::api::ErrorReply;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::harness::{RunningDriver, Setup, application, echo_upstream, within_timeout};

async fn read_lines(body: Incoming) -> Vec<Value> {
    let bytes = within_timeout(body.collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn start_recording(driver: &RunningDriver, query: &str) -> http::Response<Incoming> {
    let request = Request::builder().uri(format!("/v1/requests{query}"));
    driver.send_to_admin(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn requests_are_recorded_when_they_are_answered() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let response = start_recording(&driver, "?count=2&redact=/metadata/namespace&redact=/kind").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    for name in ["good", "bad", "plain"] {
        driver.post(application(name)).await;
    }
    let lines = read_lines(response.into_body()).await;
    let summary = |line: &Value| {
        let object = &line["request"]["object"];
        (
            object["metadata"]["name"].clone(),
            object["metadata"]["namespace"].clone(),
            line["response"]["allowed"].clone(),
        )
    };
    let redacted = Value::from("[redacted]");
    let expected = [
        (Value::from("good"), redacted.clone(), Value::from(true)),
        (Value::from("bad"), redacted, Value::from(false)),
    ];
    assert_eq!(lines.iter().map(summary).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_recording_ends_when_its_time_is_over() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let response = start_recording(&driver, "?seconds=1").await;
    assert!(read_lines(response.into_body()).await.is_empty());
}

#[tokio::test]
async fn the_number_of_simultaneous_recordings_is_limited() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let response = start_recording(&driver, "").await;
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    let (status, reply) = driver.call_admin("GET", "/v1/requests", "").await;
    assert_eq!(status, 503, "{reply}");
    open.pop();
    crate::tls::wait_until("room for one more", async || {
        start_recording(&driver, "").await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn invalid_requests_for_recordings_are_refused() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    for (query, expected) in [
        ("?count=0", "count: write 1 to 1000000"),
        ("?count=1000001", "count: write 1 to 1000000"),
        ("?count=many", "the query is invalid"),
        ("?seconds=3601", "seconds: write 1 to 3600"),
        ("?share=half", "share: `half` is not a valid share"),
        ("?redact=spec", "redact: `spec` is not a valid field"),
        ("?shares=10%25", "the query is invalid"),
    ] {
        let (status, reply) = driver.call_admin("GET", &format!("/v1/requests{query}"), "").await;
        assert_eq!(status, 400, "{query}: {reply}");
        let reply: ErrorReply = serde_json::from_value(reply).unwrap();
        assert!(reply.error.message.starts_with(expected), "{query}: {reply:?}");
    }
}
