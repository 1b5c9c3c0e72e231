use std::{sync::Arc, time::Duration};

use axum::body::Body;

use crate::harness::*;

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let driver = Setup::new(&[echo_upstream().await])
        .limits(|limits| limits.body = 100)
        .start()
        .await;
    let large = application(&"x".repeat(100));
    let (status, body) = driver.post(large.clone()).await;
    assert_eq!(status, 413);
    assert!(body.contains("1405012"), "{body}");
    let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>(large.clone()), Ok(large)]);
    assert_eq!(driver.post(Body::from_stream(chunks)).await.0, 413);
}

#[tokio::test]
async fn a_request_whose_body_does_not_arrive_times_out() {
    let driver = Setup::new(&[echo_upstream().await])
        .limits(|limits| limits.body_timeout = Duration::from_millis(30))
        .start()
        .await;
    let mut stream = driver.connect().await;
    let head =
        format!("POST {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\ncontent-length: 9\r\n\r\n{{");
    write(&mut stream, &head).await;
    let reply = read_until(&mut stream, "}").await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert!(reply.contains("did not arrive within 30ms"), "{reply}");
}

#[tokio::test]
async fn requests_in_flight_beyond_the_limit_are_refused() {
    let (upstream, release, mut arrivals) = held_upstream().await;
    let driver = Arc::new(
        Setup::new(&[upstream])
            .limits(|limits| limits.concurrency = 1)
            .start()
            .await,
    );
    let first = {
        let driver = driver.clone();
        tokio::spawn(async move { driver.post(application("good")).await })
    };
    within_timeout(arrivals.recv()).await.unwrap();
    let response = driver.send(post_request(application("good"))).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, body) = status_and_text(response).await;
    assert_eq!(status, 503);
    assert!(body.contains("too many requests are in flight"), "{body}");
    release.notify_one();
    assert_eq!(within_timeout(first).await.unwrap(), (200, "done".to_owned()));
    // The first request is finished, so its slot is free for another request. The upstream replies to a request only
    // after a notification. It is notified in advance here, so that it replies to the next request at once.
    release.notify_one();
    assert_eq!(driver.post(application("good")).await.0, 200);
}

#[tokio::test]
async fn a_request_with_an_unfinished_head_times_out() {
    let driver = Setup::new(&[echo_upstream().await])
        .limits(|limits| limits.header_timeout = Duration::from_millis(50))
        .start()
        .await;
    let mut stream = driver.connect().await;
    write(&mut stream, "GET / HTTP/1.1\r\nx-slow: ").await;
    let reply = read_rest(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{reply}");
    assert!(
        reply.ends_with("the head of the request did not arrive within 50ms\n"),
        "{reply}"
    );
    let mut stream = driver.connect().await;
    write(&mut stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    read_until(&mut stream, "\r\n\r\n").await;
    write(&mut stream, "GET").await;
    let reply = read_rest(&mut stream).await;
    assert!(reply.contains("HTTP/1.1 408 "), "{reply}");
    let mut stream = driver.connect().await;
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
async fn bytes_that_are_not_http_close_the_connection() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let mut stream = driver.connect().await;
    write(&mut stream, "\x16\x03\x01 hello\r\n\r\n").await;
    let reply = read_rest(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    assert_eq!(driver.post(application("good")).await.0, 200);
}
