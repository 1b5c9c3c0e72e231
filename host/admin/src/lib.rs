//! The admin port: `/healthz`, `/readyz`, `/metrics`, and the API below `/v1`, whose types are in [`api`].
//!
//! `routes` is the table of everything that it answers to programs. The router and the OpenAPI document are made from it.
//! For browsers, the `console` has routes of its own.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod access;
pub mod api;
mod config;
mod console;
mod decisions;
mod described;
mod error;
mod openapi;
mod operations;
mod route;
mod token;
mod v1;

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::Host;
use admittance_bcs::{HealthInfo, accounts::Accounts};
use admittance_net::{
    budget::BodyBudget,
    listener::{Client, Handler, Transfer},
};
use axum::{Router, body::Body, response::IntoResponse};
use http::{HeaderValue, Request, Response, header::CACHE_CONTROL};
use tokio::sync::Semaphore;
use tower::ServiceExt;

pub use self::{
    access::Access,
    config::{AdminConfig, AdminTls, CertificateHolder, Role, TokensInTheClear},
    decisions::{
        DecisionDatabase, DecisionSinks, HttpConfig, NdjsonPlace, RunningSinks, SinkError, SinksConfig,
        SqliteConfig, describe_metrics,
    },
    token::{Token, TokenFile, TokenFileError, TokenSource},
};
use self::{
    api::DriverStatus,
    console::Sessions,
    decisions::FOLLOWERS,
    error::ApiError,
    route::Route,
    v1::{evaluate::EXPLANATIONS, recording::RECORDINGS},
};

/// Writes all metrics in Prometheus' text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What the admin port shows and changes.
pub struct Sources {
    pub host: Host,
    /// The state of the driver at the moment of the call.
    pub status: Box<dyn Fn() -> DriverStatus + Send + Sync>,
    /// Returns the reason if the driver is not ready for requests. Whether it is stopping is in `is_stopping`.
    pub not_ready: Box<dyn Fn() -> Option<&'static str> + Send + Sync>,
    /// `/healthz` in the way of bcs-mesos-driver; none unless the driver takes its place.
    pub health: Box<dyn Fn() -> Option<HealthInfo> + Send + Sync>,
    /// The users and clusters of a gateway; none unless it has them.
    pub accounts: Option<Accounts>,
    /// The decisions on disk, if they are written there.
    pub decisions: Option<DecisionDatabase>,
    /// Whether the driver is stopping.
    pub is_stopping: Arc<AtomicBool>,
    pub metrics: RenderMetrics,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("is_stopping", &self.is_stopping)
            .finish_non_exhaustive()
    }
}

/// What handlers work with. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
struct Api {
    access: Access,
    sources: Arc<Sources>,
    /// One permit for each recording that goes on.
    recordings: Arc<Semaphore>,
    /// Limits the questions what applies that are answered at a time.
    explanations: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    /// One permit for each client that follows decisions.
    followers: Arc<Semaphore>,
}

impl Api {
    fn is_stopping(&self) -> bool {
        self.sources.is_stopping.load(Ordering::Relaxed)
    }
}

fn routes() -> Vec<Route> {
    let mut routes = operations::routes();
    routes.extend(v1::routes());
    routes
}

/// Answers the requests of the port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub struct AdminService {
    /// The routes until there is a host: health, readiness and metrics.
    starting: Router,
    started: Arc<OnceLock<Router>>,
    bodies: BodyBudget,
}

impl AdminService {
    /// A service without a host. `bodies` limits the memory for bodies of requests.
    pub fn new(metrics: RenderMetrics, bodies: BodyBudget) -> Self {
        Self {
            starting: operations::starting(metrics),
            started: Arc::default(),
            bodies,
        }
    }

    /// From now on, answers all requests.
    pub fn start(&self, access: Access, sources: Sources) {
        let api = Api {
            access,
            sources: Arc::new(sources),
            recordings: Arc::new(Semaphore::new(RECORDINGS)),
            explanations: Arc::new(Semaphore::new(EXPLANATIONS)),
            sessions: Arc::new(Sessions::new()),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
        };
        let mut router = Router::new();
        for route in routes() {
            router = router.route(route.path, route.handler);
        }
        let router = router
            .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
            .merge(console::router())
            .fallback(async |request: Request<Body>| {
                let path = request.uri().path();
                let error = ApiError::NotFound(format!("{path} was not found; see /v1/openapi.json"));
                console::not_found(request.headers()).unwrap_or_else(|| error.into_response())
            });
        // It is started once.
        let _ = self.started.set(router.with_state(api));
    }
}

impl Handler for AdminService {
    const IS_COUNTED: bool = false;

    async fn handle(self, mut request: Request<Body>, client: Client, _: &Transfer) -> Response<Body> {
        request.extensions_mut().insert(self.bodies.clone());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let router = self.started.get().unwrap_or(&self.starting).clone();
        let answered: Result<_, Infallible> = router.oneshot(request).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(never) => match never {},
        };
        // The reply is a snapshot for this client, except for assets of the console.
        response
            .headers_mut()
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        let status = response.status().as_u16();
        tracing::debug!(client = %client.address, %method, path, status, "request to the admin port");
        response
    }
}
