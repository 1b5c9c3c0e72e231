//! Tests which replies clients receive for the replies of the scheduler.

use std::time::Duration;

use axum::{Router, body::Body};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};

use super::scheduler::*;
use crate::harness::*;

const RESOURCES_PATH: &str = "/cluster/resources";

#[tokio::test]
#[rustfmt::skip]
async fn replies_of_the_scheduler_are_passed_on_as_documented() {
    let refused = |message: &str| format!(r#"{{"result":false,"code":1405009,"message":"(bcs-mesos-driver):do http request failed!{message}","data":{{}}}}"#);
    // (name of the case, the scheduler's status, the scheduler's body, the client's body or `None` if it is the same)
    for (source, status, body, expected) in [
        ("1.4", 200, SUCCESS.to_owned(), None),
        ("1.4 whatever its status", 500, r#"{"result":false,"code":1405200,"message":"x","data":{}}"#.to_owned(), None),
        ("1.4 byte for byte", 404, "\n {\"code\": 0 }\n".to_owned(), None),
        ("1.4 however long", 200, format!(r#"{{"data":"{}"}}"#, "x".repeat(100_000)), None),
        ("2.2 not the master", 200, String::new(), Some(refused("the scheduler replied 200 OK without a body; it may not be the master"))),
        ("1.3 commented out", 404, "404: Page Not Found".to_owned(), Some(refused("the scheduler replied 404 Not Found without JSON: 404: Page Not Found"))),
        ("a proxy between", 302, "<a href=\"x\">Found</a>.".to_owned(), Some(refused("the scheduler replied 302 Found without JSON: <a href=\\\"x\\\">Found</a>."))),
    ] {
        let scheduler_body = body.clone();
        let reply = move || {
            Response::builder()
                .status(status)
                .header("content-type", "text/plain")
                .header("set-cookie", "a=b")
                .header("server", "x")
                .body(Body::from(scheduler_body.clone()))
                .unwrap()
        };
        // No scheduler becomes the master here, so the driver gives up after `connect_timeout`.
        let scene = SchedulerScene::start_with(reply, |setup| setup.upstream(|upstream| upstream.connect_timeout = Duration::from_millis(50))).await;
        let response = scene.driver.send(request("GET", &mesos_path(RESOURCES_PATH), Body::empty())).await;
        let mut names: Vec<&str> = response.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "content-type", "date", "x-request-id"], "{source}");
        assert_eq!(response.headers()["content-type"], "application/json", "{source}");
        assert_eq!(status_and_text(response).await, (200, expected.unwrap_or(body)), "{source}");
    }
}

#[tokio::test]
async fn chunked_replies_and_trailers_are_passed_on() {
    for size in [1, 5000] {
        let scene = SchedulerScene::start_with_reply(move || {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "42".parse().unwrap());
            let frames = [
                Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{"))),
                Ok(Frame::data(Bytes::from("x".repeat(size)))),
                Ok(Frame::trailers(trailers)),
            ];
            Response::builder()
                .header("trailer", "x-sum")
                .body(Body::new(StreamBody::new(stream::iter(frames))))
                .unwrap()
        })
        .await;
        let mut request = request("GET", &mesos_path(RESOURCES_PATH), Body::empty());
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        let response = scene.driver.send(request).await;
        assert!(!response.headers().contains_key("trailer"));
        let collected = within_timeout(response.into_body().collect()).await.unwrap();
        assert!(collected.trailers().is_none());
        assert_eq!(collected.to_bytes().len(), size + 1);
    }
}

#[tokio::test]
async fn a_compressed_reply_stays_unchanged() {
    let scene = SchedulerScene::start_with_reply(|| {
        Response::builder()
            .status(201)
            .header("content-encoding", "gzip")
            .header("content-type", "application/json")
            .body(Body::from("\u{1f}packed"))
            .unwrap()
    })
    .await;
    let response = scene
        .driver
        .send(request("GET", &mesos_path(RESOURCES_PATH), Body::empty()))
        .await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(status_and_text(response).await, (201, "\u{1f}packed".to_owned()));
}

#[tokio::test]
async fn a_large_reply_is_streamed() {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let receiver = std::sync::Arc::new(tokio::sync::Mutex::new(receiver));
    let routes = Router::new().fallback(async move || {
        Body::from_stream(stream::unfold(receiver, async |receiver| {
            let chunk = receiver.lock().await.recv().await;
            chunk.map(|chunk| (Ok::<_, std::io::Error>(chunk), receiver))
        }))
    });
    let driver = in_front_of_schedulers(Setup::new(&[serve(routes).await])).start().await;
    let chunk = Bytes::from(format!("{{{}", "x".repeat(2000)));
    within_timeout(sender.send(chunk.clone())).await.unwrap();
    let mut body = driver
        .send(request("GET", &mesos_path(RESOURCES_PATH), Body::empty()))
        .await
        .into_body();
    for _ in 0..3 {
        let mut back = Vec::new();
        while back.len() < chunk.len() {
            let frame = within_timeout(body.frame()).await.unwrap().unwrap();
            back.extend(frame.into_data().unwrap());
        }
        assert_eq!(back, chunk);
        within_timeout(sender.send(chunk.clone())).await.unwrap();
    }
}

async fn serve_raw_reply(reply: &'static str, hangs_up: bool) -> std::net::SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        write(&mut stream, reply).await;
        if !hangs_up {
            std::future::pending::<()>().await;
        }
    });
    address
}

#[tokio::test]
#[rustfmt::skip]
async fn a_missing_or_invalid_reply_is_reported() {
    // (text that the scheduler sends, whether it hangs up afterwards, expected reason in the driver's reply)
    for (written, hangs_up, expected) in [
        ("", true, "the connection to the upstream broke before it replied"),
        ("", false, "the upstream did not reply within 100ms"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", true, "the connection to the upstream broke after the head of its reply"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", true, "the connection to the upstream broke after the head of its reply"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", false, "the upstream did not reply within 100ms"),
    ] {
        let setup = Setup::new(&[serve_raw_reply(written, hangs_up).await])
            .upstream(|upstream| upstream.response_timeout = Duration::from_millis(100));
        let driver = in_front_of_schedulers(setup).start().await;
        let (status, reply) = status_and_text(driver.send(request("GET", &mesos_path(RESOURCES_PATH), Body::empty())).await).await;
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(status, 200, "{written}");
        assert_eq!(reply["code"], 1_405_009, "{written}");
        assert_eq!(reply["message"], format!("(bcs-mesos-driver):do http request failed!{expected}"), "{written}");
    }
}

#[tokio::test]
async fn a_client_notices_a_truncated_reply() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let setup = Setup::new(&[listener.local_addr().unwrap()]);
    let driver = in_front_of_schedulers(setup).start().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        let start = format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{{{}", "x".repeat(2000));
        write(&mut stream, &start).await;
    });
    let response = driver
        .send(request("GET", &mesos_path(RESOURCES_PATH), Body::empty()))
        .await;
    assert_eq!(response.status(), 200);
    assert!(within_timeout(response.into_body().collect()).await.is_err());
}

#[tokio::test]
async fn a_request_without_a_scheduler_fails() {
    let driver = in_front_of_schedulers(Setup::new(&[refusing_upstream().await]))
        .start()
        .await;
    let (status, reply) = driver.post(runnable_json("application", "a")).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(
        (status, reply["code"].as_u64(), &reply["data"]),
        (200, Some(1_405_009), &serde_json::json!({}))
    );
    let message = reply["message"].as_str().unwrap();
    assert!(
        message.starts_with("(bcs-mesos-driver):do http request failed!"),
        "{message}"
    );
}
