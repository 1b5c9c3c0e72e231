use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, Uri, header::UPGRADE};
use http_body_util::BodyExt as _;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::broadcast, task::JoinSet};
use tokio_rustls::TlsAcceptor;

/// A fake kube-apiserver. It stops when it is dropped.
pub(super) struct ApiServer {
    pub(super) address: SocketAddr,
    shared: Arc<SharedApiServer>,
    _serving: JoinSet<()>,
}

#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

impl ReceivedRequest {
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect()
    }
}

struct SharedApiServer {
    token: Mutex<String>,
    requests: Mutex<Vec<ReceivedRequest>>,
    objects: Mutex<BTreeMap<String, Value>>,
    is_slow_with_patches: AtomicBool,
    serves_cluster_admin: AtomicBool,
    events: broadcast::Sender<String>,
}

/// A cluster's certificate authority, shared by all of its API servers.
pub(super) struct ClusterAuthority(CertifiedIssuer<'static, KeyPair>);

impl ClusterAuthority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ApiServer {
    /// Starts the fake API server, which accepts only this token.
    pub(super) async fn start(authority: &ClusterAuthority, token: &str) -> Self {
        Self::start_with_name(authority, token, "kubernetes").await
    }

    pub(super) async fn start_with_name(authority: &ClusterAuthority, token: &str, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(SharedApiServer {
            token: Mutex::new(token.to_owned()),
            requests: Mutex::default(),
            objects: Mutex::default(),
            is_slow_with_patches: AtomicBool::new(false),
            serves_cluster_admin: AtomicBool::new(false),
            events: broadcast::channel(64).0,
        });
        let acceptor = authority.acceptor(name);
        let router = Router::new().fallback(answer_request).with_state(shared.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // When this task is aborted, the set is dropped, which closes all connections.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, router) = (acceptor.clone(), router.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let service = TowerToHyperService::new(router);
                    let _ = builder
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            shared,
            _serving: tasks,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(super) fn change_token(&self, token: &str) {
        token.clone_into(&mut self.shared.token.lock().unwrap());
    }

    /// Makes the fake API server accept patches without applying them.
    pub(super) fn ignore_patches(&self) {
        self.shared.is_slow_with_patches.store(true, Ordering::Relaxed);
    }

    pub(super) fn allow_everything(&self) {
        self.shared.serves_cluster_admin.store(true, Ordering::Relaxed);
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(super) fn object(&self, path: &str) -> Option<Value> {
        self.shared.objects.lock().unwrap().get(path).cloned()
    }

    pub(super) fn objects(&self) -> BTreeMap<String, Value> {
        self.shared.objects.lock().unwrap().clone()
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.shared.put(path, object);
    }

    pub(super) async fn until_watch_count(&self, watches: usize) {
        while self.shared.events.receiver_count() != watches {
            tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
        }
    }
}

impl SharedApiServer {
    fn put(&self, path: &str, object: Value) {
        let event = json!({"type": "MODIFIED", "object": object});
        self.objects.lock().unwrap().insert(path.to_owned(), object);
        // Sending fails if no watch is open. Then nobody needs the event.
        let _ = self.events.send(format!("{event}\n"));
    }
}

fn status_response(code: StatusCode, reason: &str) -> Response {
    let outcome = if code.is_success() { "Success" } else { "Failure" };
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": outcome, "reason": reason, "code": code.as_u16()});
    (code, axum::Json(status)).into_response()
}

async fn answer_request(State(shared): State<Arc<SharedApiServer>>, mut request: Request) -> Response {
    let expected = format!("Bearer {}", shared.token.lock().unwrap());
    if request
        .headers()
        .get("authorization")
        .is_none_or(|value| *value != expected)
    {
        return status_response(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    let path = request.uri().path().to_owned();
    if path == "/readyz" {
        return "ok".into_response();
    }
    shared.requests.lock().unwrap().push(ReceivedRequest {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
    });
    if let Some(protocol) = request.headers().get(UPGRADE).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        let headers = [("connection", "Upgrade"), ("upgrade", protocol.to_str().unwrap())];
        return (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    if query.contains("watch=true") {
        let events = shared.events.subscribe();
        let events = futures_util::stream::unfold(events, |mut events| async {
            let event = events.recv().await.ok()?;
            Some((Ok::<_, std::convert::Infallible>(event), events))
        });
        return Body::from_stream(events).into_response();
    }
    let method = request.method().clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if method == Method::GET && query.contains("labelSelector=") {
        return shared.list(&path, &query);
    }
    shared.apply_request(&method, &path, query.contains("dryRun=All"), &body)
}

impl SharedApiServer {
    /// Returns the objects of a resource that match the query's label selector, from all namespaces.
    fn list(&self, path: &str, query: &str) -> Response {
        let resource = path.rsplit('/').next().unwrap();
        let mut selectors = form_urlencoded::parse(query.as_bytes());
        let selector = selectors.find(|(name, _)| name == "labelSelector").unwrap().1;
        let is_selected = |object: &Value| {
            selector.split(',').all(|pair| {
                let (label, value) = pair.split_once('=').unwrap();
                object["metadata"]["labels"][label] == value
            })
        };
        let objects = self.objects.lock().unwrap();
        let selected_objects = objects
            .iter()
            .filter(|(path, object)| path.rsplit('/').nth(1) == Some(resource) && is_selected(object));
        let items: Vec<_> = selected_objects.map(|(_, object)| object.clone()).collect();
        axum::Json(json!({"items": items})).into_response()
    }

    fn apply_request(&self, method: &Method, path: &str, is_dry: bool, body: &Bytes) -> Response {
        let stored = self.objects.lock().unwrap().get(path).cloned();
        let parsed = || serde_json::from_slice::<Value>(body).unwrap();
        let (path, object) = match (method.as_str(), stored) {
            ("GET", Some(object)) => return axum::Json(object).into_response(),
            ("POST", _) => {
                let mut object = parsed();
                if path.ends_with("/selfsubjectaccessreviews") {
                    let is_allowed = self.serves_cluster_admin.load(Ordering::Relaxed);
                    object["status"] = json!({"allowed": is_allowed});
                }
                let name = object["metadata"]["name"].as_str().unwrap_or("none").to_owned();
                (format!("{path}/{name}"), object)
            }
            ("PUT", _) => (path.to_owned(), parsed()),
            ("PATCH", Some(_)) if self.is_slow_with_patches.load(Ordering::Relaxed) => {
                return status_response(StatusCode::ACCEPTED, "");
            }
            ("PATCH", None) if path.contains("/rbac.authorization.k8s.io/") => (path.to_owned(), parsed()),
            ("PATCH", Some(mut object)) => {
                json_patch::merge(&mut object, &parsed());
                (path.to_owned(), object)
            }
            ("DELETE", Some(object)) => {
                self.objects.lock().unwrap().remove(path);
                return axum::Json(object).into_response();
            }
            _ => return status_response(StatusCode::NOT_FOUND, "NotFound"),
        };
        if !is_dry {
            self.put(&path, object.clone());
        }
        axum::Json(object).into_response()
    }
}
