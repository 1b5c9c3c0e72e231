//! A fake kubelet of a node, for `kubectl exec`, `logs` and `port-forward`.
//!
//! It speaks the subset of SPDY/3.1 that kubectl needs. It tells streams apart by the order in which kubectl opens
//! them, and thus never has to decompress headers.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

pub(crate) struct Kubelet {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Kubelet {
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        // By default, kube-apiserver does not verify the certificate of a kubelet. So this fake kubelet can use a
        // self-signed one.
        let certificate = CertificateParams::new(["node".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // If the API server has closed the connection, `answer` returns an error. That is not a
                        // problem.
                        let _ = answer(stream).await;
                    }
                });
            }
        });
        Self {
            address,
            _serving: serving,
        }
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/containerLogs/") {
        let reply = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(reply.as_bytes()).await?;
        for number in 0.. {
            let line = format!("line {number}\n");
            stream
                .write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())
                .await?;
            if number == 2 && !path.contains("follow=true") {
                return stream.write_all(b"0\r\n\r\n").await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    let (protocol, is_exec) = if path.starts_with("/portForward/") {
        ("portforward.k8s.io", false)
    } else {
        ("v4.channel.k8s.io", true)
    };
    let reply = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
         x-stream-protocol-version: {protocol}\r\n\r\n"
    );
    stream.write_all(reply.as_bytes()).await?;
    if is_exec {
        serve_exec(stream, path.contains("stdin=") || path.contains("input=1")).await
    } else {
        serve_port_forward(stream).await
    }
}

enum SpdyFrame {
    /// kubectl opens the stream with this ID.
    Opened(u32),
    /// Data that kubectl sends: the ID of the stream, the data, and whether the stream ends with it.
    Data(u32, Vec<u8>, bool),
    Other,
}

const STREAM_OPENED: u8 = 1;

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<SpdyFrame> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await?;
    let [first, second, third, fourth, flags, length @ ..] = head;
    let length = u32::from_be_bytes([0, length[0], length[1], length[2]]);
    let mut body = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut body).await?;
    if first & 0x80 == 0 {
        let number = u32::from_be_bytes([first, second, third, fourth]);
        return Ok(SpdyFrame::Data(number, body, flags & 1 == 1));
    }
    Ok(match (fourth, body.first_chunk::<4>()) {
        (STREAM_OPENED, Some(number)) => SpdyFrame::Opened(u32::from_be_bytes(*number)),
        _ => SpdyFrame::Other,
    })
}

/// Accepts a stream that kubectl has opened. The reply has no headers. SPDY compresses the headers of all replies on a
/// connection as one zlib stream, so the first reply on a connection (`is_first`) also has the header of the zlib
/// stream.
async fn accept_stream(stream: &mut (impl AsyncWrite + Unpin), number: u32, is_first: bool) -> std::io::Result<()> {
    let begin: &[u8] = if is_first { b"\x78\xbb\xe3\xc6\xa7\xc2" } else { b"" };
    // The reply has no headers, so only their number, zero, is compressed. An empty zlib block follows, after which
    // kubectl stops reading.
    let block = [begin, b"\x00\x04\x00\xfb\xff\x00\x00\x00\x00", b"\x00\x00\x00\xff\xff"].concat();
    let length = u32::try_from(block.len() + 4).unwrap();
    let frame = [
        b"\x80\x03\x00\x02",
        &length.to_be_bytes()[..],
        &number.to_be_bytes(),
        &block,
    ]
    .concat();
    stream.write_all(&frame).await
}

async fn send_data(
    stream: &mut (impl AsyncWrite + Unpin),
    number: u32,
    data: &[u8],
    is_last: bool,
) -> std::io::Result<()> {
    let length = u32::try_from(data.len()).unwrap() | u32::from(is_last) << 24;
    let frame = [&number.to_be_bytes()[..], &length.to_be_bytes(), data].concat();
    stream.write_all(&frame).await
}

/// Sends a greeting, and then sends back all input. kubectl opens the streams in this order: errors, standard input if
/// there is any, standard output, standard error.
async fn serve_exec(mut stream: impl AsyncRead + AsyncWrite + Unpin, has_input: bool) -> std::io::Result<()> {
    let (input, output) = if has_input { (Some(3), 5) } else { (None, 3) };
    let mut opened = 0;
    loop {
        match read_frame(&mut stream).await? {
            SpdyFrame::Opened(number) => {
                accept_stream(&mut stream, number, opened == 0).await?;
                opened += 1;
                if number == output {
                    send_data(&mut stream, output, b"hello\n", false).await?;
                }
                if number == output + 2 && input.is_none() {
                    break;
                }
            }
            SpdyFrame::Data(number, data, is_last) if Some(number) == input => {
                send_data(&mut stream, output, &data, false).await?;
                if is_last {
                    break;
                }
            }
            SpdyFrame::Data(..) | SpdyFrame::Other => {}
        }
    }
    for number in [output, output + 2] {
        send_data(&mut stream, number, b"", true).await?;
    }
    let status = br#"{"metadata":{},"status":"Success"}"#;
    send_data(&mut stream, 1, status, true).await?;
    let _ = stream.read_to_end(&mut Vec::new()).await;
    Ok(())
}

/// Sends back all data. For each forwarded connection, kubectl opens a stream for errors and one for data.
async fn serve_port_forward(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut opened = BTreeSet::new();
    loop {
        match read_frame(&mut stream).await? {
            SpdyFrame::Opened(number) => {
                accept_stream(&mut stream, number, opened.is_empty()).await?;
                opened.insert(number);
            }
            SpdyFrame::Data(number, data, is_last) if opened.contains(&(number.wrapping_sub(2))) && number % 4 == 3 => {
                send_data(&mut stream, number, &data, is_last).await?;
                if is_last {
                    send_data(&mut stream, number - 2, b"", true).await?;
                }
            }
            SpdyFrame::Data(..) | SpdyFrame::Other => {}
        }
    }
}
