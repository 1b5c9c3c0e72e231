//! Tests of the pool of connections to upstream servers.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only the functions marked #[test] for tests"
)]

use std::{net::SocketAddr, time::Duration};

use admittance_net::{
    tls::{self, Trust},
    upstream::{Choice, Servers, Upstream, UpstreamConfig},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A timeout that no test reaches, although the machine may be busy.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn listen() -> (TcpListener, Upstream) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let config = UpstreamConfig {
        tls: tls::client_config(Trust::SystemAnd(None), None).unwrap().into(),
        connect_timeout: LONG_TIMEOUT,
        response_timeout: LONG_TIMEOUT,
        health: None,
    };
    let servers = Servers::Listed(vec![server.parse().unwrap()]);
    (listener, Upstream::new(servers, Choice::Turns, config))
}

fn post(upstream: &Upstream) -> tokio::task::JoinHandle<Bytes> {
    let upstream = upstream.clone();
    tokio::spawn(async move {
        let request = Request::post("/").body(Body::from("body")).unwrap();
        let reply = upstream.send(request).await.unwrap();
        reply.into_body().collect().await.unwrap().to_bytes()
    })
}

async fn read_to(stream: &mut TcpStream, end: &[u8]) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{bytes:?}");
    }
}

async fn answer_first(listener: &TcpListener, upstream: &Upstream) -> TcpStream {
    let reply = post(upstream);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_to(&mut stream, b"body").await;
    stream.write_all(REPLY).await.unwrap();
    assert_eq!(reply.await.unwrap(), "ok");
    stream
}

#[tokio::test]
async fn a_connection_is_reused() {
    let (listener, upstream) = listen().await;
    let mut stream = answer_first(&listener, &upstream).await;
    for _ in 0..3 {
        let reply = post(&upstream);
        read_to(&mut stream, b"body").await;
        for part in [
            "HTTP/1.1 200 OK\r\ntransfer-enc",
            "oding: chunked\r\n\r\n1\r\na\r\n",
            "1\r\nb\r\n0\r\n\r\n",
        ] {
            stream.write_all(part.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(reply.await.unwrap(), "ab");
    }
}

#[tokio::test]
async fn a_request_succeeds_although_its_server_closed_an_idle_connection() {
    let (listener, upstream) = listen().await;
    for _ in 0..3 {
        drop(answer_first(&listener, &upstream).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let (listener, upstream) = listen().await;
    let mut stream = answer_first(&listener, &upstream).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(29)).await;
    let reply = post(&upstream);
    read_to(&mut stream, b"body").await;
    stream.write_all(REPLY).await.unwrap();
    assert_eq!(reply.await.unwrap(), "ok");
    // The clock of the runtime is paused. Whenever all tasks wait, the clock jumps to the next timer. So the timer that
    // closes idle connections fires at once, and the read returns 0.
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_rest_of_a_request_is_sent_while_an_early_reply_is_unread() {
    for (reply, expected) in [
        (REPLY, "ok"),
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..], ""),
    ] {
        let (listener, upstream) = listen().await;
        let (parts, more) = mpsc::unbounded_channel::<&str>();
        let body = stream::unfold(more, async |mut more| {
            Some((Ok::<_, axum::Error>(more.recv().await?), more))
        });
        let sending = tokio::spawn({
            let request = Request::post("/").body(Body::from_stream(body)).unwrap();
            async move { upstream.send(request).await.unwrap() }
        });
        parts.send("first").unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        read_to(&mut stream, b"first\r\n").await;
        stream.write_all(reply).await.unwrap();
        let reply = sending.await.unwrap();
        parts.send("second").unwrap();
        read_to(&mut stream, b"second\r\n").await;
        drop(parts);
        read_to(&mut stream, b"0\r\n\r\n").await;
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), expected);
    }
}

#[tokio::test]
async fn a_connection_whose_reply_is_abandoned_is_closed() {
    let (listener, upstream) = listen().await;
    let sending = post(&upstream);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_to(&mut stream, b"body").await;
    sending.abort();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    drop(answer_first(&listener, &upstream).await);
}
