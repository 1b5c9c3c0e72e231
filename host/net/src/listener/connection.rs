//! Serves one connection of a client: the TLS handshake, the requests, and the tunnel that the connection may become.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use metrics::{counter, gauge};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    ClientCertificate, ConnectedClient, ConnectionLimits, RequestHandler, StopSignals,
    activity::{Activity, ConnectionExpiry},
    stream::TrackedStream,
    when_woken::WhenWoken,
};
use crate::{
    limits::Permit,
    telemetry,
    tls::{ServerTls, TlsConnection},
    workers::{StreamExecutor, WorkerSlot},
};

/// The timeout for sending a reply that this program writes without hyper, such as 408. A client that gets 408 has sent
/// its request too slowly, and may read the reply too slowly as well.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// The first byte of a TLS connection, which says that a record of a handshake follows.
const TLS_HANDSHAKE: u8 = 22;
const NEEDS_TLS_MESSAGE: &str =
    "this port speaks TLS, and the request came without it; write https:// in place of http://\n";
/// The time within which requests in flight can finish after the certificate of their client was revoked.
const REVOKED_GRACE: Duration = Duration::from_secs(10);
const REVOKED: &str = "the client's certificate is no longer accepted";

pub(super) struct ClientConnection<H> {
    pub(super) handler: H,
    pub(super) tls: Option<ServerTls>,
    pub(super) limits: ConnectionLimits,
    pub(super) address: SocketAddr,
    pub(super) stop: StopSignals,
    pub(super) streams: StreamExecutor,
    /// The permit for the connection; `None` for a connection that exceeds the limit.
    pub(super) _permit: Option<Permit>,
}

impl<H: RequestHandler> ClientConnection<H> {
    pub(super) async fn run_in_slot(self, _slot: WorkerSlot, stream: TcpStream) {
        match stream.into_std().and_then(TcpStream::from_std) {
            Ok(stream) => self.run(stream).await,
            Err(error) => tracing::warn!(%error, "a connection could not be handed to its thread"),
        }
    }

    pub(super) async fn run(self, stream: TcpStream) {
        if H::IS_COUNTED {
            gauge!(telemetry::CONNECTIONS).increment(1);
        }
        let now = self.stop.immediate_token.clone();
        tokio::select! {
            biased;
            () = WhenWoken::new(now.cancelled()) => {}
            () = self.handshake_and_serve(stream) => {}
        }
        if H::IS_COUNTED {
            gauge!(telemetry::CONNECTIONS).decrement(1);
        }
    }

    async fn handshake_and_serve(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let Some(tls) = &self.tls else {
            return self.serve(stream, None).await;
        };
        let mut tls = tls.connection();
        let acceptor = TlsAcceptor::from(tls.config());
        let accepting = async {
            // A client may send plain HTTP to this port by mistake. rustls would reply with a TLS alert, which HTTP
            // clients do not show. So the first byte is checked before rustls gets the connection.
            let mut first = [TLS_HANDSHAKE];
            stream.peek(&mut first).await?;
            if first != [TLS_HANDSHAKE] {
                return Ok(Err(stream));
            }
            acceptor.accept(stream).await.map(Ok)
        };
        match tokio::time::timeout(self.limits.header_timeout, accepting).await {
            Ok(Ok(Ok(stream))) => {
                tls.record_client(stream.get_ref().1.peer_certificates().unwrap_or_default());
                self.serve(stream, Some(tls)).await;
            }
            Ok(Ok(Err(stream))) => {
                tracing::info!(
                    client = %self.address,
                    "a client sent something else than TLS, such as plain HTTP; its URL must begin with https://"
                );
                // The data that the client has sent are read before the connection is closed. Otherwise, the kernel
                // would reset the connection, and the client might lose the reply.
                let _ = stream.try_read(&mut [0; 8192]);
                self.reply(stream, "400 Bad Request", NEEDS_TLS_MESSAGE).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => {
                tracing::debug!(timeout = ?self.limits.header_timeout, "the TLS handshake timed out");
            }
        }
    }

    async fn serve<S>(&self, stream: S, mut tls: Option<TlsConnection>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let activity = Activity::new(self.limits);
        let end_token = CancellationToken::new();
        let (stream, mut released) = TrackedStream::track(stream, activity.clone());
        let expiry = self.exchange(stream, &mut tls, &activity, &end_token).await;
        match (expiry, released.try_recv()) {
            (Some(ConnectionExpiry::Head), Ok(stream)) => self.reply_timeout(stream).await,
            (Some(expiry), _) => tracing::debug!(?expiry, "the connection is closed"),
            // hyper has finished with the connection, but the stream was not dropped. So the connection has become a
            // tunnel, which still uses the stream.
            (None, Err(oneshot::error::TryRecvError::Empty)) => {
                self.watch_tunnel(&mut released, &mut tls, &activity, &end_token).await;
            }
            (None, _) => {}
        }
    }

    /// Serves requests until the connection ends. Returns the reason if the connection must be closed early, or `None`.
    async fn exchange<S>(
        &self,
        stream: TrackedStream<S>,
        tls: &mut Option<TlsConnection>,
        activity: &Activity,
        end_token: &CancellationToken,
    ) -> Option<ConnectionExpiry>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = ConnectedClient {
            address: self.address,
            is_tls: tls.is_some(),
        };
        let presented = tls.as_ref().and_then(TlsConnection::client_certificate);
        let certificate = presented.map(|presented| ClientCertificate(Arc::new(presented.clone())));
        let service = service_fn(|mut request: Request<Incoming>| {
            let is_http2 = request.version() == Version::HTTP_2;
            let transfer = activity.begin_request(client.address, is_http2, end_token.clone());
            let handler = self.handler.clone();
            request.extensions_mut().insert(client);
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(certificate.clone());
            }
            async move {
                let request = request.map(|body| transfer.limit_request_body(Body::new(body)));
                let response = handler.handle(request, client, &transfer).await;
                Ok::<_, Infallible>(response.map(|body| transfer.limit_reply_body(body)))
            }
        });
        let mut builder = auto::Builder::new(self.streams.clone());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http2().timer(TokioTimer::new());
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let (mut stopped, mut is_stopping) = (WhenWoken::new(self.stop.graceful_token.cancelled()), false);
        let mut expired = WhenWoken::new(activity.wait_until_expired());
        let mut grace = None;
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "the connection failed");
                    }
                    return None;
                }
                () = &mut stopped, if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = wait_until_revoked(tls), if grace.is_none() => {
                    grace = Some(Instant::now() + REVOKED_GRACE);
                    tracing::info!(client = %self.address, "{REVOKED}: its connection is closed");
                    connection.as_mut().graceful_shutdown();
                }
                () = sleep_until(grace) => return Some(ConnectionExpiry::Revoked),
                expiry = &mut expired => return Some(expiry),
            }
        }
    }

    async fn watch_tunnel<S>(
        &self,
        released: &mut oneshot::Receiver<S>,
        tls: &mut Option<TlsConnection>,
        activity: &Activity,
        end_token: &CancellationToken,
    ) {
        let limit = self.limits.transfer.stream_timeout;
        tokio::select! {
            _ = &mut *released => return,
            () = wait_until_revoked(tls) => {
                tracing::info!(client = %self.address, "{REVOKED}: its tunnel is closed");
            }
            () = activity.wait_until_silent_for(limit) => {
                counter!(telemetry::STALLED, "who" => "tunnel", "how" => "idle").increment(1);
                tracing::info!(client = %self.address, ?limit, "a tunnel was idle for too long and is closed");
            }
        }
        end_token.cancel();
        let _ = released.await;
    }

    /// Replies 408 without hyper, which would only close the connection.
    async fn reply_timeout<S: AsyncWrite + Unpin>(&self, stream: S) {
        tracing::info!(client = %self.address, "timeout while reading the head of a request");
        let text = format!(
            "the head of the request did not arrive within {:?}\n",
            self.limits.header_timeout
        );
        self.reply(stream, "408 Request Timeout", &text).await;
    }

    async fn reply<S: AsyncWrite + Unpin>(&self, mut stream: S, status: &str, text: &str) {
        let reply = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{text}",
            text.len()
        );
        let sending = async {
            stream.write_all(reply.as_bytes()).await?;
            stream.shutdown().await
        };
        if let Ok(Err(error)) = tokio::time::timeout(REPLY_TIMEOUT, sending).await {
            tracing::debug!(%error, "the client did not wait for the reply");
        }
    }
}

async fn wait_until_revoked(tls: &mut Option<TlsConnection>) {
    match tls {
        Some(tls) => tls.wait_until_revoked().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
