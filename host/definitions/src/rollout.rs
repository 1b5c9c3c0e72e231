//! Reads the `rollout` of a candidate, in which the candidate decides a growing share of the requests.

use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{Digest, Request, keywords};
use serde_json::{Value as Json, json};

use crate::{
    Share,
    document::{Fields, Node, readers},
};

/// The range of the duration of a rollout's steps. A step of less than 10 s would see too few requests.
const PAUSE_RANGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 60 * 60);

const DEFAULT_PAUSE: Duration = Duration::from_secs(10 * 60);

const MAX_LIMIT_COUNT: i64 = 1_000_000;

/// A limit in percent is calculated from at least this many requests, even if a step has had fewer. Otherwise, a single
/// early failure could end the rollout.
const MIN_REQUEST_COUNT: u64 = 100;

/// The gradual replacement of a stage's plugin by its candidate, which decides a growing share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RolloutDefinition {
    /// The share of requests that the candidate decides in each step. There is at least one, and the shares increase.
    pub shares: Vec<Share>,
    /// The property of a request that determines whether the plugin or the candidate decides it.
    pub rollout_key: RolloutKey,
    /// The duration of each step of the rollout.
    pub pause: Duration,
    /// The limit of failures: when the candidate has failed this often, the rollout ends.
    pub failure_limit: RolloutLimit,
    /// The limit of refusals: the rollout ends when the candidate has denied this many requests that the plugin allows.
    pub refusal_limit: RolloutLimit,
}

/// The property of a request that decides between the plugin and the candidate. All requests with the same value, such
/// as the same namespace, are decided by the same one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RolloutKey {
    /// The namespace of the request. If a request has no namespace, the name of its object is used instead.
    #[default]
    Namespace,
    /// The name of the user who sends the request.
    User,
    /// The uid of the request.
    Uid,
}

keywords!(RolloutKey, "key of a rollout": Namespace = "namespace", User = "user", Uid = "uid");

/// A limit of failures or refusals of a candidate. When a step of the rollout reaches the limit, the rollout ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, derive_more::Display)]
pub enum RolloutLimit {
    /// The limit is this number of requests, at least one.
    Count(u64),
    /// The limit is this share of the requests in the step.
    Share(Share),
}

impl RolloutDefinition {
    /// Returns whether the request is in this share of requests, which the candidate decides. A request that is in one
    /// share is also in every larger share. The result depends only on the arguments, so all replicas agree.
    pub fn includes(&self, stage: &str, request: &Request, share: Share) -> bool {
        if share == Share::WHOLE {
            return true;
        }
        let key = match self.rollout_key {
            RolloutKey::Namespace => request.namespace.as_deref().unwrap_or(&request.name),
            RolloutKey::User => &request.user.username,
            RolloutKey::Uid => request.uid.as_str(),
        };
        let digest = Digest::of_parts([stage.as_bytes(), key.as_bytes()]);
        let start = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        let bucket = u64::from_le_bytes(start) % u64::from(Share::WHOLE.parts_of_ten_thousand());
        bucket < u64::from(share.parts_of_ten_thousand())
    }

    /// Returns the rollout in the JSON format that documents of definitions use.
    pub fn to_json(&self) -> Json {
        let percents = self.shares.iter().map(|share| share.parts_of_ten_thousand() / 100);
        json!({
            "steps": percents.collect::<Vec<_>>(),
            "by": self.rollout_key.as_str(),
            "pause": humantime::format_duration(self.pause).to_string(),
            "abortOn": {"failures": self.failure_limit.to_json(), "refusals": self.refusal_limit.to_json()},
        })
    }
}

impl RolloutLimit {
    /// Returns the number of failures or refusals at which this limit is reached. `request_count` is the number of
    /// requests that the current step of the rollout has had so far.
    pub fn allowed_count(self, request_count: u64) -> u64 {
        match self {
            Self::Count(limit) => limit,
            Self::Share(share) => request_count
                .max(MIN_REQUEST_COUNT)
                .saturating_mul(share.parts_of_ten_thousand().into())
                .div_ceil(Share::WHOLE.parts_of_ten_thousand().into()),
        }
    }

    fn to_json(self) -> Json {
        match self {
            Self::Count(limit) => limit.into(),
            Self::Share(share) => share.to_string().into(),
        }
    }
}

impl Default for RolloutLimit {
    /// Returns the default limit of failures and of refusals: 5% of the requests.
    fn default() -> Self {
        Self::Share(Share::of_ten_thousand(500).unwrap_or_default())
    }
}

pub(crate) fn read(node: &Node<'_>, stage: &Node<'_>) -> Option<RolloutDefinition> {
    let mode = stage.child("mode");
    if mode.is_some_and(|mode| mode.json() == "Audit") {
        let message = "a stage in mode Audit decides nothing, so there is nothing to roll out";
        let fix = "remove it, the candidate is compared with the plugin, or remove `mode` of the stage";
        node.add_mistake(message, fix);
    }
    let mut fields = node.object()?;
    let shares = read_shares(&mut fields);
    let by = fields.get("by", RolloutKey::default(), Node::word);
    let pause = fields.get("pause", DEFAULT_PAUSE, readers::duration(PAUSE_RANGE));
    let limits = fields.get("abortOn", Default::default(), read_limits);
    let (failures, refusals) = limits;
    Some(RolloutDefinition {
        shares: shares?,
        rollout_key: by,
        pause,
        failure_limit: failures,
        refusal_limit: refusals,
    })
}

fn read_shares(fields: &mut Fields<'_>) -> Option<Vec<Share>> {
    let (percent, steps) = (fields.optional("percent"), fields.optional("steps"));
    if percent.is_none() && steps.is_none() {
        let fix = "write `percent: 10`, or `steps: [10, 25, 50, 100]`";
        return fields.node().reject("the candidate gets no share of the requests", fix);
    }
    let mut shares = Vec::from_iter(percent.and_then(|percent| read_percent(&percent)));
    let fix = "list percentages, `[25, 50, 100]`";
    for step in steps.and_then(|steps| steps.filled_list(fix)).unwrap_or_default() {
        let Some(share) = read_percent(&step) else {
            continue;
        };
        match shares.last() {
            Some(last) if share <= *last => {
                let fix = "write steps that grow, the first one larger than `percent`";
                step.add_mistake(format!("the step of {share} comes after {last}"), fix);
            }
            _ => shares.push(share),
        }
    }
    Some(shares).filter(|shares| !shares.is_empty())
}

fn read_percent(node: &Node<'_>) -> Option<Share> {
    Share::of_ten_thousand(node.integer(1..=100_u16)? * 100)
}

fn read_limits(node: &Node<'_>) -> Option<(RolloutLimit, RolloutLimit)> {
    let mut fields = node.object()?;
    let failures = fields.get("failures", RolloutLimit::default(), read_limit);
    let refusals = fields.get("refusals", RolloutLimit::default(), read_limit);
    Some((failures, refusals))
}

fn read_limit(node: &Node<'_>) -> Option<RolloutLimit> {
    if node.json().is_string() {
        return node.parse().map(RolloutLimit::Share);
    }
    let count = node.integer(1..=MAX_LIMIT_COUNT)?;
    Some(RolloutLimit::Count(count.unsigned_abs()))
}

#[cfg(test)]
mod tests;
