use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::Error;

/// A fake control plane that records the requests that it gets. It stops when this value is dropped.
#[derive(Debug)]
pub struct FakeUpstream {
    address: SocketAddr,
    requests: watch::Sender<Vec<UpstreamRequest>>,
    gate: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamReplyForm {
    /// The reply is like that of a BCS scheduler, with the object of the request in `data`.
    Envelope,
    /// The server behaves like a small JSON API: it replies with the object that was last written to the path of the
    /// request.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bodies {
    Recorded,
    Returned,
    Discarded,
}

#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl UpstreamRequest {
    pub fn json(&self) -> Result<Value, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::Invalid(format!("{} {}: the body: {error}", self.method, self.uri)))
    }
}

/// Delays the replies of a fake server until this value is dropped.
#[derive(Debug)]
pub struct ReplyGate(watch::Sender<bool>);

impl ReplyGate {
    pub(crate) fn new(open: &watch::Sender<bool>) -> Self {
        Self(open.clone())
    }
}

impl Drop for ReplyGate {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[derive(Clone)]
struct SharedRequests {
    requests: watch::Sender<Vec<UpstreamRequest>>,
    is_open: watch::Receiver<bool>,
    watcher: Arc<Mutex<Option<Watcher>>>,
    bodies: Bodies,
    form: UpstreamReplyForm,
}

type Watcher = Box<dyn Fn(&UpstreamRequest) + Send>;

impl FakeUpstream {
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(any_port(), None, Bodies::Recorded, UpstreamReplyForm::Envelope).await
    }

    /// Starts like [`start`](Self::start), but records no requests. So its memory stays constant under load.
    pub async fn start_forgetful() -> Result<Self, Error> {
        Self::start_with(any_port(), None, Bodies::Returned, UpstreamReplyForm::Envelope).await
    }

    /// Starts a server like [`start_forgetful`](Self::start_forgetful), whose replies do not contain the objects of the
    /// requests. So large objects do not delay other requests.
    pub async fn start_discarding() -> Result<Self, Error> {
        Self::start_with(any_port(), None, Bodies::Discarded, UpstreamReplyForm::Envelope).await
    }

    /// Starts on a port that the kernel chooses. Replies in the given form, and calls `watcher` with each request.
    pub async fn start_watched(
        form: UpstreamReplyForm,
        watcher: impl Fn(&UpstreamRequest) + Send + 'static,
    ) -> Result<Self, Error> {
        Self::start_with(any_port(), Some(Box::new(watcher)), Bodies::Recorded, form).await
    }

    async fn start_with(
        address: SocketAddr,
        watcher: Option<Watcher>,
        bodies: Bodies,
        form: UpstreamReplyForm,
    ) -> Result<Self, Error> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(Error::io(format!("listening on {address}")))?;
        let address = listener.local_addr().map_err(Error::io("the upstream's address"))?;
        let (requests, _) = watch::channel(Vec::new());
        let (gate, open) = watch::channel(true);
        let shared = SharedRequests {
            requests: requests.clone(),
            is_open: open,
            watcher: Arc::new(Mutex::new(watcher)),
            bodies,
            form,
        };
        let router = Router::new().fallback(answer).with_state(shared);
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            address,
            requests,
            gate,
            task,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests that have arrived, except health checks.
    pub fn requests(&self) -> Vec<UpstreamRequest> {
        self.requests.borrow().clone()
    }

    /// Returns the requests that have arrived whose body contains the namespace and name of this object.
    pub fn requests_for(&self, namespace: &str, name: &str) -> Vec<UpstreamRequest> {
        let is_of_object = |body: &Value| {
            let has_text = |pointer, expected| body.pointer(pointer).and_then(Value::as_str) == Some(expected);
            has_text("/metadata/namespace", namespace) && has_text("/metadata/name", name)
        };
        self.requests()
            .into_iter()
            .filter(|request| request.json().is_ok_and(|body| is_of_object(&body)))
            .collect()
    }

    /// Waits until at least this many requests have arrived.
    pub async fn wait_until_received(&self, count: usize) {
        // `wait_for` fails only after its sender was dropped, and `self` owns the sender.
        let _ = self
            .requests
            .subscribe()
            .wait_for(|requests| requests.len() >= count)
            .await;
    }

    /// Delays all replies until the returned gate is dropped. Requests are received meanwhile.
    pub fn close_gate(&self) -> ReplyGate {
        self.gate.send_replace(false);
        ReplyGate::new(&self.gate)
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(mut shared): State<SharedRequests>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/healthz" {
        return "ok".into_response();
    }
    if shared.bodies == Bodies::Discarded {
        return discard(body).await;
    }
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let recorded_request = UpstreamRequest {
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        body,
    };
    if let Some(watcher) = &*lock(&shared.watcher) {
        watcher(&recorded_request);
    }
    let (method, path) = (recorded_request.method.clone(), recorded_request.uri.path().to_owned());
    let data = if recorded_request.body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&recorded_request.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&recorded_request.body).into_owned()))
    };
    if shared.bodies == Bodies::Recorded {
        shared.requests.send_modify(|all| all.push(recorded_request));
    }
    // `wait_for` fails only after its sender was dropped, and the upstream owns the sender.
    let _ = shared.is_open.wait_for(|open| *open).await;
    match shared.form {
        UpstreamReplyForm::Envelope => accepted_reply(&data),
        UpstreamReplyForm::Plain if method == Method::GET => last_written_reply(&shared.requests.borrow(), &path),
        UpstreamReplyForm::Plain => json_reply(&data),
    }
}

/// Replies with the object that was last written to `path`. `requests` contains all requests that this server has got
/// so far.
fn last_written_reply(requests: &[UpstreamRequest], path: &str) -> Response {
    let mut writes = requests.iter().rev().filter(|request| request.uri.path() == path);
    let last = writes.find_map(|request| request.json().ok());
    last.map_or_else(
        || {
            let error = json!({"error": format!("nothing was written to {path}")});
            (StatusCode::NOT_FOUND, json_reply(&error)).into_response()
        },
        |object| json_reply(&object),
    )
}

async fn discard(mut body: Body) -> Response {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return StatusCode::BAD_REQUEST.into_response();
        }
        tokio::task::yield_now().await;
    }
    accepted_reply(&Value::Null)
}

fn accepted_reply(data: &Value) -> Response {
    json_reply(&json!({"result": true, "code": 0, "message": "success", "data": data}))
}

fn json_reply(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
