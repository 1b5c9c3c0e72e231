//! One table everywhere: replicas tell one another by their Leases what they serve and what they have prepared, and go live
//! together.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admittance::{
    Digest, Host, Moment,
    agreement::{Agreement, Missing, Replica, ReplicaStatus, ReplicasStatus, Report, agreement, is_ready},
};
use admittance_cluster::{Annotations, Election, Member, Members, Membership, Terms};
use serde_json::{Map, Value};
use tokio::time::{Instant, interval};

use crate::metrics;

/// Annotations begin with this; what follows in the Lease of a replica is a field of its report.
const PREFIX: &str = "admittance.dev/";
/// The annotation of the leader's Lease.
const TARGET: &str = "admittance.dev/target";
/// A Lease of a replica is renewed seldom, since all replicas watch all of them.
const TERMS: Terms = Terms {
    duration: Duration::from_secs(15),
    pause: Duration::from_secs(5),
};
/// How often the Leases are looked at without a change: they expire.
const LOOK: Duration = Duration::from_secs(1);
/// How long a replica that knows no target is not ready: until then it asks the API server for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is logged about replicas that are still preparing a change.
const SLOW: Duration = Duration::from_secs(10);
/// The Lease of a replica that has been gone for this time is deleted.
const GONE: Duration = Duration::from_secs(600);
/// The most of a problem that is reported, in characters.
const LONGEST_PROBLEM: usize = 1000;

/// The replicas, as this one sees them. Lives as long as the driver.
#[derive(Debug)]
pub(crate) struct Replicas {
    election: Arc<Election>,
    members: Members,
    started: Instant,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    target: Option<Digest>,
    waiting: Vec<Missing>,
    problem: Option<String>,
    replicas: Vec<Replica>,
}

/// What was logged about replicas that others wait for.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    logged: Vec<String>,
}

impl Replicas {
    pub(crate) fn new(election: Arc<Election>) -> Self {
        Self {
            members: election.members(TERMS),
            election,
            started: Instant::now(),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this replica serves the table that the replicas have agreed on.
    pub(crate) fn is_ready(&self, host: &Host) -> bool {
        match self.known().target {
            None => self.started.elapsed() >= PATIENCE,
            target => is_ready(target, host.hash()),
        }
    }

    pub(crate) fn status(&self) -> ReplicasStatus {
        let known = self.known();
        let replicas = known.replicas.iter();
        ReplicasStatus {
            target: known.target,
            waiting: known.waiting.iter().map(Missing::sentence).collect(),
            problem: known.problem.clone(),
            replicas: replicas
                .map(|replica| ReplicaStatus::of(replica, self.members.name(), known.target))
                .collect(),
        }
    }

    /// Takes part. Never returns; drop it to stop, and then [leave](Self::leave).
    pub(crate) async fn follow(&self, host: &Host) {
        tokio::join!(self.members.take_part(), self.agree(host));
    }

    /// No other replica waits for this one any more.
    pub(crate) async fn leave(&self) {
        self.members.leave().await;
    }

    async fn agree(&self, host: &Host) {
        let (mut changes, mut leases) = (host.changes(), self.members.changes());
        let mut looks = interval(LOOK);
        let mut report = None;
        let mut waiting = Waiting::default();
        loop {
            changes.mark_unchanged();
            leases.mark_unchanged();
            let membership = self.members.look();
            let own = new_report(host, &membership, &mut report);
            self.members.annotate(annotations(&own));
            let target = membership.leader.as_ref().and_then(target);
            let replicas = replicas(&membership, self.members.name(), &own);
            let agreement = agreement(target, &replicas);
            // Without the permission nothing will be known of the others: this replica is alone.
            let is_alone = membership.is_refused && self.known().target.is_none();
            let may_lead = membership.problem.is_none() && *self.election.is_leader().borrow();
            if may_lead {
                self.lead(&membership, &agreement).await;
            }
            self.note(target, replicas, agreement, membership.problem);
            waiting.log(&self.known().waiting);
            metrics::replicas(&self.status(), self.is_ready(host));
            let wanted = if is_alone { Some(own.prepared) } else { target };
            if let Some(wanted) = wanted.filter(|wanted| *wanted != own.live)
                && host.go_live_with(wanted).await
            {
                continue;
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = leases.changed() => {}
                _ = looks.tick() => {}
            }
        }
    }

    /// What the leader does.
    async fn lead(&self, membership: &Membership, agreement: &Agreement) {
        if let Agreement::Switch(hash) = agreement {
            self.election.annotate(TARGET, &hash.to_string());
        }
        let is_gone = |member: &&Member| !member.is_alive && member.unchanged >= GONE;
        for member in membership.members.iter().filter(is_gone) {
            self.members.remove(&member.name).await;
        }
    }

    fn note(
        &self,
        target: Option<Digest>,
        replicas: Vec<Replica>,
        agreement: Agreement,
        problem: Option<String>,
    ) {
        let mut known = self.known();
        if target.is_some() && target != known.target {
            let hash = target.map(Digest::short);
            tracing::info!(hash, "the replicas have agreed on a table");
            known.target = target;
        }
        known.waiting = match agreement {
            Agreement::Waiting(missing) => missing,
            Agreement::Agreed | Agreement::Switch(_) => Vec::new(),
        };
        known.problem = problem;
        known.replicas = replicas;
    }
}

impl Waiting {
    /// Logs what the replicas wait for, once, and when they do not any more. That a replica needs its time is not worth a
    /// line.
    fn log(&mut self, missing: &[Missing]) {
        if missing.is_empty() {
            self.since = None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_slow = since.elapsed() >= SLOW;
        let worth = missing
            .iter()
            .filter(|missing| is_slow || missing.problem.is_some());
        let sentences: Vec<String> = worth.map(Missing::sentence).collect();
        for sentence in sentences.iter().filter(|new| !self.logged.contains(new)) {
            tracing::warn!("a change waits, and no replica goes live with it: {sentence}");
        }
        if missing.is_empty() && !self.logged.is_empty() {
            tracing::info!("no change waits for a replica any more");
        }
        if missing.is_empty() || !sentences.is_empty() {
            self.logged = sentences;
        }
    }
}

/// What this replica reports now; with the time of before, if nothing else is different. One that does not learn what the
/// replicas agree on has prepared nothing, so that the others do not go live without it.
fn new_report(host: &Host, membership: &Membership, before: &mut Option<Report>) -> Report {
    let mut prepared = host.prepared();
    if let Some(problem) = &membership.problem
        && !membership.is_refused
    {
        (prepared.newest, prepared.earlier) = (prepared.live, None);
        prepared.problem = Some(problem.clone());
    }
    let bounded = |problem: String| problem.chars().take(LONGEST_PROBLEM).collect();
    let report = Report {
        live: prepared.live,
        prepared: prepared.newest,
        earlier: prepared.earlier,
        since: Moment::now(),
        problem: prepared.problem.map(bounded),
    };
    match before {
        Some(before) if before.is_like(&report) => before.clone(),
        _ => before.insert(report).clone(),
    }
}

/// The fields of a report, which are all texts.
fn annotations(report: &Report) -> Annotations {
    let fields = match serde_json::to_value(report) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let text = |(name, value): (String, Value)| Some((format!("{PREFIX}{name}"), value.as_str()?.to_owned()));
    fields.into_iter().filter_map(text).collect()
}

/// The report in these annotations, if they have one.
fn report(annotations: &Annotations) -> Option<Report> {
    let field = |(name, value): (&String, &String)| {
        let name = name.strip_prefix(PREFIX)?;
        Some((name.to_owned(), Value::String(value.clone())))
    };
    let fields: Map<String, Value> = annotations.iter().filter_map(field).collect();
    serde_json::from_value(Value::Object(fields)).ok()
}

fn target(annotations: &Annotations) -> Option<Digest> {
    annotations.get(TARGET)?.parse().ok()
}

/// The replicas, of which the one of this name has this report. A Lease without a report is of none.
fn replicas(membership: &Membership, own: &str, own_report: &Report) -> Vec<Replica> {
    let replica = |member: &Member| {
        let is_own = member.name == own;
        Some(Replica {
            name: member.name.clone(),
            is_alive: member.is_alive,
            is_leader: member.is_leader,
            report: match is_own {
                true => own_report.clone(),
                false => report(&member.annotations)?,
            },
        })
    };
    membership.members.iter().filter_map(replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_annotations() {
        let mut own = Report {
            live: Digest::of("a"),
            prepared: Digest::of("b"),
            earlier: Some(Digest::of("c")),
            since: Moment(std::time::SystemTime::UNIX_EPOCH),
            problem: Some("no route".to_owned()),
        };
        let written = annotations(&own);
        assert_eq!(written["admittance.dev/live"], Digest::of("a").to_string());
        assert_eq!(written["admittance.dev/problem"], "no route");
        assert_eq!(report(&written), Some(own.clone()));
        (own.earlier, own.problem) = (None, None);
        assert_eq!(report(&annotations(&own)), Some(own));
        assert_eq!(report(&Annotations::new()), None);
    }
}
