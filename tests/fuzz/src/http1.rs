//! A minimal HTTP/1.1 server on the thread of a fuzz target that reads responses from the network.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

type Responder = dyn Fn(&str) -> ParsedReply + Send + Sync;

#[derive(Clone, Debug)]
pub(crate) struct ParsedReply {
    pub(crate) status: u16,
    /// The header lines of the response. The server adds `Content-Length`.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl ParsedReply {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            headers: String::new(),
            body: body.into(),
        }
    }
}

/// Starts a server on a loopback port, which runs until the thread ends. Returns its address.
pub(crate) async fn serve(
    tls: Option<TlsAcceptor>,
    answer: impl Fn(&str) -> ParsedReply + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let answer: Arc<Responder> = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let (answer, tls) = (answer.clone(), tls.clone());
            tokio::spawn(async move {
                let _ended = match tls {
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => serve_connection(stream, &*answer).await,
                        Err(_) => None,
                    },
                    None => serve_connection(stream, &*answer).await,
                };
            });
        }
    });
    address
}

async fn serve_connection(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, answer: &Responder) -> Option<()> {
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            // An HTTP request begins with a capital letter. Anything else may be the start of a TLS handshake, and is
            // refused.
            if buffer.first().is_some_and(|first| !first.is_ascii_uppercase()) {
                let _ = stream
                    .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                    .await;
                return None;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, length)| length.trim().parse::<usize>().ok())
            .unwrap_or_default();
        while buffer.len() < end + length {
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        }
        buffer.drain(..end + length);
        let mut words = head.split(' ');
        let is_head = words.next() == Some("HEAD");
        let ParsedReply { status, headers, body } = answer(words.next().unwrap_or_default());
        let mut reply = format!("HTTP/1.1 {status} Status\r\n").into_bytes();
        for line in headers.lines().filter(|line| !line.is_empty()) {
            reply.extend(format!("{line}\r\n").bytes());
        }
        reply.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
        if !is_head {
            reply.extend(body);
        }
        stream.write_all(&reply).await.ok()?;
    }
}
