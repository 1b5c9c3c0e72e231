//! Tests schedulers that are not the master. These reply to every request with an empty body, and do nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;

use super::scheduler::*;
use crate::harness::*;

/// Starts a scheduler that is not the master at first, and replies to each request with an empty body. From request
/// number `first` on, it replies as the master. The returned number counts the requests that it has received.
async fn master_from(first: usize) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let request_count = Arc::new(AtomicUsize::new(0));
    let count = request_count.clone();
    let routes = Router::new().fallback(async move |request: Request<Body>| {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        // The driver may send the same request to one scheduler after the other. Each of them must get the whole body,
        // so each checks it here.
        let version: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(version["ID"], "a");
        match count.fetch_add(1, Ordering::Relaxed) {
            number if number + 1 < first => "",
            _ => SUCCESS,
        }
    });
    (serve(routes).await, request_count)
}

const NO_ANSWER: usize = usize::MAX;

#[tokio::test]
async fn the_next_listed_scheduler_is_called_if_the_first_is_not_the_master() {
    let (first, asked_first) = master_from(NO_ANSWER).await;
    let (second, asked_second) = master_from(1).await;
    let driver = in_front_of_schedulers(Setup::new(&[first, second])).start().await;
    for round in 1..=2 {
        let (status, reply) = driver.post(runnable_json("application", "a")).await;
        assert_eq!((status, reply.as_str()), (200, SUCCESS));
        assert_eq!(asked_first.load(Ordering::Relaxed), round);
        assert_eq!(asked_second.load(Ordering::Relaxed), round);
    }
}

#[tokio::test]
async fn a_scheduler_that_becomes_the_master_gets_the_request() {
    for first in [2, 3, 4] {
        let (address, request_count) = master_from(first).await;
        let driver = in_front_of_schedulers(Setup::new(&[address])).start().await;
        let (status, reply) = driver.post(runnable_json("application", "a")).await;
        assert_eq!((status, reply.as_str()), (200, SUCCESS), "{first}");
        assert_eq!(request_count.load(Ordering::Relaxed), first);
    }
}

#[tokio::test]
async fn without_a_master_the_request_fails_after_the_connect_timeout() {
    let (address, request_count) = master_from(NO_ANSWER).await;
    let setup = Setup::new(&[address]).upstream(|upstream| upstream.connect_timeout = Duration::from_millis(50));
    let driver = in_front_of_schedulers(setup).start().await;
    let (status, reply) = driver.post(runnable_json("application", "a")).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((status, reply["code"].as_u64()), (200, Some(1_405_009)));
    let message = reply["message"].as_str().unwrap();
    assert!(
        message.ends_with("without a body; it may not be the master"),
        "{message}"
    );
    assert!(request_count.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn a_streamed_body_is_sent_only_once() {
    let scene = SchedulerScene::start_with_reply(|| http::Response::new(Body::empty())).await;
    // No chain needs the body, so the driver streams it and cannot send it a second time.
    let (forwarded_request, status, reply) = scene.send("PUT", "/agentsettings/taint", "[]").await;
    assert_eq!(forwarded_request.unwrap().body, "[]");
    assert_eq!(status, 200);
    assert!(reply.contains("it may not be the master"), "{reply}");
}
