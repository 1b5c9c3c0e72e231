//! Serves the admin port: `/healthz`, `/readyz`, `/metrics`, and the API below `/v1`, whose types are in [`api`].
//!
//! The function `routes` returns a table of all routes for programs, from which the router and the OpenAPI document are
//! made. The `console` has routes of its own for browsers.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod access;
pub mod api;
mod config;
mod console;
mod decisions;
mod described_requests;
mod error;
mod health;
mod openapi;
mod operations;
mod route;
mod threads;
mod token;
mod v1;

use std::{
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::{Host, Status};
use admittance_dialect::Dialect;
use admittance_net::{
    body::GuardedBody,
    budget::BodyBudget,
    limits::FairLimit,
    listener::{BodyTransfer, ConnectedClient, RequestHandler},
};
use axum::{Router, body::Body, response::IntoResponse};
use http::{
    Extensions, HeaderValue, Request, Response,
    header::{CACHE_CONTROL, CONNECTION},
};
use schemars::JsonSchema;
use serde_json::Value;
use tokio::sync::Semaphore;
use tower::ServiceExt;

pub use self::{
    access::{AdminAccess, Caller},
    config::{AdminConfig, AdminRole, AdminTls, CertificateHolder, TokensInTheClear},
    decisions::{
        DecisionDatabase, DecisionSinks, HttpConfig, METRICS, NdjsonTarget, RunningSinks, SinkError, SinksConfig,
        SqliteConfig,
    },
    error::ApiError,
    health::{EXPIRY_WARNING_PERIOD, HealthLine, HealthPanel, StatePart, Tone},
    route::{Call, Json, Method, Nothing, ReadBody, ReplyForm, Route, RouteContent, RouteReply},
    token::{AdminToken, TokenFile, TokenFileError, TokenSource},
};
use self::{
    api::ListenerStatus,
    console::Sessions,
    decisions::MAX_FOLLOWERS,
    route::MAX_LARGE_BODIES,
    v1::{evaluate::MAX_EXPLANATIONS, recording::MAX_RECORDINGS},
};

/// The maximum number of requests that are handled at the same time. Probes are not counted.
const MAX_REQUESTS: usize = 256;

/// The threads that serve connections reply to these paths directly, so no slow reply delays a probe.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Writes all metrics in Prometheus' text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// The parts of the driver that the admin port needs. The port shows their state, and its users can change some of it.
#[derive(derive_more::Debug)]
#[debug("AdminSources {{ is_stopping: {is_stopping:?}, .. }}")]
pub struct AdminSources {
    pub host: Host,
    /// Returns the body of `GET /v1/status`.
    pub status: Box<dyn Fn() -> serde_json::Result<Value> + Send + Sync>,
    pub overview: Box<dyn Fn() -> Overview + Send + Sync>,
    /// Returns why the driver is not ready for requests. A stopping driver is recognized by `is_stopping` instead.
    pub not_ready: Box<dyn Fn() -> Option<&'static str> + Send + Sync>,
    /// Returns the body of `/healthz` if the front end has its own; if not, the body is `ok`.
    pub health: Box<dyn Fn() -> Option<Response<Body>> + Send + Sync>,
    /// Values that the routes of the front end use, at most one of each type. A route asks for a value by its type.
    pub extensions: Extensions,
    /// The database of decisions, if one is configured.
    pub decisions: Option<DecisionDatabase>,
    pub is_stopping: Arc<AtomicBool>,
    pub metrics: RenderMetrics,
    /// The dialect that reads the HTTP requests that users write in the console's playground. `None` if the playground
    /// does not accept HTTP requests.
    pub dialect: Option<Arc<dyn Dialect>>,
}

/// The state of a driver as the console shows it.
#[derive(Clone, Debug)]
pub struct Overview {
    pub stopping: bool,
    pub table: Status,
    pub listeners: Vec<ListenerStatus>,
    /// The reasons why a change waits for other replicas.
    pub waiting: Vec<String>,
    /// The state of the driver and of everything that it depends on.
    pub panels: Vec<HealthPanel>,
}

#[derive(Clone, Debug)]
struct Api {
    access: AdminAccess,
    sources: Arc<AdminSources>,
    recordings: Arc<Semaphore>,
    explanations: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    followers: FairLimit<Caller>,
    /// A permit for each request whose body may be large.
    large_bodies: FairLimit<Caller>,
    document: Arc<OnceLock<Value>>,
    routes: Arc<[Route]>,
}

impl Api {
    fn is_stopping(&self) -> bool {
        self.sources.is_stopping.load(Ordering::Relaxed)
    }
}

/// `extra_routes` are the routes of front ends; `S` and `H` are the types of the bodies of `/v1/status` and `/healthz`.
fn routes<S: JsonSchema + Send + 'static, H: JsonSchema + Send + 'static>(more: Vec<Route>) -> Vec<Route> {
    let mut routes = operations::routes::<H>();
    routes.extend(v1::routes::<S>(more));
    routes
}

/// Returns the port's OpenAPI document. `S`, `H` and `extra_routes` are as in [`AdminService::start`].
pub fn openapi<S: JsonSchema + Send + 'static, H: JsonSchema + Send + 'static>(more: Vec<Route>) -> Value {
    openapi::document(&routes::<S, H>(more))
}

/// Replies to the requests to the admin port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub struct AdminService {
    starting_router: Router,
    started_router: Arc<OnceLock<Router>>,
    body_budget: BodyBudget,
    request_limit: FairLimit,
    /// Whether only probes are answered. This is so on a connection that exceeds the maximum number of connections.
    only_probes: bool,
}

impl AdminService {
    /// Returns a service that answers only probes and requests for metrics until it is [started](Self::start). `bodies`
    /// limits the memory for bodies of requests.
    pub fn new(metrics: RenderMetrics, bodies: BodyBudget) -> Self {
        Self {
            starting_router: operations::starting_router(metrics),
            started_router: Arc::default(),
            body_budget: bodies,
            request_limit: FairLimit::new(MAX_REQUESTS),
            only_probes: false,
        }
    }

    /// Begins to reply to all requests. Until then, only probes and requests for metrics are answered.
    /// `extra_routes` are further routes of a front end. `S` is the type of the body of `/v1/status`, and `H` is the
    /// type of the body of `/healthz`.
    pub fn start<S: JsonSchema + Send + 'static, H: JsonSchema + Send + 'static>(
        &self,
        access: AdminAccess,
        sources: AdminSources,
        extra_routes: Vec<Route>,
    ) {
        let routes: Arc<[Route]> = routes::<S, H>(extra_routes).into();
        let api = Api {
            access,
            sources: Arc::new(sources),
            recordings: Arc::new(Semaphore::new(MAX_RECORDINGS)),
            explanations: Arc::new(Semaphore::new(MAX_EXPLANATIONS)),
            sessions: Arc::new(Sessions::new()),
            followers: FairLimit::new(MAX_FOLLOWERS),
            large_bodies: FairLimit::new(MAX_LARGE_BODIES),
            document: Arc::default(),
            routes: routes.clone(),
        };
        let mut router = Router::new();
        for route in routes.iter() {
            router = router.route(route.path, route.handler.clone());
        }
        let router = router
            .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
            .merge(console::router())
            .fallback(async |request: Request<Body>| {
                let path = request.uri().path();
                let error = ApiError::NotFound(format!("{path} was not found; see /v1/openapi.json"));
                console::not_found(request.headers()).unwrap_or_else(|| error.into_response())
            });
        let _ = self.started_router.set(router.with_state(api));
    }
}

impl AdminService {
    async fn answer(&self, request: Request<Body>, client: ConnectedClient) -> Response<Body> {
        if self.only_probes {
            let text = "too many connections of this client to the admin port: close some, or wait";
            return ApiError::Unavailable(text.to_owned()).into_response();
        }
        let Some(permit) = self.request_limit.try_acquire(client.address.ip()) else {
            let text = "too many requests of this client to the admin port at a time: wait for some of them";
            return ApiError::Unavailable(text.to_owned()).into_response();
        };
        let reply = threads::reply_on_threads(dispatch(self.router(), request)).await;
        reply.map(|body| Body::new(GuardedBody::new(body, permit)))
    }

    fn router(&self) -> Router {
        self.started_router.get().unwrap_or(&self.starting_router).clone()
    }
}

async fn dispatch(router: Router, request: Request<Body>) -> Response<Body> {
    let answered: Result<_, Infallible> = router.oneshot(request).await;
    match answered {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl RequestHandler for AdminService {
    const IS_COUNTED: bool = false;

    fn handler_beyond_limit(&self) -> Option<Self> {
        Some(Self {
            only_probes: true,
            ..self.clone()
        })
    }

    async fn handle(self, mut request: Request<Body>, client: ConnectedClient, _: &BodyTransfer) -> Response<Body> {
        request.extensions_mut().insert(self.body_budget.clone());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mut response = if PROBES.contains(&path.as_str()) {
            dispatch(self.router(), request).await
        } else {
            self.answer(request, client).await
        };
        let headers = response.headers_mut();
        // Browsers must not cache replies, because each shows the state at one moment to one client. Only the assets of
        // the console set a `Cache-Control` of their own.
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        if self.only_probes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let status = response.status().as_u16();
        tracing::debug!(client = %client.address, %method, path, status, "request to the admin port");
        response
    }
}
