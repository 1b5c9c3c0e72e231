//! Decisions on the last requests, from memory and from disk: for the API and for the console; and where they are written.

mod config;
mod database;
mod sinks;

use std::time::SystemTime;

use admittance::{
    DecisionDetail, DecisionFilter, DecisionList, DecisionRecord, DecisionVerdict, LoggedDecision, Moment,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

pub use self::{
    config::{HttpConfig, NdjsonPlace, SinksConfig, SqliteConfig},
    database::DecisionDatabase,
    sinks::{DecisionSinks, RunningSinks, SinkError, describe_metrics},
};
use crate::{
    Api,
    api::{DecisionReplay, DecisionReplays, ReplayRequest},
    config::Role,
    error::ApiError,
};

/// How many decisions are listed, unless the client asks for another number.
const DEFAULT_LIMIT: usize = 100;
/// The most decisions in one reply.
const MOST: usize = 1000;
/// The most clients that follow decisions.
pub(crate) const FOLLOWERS: usize = 64;

/// Which decisions are listed or followed: those to which all of these apply.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DecisionQuery {
    /// The request passed this chain.
    pub(crate) chain: Option<String>,
    /// This stage was called; with `chain`, the stage of that chain.
    pub(crate) stage: Option<String>,
    /// The namespace of the request; empty for requests without one.
    pub(crate) namespace: Option<String>,
    /// The name of the user.
    pub(crate) user: Option<String>,
    /// A part of the type, the namespace, the name, the uid, the user or the message.
    pub(crate) text: Option<String>,
    /// `allowed`, `changed`, `denied`, `failed`, `deadline` or `dry-run`; `refused` for the last four. May be given more
    /// than once.
    pub(crate) verdict: Vec<String>,
    /// Not before this moment, `2026-01-02T03:04:05Z`, or not longer ago than this, `10m`.
    pub(crate) since: Option<String>,
    /// Of a list: only decisions with a smaller id, the `next` of the previous reply.
    pub(crate) before: Option<u64>,
    /// Of a list: how many at most, 1 to 1000. Default: 100.
    pub(crate) limit: Option<usize>,
    /// Of a stream: begin with the decision after the one with this id, if it is still in memory. Default: from now on.
    pub(crate) after: Option<u64>,
}

impl DecisionQuery {
    pub(crate) fn filter(&self) -> Result<DecisionFilter, ApiError> {
        let mut filter = DecisionFilter::default();
        for text in &self.verdict {
            if text == "refused" {
                let refusals = DecisionVerdict::ALL.into_iter();
                filter
                    .verdict
                    .extend(refusals.filter(|verdict| verdict.is_refusal()));
            } else {
                let verdict = text.parse();
                filter.verdict.push(verdict.map_err(|error| {
                    ApiError::Malformed(format!("verdict: {error}; or refused, for any but the first two"))
                })?);
            }
        }
        filter.since = self.since.as_deref().map(moment).transpose()?;
        filter.chain.clone_from(&self.chain);
        filter.stage.clone_from(&self.stage);
        filter.namespace.clone_from(&self.namespace);
        filter.user.clone_from(&self.user);
        filter.text.clone_from(&self.text);
        Ok(filter)
    }
}

/// A moment, or the time since then.
fn moment(text: &str) -> Result<Moment, ApiError> {
    if let Ok(moment) = humantime::parse_rfc3339(text) {
        return Ok(Moment(moment));
    }
    let ago = humantime::parse_duration(text).ok();
    ago.and_then(|ago| SystemTime::now().checked_sub(ago))
        .map(Moment)
        .ok_or_else(|| {
            ApiError::Malformed(format!(
                "since: {text:?} is neither a moment nor a duration; write 2026-01-02T03:04:05Z or 10m"
            ))
        })
}

/// A place among the clients that follow decisions, until it is dropped.
pub(crate) fn follower(api: &Api) -> Result<OwnedSemaphorePermit, ApiError> {
    let permit = api.followers.clone().try_acquire_owned();
    permit.map_err(|_| {
        ApiError::Unavailable(format!(
            "{FOLLOWERS} clients already follow the decisions; end one of them"
        ))
    })
}

/// The newest decisions that match a query.
pub(crate) async fn list(api: &Api, role: Role, query: &DecisionQuery) -> Result<DecisionList, ApiError> {
    let filter = query.filter()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MOST).contains(&limit) {
        return Err(ApiError::Malformed(format!("limit: write 1 to {MOST}")));
    }
    if query.after.is_some() {
        let message = "after: only streams begin after a decision; a list has `before`, or `since`";
        return Err(ApiError::Malformed(message.to_owned()));
    }
    let log = api.sources.host.decisions();
    let mut list = log.list(&filter, query.before, limit);
    if let (Some(database), None) = (&api.sources.decisions, list.next) {
        // Those that are in memory are in the database too.
        let oldest = log.oldest().into_iter().chain(query.before).min();
        let room = limit - list.decisions.len();
        let older = database.list(&filter, oldest, room).await;
        let (older, has_more) = older.map_err(unreadable)?;
        list.decisions.extend(older);
        list.next = list.decisions.last().filter(|_| has_more).map(|last| last.id);
    }
    for record in &mut list.decisions {
        hide(role, record);
    }
    Ok(list)
}

fn unreadable(error: SinkError) -> ApiError {
    ApiError::Unavailable(format!("the decisions on disk cannot be read: {error}"))
}

/// The decisions of this uid, the oldest first: at least one.
pub(crate) async fn get(api: &Api, role: Role, uid: &str) -> Result<Vec<DecisionDetail>, ApiError> {
    let mut details = found(api, uid).await?;
    for detail in &mut details {
        if role < Role::Admin {
            hide(role, &mut detail.decision);
            detail.review = None;
            detail.result = None;
        }
    }
    Ok(details)
}

/// The decisions of this uid.
async fn found(api: &Api, uid: &str) -> Result<Vec<DecisionDetail>, ApiError> {
    let recent = api.sources.host.decisions().get(uid);
    let mut found = on_disk(api, uid, &recent).await?;
    found.extend(recent.iter().map(LoggedDecision::detail));
    if found.is_empty() {
        return Err(unknown(uid));
    }
    Ok(found)
}

fn unknown(uid: &str) -> ApiError {
    ApiError::NotFound(format!(
        "there is no decision with the uid {uid:?}: no chain matched the request, it was made by another replica, or it is \
         no longer kept"
    ))
}

/// The decisions of this uid that are on disk, and not in memory.
async fn on_disk(api: &Api, uid: &str, recent: &[LoggedDecision]) -> Result<Vec<DecisionDetail>, ApiError> {
    let Some(database) = &api.sources.decisions else {
        return Ok(Vec::new());
    };
    let mut found = database.get(uid).await.map_err(unreadable)?;
    found.retain(|detail| recent.iter().all(|recent| recent.id() != detail.decision.id));
    Ok(found)
}

/// Objects may contain what only administrators should see, as in recordings.
pub(crate) fn hide(role: Role, record: &mut DecisionRecord) {
    if role < Role::Admin {
        record.without_values();
    }
}

/// What the live chains say of the requests with this uid. A request in memory is replayed as it was, one on disk as far as
/// it was not redacted.
pub(crate) async fn replay(
    api: &Api,
    uid: &str,
    options: ReplayRequest,
) -> Result<DecisionReplays, ApiError> {
    let host = &api.sources.host;
    let recent = host.decisions().get(uid);
    let older = on_disk(api, uid, &recent).await?;
    let older = older.into_iter().map(|detail| (detail.request(), detail));
    let recent = recent.iter().map(|recent| (recent.request(), recent.detail()));
    let mut replays = Vec::new();
    for (request, before) in older.chain(recent) {
        let Some((request, selection)) = request else {
            return Err(ApiError::Conflict(format!(
                "the request {uid:?} cannot be replayed, because its objects are not kept: they are Secrets, too large, \
                 or not written to disk (`decisions.objects`)"
            )));
        };
        let replay = host.replay(request, &selection, options.call_webhooks).await;
        let after = replay.map_err(|error| ApiError::Conflict(error.to_string()))?;
        replays.push(DecisionReplay::new(before, after.detail()));
    }
    if replays.is_empty() {
        return Err(unknown(uid));
    }
    Ok(DecisionReplays { replays })
}

#[cfg(test)]
mod tests;
