//! The API.

use std::sync::LazyLock;

use super::{
    error::ApiError,
    openapi,
    route::{About, Call, Json, Method, Route},
    routes as all_routes,
};
use crate::config::Role;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        About {
            method: Method::Get,
            path: "/v1/openapi.json",
            name: "openapi",
            summary: "This document",
            description: "",
            role: Some(Role::Read),
            refusals: &[],
        },
        document,
    )]
}

static DOCUMENT: LazyLock<serde_json::Value> = LazyLock::new(|| openapi::document(&all_routes()));

async fn document(_: Call) -> Result<Json<serde_json::Value>, ApiError> {
    Ok(Json(DOCUMENT.clone()))
}
