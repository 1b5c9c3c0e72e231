//! The agreement of replicas on a table: all replicas prepare a change before one serves it. This module only decides;
//! [`replicas`](crate::replicas) waits and communicates.

use admittance_admission::{Digest, Moment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RolloutProgress;

/// The report of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The content hash of the table that it serves.
    pub live: Digest,
    /// The hash of the newest table that it could serve; equal to `live` if no other table is prepared.
    pub prepared: Digest,
    /// The hash of an earlier table that it could serve too, because the replicas may have agreed on it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Digest>,
    /// The time at which it first made this report.
    pub since: Moment,
    /// The reason why it has not prepared the newest definitions, or not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The progress of the rollouts of the table that it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutProgress>,
}

impl Report {
    /// Returns whether the replica serves this table, or has prepared it.
    fn has(&self, target: Digest) -> bool {
        self.live == target || self.prepared == target || self.earlier == Some(target)
    }

    /// Returns whether both reports have the same tables and problem.
    pub fn is_like(&self, other: &Self) -> bool {
        let parts = |report: &Self| {
            (
                report.live,
                report.prepared,
                report.earlier,
                report.problem.clone(),
            )
        };
        parts(self) == parts(other)
    }
}

/// A replica, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The name, unique among the replicas of an installation.
    pub name: String,
    /// Whether the replica has renewed its entry in time.
    pub is_alive: bool,
    /// Whether it is the leader.
    pub is_leader: bool,
    /// The last report of the replica.
    pub report: Report,
}

/// The conclusion from the reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All voters serve the target or are about to, and none has prepared another table.
    Agreed,
    /// This table becomes the target: the leader publishes it, and then every replica goes live with it.
    Switch(Digest),
    /// The voters have not all prepared the same table; these replicas have not prepared the wanted one.
    Waiting(Vec<Missing>),
}

/// A replica that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name of the replica.
    pub replica: String,
    /// The hash of the table that this replica has not prepared.
    pub hash: Digest,
    /// The reason, if it reported one.
    pub problem: Option<String>,
}

impl Missing {
    /// Describes it as a sentence without its full stop.
    pub fn sentence(&self) -> String {
        let Self {
            replica,
            hash,
            problem,
        } = self;
        let hash = hash.short();
        match problem {
            Some(problem) => format!("{replica} has not prepared {hash}: {problem}"),
            None => format!("{replica} has not prepared {hash} yet"),
        }
    }
}

/// Decides from the target that was published last and the reports of all replicas.
///
/// The voters are the living replicas that have the target, because only these answer requests. So a new or late
/// replica does not delay the others. Without voters, the live table of the leader becomes the target, so that replicas
/// become ready.
pub fn agreement(target: Option<Digest>, replicas: &[Replica]) -> Agreement {
    let alive = || replicas.iter().filter(|replica| replica.is_alive);
    let voters: Vec<&Replica> = alive()
        .filter(|replica| target.is_some_and(|target| replica.report.has(target)))
        .collect();
    let Some(first) = voters.first() else {
        let leader = alive().find(|replica| replica.is_leader);
        return leader.map_or(Agreement::Agreed, |leader| Agreement::Switch(leader.report.live));
    };
    let prepared = first.report.prepared;
    if voters.iter().all(|voter| voter.report.prepared == prepared) {
        return if Some(prepared) == target {
            Agreement::Agreed
        } else {
            Agreement::Switch(prepared)
        };
    }
    let wanted = most_prepared(target, &voters);
    let is_missing = |voter: &&&Replica| Some(voter.report.prepared) != wanted;
    let missing = voters.iter().filter(is_missing).filter_map(|voter| {
        Some(Missing {
            replica: voter.name.clone(),
            hash: wanted?,
            problem: voter.report.problem.clone(),
        })
    });
    Agreement::Waiting(missing.collect())
}

/// Returns the table other than the target that most voters have prepared; if several have as many, the leader's table.
fn most_prepared(target: Option<Digest>, voters: &[&Replica]) -> Option<Digest> {
    let others = voters
        .iter()
        .filter(|voter| Some(voter.report.prepared) != target);
    let weight = |hash: Digest| {
        let those = voters.iter().filter(|voter| voter.report.prepared == hash);
        those
            .clone()
            .map(|voter| (1, u8::from(voter.is_leader)))
            .fold((0, 0), |sum, (one, leader)| (sum.0 + one, sum.1 + leader))
    };
    let hashes = others.map(|voter| voter.report.prepared);
    hashes.max_by_key(|hash| (weight(*hash), *hash))
}

/// The state of the replicas of an installation, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasStatus {
    /// The content hash of the table that the replicas have agreed on; absent until a leader has published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub target: Option<Digest>,
    /// The reasons for which replicas do not go live with a prepared table, a sentence for each replica that they wait
    /// for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// The reason why this replica does not know the tables of the others; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The replicas, sorted by name.
    pub replicas: Vec<ReplicaStatus>,
}

/// A replica of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// The name of the replica.
    pub name: String,
    /// Whether it is the replica that wrote this status.
    #[serde(rename = "self")]
    pub is_self: bool,
    /// Whether it is the leader.
    pub leader: bool,
    /// Whether it has renewed its entry in time.
    pub alive: bool,
    /// Whether it serves the target.
    pub ready: bool,
    /// The content hash of the table that it serves.
    #[schemars(with = "String")]
    pub live: Digest,
    /// The hash of the newest table that it could serve.
    #[schemars(with = "String")]
    pub prepared: Digest,
    /// The time at which it first reported these tables.
    pub since: Moment,
    /// The reason why it has not prepared the newest definitions, or not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ReplicaStatus {
    /// Returns the status of a replica, as the replica named `own` sees it.
    pub fn of(replica: &Replica, own: &str, target: Option<Digest>) -> Self {
        let Report {
            live,
            prepared,
            since,
            problem,
            ..
        } = replica.report.clone();
        Self {
            name: replica.name.clone(),
            is_self: replica.name == own,
            leader: replica.is_leader,
            alive: replica.is_alive,
            ready: is_ready(target, live),
            live,
            prepared,
            since,
            problem,
        }
    }
}

/// Returns whether a replica with this live table may answer requests.
pub fn is_ready(target: Option<Digest>, live: Digest) -> bool {
    target.is_none_or(|target| target == live)
}

#[cfg(test)]
mod tests;
