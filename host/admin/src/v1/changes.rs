//! Serves the routes that change the live table. A change continues if its client disconnects; the log names its user.

use std::fmt::Display;

use admittance::{Application, Applied, ChangeError, Revision};
use admittance_definitions::{DefinitionId, StageId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::views::DefinitionPath;
use crate::{
    Api,
    access::Caller,
    api::{PromoteRequest, RollbackRequest},
    config::AdminRole,
    error::ApiError,
    route::{
        Call, DefinitionText, Json,
        Method::{Delete, Post},
        Nothing, Route,
    },
};

/// The error statuses of every route that changes the live table.
const REFUSALS: &[u16] = &[404, 408, 409, 413, 415, 422, 503];

pub(super) fn routes() -> [Route; 4] {
    let role = Some(AdminRole::Admin);
    let path = "/v1/definitions/{kind}/{*name}";
    let routes = [
        Route::new(
            Post,
            role,
            "/v1/definitions",
            "applyDefinitions",
            "Apply definitions",
            apply,
        )
        .description(
            "The body has one or more definitions, in the format of a definition file. Definitions of the same kind \
             and name are replaced. The new table is prepared first, then the files are written, then it goes live. If \
             any step fails, nothing changes.",
        ),
        Route::new(Delete, role, path, "deleteDefinition", "Delete a definition", delete)
            .description("The definition is removed from its file."),
        Route::new(
            Post,
            role,
            "/v1/promote",
            "promoteCandidate",
            "Promote a candidate",
            promote,
        )
        .description("The candidate becomes the plugin of its stage, in the file too."),
        Route::new(
            Post,
            role,
            "/v1/rollback",
            "rollback",
            "Roll back to an earlier revision",
            rollback,
        )
        .description(
            "No file is changed. The rollback is a new revision, and stays live until the definitions or their modules \
             change again.",
        ),
    ];
    routes.map(|route| route.refusals(REFUSALS))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeQuery {
    /// Whether to only validate the change and report its effect.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApplyQuery {
    /// Whether to only validate the change and report its effect.
    #[serde(default)]
    dry_run: bool,
    /// The name by which error messages refer to the text, such as its file name.
    #[serde(default)]
    name: Option<String>,
}

async fn apply(call: Call<Nothing, ApplyQuery, DefinitionText>) -> Result<Json<Applied>, ApiError> {
    let ApplyQuery { dry_run, name } = call.query;
    let name = name.unwrap_or_else(|| "request".to_owned());
    let (host, DefinitionText(text)) = (call.api.sources.host.clone(), call.body);
    apply_change(call.caller, "apply", name.clone(), dry_run, async move |application| {
        host.apply(&text, &name, &application).await
    })
    .await
}

async fn delete(call: Call<DefinitionPath, ChangeQuery>) -> Result<Json<Applied>, ApiError> {
    let DefinitionPath { kind, name } = call.path;
    let (host, id) = (call.api.sources.host.clone(), DefinitionId { kind, name });
    let (subject, dry_run) = (id.to_string(), call.query.dry_run);
    apply_change(call.caller, "delete", subject, dry_run, async move |application| {
        host.delete(&id, &application).await
    })
    .await
}

async fn promote(call: Call<Nothing, ChangeQuery, Json<PromoteRequest>>) -> Result<Json<Applied>, ApiError> {
    let Json(PromoteRequest { stage }) = call.body;
    promote_stage(&call.api, call.caller, stage_id(&stage)?, call.query.dry_run).await
}

pub(super) fn stage_id(stage: &str) -> Result<StageId, ApiError> {
    let parsed = stage.parse();
    parsed.map_err(|error| ApiError::Malformed(format!("stage: {error}")))
}

pub(crate) async fn promote_stage(
    api: &Api,
    caller: Option<Caller>,
    stage: StageId,
    dry_run: bool,
) -> Result<Json<Applied>, ApiError> {
    let (host, subject) = (api.sources.host.clone(), stage.to_string());
    apply_change(caller, "promote", subject, dry_run, async move |application| {
        host.promote(&stage, &application).await
    })
    .await
}

async fn rollback(call: Call<Nothing, Nothing, Json<RollbackRequest>>) -> Result<Json<Revision>, ApiError> {
    let Json(RollbackRequest { revision }) = call.body;
    roll_back(&call.api, call.caller, revision).await
}

pub(crate) async fn roll_back(api: &Api, caller: Option<Caller>, revision: u64) -> Result<Json<Revision>, ApiError> {
    let (host, by) = (api.sources.host.clone(), client_name(caller));
    run_to_completion(async move {
        let result = host.rollback(revision, Some(by.clone())).await;
        let number = result.as_ref().map(|revision| revision.number);
        log_change(&by, "rollback", &revision, false, number);
        result
    })
    .await
}

async fn apply_change<F>(
    caller: Option<Caller>,
    action: &'static str,
    subject: String,
    dry_run: bool,
    change: impl FnOnce(Application) -> F + Send + 'static,
) -> Result<Json<Applied>, ApiError>
where
    F: Future<Output = Result<Applied, ChangeError>> + Send,
{
    let by = client_name(caller);
    let mut application = Application::default();
    application.dry_run = dry_run;
    application.by = Some(by.clone());
    run_to_completion(async move {
        let result = change(application).await;
        let revision = result.as_ref().map(|applied| applied.revision);
        log_change(&by, action, &subject, dry_run, revision);
        result
    })
    .await
}

pub(crate) fn client_name(caller: Option<Caller>) -> String {
    caller.map(|caller| caller.to_string()).unwrap_or_default()
}

/// Runs a change in a task of its own. The change thus continues if the client disconnects and this future is dropped.
pub(super) async fn run_to_completion<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<Json<T>, ApiError> {
    match tokio::spawn(work).await {
        Ok(result) => result.map(Json).map_err(Into::into),
        Err(error) => Err(ApiError::Unavailable(format!("the change was interrupted: {error}"))),
    }
}

fn log_change(by: &str, action: &str, subject: &dyn Display, dry_run: bool, revision: Result<u64, &ChangeError>) {
    match revision {
        Ok(revision) => tracing::info!(
            target: "admittance::audit",
            by, action, %subject, dry_run, revision,
            "{by}: {action} {subject}"
        ),
        Err(error) => tracing::info!(
            target: "admittance::audit",
            by, action, %subject, dry_run, %error,
            "{by}: {action} {subject} was refused: {error}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_change_continues_when_the_client_disconnects() {
        let (start_signal, go_on, end_signal) = (
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
        );
        let work = {
            let (start_signal, go_on, end_signal) = (start_signal.clone(), go_on.clone(), end_signal.clone());
            async move {
                start_signal.notify_one();
                go_on.notified().await;
                end_signal.notify_one();
                Ok::<_, ChangeError>(())
            }
        };
        tokio::select! {
            _ = run_to_completion(work) => unreachable!("it is not allowed to continue"),
            // `select!` takes this branch when the work has begun, and then drops the future of `complete`. The same
            // happens when a client disconnects.
            () = start_signal.notified() => {}
        }
        go_on.notify_one();
        end_signal.notified().await;
    }
}
