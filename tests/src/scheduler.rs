use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::{Error, ReplyGate, log::TEST_TIMEOUT};

mod cluster_state;
mod routes;
mod shape;
mod types;

pub use cluster_state::{MesosCluster, ObjectKey, SchedulerKind, SchedulerVerb, StateWrite};
use routes::RouteMatch;

/// A fake BCS Mesos scheduler, with the routes of the real scheduler (`sched/api/routes.go` of BCS). It records each
/// request, and the parts of the request that the real scheduler could not have decoded. While it is not the master, it
/// replies with 200 and an empty body, as the real scheduler does.
#[derive(Debug)]
pub struct Scheduler {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<SharedScheduler>,
    task: AbortHandle,
}

#[derive(Debug)]
struct SharedScheduler {
    cluster: MesosCluster,
    address: SocketAddr,
    is_master: AtomicBool,
    requests: watch::Sender<Vec<SchedulerRequest>>,
    is_open: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
pub struct SchedulerRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub by_master: bool,
    /// Descriptions of the parts of the request that the original scheduler would not have received or decoded.
    pub problems: Vec<String>,
}

impl SchedulerRequest {
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.uri)
    }

    /// Returns the body of the request as JSON, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The certificate of a scheduler, and the certificate authority of its clients, as PEM.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerTls<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
    /// The certificate authority that must have signed the certificates of all clients.
    pub client_authority: &'a str,
}

impl Scheduler {
    /// Starts a scheduler on a port that the kernel chooses. It is the master of the cluster.
    pub async fn start(cluster: &MesosCluster) -> Result<Self, Error> {
        Self::serve(cluster, None).await
    }

    /// Starts a scheduler that requires mutual TLS.
    pub async fn start_over_tls(cluster: &MesosCluster, tls: SchedulerTls<'_>) -> Result<Self, Error> {
        Self::serve(cluster, Some(tls.acceptor()?)).await
    }

    async fn serve(cluster: &MesosCluster, tls: Option<TlsAcceptor>) -> Result<Self, Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .map_err(Error::io("listening as a scheduler"))?;
        let address = listener.local_addr().map_err(Error::io("the scheduler's address"))?;
        let shared = Arc::new(SharedScheduler {
            cluster: cluster.clone(),
            address,
            is_master: AtomicBool::new(true),
            requests: watch::Sender::default(),
            is_open: watch::Sender::new(true),
        });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(accept_connections(listener, tls, router)).abort_handle();
        Ok(Self {
            address,
            scheme,
            shared,
            task,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Sets whether this scheduler is the master. The replies to requests that have arrived before do not change.
    pub fn set_master(&self, is_master: bool) {
        self.shared.is_master.store(is_master, Ordering::SeqCst);
    }

    /// Returns a function that does the same as [`Self::set_master`], but does not borrow the scheduler.
    pub fn master_setter(&self) -> impl Fn(bool) + Send + Sync + use<> {
        let shared = self.shared.clone();
        move |is_master| shared.is_master.store(is_master, Ordering::SeqCst)
    }

    /// Simulates a crash of the scheduler: stops listening and breaks all connections. The recorded requests are kept.
    pub fn kill(&self) {
        self.task.abort();
    }

    pub fn requests(&self) -> Vec<SchedulerRequest> {
        self.shared.requests.borrow().clone()
    }

    /// Returns the problems with all requests so far, each with the request line of its request.
    pub fn problems(&self) -> Vec<String> {
        let describe_problems = |request: &SchedulerRequest| {
            let line = request.line();
            let problem_lines = request.problems.iter().map(move |problem| format!("{line}: {problem}"));
            problem_lines.collect::<Vec<_>>()
        };
        self.shared
            .requests
            .borrow()
            .iter()
            .flat_map(describe_problems)
            .collect()
    }

    /// Waits until at least this many requests have arrived.
    pub async fn wait_until_received(&self, count: usize) -> Result<(), Error> {
        let mut requests = self.shared.requests.subscribe();
        let wait = requests.wait_for(|requests| requests.len() >= count);
        let wait_result = tokio::time::timeout(TEST_TIMEOUT, wait).await;
        match wait_result {
            // `wait_for` fails only after its sender was dropped, and `self` owns the sender.
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Never {
                event: format!("request {count} to the scheduler"),
                limit: TEST_TIMEOUT,
                log: format!("{:#?}", self.requests()),
            }),
        }
    }

    /// Delays all replies until the returned gate is dropped. Requests are received and executed meanwhile.
    pub fn hold_replies(&self) -> ReplyGate {
        self.shared.is_open.send_replace(false);
        ReplyGate::new(&self.shared.is_open)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.kill();
    }
}

impl SchedulerTls<'_> {
    fn acceptor(self) -> Result<TlsAcceptor, Error> {
        let tls_error = |error: &dyn std::fmt::Display| Error::Invalid(format!("the scheduler's TLS: {error}"));
        let parse_certificates = |pem: &str| -> Result<Vec<CertificateDer<'static>>, Error> {
            CertificateDer::pem_slice_iter(pem.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| tls_error(&error))
        };
        let mut roots = RootCertStore::empty();
        for certificate in parse_certificates(self.client_authority)? {
            roots.add(certificate).map_err(|error| tls_error(&error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let client_verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| tls_error(&error))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| tls_error(&error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls_error(&error))?
            .with_client_cert_verifier(client_verifier)
            .with_single_cert(parse_certificates(self.certificate)?, key)
            .map_err(|error| tls_error(&error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

async fn accept_connections(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (tls, router) = (tls.clone(), router.clone());
        connections.spawn(async move {
            match tls {
                None => converse(stream, router).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        converse(stream, router).await;
                    }
                }
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(State(shared): State<Arc<SharedScheduler>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let by_master = shared.is_master.load(Ordering::SeqCst);
    let route_match = routes::find(&head.method, &head.uri);
    let mut problems = shape::header_problems(&head.headers, &body);
    match &route_match {
        RouteMatch::Route(route, _) => problems.extend(route.problems(&head.uri, &body)),
        RouteMatch::Nothing => problems.push("the scheduler has no such route".to_owned()),
    }
    let scheduler_request = SchedulerRequest {
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        body,
        by_master,
        problems,
    };
    let reply = match &route_match {
        RouteMatch::Nothing => (StatusCode::NOT_FOUND, "404: Page Not Found".to_owned()),
        RouteMatch::Route(..) if !by_master => (StatusCode::OK, String::new()),
        RouteMatch::Route(route, parameters) => {
            let response = shared
                .cluster
                .handle(shared.address, route.effect, parameters, &scheduler_request);
            (StatusCode::OK, response.to_string())
        }
    };
    shared.requests.send_modify(|all| all.push(scheduler_request));
    // `wait_for` fails only after its sender was dropped, and the scheduler owns the sender.
    let _ = shared.is_open.subscribe().wait_for(|open| *open).await;
    // The original scheduler sets no content type, so Go's HTTP server guesses `text/plain` from the body. The fake
    // scheduler sends the same header.
    let (status, text) = reply;
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
