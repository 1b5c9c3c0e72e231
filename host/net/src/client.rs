//! An HTTP client for servers that operators name: module registries, decision sinks, the admin API.
//!
//! [`HttpClient`] uses HTTP/1.1 and proxies, and follows no redirects. It keeps connections open for later requests.

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{ACCEPT, PROXY_AUTHORIZATION, USER_AGENT},
    uri::Scheme,
};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::{
        legacy::{self, Client, connect::proxy::Tunnel},
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tokio::time::timeout;
use tower::{BoxError, ServiceExt, service_fn, timeout::error::Elapsed, util::BoxCloneSyncService};
use url::Url;

use crate::{
    causes::{chain, find},
    upstream::{AnyConnection, Dial, UpstreamConnector, connector_over, tcp_connector},
};

const DEFAULT_USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("admittance/", env!("CARGO_PKG_VERSION")));

/// The largest part of a request's body that is passed to the connection at once, in bytes.
const PIECE_SIZE: usize = 64 << 10;

/// The timeouts and the proxy of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The timeout for connecting: for DNS, TCP, the proxy and the TLS handshake together.
    pub connect_timeout: Duration,
    /// The longest time for which a server may send nothing, before its response or during it.
    pub silence_timeout: Duration,
    pub proxy: ProxyChoice,
}

/// The proxy through which an HTTP client sends its requests.
#[derive(Clone, Debug)]
pub enum ProxyChoice {
    None,
    /// The environment variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name the proxy.
    Environment,
    /// The proxy at this URL is used, except for servers that `NO_PROXY` names.
    All(Url),
}

/// Sends requests over a pool of connections. Clones share the pool.
#[derive(Clone, derive_more::Debug)]
#[debug("HttpClient {{ .. }}")]
pub struct HttpClient {
    client: Client<UpstreamConnector, RequestBody>,
    proxies: Arc<Matcher>,
    silence_timeout: Duration,
}

/// A request to a server. To send the same request again, send a clone of it.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: RequestBody,
}

impl ClientRequest {
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: RequestBody::default(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.insert(name, value.into());
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<RequestBody>) -> Self {
        self.body = body.into();
        self
    }
}

/// The body of a request, which is sent in parts and may be counted.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    unsent_bytes: Bytes,
    /// The size of the whole body, and the counter of the bytes that were sent; `None` if nobody counts them.
    sent_counter: Option<(usize, Arc<AtomicU64>)>,
}

impl RequestBody {
    pub fn with_counter(bytes: Bytes, sent_bytes: Arc<AtomicU64>) -> Self {
        Self {
            sent_counter: Some((bytes.len(), sent_bytes)),
            unsent_bytes: bytes,
        }
    }

    pub fn is_counted(&self) -> bool {
        self.sent_counter.is_some()
    }
}

impl<T: Into<Bytes>> From<T> for RequestBody {
    fn from(bytes: T) -> Self {
        Self {
            unsent_bytes: bytes.into(),
            sent_counter: None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some((total, sent_bytes)) = &self.sent_counter {
            sent_bytes.store((total - self.unsent_bytes.len()) as u64, Ordering::Relaxed);
        }
        if self.unsent_bytes.is_empty() {
            return Poll::Ready(None);
        }
        let piece = PIECE_SIZE.min(self.unsent_bytes.len());
        Poll::Ready(Some(Ok(Frame::data(self.unsent_bytes.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent_bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent_bytes.len() as u64)
    }
}

/// The error of a request that got no response, or only a part of one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the URL cannot be requested: {0}")]
    Url(#[from] http::uri::InvalidUri),
    #[error("no connection in time")]
    ConnectTimeout,
    #[error("the server was silent for too long")]
    Silent,
    #[error("no connection")]
    Connect(#[source] legacy::Error),
    #[error("the connection failed")]
    Broken(#[source] BoxError),
}

/// The error if a proxy refused to connect to the server. It contains the proxy's reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProxyRefusal(pub String);

impl From<legacy::Error> for ClientError {
    fn from(error: legacy::Error) -> Self {
        if !error.is_connect() {
            Self::Broken(error.into())
        } else if find::<Elapsed>(&error).is_some() {
            Self::ConnectTimeout
        } else {
            Self::Connect(error)
        }
    }
}

/// The head of a response, and the body that is still to be received.
#[derive(Debug)]
pub struct ClientResponse {
    pub url: Url,
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    silence_timeout: Duration,
}

impl ClientResponse {
    /// Returns the size of the response's body, if the server announced it.
    pub fn content_length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Receives the next part of the response's body. Returns `None` after the last part.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = timeout(self.silence_timeout, self.body.frame());
            match frame.await.map_err(|_| ClientError::Silent)? {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Broken(error.into())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Receives the whole body of a response. The size is not limited, so use this only for servers that are trusted.
    pub async fn bytes(mut self) -> Result<Bytes, ClientError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

impl HttpClient {
    pub fn new(tls: ClientConfig, options: ClientOptions) -> Self {
        let proxies = Arc::new(match options.proxy {
            ProxyChoice::None => Matcher::builder().build(),
            ProxyChoice::Environment => Matcher::from_env(),
            ProxyChoice::All(proxy) => {
                let excluded = ["NO_PROXY", "no_proxy"]
                    .into_iter()
                    .find_map(|name| std::env::var(name).ok());
                let builder = Matcher::builder().all(String::from(proxy));
                builder.no(excluded.unwrap_or_default()).build()
            }
        });
        let dial = dial(proxies.clone(), tls.clone());
        Self {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .build(connector_over(dial, tls.into(), options.connect_timeout)),
            proxies,
            silence_timeout: options.silence_timeout,
        }
    }

    /// Sends a request, and returns the response, whatever its status is.
    pub async fn send(&self, request: ClientRequest) -> Result<ClientResponse, ClientError> {
        let ClientRequest {
            method,
            url,
            mut headers,
            body,
        } = request;
        let uri: Uri = url.as_str().parse()?;
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.entry(USER_AGENT).or_insert(DEFAULT_USER_AGENT);
        if uri.scheme() == Some(&Scheme::HTTP)
            && let Some(password) = self
                .proxies
                .intercept(&uri)
                .and_then(|proxy| proxy.basic_auth().cloned())
        {
            headers.insert(PROXY_AUTHORIZATION, password);
        }
        let mut message = http::Request::new(body);
        *message.method_mut() = method;
        *message.uri_mut() = uri;
        *message.headers_mut() = headers;
        let answer = timeout(self.silence_timeout, self.client.request(message));
        let (head, body) = answer.await.map_err(|_| ClientError::Silent)??.into_parts();
        Ok(ClientResponse {
            url,
            status: head.status,
            headers: head.headers,
            body,
            silence_timeout: self.silence_timeout,
        })
    }
}

fn dial(proxies: Arc<Matcher>, tls: ClientConfig) -> Dial {
    let tcp = tcp_connector();
    let proxy_connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp.clone());
    BoxCloneSyncService::new(service_fn(move |server: Uri| {
        let proxy = proxies.intercept(&server);
        let (tcp, to_proxy) = (tcp.clone(), proxy_connector.clone());
        async move {
            let Some(proxy) = proxy else {
                return Ok::<_, BoxError>(AnyConnection::from_hyper(tcp.oneshot(server).await?));
            };
            if server.scheme() != Some(&Scheme::HTTPS) {
                let stream = to_proxy.oneshot(proxy.uri().clone()).await?;
                return Ok(AnyConnection::from_hyper(stream).with_proxy());
            }
            let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
            if let Some(password) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(password.clone());
            }
            let stream = tunnel.oneshot(server).await.map_err(|error| proxy_refusal(&error))?;
            Ok(AnyConnection::from_hyper(stream))
        }
    }))
}

/// Returns the proxy's reason from the text of an error, because hyper-util keeps the type of the error private.
fn proxy_refusal(error: &(dyn Error + 'static)) -> ProxyRefusal {
    let text = chain(error);
    ProxyRefusal(text.strip_prefix("tunnel error: ").unwrap_or(&text).to_owned())
}
