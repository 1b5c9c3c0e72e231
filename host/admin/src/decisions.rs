//! Finds recent decisions in memory and on disk for the API and the console, and writes decisions to sinks.

mod config;
mod database;
mod sinks;

use admittance::{
    DecisionDetail, DecisionFilter, DecisionList, DecisionLog, DecisionRecord, DecisionVerdict, LoggedDecision, Moment,
};
use admittance_net::limits::Permit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    config::{HttpConfig, NdjsonTarget, SinksConfig, SqliteConfig},
    database::DecisionDatabase,
    sinks::{DecisionSinks, METRICS, RunningSinks, SinkError},
};
use crate::{
    Api,
    access::Caller,
    api::{DecisionDetails, DecisionReplay, DecisionReplays, ReplayRequest},
    config::AdminRole,
    error::ApiError,
};

const DEFAULT_LIMIT: usize = 100;
/// The maximum number of decisions in a list.
const MAX_LIMIT: usize = 1000;
/// The maximum number of clients that follow decisions at the same time.
pub(crate) const MAX_FOLLOWERS: usize = 64;

/// Selects the decisions to list or to follow: those that match all fields that are given.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DecisionQuery {
    /// The chain that the request matched.
    pub(crate) chain: Option<String>,
    /// The stage that was called for the request; if `chain` is given, the stage of that chain.
    pub(crate) stage: Option<String>,
    /// The namespace of the request; empty for requests without one.
    pub(crate) namespace: Option<String>,
    pub(crate) user: Option<String>,
    /// A text that is contained in the type, namespace, name, uid, user or message of the decision.
    pub(crate) text: Option<String>,
    /// The verdicts to select: `allowed`, `changed`, `denied`, `failed`, `deadline` or `dry-run`; `refused` for the
    /// last four. May be given more than once.
    pub(crate) verdict: Vec<String>,
    /// Lists only decisions since this moment (`2026-01-02T03:04:05Z`), or in the last minutes or hours (`10m`, `2h`).
    pub(crate) since: Option<String>,
    /// Lists only decisions with an id smaller than this one. To continue a list, use `next` from the previous reply.
    pub(crate) before: Option<u64>,
    /// The maximum number of decisions in a list, 1 to 1000. Default: 100. Large decisions make the list shorter.
    pub(crate) limit: Option<usize>,
    /// Begins a stream after the decision with this id, if it is still in memory. Default: from now on.
    pub(crate) after: Option<u64>,
}

impl DecisionQuery {
    pub(crate) fn filter(&self) -> Result<DecisionFilter, ApiError> {
        let mut filter = DecisionFilter::default();
        for text in &self.verdict {
            if text == "refused" {
                let refusals = DecisionVerdict::ALL.into_iter();
                filter.verdict.extend(refusals.filter(|verdict| verdict.is_refusal()));
            } else {
                filter.verdict.push(text.parse().map_err(|error| {
                    ApiError::Malformed(format!("verdict: {error}; or refused, for any but the first two"))
                })?);
            }
        }
        filter.verdict.sort_unstable();
        filter.verdict.dedup();
        filter.since = self.since.as_deref().map(parse_moment).transpose()?;
        filter.chain.clone_from(&self.chain);
        filter.stage.clone_from(&self.stage);
        filter.namespace.clone_from(&self.namespace);
        filter.user.clone_from(&self.user);
        filter.text.clone_from(&self.text);
        Ok(filter)
    }
}

/// Parses a moment, or a duration before now.
fn parse_moment(text: &str) -> Result<Moment, ApiError> {
    if let Ok(moment) = humantime::parse_rfc3339(text) {
        return Ok(Moment(moment));
    }
    let ago = humantime::parse_duration(text).ok();
    ago.and_then(|ago| Moment::now().0.checked_sub(ago))
        .map(Moment)
        .ok_or_else(|| {
            ApiError::Malformed(format!(
                "since: {text:?} is neither a moment nor a duration; write 2026-01-02T03:04:05Z or 10m"
            ))
        })
}

/// Returns a permit to follow decisions. It counts towards the limits on following clients until it is dropped.
pub(crate) fn follower_permit(api: &Api, caller: Caller) -> Result<Permit<Caller>, ApiError> {
    api.followers.try_acquire(caller).ok_or_else(|| {
        ApiError::Unavailable(format!(
            "too many clients follow the decisions: {MAX_FOLLOWERS} in all, and fewer with one token; end one of them"
        ))
    })
}

pub(crate) async fn list(api: &Api, role: AdminRole, query: &DecisionQuery) -> Result<DecisionList, ApiError> {
    let filter = query.filter()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::Malformed(format!("limit: write 1 to {MAX_LIMIT}")));
    }
    if query.after.is_some() {
        let message = "after: only streams begin after a decision; a list has `before`, or `since`";
        return Err(ApiError::Malformed(message.to_owned()));
    }
    let log = api.sources.host.decisions();
    let mut list = log.list(&filter, query.before, limit);
    if let (Some(database), None) = (&api.sources.decisions, list.next) {
        let oldest = log.oldest_id().into_iter().chain(query.before).min();
        let older = database.list(&filter, oldest, limit - list.decisions.len()).await;
        let (older, has_more) = older.map_err(unreadable_error)?;
        list.decisions.extend(older);
        list.next = list.decisions.last().filter(|_| has_more).map(|last| last.id);
    }
    for record in &mut list.decisions {
        hide_values(role, record);
    }
    Ok(list)
}

fn unreadable_error(error: SinkError) -> ApiError {
    ApiError::Unavailable(format!("the decisions on disk cannot be read: {error}"))
}

struct DecisionsOfUid {
    on_disk: Vec<DecisionDetail>,
    in_memory: Vec<LoggedDecision>,
    /// The number of further decisions with this uid. They are older than the decisions that were loaded.
    older: usize,
}

impl DecisionsOfUid {
    async fn find(api: &Api, uid: &str, before: Option<u64>) -> Result<Self, ApiError> {
        let log = api.sources.host.decisions();
        let (in_memory, older) = log.get(uid, before);
        let mut uid_decisions = Self {
            on_disk: Vec::new(),
            in_memory,
            older,
        };
        if let Some(database) = &api.sources.decisions {
            let room = if uid_decisions.older == 0 {
                DecisionLog::MAX_UID_PAGE_COUNT - uid_decisions.in_memory.len()
            } else {
                0
            };
            // The database also contains the decisions that are in memory. Only decisions older than the oldest one in
            // memory are read from the database, so that none is read twice.
            let oldest = log.oldest_id().into_iter().chain(before).min();
            let (on_disk, older) = database.get(uid, oldest, room).await.map_err(unreadable_error)?;
            uid_decisions.on_disk = on_disk;
            uid_decisions.older += older;
        }
        if uid_decisions.on_disk.is_empty() && uid_decisions.in_memory.is_empty() {
            return Err(unknown_uid_error(uid));
        }
        Ok(uid_decisions)
    }
}

pub(crate) async fn get(
    api: &Api,
    role: AdminRole,
    uid: &str,
    before: Option<u64>,
) -> Result<DecisionDetails, ApiError> {
    let uid_decisions = DecisionsOfUid::find(api, uid, before).await?;
    let mut decisions = uid_decisions.on_disk;
    if role < AdminRole::Admin {
        // Only the role Admin sees objects.
        decisions = decisions.into_iter().map(|detail| detail.decision.into()).collect();
        decisions.extend(uid_decisions.in_memory.iter().map(|decision| decision.record().into()));
        decisions
            .iter_mut()
            .for_each(|detail| hide_values(role, &mut detail.decision));
    } else {
        decisions.extend(uid_decisions.in_memory.iter().map(LoggedDecision::detail));
    }
    let oldest = decisions.first().map(|oldest| oldest.decision.id);
    Ok(DecisionDetails {
        next: oldest.filter(|_| uid_decisions.older > 0),
        older: uid_decisions.older,
        decisions,
    })
}

fn unknown_uid_error(uid: &str) -> ApiError {
    ApiError::NotFound(format!(
        "there is no decision with the uid {uid:?}: no chain matched the request, it was made by another replica, or it is \
         no longer kept"
    ))
}

pub(crate) fn hide_values(role: AdminRole, record: &mut DecisionRecord) {
    if role < AdminRole::Admin {
        record.remove_values();
    }
}

/// Lets the live chains decide the newest requests with this uid again. A request that is read from disk lacks the
/// values that were redacted before it was written.
pub(crate) async fn replay(
    api: &Api,
    by: Option<&Caller>,
    uid: &str,
    options: ReplayRequest,
) -> Result<DecisionReplays, ApiError> {
    if let Some(by) = by {
        tracing::info!(
            target: "admittance::audit",
            %by, action = "replay", uid, webhooks = options.call_webhooks,
            "{by}: replay a request"
        );
    }
    let host = &api.sources.host;
    let DecisionsOfUid { on_disk, in_memory, .. } = DecisionsOfUid::find(api, uid, None).await?;
    let on_disk = on_disk.into_iter().map(|detail| (detail.request(), detail));
    let in_memory = in_memory.iter().map(|recent| (recent.request(), recent.detail()));
    let mut replays = Vec::new();
    for (request, before) in on_disk.chain(in_memory) {
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
    Ok(DecisionReplays { replays })
}

#[cfg(test)]
mod tests;
