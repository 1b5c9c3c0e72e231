//! Serves the routes that show status, definitions and history.

use std::marker::PhantomData;

use admittance::{CandidateReport, Comparison, Host, RevisionDetail};
use admittance_admission::did_you_mean;
use admittance_definitions::{StoredDefinition, without_granted_values};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::{CandidateList, DefinitionList, ListedRevision, RevisionList, StorageList},
    config::AdminRole,
    error::ApiError,
    route::{Call, Json, Method::Get, Nothing, ReplyForm, Route, RouteReply},
};

pub(super) fn routes<S: JsonSchema + Send + 'static>() -> Vec<Route> {
    let role = Some(AdminRole::Read);
    vec![
        Route::new(Get, role, "/v1/status", "getStatus", "The live table", status::<S>).description(
            "The reply has the live table with every chain and stage, the reason for which the newest definitions are \
             not live if they are not, and the state of the upstream, clusters, ZooKeeper and certificates.",
        ),
        Route::new(
            Get,
            role,
            "/v1/storage",
            "getStorage",
            "The space that the store and the history take on disk",
            storage,
        ),
        Route::new(
            Get,
            role,
            "/v1/history",
            "listRevisions",
            "The history of live tables",
            history,
        ),
        Route::new(
            Get,
            role,
            "/v1/history/{revision}",
            "getRevision",
            "A revision with its definitions",
            revision,
        )
        .refusals(&[404]),
        Route::new(
            Get,
            role,
            "/v1/diff",
            "compareRevisions",
            "The differences between two revisions",
            diff,
        )
        .refusals(&[404]),
        Route::new(
            Get,
            role,
            "/v1/definitions",
            "listDefinitions",
            "The definitions",
            definitions,
        )
        .description(
            "The definitions are those in the files now. They may differ from the live table if they are invalid, \
                 or after a rollback.",
        )
        .refusals(&[422]),
        Route::new(
            Get,
            role,
            "/v1/definitions/{kind}/{*name}",
            "getDefinition",
            "The definitions of one name",
            definition,
        )
        .description("Two native chains may have the same name, one in each phase. A `/` in a name is not escaped.")
        .refusals(&[404, 422]),
        Route::new(
            Get,
            role,
            "/v1/candidates",
            "listCandidates",
            "The candidates' statistics, with samples of differences",
            candidates,
        )
        .description("Clients with the role Read get the operations and paths of patches, but not the values."),
    ]
}

/// The reply to `GET /v1/status`: the state of the driver, as JSON of the type `S`.
struct StatusReply<S>(Value, PhantomData<S>);

impl<S> IntoResponse for StatusReply<S> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<S: JsonSchema> RouteReply for StatusReply<S> {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        vec![ReplyForm::ok("application/json", generator.subschema_for::<S>())]
    }
}

async fn status<S>(call: Call) -> Result<StatusReply<S>, ApiError> {
    let status = (call.api.sources.status)()
        .map_err(|error| ApiError::Unavailable(format!("the status cannot be written: {error}")))?;
    Ok(StatusReply(status, PhantomData))
}

async fn storage(call: Call) -> Result<Json<StorageList>, ApiError> {
    let storage = call.api.sources.host.storage().await;
    Ok(Json(StorageList { storage }))
}

async fn history(call: Call) -> Result<Json<RevisionList>, ApiError> {
    let changes = call.api.sources.host.revision_changes(usize::MAX).into_iter();
    let revisions = changes.map(|(revision, changed)| ListedRevision { revision, changed });
    Ok(Json(RevisionList {
        revisions: revisions.collect(),
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RevisionPath {
    /// The number of the revision.
    revision: u64,
}

async fn revision(call: Call<RevisionPath>) -> Result<Json<RevisionDetail>, ApiError> {
    revision_detail(&call.api.sources.host, call.path.revision, call.role).map(Json)
}

pub(crate) fn revision_detail(
    host: &Host,
    number: u64,
    role: impl Into<Option<AdminRole>>,
) -> Result<RevisionDetail, ApiError> {
    let mut detail = host.revision(number)?;
    if hides_grants(role.into()) {
        for file in &mut detail.files {
            file.text = without_granted_values(&file.path, &file.text).into_owned();
        }
    }
    Ok(detail)
}

/// Granted values may be secrets, so only users who can change definitions see them.
fn hides_grants(role: Option<AdminRole>) -> bool {
    role != Some(AdminRole::Admin)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    /// The number of the first of the two revisions, usually the older one.
    from: u64,
    /// The number of the second of the two revisions, usually the newer one.
    to: u64,
}

async fn diff(call: Call<Nothing, DiffQuery>) -> Result<Json<Comparison>, ApiError> {
    let DiffQuery { from, to } = call.query;
    let detail = |number| revision_detail(&call.api.sources.host, number, call.role);
    Ok(Json(detail(from)?.compare(&detail(to)?)))
}

async fn definitions(call: Call) -> Result<Json<DefinitionList>, ApiError> {
    let definitions = stored_definitions(&call).await?;
    let rolled_back_to = call.api.sources.host.rolled_back_to();
    Ok(Json(DefinitionList {
        definitions,
        rolled_back_to,
    }))
}

async fn stored_definitions<P, Q>(call: &Call<P, Q>) -> Result<Vec<StoredDefinition>, ApiError> {
    let mut stored = call.api.sources.host.definitions().await?;
    if hides_grants(call.role) {
        for definition in &mut stored {
            definition.text = without_granted_values(&definition.file, &definition.text).into_owned();
        }
    }
    Ok(stored)
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DefinitionPath {
    /// The kind: `AdmissionChain`, `admissionwebhook` and so on.
    pub(super) kind: String,
    /// The name: `metadata.name`, or `{namespace}/{name}` for BCS definitions.
    pub(super) name: String,
}

async fn definition(call: Call<DefinitionPath>) -> Result<Json<DefinitionList>, ApiError> {
    let all = stored_definitions(&call).await?;
    let rolled_back_to = call.api.sources.host.rolled_back_to();
    let DefinitionPath { kind, name } = call.path;
    let is_meant = |stored: &&StoredDefinition| stored.id.name == name && stored.id.kind.eq_ignore_ascii_case(&kind);
    let definitions: Vec<_> = all.iter().filter(is_meant).cloned().collect();
    if definitions.is_empty() {
        let id = format!("{kind}/{name}");
        let suggestion = did_you_mean(&id, all.iter().map(|stored| &stored.id));
        let note = rolled_back_to
            .map(|to| format!("; a rollback to revision {to} is live, whose chains (`admittance status`) may have it"));
        let note = note.unwrap_or_default();
        return Err(ApiError::NotFound(format!("there is no {id}{note}{suggestion}")));
    }
    Ok(Json(DefinitionList {
        definitions,
        rolled_back_to,
    }))
}

async fn candidates(call: Call) -> Result<Json<CandidateList>, ApiError> {
    let candidates = candidates_for(&call.api.sources.host, call.role);
    Ok(Json(CandidateList { candidates }))
}

pub(crate) fn candidates_for(host: &Host, role: impl Into<Option<AdminRole>>) -> Vec<CandidateReport> {
    let mut candidates = host.candidates();
    if role.into() != Some(AdminRole::Admin) {
        candidates.iter_mut().for_each(CandidateReport::remove_values);
    }
    candidates
}
