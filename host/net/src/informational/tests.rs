use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::causes::{chain, find};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn connection_after_request() -> ConnectionState {
    let mut connection = ConnectionState::Idle;
    connection.count_sent(b"GET / HTTP/1.1\r\n\r\n");
    connection
}

#[test]
fn informational_responses_are_counted_however_their_bytes_are_split() {
    let early_hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
    for (name, head, is_counted) in [
        ("continue", CONTINUE, true),
        ("early hints", early_hints, true),
        ("version 1.0", b"HTTP/1.0 102\n\n", true),
        ("after an empty line", b"\r\n\nHTTP/1.1 100 \r\n\r\n", true),
        ("final", OK, false),
        ("switching", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", false),
        ("another protocol", b"SSH-2.0-0100\r\n\r\n", false),
    ] {
        let all = head.repeat(Credit::PER_REQUEST.heads + 1);
        for part in [1, 7, all.len()] {
            let mut connection = connection_after_request();
            let refused = all.chunks(part).any(|bytes| connection.count_received(bytes).is_err());
            assert_eq!(refused, is_counted, "{name} in parts of {part}");
        }
        let mut connection = connection_after_request();
        let within = head.repeat(Credit::PER_REQUEST.heads);
        assert_eq!(connection.count_received(&within), Ok(0), "{name}");
    }
}

#[test]
fn informational_responses_are_limited_but_bodies_are_not() {
    let mut large = b"HTTP/1.1 103 Early Hints\r\nlink: ".to_vec();
    large.resize(Credit::PER_REQUEST.bytes + 1, b'x');
    assert_eq!(
        connection_after_request().count_received(&large),
        Err(TooManyInformational)
    );
    let mut connection = connection_after_request();
    assert_eq!(connection.count_received(OK), Ok(0));
    assert_eq!(connection.count_received(&CONTINUE.repeat(10_000)), Ok(0), "a body");
    connection.count_sent(b"more of the body");
    assert_eq!(
        connection.count_received(&b"123456789123".repeat(10_000)),
        Ok(0),
        "a body"
    );
}

#[test]
fn each_request_has_its_own_limit_of_informational_responses() {
    let mut connection = connection_after_request();
    for _ in 0..3 {
        assert_eq!(
            connection.count_received(&CONTINUE.repeat(Credit::PER_REQUEST.heads)),
            Ok(0)
        );
        connection.count_sent(b"more of the same request");
        assert_eq!(connection.count_received(OK), Ok(0));
        connection.count_sent(b"GET / HTTP/1.1\r\n\r\n");
    }
    assert_eq!(
        connection.count_received(&CONTINUE.repeat(Credit::PER_REQUEST.heads)),
        Ok(0)
    );
    connection.count_sent(b"more of the same request");
    assert_eq!(connection.count_received(CONTINUE), Err(TooManyInformational));
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}

fn status_frame(status: &[u8; 3], is_last: bool, stream: u8) -> Vec<u8> {
    let mut block = vec![8, 3];
    block.extend(status);
    frame(HEADERS_FRAME, 4 | u8::from(is_last), stream, &block)
}

/// Sends one request for each element of `replies`. The server answers each request with its element. If `is_endless`
/// is set, the server repeats the element without end.
async fn exchange(is_http2: bool, replies: Vec<Vec<u8>>, is_endless: bool) -> Vec<Result<Bytes, hyper::Error>> {
    let (client, server) = duplex(64 << 10);
    let count = replies.len();
    tokio::spawn(serve(server, is_http2, replies, is_endless));
    let stream = limit_informational(TokioIo::new(client));
    let request = || Request::get("http://a.example/").body(Empty::<Bytes>::new()).unwrap();
    let mut results = Vec::new();
    if is_http2 {
        let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..count {
            results.push(content(sender.send_request(request()).await).await);
        }
    } else {
        let (mut sender, connection) = conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..count {
            sender.ready().await.unwrap();
            results.push(content(sender.send_request(request()).await).await);
        }
    }
    results
}

async fn content(response: Result<Response<Incoming>, hyper::Error>) -> Result<Bytes, hyper::Error> {
    Ok(response?.collect().await?.to_bytes())
}

async fn serve(mut server: DuplexStream, is_http2: bool, replies: Vec<Vec<u8>>, is_endless: bool) {
    let mut buffer = [0; 4096];
    if is_http2 {
        server.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    }
    for reply in replies {
        loop {
            let length = server.read(&mut buffer).await.unwrap();
            let headers = frame(HEADERS_FRAME, 5, 0, &[])[3..5].to_vec();
            let request_bytes = &buffer[..length];
            if !is_http2 || request_bytes.windows(2).any(|bytes| bytes == headers) {
                break;
            }
        }
        while server.write_all(&reply).await.is_ok() && is_endless {}
    }
}

#[tokio::test]
async fn a_request_to_a_server_that_never_sends_a_final_response_fails() {
    for (is_http2, reply) in [
        (false, CONTINUE.repeat(100)),
        (true, status_frame(b"103", false, 1).repeat(100)),
    ] {
        let results = exchange(is_http2, vec![reply], true).await;
        let error = results.into_iter().next().unwrap().unwrap_err();
        let text = chain(&error);
        assert!(text.contains("informational responses"), "HTTP/2 {is_http2}: {text}");
        assert!(is_http2 || find::<TooManyInformational>(&error).is_some(), "{text}");
    }
}

#[tokio::test]
async fn a_few_informational_responses_to_each_request_are_allowed() {
    let of_http1 = [CONTINUE.repeat(60), OK.to_vec()].concat();
    let of_http2 = |number: u8| {
        let stream = 2 * number + 1;
        let informational = status_frame(b"103", false, stream).repeat(60);
        [
            informational,
            status_frame(b"200", false, stream),
            frame(0, 1, stream, b"ok"),
        ]
        .concat()
    };
    for (is_http2, replies) in [(false, vec![of_http1; 100]), (true, (0..100).map(of_http2).collect())] {
        for result in exchange(is_http2, replies, false).await {
            assert_eq!(result.unwrap(), "ok", "HTTP/2 {is_http2}");
        }
    }
}

struct AlwaysReady;

impl AsyncRead for AlwaysReady {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buffer.put_slice(&[0]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AlwaysReady {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_large_write_yields_to_other_tasks() {
    const LARGE: usize = 16 << 20;
    for is_vectored in [false, true] {
        let mut limited = limit_informational(TokioIo::new(AlwaysReady));
        let stream = limited.inner_mut();
        let body = vec![0; LARGE];
        let mut written = 0;
        let other = tokio::spawn(async {});
        while !other.is_finished() && written < LARGE {
            let rest = &body[written..];
            let parts = [io::IoSlice::new(&rest[..1]), io::IoSlice::new(&rest[1..])];
            written += if is_vectored {
                stream.write_vectored(&parts).await.unwrap()
            } else {
                stream.write(rest).await.unwrap()
            };
        }
        assert!(written < 2 << 20, "{written} bytes before another task had its turn");
    }
}

#[tokio::test]
async fn reads_yield_to_other_tasks_on_every_type_of_connection() {
    let mut endless = limit_informational(TokioIo::new(AlwaysReady));
    let other = tokio::spawn(async {});
    let mut buffer = [0; 16];
    let reading = async {
        loop {
            endless.inner_mut().read_exact(&mut buffer).await.unwrap();
        }
    };
    tokio::select! {
        () = reading => unreachable!("it is endless"),
        ended = other => ended.unwrap(),
    }
}
