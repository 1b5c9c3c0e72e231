//! Routes that disable and enable stages. They need nothing but the live table.

use std::time::Duration;

use admittance::{Disabling, Switched};
use admittance_definitions::StageId;

use super::changes::{by, complete};
use crate::{
    Api,
    api::{DisableRequest, EnableRequest},
    config::Role,
    error::ApiError,
    route::{Call, Json, Method::Post, Nothing, Route},
};

pub(super) fn routes() -> [Route; 2] {
    let role = Some(Role::Admin);
    let routes = [
        Route::new(Post, role, "/v1/stages/disable", "disableStage", "Disable a stage for a time", disable)
            .description(
                "Requests pass it without calling it, or it is only audited. This takes effect at once, whatever the \
                 state of definitions and stores is, and in this driver only. It ends by itself. If the stage is \
                 disabled already, this replaces it.",
            ),
        Route::new(Post, role, "/v1/stages/enable", "enableStage", "Enable a disabled stage", enable)
            .description("Before its time ends."),
    ];
    routes.map(|route| route.refusals(&[404, 408, 413, 415]))
}

async fn disable(call: Call<Nothing, Nothing, Json<DisableRequest>>) -> Result<Json<Switched>, ApiError> {
    let Json(request) = call.body;
    let stage = id(&request.stage)?;
    let how = Disabling {
        audit: request.audit,
        duration: Duration::from_secs(request.expires_in),
        reason: request.reason,
        by: Some(by(call.caller)),
    };
    disabled(&call.api, stage, how).await
}

/// Disables a stage.
pub(crate) async fn disabled(api: &Api, stage: StageId, how: Disabling) -> Result<Json<Switched>, ApiError> {
    let host = api.sources.host.clone();
    complete(async move { host.disable(&stage, how).await }).await
}

async fn enable(call: Call<Nothing, Nothing, Json<EnableRequest>>) -> Result<Json<Switched>, ApiError> {
    let Json(EnableRequest { stage }) = call.body;
    let stage = id(&stage)?;
    enabled(&call.api, stage, by(call.caller)).await
}

/// Enables a disabled stage.
pub(crate) async fn enabled(api: &Api, stage: StageId, by: String) -> Result<Json<Switched>, ApiError> {
    let host = api.sources.host.clone();
    complete(async move { host.enable(&stage, Some(by)).await }).await
}

fn id(stage: &str) -> Result<StageId, ApiError> {
    stage
        .parse()
        .map_err(|error| ApiError::Malformed(format!("stage: {error}")))
}
