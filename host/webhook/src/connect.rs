use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admittance_admission::{Failure, FailureKind};
use admittance_net::causes::{chain, find};
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use crate::{Resolve, tls};

/// The time after which TCP asks whether a silent peer is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Looks up a name, in the table or by DNS, and connects. Lives as long as its pool.
#[derive(Clone)]
struct TcpConnector {
    http: HttpConnector,
    resolve: Arc<Resolve>,
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = Failure;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialled = self.resolve.dial(&uri);
        let place = match dialled.as_ref().and_then(Uri::authority) {
            Some(address) => format!("{} (at {address}, by the resolve table)", authority(&uri)),
            None => authority(&uri).to_owned(),
        };
        let connect = self.http.call(dialled.unwrap_or(uri));
        Box::pin(async move {
            connect.await.map_err(|error| {
                let exhausted = find(&error).and_then(Failure::of_exhaustion);
                exhausted.unwrap_or_else(|| {
                    Failure::new(
                        FailureKind::Unreachable,
                        format!("cannot connect to {place}: {}", chain(&error)),
                    )
                })
            })
        })
    }
}

/// Makes connections, in bounded time. Its errors are [`Failure`]s. Lives as long as its pool.
#[derive(Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<TcpConnector>,
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(tls: ClientConfig, resolve: Arc<Resolve>, timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        // The TLS layer above decides about the scheme.
        http.enforce_http(false);
        // A call is one small write and one read: waiting for more to send only costs.
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        // Divided among the addresses of a name, so that a dead one leaves time for the next.
        http.set_connect_timeout(Some(timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(TcpConnector { http, resolve });
        Self { https, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Failure;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri.clone());
        let limit = self.timeout;
        Box::pin(async move {
            match timeout(limit, connecting).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => Err(match error.downcast::<Failure>() {
                    Ok(failure) => *failure,
                    Err(error) => {
                        tls::handshake_failure(&*error, authority(&uri), uri.host().unwrap_or_default())
                    }
                }),
                Err(_) => Err(Failure::new(
                    FailureKind::Unreachable,
                    format!("no connection to {} within {limit:?}", authority(&uri)),
                )),
            }
        })
    }
}

fn authority(uri: &Uri) -> &str {
    uri.authority().map_or("", |authority| authority.as_str())
}
