//! Tests how request bodies reach the scheduler: streamed if no chain needs them, else read within the limits.

use std::time::Duration;

use axum::{Router, body::Body};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::sync::mpsc;

use super::scheduler::*;
use crate::harness::*;

fn body_from_channel(receiver: mpsc::Receiver<Bytes>) -> Body {
    Body::from_stream(stream::unfold(receiver, async |mut receiver| {
        receiver
            .recv()
            .await
            .map(|chunk| (Ok::<_, std::io::Error>(chunk), receiver))
    }))
}

#[tokio::test]
async fn bodies_are_streamed_both_ways_if_no_chain_needs_them() {
    let routes = Router::new().fallback(async |request: Request<Body>| {
        Response::builder()
            .header("x-seen", request.uri().path())
            .body(request.into_body())
            .unwrap()
    });
    let setup = Setup::new(&[serve(routes).await]).limits(|limits| limits.body = 1024);
    let driver = in_front_of_schedulers(setup).start().await;
    // The test would hang if the driver waited for the whole body.
    let (sender, receiver) = mpsc::channel(1);
    let path = mesos_path("/agentsettings/taint");
    let sending = tokio::spawn({
        let address = driver.address;
        async move { send(address, request("PUT", &path, body_from_channel(receiver))).await }
    });
    let chunk = Bytes::from(vec![b'{'; 64 * 1024]);
    within_timeout(sender.send(chunk.clone())).await.unwrap();
    let response = within_timeout(sending).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    for _ in 0..4 {
        let mut back = Vec::new();
        while back.len() < chunk.len() {
            let frame = within_timeout(body.frame()).await.unwrap().unwrap();
            back.extend(frame.into_data().unwrap());
        }
        assert_eq!(back, chunk);
        within_timeout(sender.send(chunk.clone())).await.unwrap();
    }
    drop(sender);
    within_timeout(body.collect()).await.unwrap();
}

#[tokio::test]
async fn bodies_that_the_driver_reads_have_limits() {
    let setup = |setup: Setup| {
        setup.limits(|limits| {
            limits.body = 256;
            limits.body_timeout = Duration::from_millis(50);
        })
    };
    let scene = SchedulerScene::start_with_setup(setup).await;
    // No chain needs the bodies of the following updates. The driver reads them nevertheless, because it translates
    // them for the scheduler.
    let code = |(status, reply): (u16, String)| {
        let reply: Value = serde_json::from_str(&reply).unwrap();
        (status, reply["code"].as_u64().unwrap())
    };
    let large = request("PUT", APPLICATIONS, "x".repeat(257));
    assert_eq!(
        code(status_and_text(scene.driver.send(large).await).await),
        (413, 1_405_012)
    );

    let (sender, receiver) = mpsc::channel(1);
    let slow = request("PUT", APPLICATIONS, body_from_channel(receiver));
    assert_eq!(
        code(status_and_text(scene.driver.send(slow).await).await),
        (408, 1_405_012)
    );
    drop(sender);

    // The scheduler cannot decode compressed bodies, so the driver refuses them.
    for path in ["/namespaces/n/applications", "/agentsettings/taint"] {
        let mut packed = request("PUT", &mesos_path(path), "x");
        packed.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        assert_eq!(
            code(status_and_text(scene.driver.send(packed).await).await),
            (415, 1_405_012)
        );
    }
    assert!(scene.take_requests().is_empty());

    let (forwarded_request, status, _) = scene.send("PUT", "/agentsettings/taint", &"x".repeat(9999)).await;
    assert_eq!((forwarded_request.unwrap().body.len(), status), (9999, 200));
}

#[tokio::test]
async fn chunked_bodies_and_trailers_are_forwarded() {
    let scene = SchedulerScene::start().await;
    let body = runnable_json("application", "a");
    // (path, whether the request to the scheduler has a `Content-Length`)
    for (path, has_length) in [
        (APPLICATIONS.to_owned(), true),
        (mesos_path("/agentsettings/taint"), false),
    ] {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let (start, end) = body.split_at(10);
        let frames = [
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(start.to_owned()))),
            Ok(Frame::data(Bytes::from(end.to_owned()))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = Body::new(StreamBody::new(stream::iter(frames)));
        let mut request = request("PUT", &path, body);
        request.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        assert_eq!(status_and_text(scene.driver.send(request).await).await.0, 200);
        let [forwarded_request] = &scene.take_requests()[..] else {
            panic!("{path} was not asked once")
        };
        assert_eq!(
            forwarded_request.headers.contains_key("content-length"),
            has_length,
            "{path}"
        );
        assert!(!forwarded_request.headers.contains_key("trailer"), "{path}");
        let forwarded_text = if has_length {
            forwarded_request.json()["raw_json"].to_string()
        } else {
            String::from_utf8(forwarded_request.body.to_vec()).unwrap()
        };
        assert_eq!(forwarded_text, runnable_json("application", "a"), "{path}");
    }
}

#[tokio::test]
async fn a_client_gets_100_continue() {
    let scene = SchedulerScene::start().await;
    let body = runnable_json("application", "a");
    for path in ["/namespaces/n/applications", "/agentsettings/taint"] {
        let mut stream = scene.driver.connect().await;
        let head = format!(
            "PUT {} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\nexpect: 100-continue\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            mesos_path(path),
            body.len()
        );
        write(&mut stream, &head).await;
        assert_eq!(
            read_until(&mut stream, "\r\n\r\n").await,
            "HTTP/1.1 100 Continue\r\n\r\n",
            "{path}"
        );
        write(&mut stream, &body).await;
        let reply = read_rest(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
        assert!(!scene.take_requests()[0].headers.contains_key("expect"), "{path}");
    }
}

#[tokio::test]
async fn a_body_that_its_route_ignores_is_discarded() {
    let scene = SchedulerScene::start().await;
    let mut stream = scene.driver.connect().await;
    let body = "x".repeat(20_000);
    for last in [false, true] {
        let head = format!(
            "PUT {} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\ncontent-length: {}\r\n{}\r\n{body}",
            mesos_path("/namespaces/n/applications/a/scale/3"),
            body.len(),
            if last { "connection: close\r\n" } else { "" },
        );
        write(&mut stream, &head).await;
        let reply = read_until(&mut stream, SUCCESS).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        let [received] = &scene.take_requests()[..] else {
            panic!("it was not received once")
        };
        assert_eq!(
            (received.body.len(), &received.headers["content-length"]),
            (0, &http::HeaderValue::from(0))
        );
    }
}
