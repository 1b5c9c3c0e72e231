//! The API below `/v1`.

mod accounts;
mod changes;
pub(crate) mod recording;
mod views;

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
    routes.extend(accounts::routes());
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
