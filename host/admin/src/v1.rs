//! Serves the API below `/v1`.

pub(crate) mod changes;
pub(crate) mod decisions;
pub(crate) mod evaluate;
pub(crate) mod recording;
pub(crate) mod stages;
pub(crate) mod views;

use schemars::JsonSchema;
use serde_json::Value;

use crate::{
    config::AdminRole,
    error::ApiError,
    openapi,
    route::{Call, Json, Method::Get, Route},
};

pub(super) fn routes<S: JsonSchema + Send + 'static>(more: Vec<Route>) -> Vec<Route> {
    let mut routes = views::routes::<S>();
    routes.extend(changes::routes());
    routes.extend(stages::routes());
    routes.extend(evaluate::routes());
    routes.extend(more);
    routes.extend(decisions::routes());
    routes.push(recording::route());
    routes.push(Route::new(
        Get,
        Some(AdminRole::Read),
        "/v1/openapi.json",
        "getOpenapi",
        "This document",
        document,
    ));
    routes
}

async fn document(call: Call) -> Result<Json<Value>, ApiError> {
    let document = call.api.document.get_or_init(|| openapi::document(&call.api.routes));
    Ok(Json(document.clone()))
}
