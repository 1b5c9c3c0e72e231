//! Disables and enables stages, and controls rollouts. For this, neither the definitions nor their stores are needed.

use std::time::Duration;

use admittance::{DisableOptions, RolloutAction, Steered, Switched};
use admittance_definitions::StageId;

use super::changes::{client_name, run_to_completion, stage_id};
use crate::{
    Api,
    api::{DisableRequest, EnableRequest, RolloutRequest},
    config::AdminRole,
    error::ApiError,
    route::{Call, Json, Method::Post, Nothing, Route},
};

pub(super) fn routes() -> [Route; 3] {
    let role = Some(AdminRole::Admin);
    let routes = [
        Route::new(
            Post,
            role,
            "/v1/stages/disable",
            "disableStage",
            "Disable a stage for a time",
            disable,
        )
        .description(
            "Requests continue without a call of the stage, or the stage is only audited. This takes effect at \
                 once, even if definitions or stores have problems, and in this driver only. It ends by itself. If the \
                 stage is disabled already, the new time and reason replace the old ones.",
        ),
        Route::new(
            Post,
            role,
            "/v1/stages/enable",
            "enableStage",
            "Enable a disabled stage",
            enable,
        )
        .description("The stage is enabled before its time ends."),
        Route::new(
            Post,
            role,
            "/v1/stages/rollout",
            "steerRollout",
            "Steer the rollout of a candidate",
            rollout,
        )
        .description(
            "The action begins the next step, or pauses, resumes or aborts the rollout. This takes effect at once, \
                 even if definitions or stores have problems, and in this driver only.",
        ),
    ];
    routes.map(|route| route.refusals(&[404, 408, 409, 413, 415]))
}

async fn disable(call: Call<Nothing, Nothing, Json<DisableRequest>>) -> Result<Json<Switched>, ApiError> {
    let Json(request) = call.body;
    let stage = stage_id(&request.stage)?;
    let how = DisableOptions {
        audit: request.audit,
        duration: Duration::from_secs(request.expires_in),
        reason: request.reason,
        by: Some(client_name(call.caller)),
    };
    disable_stage(&call.api, stage, how).await
}

pub(crate) async fn disable_stage(api: &Api, stage: StageId, how: DisableOptions) -> Result<Json<Switched>, ApiError> {
    let host = api.sources.host.clone();
    run_to_completion(async move { host.disable(&stage, how).await }).await
}

async fn enable(call: Call<Nothing, Nothing, Json<EnableRequest>>) -> Result<Json<Switched>, ApiError> {
    let Json(EnableRequest { stage }) = call.body;
    enable_stage(&call.api, stage_id(&stage)?, client_name(call.caller)).await
}

pub(crate) async fn enable_stage(api: &Api, stage: StageId, actor: String) -> Result<Json<Switched>, ApiError> {
    let host = api.sources.host.clone();
    run_to_completion(async move { host.enable(&stage, Some(actor)).await }).await
}

async fn rollout(call: Call<Nothing, Nothing, Json<RolloutRequest>>) -> Result<Json<Steered>, ApiError> {
    let Json(RolloutRequest { stage, action }) = call.body;
    steer_stage(&call.api, stage_id(&stage)?, action, client_name(call.caller)).await
}

pub(crate) async fn steer_stage(
    api: &Api,
    stage: StageId,
    action: RolloutAction,
    actor: String,
) -> Result<Json<Steered>, ApiError> {
    let host = api.sources.host.clone();
    run_to_completion(async move { host.steer(&stage, action, Some(actor)).await }).await
}
