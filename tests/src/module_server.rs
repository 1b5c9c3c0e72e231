use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_LENGTH},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, crypto::ring};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::Error;

/// An HTTPS server for modules. It has its own certificate authority. It stops when this value is dropped.
#[derive(Debug)]
pub struct ModuleServer {
    address: SocketAddr,
    authority: String,
    shared: Arc<ServedModules>,
    task: AbortHandle,
}

#[derive(Debug)]
struct ServedModules {
    modules: Mutex<HashMap<String, Bytes>>,
    /// The pause before each chunk of a download, in microseconds.
    chunk_pause: AtomicU64,
    download_count: watch::Sender<u64>,
}

const CHUNK_SIZE: usize = 4096;

impl ModuleServer {
    /// Starts the server on a port that the kernel chooses.
    pub async fn start() -> Result<Self, Error> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), ServerIdentity::new()?).await
    }

    /// Starts the server at `address`, with this certificate.
    pub async fn start_at(address: SocketAddr, identity: ServerIdentity) -> Result<Self, Error> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(Error::io(format!("listening on {address}")))?;
        let address = listener
            .local_addr()
            .map_err(Error::io("the module server's address"))?;
        let shared = Arc::new(ServedModules {
            modules: Mutex::default(),
            chunk_pause: AtomicU64::new(0),
            download_count: watch::Sender::new(0),
        });
        let ServerIdentity { authority, config } = identity;
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let task = tokio::spawn(accept_connections(listener, TlsAcceptor::from(config), router)).abort_handle();
        Ok(Self {
            address,
            authority,
            shared,
            task,
        })
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.address.port())
    }

    pub fn put(&self, name: &str, module: impl Into<Bytes>) {
        let mut modules = self.shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.insert(format!("/{name}"), module.into());
    }

    /// Makes all downloads slower, including those that are running: the server pauses before each chunk of 4 KiB.
    pub fn slow_down(&self, pause: Duration) {
        let microseconds = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.shared.chunk_pause.store(microseconds, Ordering::Relaxed);
    }

    pub fn download_count(&self) -> u64 {
        *self.shared.download_count.borrow()
    }
}

impl Drop for ModuleServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The certificate and private key of a module server, and the certificate authority that signed the certificate.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    authority: String,
    config: Arc<ServerConfig>,
}

impl ServerIdentity {
    /// Creates a certificate authority, and a certificate for `localhost` that it has signed.
    pub fn new() -> Result<Self, Error> {
        let certificate_error = |error: &dyn std::fmt::Display| Error::Invalid(format!("a certificate: {error}"));
        let generate_identity = || -> Result<_, rcgen::Error> {
            let authority_key = KeyPair::generate()?;
            let mut authority = CertificateParams::default();
            authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = authority.self_signed(&authority_key)?.pem();
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(["localhost".to_owned()])?
                .signed_by(&key, &Issuer::new(authority, authority_key))?;
            Ok((pem, certificate, key))
        };
        let (authority, certificate, key) = generate_identity().map_err(|error| certificate_error(&error))?;
        let key = key
            .serialize_der()
            .try_into()
            .map_err(|error: &str| certificate_error(&error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| certificate_error(&error))?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(|error| certificate_error(&error))?;
        Ok(Self {
            authority,
            config: Arc::new(config),
        })
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }
}

async fn accept_connections(listener: TcpListener, acceptor: TlsAcceptor, router: Router) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(State(shared): State<Arc<ServedModules>>, request: Request) -> Response {
    let stored_module = {
        let modules = shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.get(request.uri().path()).cloned()
    };
    let Some(module) = stored_module else {
        return StatusCode::NOT_FOUND.into_response();
    };
    shared.download_count.send_modify(|count| *count += 1);
    let length = module.len();
    let chunks = stream::unfold((module, shared), |(mut rest, shared)| async move {
        if rest.is_empty() {
            return None;
        }
        let pause = Duration::from_micros(shared.chunk_pause.load(Ordering::Relaxed));
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let chunk = rest.split_to(CHUNK_SIZE.min(rest.len()));
        Some((Ok::<_, Infallible>(chunk), (rest, shared)))
    });
    ([(CONTENT_LENGTH, length)], Body::from_stream(chunks)).into_response()
}
