//! Serves `/healthz`, `/readyz` and `/metrics` for probes and scrapers, without authentication.

use std::marker::PhantomData;

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::{
    RenderMetrics,
    error::ApiError,
    route::{Call, Json, Method::Get, ReplyForm, Route, RouteContent, RouteReply, RouteText},
};

pub(super) fn routes<H: JsonSchema + Send + 'static>() -> Vec<Route> {
    vec![
        Route::new(
            Get,
            None,
            "/healthz",
            "healthz",
            "Whether the process is alive",
            healthz::<H>,
        )
        .description(
            "The body is `ok`. The driver of a BCS cluster replies with its health in the format of bcs-mesos-driver.",
        ),
        Route::new(
            Get,
            None,
            "/readyz",
            "readyz",
            "Whether the driver is ready for requests",
            readyz,
        )
        .description("`/v1/status` has details."),
        Route::new(Get, None, "/metrics", "metrics", "Metrics for Prometheus", metrics)
            .description("The metrics are in the text format."),
    ]
}

pub(super) fn starting_router(render: RenderMetrics) -> Router {
    let unavailable = "the driver is starting: it loads its chains and plugins";
    Router::new()
        .route("/healthz", get(async || alive()))
        .route("/readyz", get(async || Readiness::default()))
        .route("/metrics", get(async move || render_metrics(render).await))
        .fallback(async move || ApiError::Unavailable(unavailable.to_owned()))
}

/// The reply to `/healthz`: `ok`, or a reply of the front end, whose type is `H`.
struct HealthReply<H>(Response, PhantomData<H>);

impl<H> IntoResponse for HealthReply<H> {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<H: JsonSchema> RouteReply for HealthReply<H> {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        let mut forms = RouteText::forms(generator);
        forms.push(ReplyForm::ok("application/json", generator.subschema_for::<H>()));
        forms
    }
}

fn alive() -> Response {
    RouteText("text/plain; charset=utf-8", "ok\n".to_owned()).into_response()
}

async fn healthz<H>(call: Call) -> Result<HealthReply<H>, ApiError> {
    Ok(HealthReply(
        (call.api.sources.health)().unwrap_or_else(alive),
        PhantomData,
    ))
}

/// Whether the driver is ready for requests. `/v1/status` has details, and requires authentication.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct Readiness {
    /// Whether to send requests here. A driver becomes ready when its chains are loaded. It stays ready until it is
    /// asked to stop, but only while it serves the table that the replicas agreed on. A gateway with users becomes
    /// ready when it has read its database. Readiness does not depend on the upstream: clients of a driver that is not
    /// ready get refused connections instead of replies that explain the problem.
    ready: bool,
    /// The first digits of the content hash of the live table, which is the same on every replica with the same table.
    /// Absent while the driver starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    /// The reason why the driver is not ready; absent while it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl IntoResponse for Readiness {
    fn into_response(self) -> Response {
        let status = if self.ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (status, Json(self)).into_response()
    }
}

impl RouteReply for Readiness {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        let mut form = |status, description| ReplyForm {
            status,
            description,
            content: RouteContent {
                media_type: "application/json",
                schema: generator.subschema_for::<Self>(),
            },
        };
        vec![
            form(200, "Ready."),
            form(
                503,
                "Starting or stopping, the replicas serve another table, or a gateway has not read its database.",
            ),
        ]
    }
}

async fn readyz(call: Call) -> Result<Readiness, ApiError> {
    let reason = if call.api.is_stopping() {
        Some("stopping")
    } else {
        (call.api.sources.not_ready)()
    };
    Ok(Readiness {
        ready: reason.is_none(),
        reason,
        table: Some(call.api.sources.host.hash().to_short_hex()),
    })
}

async fn metrics(call: Call) -> Result<RouteText, ApiError> {
    render_metrics(call.api.sources.metrics.clone()).await
}

async fn render_metrics(render: RenderMetrics) -> Result<RouteText, ApiError> {
    // With thousands of stages, the metrics are megabytes long, so they are written for one scraper at a time.
    static TURN: Semaphore = Semaphore::const_new(1);
    let _turn = TURN.acquire().await;
    let text = tokio::task::spawn_blocking(move || render())
        .await
        .map_err(|error| ApiError::Unavailable(format!("the metrics cannot be written: {error}")))?;
    Ok(RouteText("text/plain; version=0.0.4; charset=utf-8", text))
}
