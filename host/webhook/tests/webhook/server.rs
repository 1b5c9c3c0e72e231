//! A webhook server for tests. A test sets what it answers, and can look at the requests that it received.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use tokio::{io::AsyncRead, io::AsyncWrite, net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Returns the answer to a request; `None` means that the server never answers it.
pub(crate) type AnswerHandler = Arc<dyn Fn(&ReceivedRequest) -> Option<Answer> + Send + Sync>;

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The host and port to which the request is addressed, from `:authority` or `Host`.
    pub(crate) authority: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct TestWebhook {
    pub(crate) address: SocketAddr,
    pub(crate) received_requests: mpsc::UnboundedReceiver<ReceivedRequest>,
    /// Gets a message whenever the client cancels a request that the server has not answered.
    pub(crate) cancellations: mpsc::UnboundedReceiver<()>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl TestWebhook {
    pub(crate) fn start(mut tls: ServerConfig, handler: AnswerHandler) -> Self {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::listen(Some(tls), handler)
    }

    pub(crate) fn start_http1(mut tls: ServerConfig, handler: AnswerHandler) -> Self {
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self::listen(Some(tls), handler)
    }

    pub(crate) fn start_plain(handler: AnswerHandler) -> Self {
        Self::listen(None, handler)
    }

    fn listen(tls: Option<ServerConfig>, handler: AnswerHandler) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (request_sender, received_requests) = mpsc::unbounded_channel();
        let (cancellation_sender, cancellations) = mpsc::unbounded_channel();
        let connection_server = ConnectionServer {
            handler,
            request_sender,
            cancellation_sender,
        };
        let counter = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (connection_server, acceptor, counter) =
                    (connection_server.clone(), acceptor.clone(), counter.clone());
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            // The handshake may fail, because some tests make the client abort it.
                            if let Ok(stream) = acceptor.accept(stream).await {
                                counter.fetch_add(1, Ordering::SeqCst);
                                connection_server.serve(stream).await;
                            }
                        }
                        None => {
                            counter.fetch_add(1, Ordering::SeqCst);
                            connection_server.serve(stream).await;
                        }
                    }
                });
            }
        });
        Self {
            address,
            received_requests,
            cancellations,
            connections,
            task,
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for TestWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct ConnectionServer {
    handler: AnswerHandler,
    request_sender: mpsc::UnboundedSender<ReceivedRequest>,
    cancellation_sender: mpsc::UnboundedSender<()>,
}

impl ConnectionServer {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| self.clone().answer(request));
        // The result only tells how the client has closed the connection, so it is ignored.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let host = head.headers.get("host").and_then(|host| host.to_str().ok());
        let authority = host
            .or(head.uri.authority().map(|authority| authority.as_str()))
            .unwrap_or_default()
            .to_owned();
        let received_request = ReceivedRequest {
            method: head.method,
            path: head.uri.path_and_query().unwrap().to_string(),
            authority,
            version: head.version,
            headers: head.headers,
            body,
        };
        let answer = (self.handler)(&received_request);
        // Sending fails if the test has already ended, and has dropped the receiver. The failure is ignored.
        let _ = self.request_sender.send(received_request);
        match answer {
            Some(answer) => Ok(answer),
            None => {
                let _loss = DropNotice(Some(self.cancellation_sender));
                std::future::pending().await
            }
        }
    }
}

struct DropNotice(Option<mpsc::UnboundedSender<()>>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Returns an answer with status 200 whose body never ends, and does not announce its length.
pub(crate) fn endless() -> Answer {
    Response::new(Endless.boxed())
}

struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 16 * 1024])))))
    }
}

pub(crate) fn always(answer: impl Fn() -> Answer + Send + Sync + 'static) -> AnswerHandler {
    Arc::new(move |_| Some(answer()))
}

pub(crate) fn echo() -> AnswerHandler {
    Arc::new(|request| Some(answer(200, request.body.clone())))
}

/// Returns a handler that never answers the first `silent` requests, and answers all later ones with their own body.
pub(crate) fn silent_at_first(silent: usize) -> AnswerHandler {
    let remaining_count = Mutex::new(silent);
    Arc::new(move |request| {
        let mut remaining = remaining_count.lock().unwrap();
        if *remaining > 0 {
            *remaining -= 1;
            return None;
        }
        Some(answer(200, request.body.clone()))
    })
}
