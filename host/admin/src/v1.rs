//! The API below `/v1`.

mod accounts;
pub(crate) mod changes;
pub(crate) mod decisions;
pub(crate) mod evaluate;
pub(crate) mod recording;
pub(crate) mod stages;
pub(crate) mod views;

use std::sync::LazyLock;

use serde_json::Value;

use crate::{
    config::Role,
    error::ApiError,
    openapi,
    route::{Call, Json, Method::Get, Route},
    routes as all_routes,
};

pub(super) fn routes() -> Vec<Route> {
    let mut routes = views::routes();
    routes.extend(changes::routes());
    routes.extend(stages::routes());
    routes.extend(evaluate::routes());
    routes.extend(accounts::routes());
    routes.extend(decisions::routes());
    routes.push(recording::route());
    routes.push(Route::new(
        Get,
        Some(Role::Read),
        "/v1/openapi.json",
        "getOpenapi",
        "This document",
        document,
    ));
    routes
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::document(&all_routes()));

async fn document(_: Call) -> Result<Json<Value>, ApiError> {
    Ok(Json(DOCUMENT.clone()))
}
