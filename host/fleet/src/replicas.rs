//! Lets all replicas switch to a new table of chains together. Each replica reports in its Lease which table it serves
//! and which one it has prepared.

use std::{sync::Arc, time::Duration};

use admittance::{
    Digest,
    agreement::{KnownReplica, TableReport},
    replicas::{Membership, Transport},
};
use admittance_cluster::{Annotations, Election, ElectionTimes, LeaseMember, ReplicaMembers};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::{sync::watch, time::interval};

/// The prefix of the annotations in which a replica reports.
const ANNOTATION_PREFIX: &str = "admittance.dev/";
/// The annotation of the leader's Lease that names the table of chains to which all replicas should switch.
const TARGET_ANNOTATION: &str = "admittance.dev/target";
/// Every replica watches the Leases of all others, so each renewal costs one event per replica. Few renewals keep the
/// number of events low.
const LEASE_TIMES: ElectionTimes = ElectionTimes {
    duration: Duration::from_secs(15),
    pause: Duration::from_secs(5),
};
/// The time without renewals after which the leader deletes the Lease of a stopped replica.
const LEASE_RETENTION: Duration = Duration::from_secs(600);
const ROLLOUTS: &str = "rollouts";
/// The interval at which the leader deletes the Leases of stopped replicas.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Leases {
    election: Arc<Election>,
    members: ReplicaMembers,
}

impl Leases {
    pub(crate) fn new(election: Arc<Election>) -> Self {
        Self {
            members: election.members(LEASE_TIMES),
            election,
        }
    }

    fn is_leader(&self) -> bool {
        *self.election.watch_leadership().borrow()
    }

    async fn clean_up(&self) {
        let mut ticker = interval(CLEANUP_INTERVAL);
        loop {
            ticker.tick().await;
            let membership = self.members.membership();
            if !self.is_leader() || membership.problem.is_some() {
                continue;
            }
            let is_gone = |member: &&LeaseMember| !member.is_alive && member.unchanged_time >= LEASE_RETENTION;
            for member in membership.members.iter().filter(is_gone) {
                self.members.remove(&member.name).await;
            }
        }
    }
}

#[async_trait]
impl Transport for Leases {
    fn name(&self) -> &str {
        self.members.name()
    }

    fn report(&self, report: &TableReport) {
        self.members.annotate(report_annotations(report));
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.members.changes()
    }

    fn membership(&self) -> Membership {
        let membership = self.members.membership();
        Membership {
            target: membership.leader.as_ref().and_then(parse_target),
            replicas: membership.members.iter().filter_map(known_replica).collect(),
            leads: self.is_leader(),
            is_led: self.election.status().has_other_leader(),
            is_refused: membership.is_refused,
            problem: membership.problem,
        }
    }

    async fn publish(&self, target: Digest) {
        self.election.annotate(TARGET_ANNOTATION, &target.to_string());
    }

    async fn take_part(&self) {
        tokio::join!(self.members.take_part(), self.clean_up());
    }

    async fn leave(&self) {
        self.members.leave().await;
    }
}

fn report_annotations(report: &TableReport) -> Annotations {
    let fields = match serde_json::to_value(report) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let annotation = |(name, value): (String, Value)| {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        (format!("{ANNOTATION_PREFIX}{name}"), text)
    };
    fields.into_iter().map(annotation).collect()
}

fn parse_report(annotations: &Annotations) -> Option<TableReport> {
    let field = |(name, text): (&String, &String)| {
        let name = name.strip_prefix(ANNOTATION_PREFIX)?;
        let value = match name {
            ROLLOUTS => serde_json::from_str(text).ok()?,
            _ => Value::String(text.clone()),
        };
        Some((name.to_owned(), value))
    };
    let fields: Map<String, Value> = annotations.iter().filter_map(field).collect();
    serde_json::from_value(Value::Object(fields)).ok()
}

fn parse_target(annotations: &Annotations) -> Option<Digest> {
    annotations.get(TARGET_ANNOTATION)?.parse().ok()
}

fn known_replica(member: &LeaseMember) -> Option<KnownReplica> {
    Some(KnownReplica {
        name: member.name.clone(),
        is_alive: member.is_alive,
        is_leader: member.is_leader,
        report: parse_report(&member.annotations)?,
    })
}

#[cfg(test)]
mod tests {
    use admittance::Moment;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_of_a_replica_is_read_back_from_its_lease() {
        let aborted = json!({
            "stage": "Mutating:pods/a", "subject": Digest::of_bytes("a"), "changes": 1, "step": 0, "state": "aborted",
            "since": "2026-01-01T00:00:00Z", "reason": "it failed", "replica": "web-1",
        });
        let mut table_report = TableReport {
            live: Digest::of_bytes("a"),
            prepared: Digest::of_bytes("b"),
            earlier: Some(Digest::of_bytes("c")),
            since: Moment(std::time::SystemTime::UNIX_EPOCH),
            problem: Some("no route".to_owned()),
            rollouts: vec![serde_json::from_value(aborted).unwrap()],
        };
        let lease_annotations = report_annotations(&table_report);
        assert_eq!(
            lease_annotations["admittance.dev/live"],
            Digest::of_bytes("a").to_string()
        );
        assert_eq!(lease_annotations["admittance.dev/problem"], "no route");
        assert_eq!(parse_report(&lease_annotations), Some(table_report.clone()));
        (table_report.earlier, table_report.problem, table_report.rollouts) = (None, None, Vec::new());
        assert_eq!(parse_report(&report_annotations(&table_report)), Some(table_report));
        assert_eq!(parse_report(&Annotations::new()), None);
    }
}
