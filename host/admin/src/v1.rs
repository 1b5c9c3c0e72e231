//! The API below `/v1`.

mod changes;
pub(crate) mod recording;
mod views;

use std::sync::LazyLock;

use serde_json::Value;

use crate::{
    config::Role,
    error::ApiError,
    openapi,
    route::{About, Call, Json, Method, Route},
    routes as all_routes,
};

/// Error statuses of every change.
const CHANGE_REFUSALS: &[u16] = &[404, 408, 409, 413, 415, 422, 503];

pub(super) fn routes() -> Vec<Route> {
    let mut routes = views::routes();
    routes.extend(changes::routes());
    routes.push(recording::route());
    routes.push(Route::new(
        reading("/v1/openapi.json", "getOpenapi", "This document", &[]),
        document,
    ));
    routes
}

/// A route that requires the role Read.
fn reading(path: &'static str, name: &'static str, summary: &'static str, refusals: &'static [u16]) -> About {
    About {
        method: Method::Get,
        path,
        name,
        summary,
        description: "",
        role: Some(Role::Read),
        refusals,
    }
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::document(&all_routes()));

async fn document(_: Call) -> Result<Json<Value>, ApiError> {
    Ok(Json(DOCUMENT.clone()))
}
