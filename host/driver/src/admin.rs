//! The operator's port: `/healthz`, `/readyz`, `/metrics`, and the API below `/v1`.
//!
//! [`routes`] is the table of everything that it answers. The router and the OpenAPI document are made from it.

mod access;
mod bcs_health;
mod error;
mod openapi;
mod operations;
mod route;
mod status;
pub(crate) mod token;
mod v1;

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use admittance::Host;
use admittance_cluster::Cluster;
use admittance_net::{
    listener::{Client, Handler, Transfer},
    tls::ServerTls,
    upstream::Upstream,
};
use axum::{Router, body::Body};
use http::{HeaderValue, Request, Response, header::CACHE_CONTROL};
use tokio::sync::Semaphore;
use tower::ServiceExt;

pub(crate) use self::{
    access::{Access, bearer},
    bcs_health::BcsHealth,
    v1::recording::RECORDINGS,
};
use self::{error::ApiError, route::Route};
use crate::{discovery::Discovery, ensembles::Ensembles, gateway::Gateway, registration::RegistrationStatus};

/// Writes all metrics in Prometheus' text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What the operator's port tells and does. Cheap to clone; lives as long as the driver.
#[derive(Clone)]
pub(crate) struct Api(Arc<Parts>);

/// What the operator's port is made of.
pub(crate) struct Parts {
    /// None: clients of the driver's own port use plain HTTP.
    pub(crate) tls: Option<ServerTls>,
    /// None: this port is plain HTTP.
    pub(crate) own_tls: Option<ServerTls>,
    pub(crate) access: Access,
    pub(crate) host: Host,
    /// None behind kube-apiserver.
    pub(crate) upstream: Option<Upstream>,
    /// None unless it is a gateway.
    pub(crate) gateway: Option<Gateway>,
    /// None unless it takes the place of bcs-mesos-driver.
    pub(crate) bcs_health: Option<BcsHealth>,
    /// Its sessions with ZooKeeper.
    pub(crate) ensembles: Ensembles,
    /// How others find it; empty when they do not.
    pub(crate) registrations: Vec<RegistrationStatus>,
    /// How the servers behind it are found; none when they are listed.
    pub(crate) discovery: Option<Discovery>,
    /// None: no cluster is asked.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) is_stopping: Arc<AtomicBool>,
    /// One for each recording that goes on.
    pub(crate) recordings: Arc<Semaphore>,
    pub(crate) metrics: RenderMetrics,
}

impl std::ops::Deref for Api {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("access", &self.access)
            .field("is_stopping", &self.is_stopping)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Parts> for Api {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

/// Everything that the port answers.
fn routes() -> Vec<Route> {
    let mut routes = operations::routes();
    routes.extend(v1::routes());
    routes
}

/// Answers the requests of the port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub(crate) struct AdminService(Router);

impl AdminService {
    pub(crate) fn new(api: Api) -> Self {
        let mut router = Router::new();
        for route in routes() {
            router = router.route(route.path, route.handler);
        }
        let router = router
            .method_not_allowed_fallback(async || ApiError::OtherMethod)
            .fallback(async |request: Request<Body>| {
                let path = request.uri().path();
                ApiError::NotFound(format!(
                    "there is nothing at {path}; /v1/openapi.json says what there is"
                ))
            });
        Self(router.with_state(api))
    }
}

impl Handler for AdminService {
    const IS_COUNTED: bool = false;

    async fn handle(self, request: Request<Body>, client: Client, _: &Transfer) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered: Result<_, Infallible> = self.0.oneshot(request).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(never) => match never {},
        };
        // It is of one moment, and for whoever asked.
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let status = response.status().as_u16();
        tracing::debug!(client = %client.address, %method, path, status, "the operator's port answered");
        response
    }
}
