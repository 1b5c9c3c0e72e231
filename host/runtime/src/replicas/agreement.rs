//! Decides on which table the replicas agree, so that no replica serves a change before all have prepared it. This
//! module only decides; [`replicas`](crate::replicas) waits and communicates.

use admittance_admission::{Digest, Moment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RolloutProgress;

/// A replica's report about its tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableReport {
    /// The content hash of the table that the replica serves.
    pub live: Digest,
    /// The content hash of the newest table that the replica could serve at once. It may be the live table.
    pub prepared: Digest,
    /// The content hash of an earlier table that the replica has prepared and still keeps. The replicas may have agreed
    /// on that table shortly before this replica prepared a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Digest>,
    /// The time since which the replica has reported the same tables and the same problem as in this report.
    pub since: Moment,
    /// The reason why the replica has not prepared all of the newest definitions; absent if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The progress of the rollouts in the replica's live table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutProgress>,
}

impl TableReport {
    fn has_table(&self, target: Digest) -> bool {
        self.live == target || self.prepared == target || self.earlier == Some(target)
    }

    /// Returns whether both reports have the same tables and the same problem.
    pub fn is_like(&self, other: &Self) -> bool {
        let parts = |report: &Self| (report.live, report.prepared, report.earlier, report.problem.clone());
        parts(self) == parts(other)
    }
}

/// A replica, as another replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownReplica {
    /// The name of the replica, unique among the replicas of an installation.
    pub name: String,
    /// Whether the replica has renewed its entry in time.
    pub is_alive: bool,
    /// Whether the replica is the leader.
    pub is_leader: bool,
    /// The last report of the replica.
    pub report: TableReport,
}

/// The conclusion from the reports of all replicas about the table that they should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaAgreement {
    /// The target stays as it is: every replica that votes has the table of the target, and no replica that votes has
    /// prepared a different table.
    Agreed,
    /// All replicas have prepared the table with this content hash. The leader has to publish the hash as the new
    /// target, and then every replica goes live with the table.
    Switch(Digest),
    /// The other replicas wait to go live with the next table, because the replicas in this list have not prepared it.
    Waiting(Vec<MissingReplica>),
}

/// A replica that has not prepared the next table. The other replicas wait for it before they go live with that table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingReplica {
    /// The name of the replica that the others wait for.
    pub replica: String,
    /// The content hash of the table that the replica has not prepared.
    pub hash: Digest,
    /// The reason that the replica reported; `None` if it reported none and is probably still preparing.
    pub problem: Option<String>,
}

impl MissingReplica {
    /// Describes in a sentence which table the replica has not prepared, and why. The sentence has no full stop.
    pub fn sentence(&self) -> String {
        let Self { replica, hash, problem } = self;
        let hash = hash.to_short_hex();
        match problem {
            Some(problem) => format!("{replica} has not prepared {hash}: {problem}"),
            None => format!("{replica} has not prepared {hash} yet"),
        }
    }
}

/// Decides which table the replicas should serve, given the last published target and the reports of all replicas.
///
/// A replica votes if it is alive and has prepared the table of the target, or serves it. Nobody waits for the other
/// replicas, which may be new or late: they answer no requests until they serve this table. If no replica has the
/// target, the leader's live table becomes the target.
pub fn find_agreement(target: Option<Digest>, replicas: &[KnownReplica]) -> ReplicaAgreement {
    let alive = || replicas.iter().filter(|replica| replica.is_alive);
    let voters: Vec<&KnownReplica> = alive()
        .filter(|replica| target.is_some_and(|target| replica.report.has_table(target)))
        .collect();
    let Some(first) = voters.first() else {
        let leader = alive().find(|replica| replica.is_leader);
        return leader.map_or(ReplicaAgreement::Agreed, |leader| {
            ReplicaAgreement::Switch(leader.report.live)
        });
    };
    let prepared = first.report.prepared;
    if voters.iter().all(|voter| voter.report.prepared == prepared) {
        return if Some(prepared) == target {
            ReplicaAgreement::Agreed
        } else {
            ReplicaAgreement::Switch(prepared)
        };
    }
    let next_target = most_prepared_table(target, &voters);
    let is_missing = |voter: &&&KnownReplica| Some(voter.report.prepared) != next_target;
    let missing = voters.iter().filter(is_missing).filter_map(|voter| {
        Some(MissingReplica {
            replica: voter.name.clone(),
            hash: next_target?,
            problem: voter.report.problem.clone(),
        })
    });
    ReplicaAgreement::Waiting(missing.collect())
}

/// Returns a table that the replicas could serve instead of the target: the one that most of the voting replicas have
/// prepared. If several tables have equally many votes, the leader's vote decides.
fn most_prepared_table(target: Option<Digest>, voters: &[&KnownReplica]) -> Option<Digest> {
    let dissenters = voters.iter().filter(|voter| Some(voter.report.prepared) != target);
    let weight = |hash: Digest| {
        let supporters = voters.iter().filter(|voter| voter.report.prepared == hash);
        supporters
            .clone()
            .map(|voter| (1, u8::from(voter.is_leader)))
            .fold((0, 0), |sum, (vote, leader)| (sum.0 + vote, sum.1 + leader))
    };
    let hashes = dissenters.map(|voter| voter.report.prepared);
    hashes.max_by_key(|hash| (weight(*hash), *hash))
}

/// The state of the replicas of an installation, as one of the replicas sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasStatus {
    /// The content hash of the table that the replicas have agreed on; absent until a leader has published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub target: Option<Digest>,
    /// A sentence for each replica that has not prepared the next table, with the reason. The next table goes live once
    /// all of these replicas have prepared it, or are no longer alive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// The reason why this replica does not know the tables of the others; absent if it knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The replicas of the installation, sorted by name.
    pub replicas: Vec<ReplicaStatus>,
}

/// A replica of an installation, as one of the replicas sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// The name of the replica.
    pub name: String,
    /// Whether this is the replica that answers the status request.
    #[serde(rename = "self")]
    pub is_self: bool,
    /// Whether the replica is the leader.
    pub leader: bool,
    /// Whether the replica has renewed its entry in time.
    pub alive: bool,
    /// Whether the replica serves the table on which the replicas have agreed.
    pub ready: bool,
    /// The content hash of the table that the replica serves.
    #[schemars(with = "String")]
    pub live: Digest,
    /// The content hash of the newest table that the replica has prepared, so that it could go live at once. It may be
    /// the live table.
    #[schemars(with = "String")]
    pub prepared: Digest,
    /// The time at which the replica first reported these tables.
    pub since: Moment,
    /// The reason why the replica has not prepared all of the newest definitions; absent if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ReplicaStatus {
    /// Returns the status of a replica. `own_name` is the name of the replica that returns the status.
    pub fn new(replica: &KnownReplica, own_name: &str, target: Option<Digest>) -> Self {
        let TableReport {
            live,
            prepared,
            since,
            problem,
            ..
        } = replica.report.clone();
        Self {
            name: replica.name.clone(),
            is_self: replica.name == own_name,
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

/// Returns whether a replica with the live table `live` may answer requests: its live table is the target, or there is
/// no target yet.
pub fn is_ready(target: Option<Digest>, live: Digest) -> bool {
    target.is_none_or(|target| target == live)
}

#[cfg(test)]
mod tests;
