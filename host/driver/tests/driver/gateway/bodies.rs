use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use serde_json::json;
use tokio::sync::mpsc;

use super::{GATEWAY_PREFIX, SimulatedDriver, gateway_setup, status_and_json};
use crate::harness::*;

fn post_with_type(kind: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request("POST", &format!("{GATEWAY_PREFIX}/a"), body);
    request.headers_mut().insert("content-type", kind.parse().unwrap());
    request
}

#[tokio::test]
async fn a_yaml_body_is_converted_to_json() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |_| {}).start().await;
    let yaml = "kind: application\nmetadata: &m { name: a, namespace: ns }\nspec: { instance: 2, mode: 0755, on: yes }\ncopy: *m\n";
    let json = r#"{"kind":"application","metadata":{"name":"a","namespace":"ns"},"spec":{"instance":2,"mode":493,"true":true},"copy":{"name":"a","namespace":"ns"}}"#;
    for (kind, sent, received, kind_received) in [
        ("application/x-yaml", yaml, json, "application/json"),
        ("application/yaml; charset=utf-8", yaml, json, "application/json"),
        ("application/x-yaml", "", "", "application/json"),
        ("application/json", yaml, yaml, "application/json"),
        ("text/plain", "a: 1", "a: 1", "text/plain"),
    ] {
        let (status, body) = status_and_json(gateway.send(post_with_type(kind, sent)).await).await;
        assert_eq!((status, &body["code"]), (200, &json!(0)), "{kind}");
        let [request] = driver.take_requests().try_into().unwrap();
        assert_eq!(request.body, received, "{kind}");
        assert_eq!(request.headers["content-type"], kind_received);
        assert_eq!(request.headers["content-length"], received.len().to_string());
    }
    // This YAML body arrives in two chunks. Each is longer than the pieces in which the gateway converts a body.
    let long = "x".repeat(40_000);
    let chunks = stream::iter([
        Ok::<_, std::io::Error>(format!("a: {long}\n")),
        Ok(format!("b: {long}\n")),
    ]);
    gateway
        .send(post_with_type("application/yaml", Body::from_stream(chunks)))
        .await;
    let [request] = driver.take_requests().try_into().unwrap();
    assert_eq!(request.body, json!({"a": long, "b": long}).to_string());
    assert!(!request.headers.contains_key("transfer-encoding"));
}

#[tokio::test]
async fn a_body_that_cannot_be_converted_is_refused() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |_| {})
        .limits(|limits| {
            limits.body = 100;
            limits.body_timeout = Duration::from_millis(50);
        })
        .start()
        .await;
    let bomb = "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n";
    for (body, status, code, part) in [
        (
            "a: [",
            200,
            1_405_065,
            "(bcs-api):request yaml convert to json error: line 1, column 4: this is not YAML",
        ),
        (
            "a: 1\na: 2\n",
            200,
            1_405_065,
            "line 2, column 1: the field `a` is written a second time",
        ),
        ("a: 1\n---\nb: 2\n", 200, 1_405_065, "a second document"),
        (bomb, 200, 1_405_065, "larger than the 100 bytes"),
        (
            &"x".repeat(101),
            413,
            1_405_006,
            "read http body failed: it is larger than the 100 bytes",
        ),
    ] {
        let (reply_status, reply) = status_and_json(
            gateway
                .send(post_with_type("application/x-yaml", body.to_owned()))
                .await,
        )
        .await;
        assert_eq!(
            (reply_status, &reply["code"]),
            (status, &json!(code)),
            "{body}: {reply}"
        );
        assert!(reply["message"].as_str().unwrap().contains(part), "{body}: {reply}");
    }
    let mut compressed = post_with_type("application/x-yaml", "a: 1");
    compressed
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    let (status, reply) = status_and_json(gateway.send(compressed).await).await;
    assert_eq!((status, &reply["code"]), (415, &json!(1_405_065)));
    // The sender is not dropped, so this body never ends.
    let (_sender, receiver) = mpsc::channel::<Bytes>(1);
    let endless = stream::unfold(receiver, async |mut receiver| {
        receiver
            .recv()
            .await
            .map(|chunk| (Ok::<_, std::io::Error>(chunk), receiver))
    });
    let (status, reply) = status_and_json(
        gateway
            .send(post_with_type("application/yaml", Body::from_stream(endless)))
            .await,
    )
    .await;
    assert_eq!((status, &reply["code"]), (408, &json!(1_405_006)));
    assert!(driver.take_requests().is_empty());
}

#[tokio::test]
async fn bodies_that_need_no_conversion_are_streamed_up_to_the_limit() {
    let gateway = gateway_setup(&[(CLUSTER, &[echo_upstream().await])], |_| {})
        .limits(|limits| limits.body = 8 * 64 * 1024)
        .start()
        .await;
    assert_streams(&gateway, &format!("{GATEWAY_PREFIX}/a")).await;
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |_| {})
        .limits(|limits| limits.body = 100)
        .start()
        .await;
    let large = "x".repeat(80);
    let sized_request = post_with_type("application/json", format!("{large}{large}"));
    let chunks = stream::iter([Ok::<_, std::io::Error>(large.clone()), Ok(large)]);
    for request in [
        sized_request,
        post_with_type("application/json", Body::from_stream(chunks)),
    ] {
        let (status, reply) = status_and_json(gateway.send(request).await).await;
        assert_eq!((status, &reply["code"]), (413, &json!(1_405_006)), "{reply}");
    }
    assert!(driver.take_requests().is_empty());
}
