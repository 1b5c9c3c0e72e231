//! Lets replicas go live together: each replica reports which table is live and which is prepared, and goes live with
//! the table on which all agree.

pub mod agreement;

use std::{cmp::Reverse, fmt, time::Duration};

use admittance_admission::{Digest, Moment, shortened};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, interval},
};

use crate::{
    Host, RolloutProgress,
    replicas::agreement::{
        KnownReplica, MissingReplica, ReplicaAgreement, ReplicaStatus, ReplicasStatus, TableReport, find_agreement,
        is_ready,
    },
    status::metrics,
};

/// The interval at which the replicas are checked, because a replica's entry can expire without a notification.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which a replica that has just started waits for a target from the other replicas. If it gets none by
/// then, it may be ready without a target.
const MAX_TARGET_WAIT: Duration = Duration::from_secs(5);
/// The time that a replica may prepare a change before the log says that the others wait for it.
const SLOW_CHANGE_TIME: Duration = Duration::from_secs(10);
/// The maximum length of a reported problem, in characters. The rest is cut off.
const MAX_PROBLEM_LENGTH: usize = 1000;
/// The maximum number of rollouts in a report, which must fit into a Lease (256 KiB) or a ZooKeeper node (1 MiB).
const MAX_ROLLOUTS: usize = 100;
/// The maximum length of the reason of a reported rollout, in characters. The rest is cut off.
const MAX_REASON_LENGTH: usize = 300;

/// Connects the replicas of an installation, so that each can read what the others report.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// Returns the name of this replica.
    fn name(&self) -> &str;

    /// Sets the report of this replica, which the other replicas read.
    fn report(&self, report: &TableReport);

    /// Returns a receiver that is notified when a report or the connection to the other replicas changes.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Returns all replicas, and the target table that their leader has chosen, as far as this replica knows them.
    /// Called at least every second.
    fn membership(&self) -> Membership;

    /// Publishes the target to all replicas if this replica still leads. After a failure, the caller tries again.
    async fn publish(&self, target: Digest);

    /// Shares reports with the other replicas. Never completes: drop it to stop, and then call [`leave`](Self::leave).
    async fn take_part(&self);

    /// Removes this replica from the list of replicas, so that the others do not wait for it.
    async fn leave(&self);
}

/// The list of replicas and their target, as this replica knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The replicas that have reported. If the list contains this replica itself, its report there may be out of date.
    pub replicas: Vec<KnownReplica>,
    /// The content hash of the table that all replicas should serve, as a leader published it last.
    pub target: Option<Digest>,
    /// Whether this replica is the leader.
    pub leads: bool,
    /// Whether another replica is the leader now, or was the leader earlier. If no other replica has ever been the
    /// leader, each replica begins the steps of its rollouts itself.
    pub is_led: bool,
    /// Whether this program is not permitted to share reports.
    pub is_refused: bool,
    /// The reason why this list of replicas may be out of date; `None` if it is current.
    pub problem: Option<String>,
}

/// The replicas of an installation, as this replica knows them. Lives as long as the program.
#[derive(Debug)]
pub struct Replicas {
    transport: Box<dyn Transport>,
    start_time: Instant,
    view: Mutex<ReplicasView>,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct ReplicasView {
    target: Option<Digest>,
    waiting: Vec<MissingReplica>,
    problem: Option<String>,
    replicas: Vec<KnownReplica>,
}

#[derive(Debug, Default)]
struct WaitingLog {
    since: Option<Instant>,
    logged_sentences: Vec<String>,
}

impl Replicas {
    /// Creates an empty list of replicas. The replicas exchange their reports through `transport`, and
    /// [`follow`](Self::follow) adds them to the list.
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self {
            transport: Box::new(transport),
            start_time: Instant::now(),
            view: Mutex::default(),
            is_ready: watch::Sender::new(false),
        }
    }

    /// Returns whether this replica serves the table on which the replicas have agreed.
    pub fn is_ready(&self, host: &Host) -> bool {
        match self.view.lock().target {
            None => self.start_time.elapsed() >= MAX_TARGET_WAIT,
            target => is_ready(target, host.hash()),
        }
    }

    /// Returns a receiver of the value of [`is_ready`](Self::is_ready). The value is `false` until
    /// [`follow`](Self::follow) runs.
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// Returns which table each replica serves, and which it has prepared.
    pub fn status(&self) -> ReplicasStatus {
        let view = self.view.lock();
        let replicas = view.replicas.iter();
        ReplicasStatus {
            target: view.target,
            waiting: view.waiting.iter().map(MissingReplica::sentence).collect(),
            problem: view.problem.clone(),
            replicas: replicas
                .map(|replica| ReplicaStatus::new(replica, self.transport.name(), view.target))
                .collect(),
        }
    }

    /// Makes the host go live with the tables on which the replicas agree. The host must have been built with
    /// [`go_live_on_request`](crate::HostBuilder::go_live_on_request). The future never completes: drop it to stop, and
    /// then call [`leave`](Self::leave).
    pub async fn follow(&self, host: &Host) {
        let mut report = None;
        let membership = self.transport.membership();
        let own_report = new_report(host, self.transport.name(), &membership, &mut report);
        self.transport.report(&own_report);
        tokio::join!(self.transport.take_part(), self.agree(host, report));
    }

    /// Removes this replica from the list of replicas, so that the others do not wait for it.
    pub async fn leave(&self) {
        self.transport.leave().await;
    }

    async fn agree(&self, host: &Host, mut report: Option<TableReport>) {
        let (mut changes, mut transport_changes) = (host.changes(), self.transport.changes());
        let mut checks = interval(CHECK_INTERVAL);
        let mut waiting = WaitingLog::default();
        loop {
            changes.mark_unchanged();
            transport_changes.mark_unchanged();
            let mut membership = self.transport.membership();
            let own_report = new_report(host, self.transport.name(), &membership, &mut report);
            self.transport.report(&own_report);
            let of_this = |replica: &&mut KnownReplica| replica.name == self.transport.name();
            if let Some(replica) = membership.replicas.iter_mut().find(of_this) {
                replica.report.clone_from(&own_report);
            }
            host.set_rollouts_led(membership.is_led);
            host.follow_rollouts(reported_rollouts(&membership.replicas)).await;
            let target = membership.target;
            let agreement = find_agreement(target, &membership.replicas);
            // This replica is not permitted to share reports, and has never known a target. So it goes live without
            // waiting for other replicas.
            let is_alone = membership.is_refused && self.view.lock().target.is_none();
            if membership.leads
                && membership.problem.is_none()
                && let ReplicaAgreement::Switch(hash) = agreement
            {
                self.transport.publish(hash).await;
            }
            self.record_agreement(membership, agreement);
            waiting.log(&self.view.lock().waiting);
            let is_ready = self.is_ready(host);
            self.is_ready
                .send_if_modified(|was_ready| std::mem::replace(was_ready, is_ready) != is_ready);
            metrics::record_replicas(&self.status(), is_ready);
            let next_target = if is_alone { Some(own_report.prepared) } else { target };
            if let Some(next_hash) = next_target.filter(|next_hash| *next_hash != own_report.live)
                && host.go_live_with(next_hash).await
            {
                continue;
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = transport_changes.changed() => {}
                _ = checks.tick() => {}
            }
        }
    }

    fn record_agreement(&self, membership: Membership, agreement: ReplicaAgreement) {
        let mut view = self.view.lock();
        let target = membership.target;
        if target.is_some() && target != view.target {
            let hash = target.map(Digest::to_short_hex);
            tracing::info!(hash, "the replicas have agreed on a table");
            view.target = target;
        }
        view.waiting = match agreement {
            ReplicaAgreement::Waiting(missing) => missing,
            ReplicaAgreement::Agreed | ReplicaAgreement::Switch(_) => Vec::new(),
        };
        view.problem = membership.problem;
        view.replicas = membership.replicas;
    }
}

impl WaitingLog {
    /// Logs each replica for which the other replicas wait, but only once. A replica without a problem is probably
    /// still preparing the change, so it is not logged before [`SLOW_CHANGE_TIME`] has passed.
    fn log(&mut self, missing: &[MissingReplica]) {
        if missing.is_empty() {
            self.since = None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_slow = since.elapsed() >= SLOW_CHANGE_TIME;
        let loggable = missing.iter().filter(|missing| is_slow || missing.problem.is_some());
        let sentences: Vec<String> = loggable.map(MissingReplica::sentence).collect();
        for sentence in sentences.iter().filter(|new| !self.logged_sentences.contains(new)) {
            tracing::warn!("a change waits, and no replica goes live with it: {sentence}");
        }
        if missing.is_empty() && !self.logged_sentences.is_empty() {
            tracing::info!("no change waits for a replica any more");
        }
        if missing.is_empty() || !sentences.is_empty() {
            self.logged_sentences = sentences;
        }
    }
}

/// Returns the report of this replica to the other replicas. While its list of the replicas is not current, this
/// replica does not know which table the others go live with. Its report then contains only the live table, so that the
/// others wait for it before a newer table goes live.
fn new_report(host: &Host, name: &str, membership: &Membership, before: &mut Option<TableReport>) -> TableReport {
    let mut prepared = host.table_hashes();
    if let Some(problem) = &membership.problem
        && !membership.is_refused
    {
        (prepared.newest, prepared.earlier) = (prepared.live, None);
        prepared.problem = Some(problem.clone());
    }
    let mut report = TableReport {
        live: prepared.live,
        prepared: prepared.newest,
        earlier: prepared.earlier,
        since: Moment::now(),
        problem: prepared
            .problem
            .map(|problem| shortened(&problem, MAX_PROBLEM_LENGTH).into_owned()),
        rollouts: bounded_rollouts(host.rollouts(), name),
    };
    if let Some(before) = before.as_ref().filter(|before| before.is_like(&report)) {
        report.since = before.since;
    }
    before.insert(report).clone()
}

fn bounded_rollouts(mut rollouts: Vec<RolloutProgress>, name: &str) -> Vec<RolloutProgress> {
    rollouts.sort_by_key(|rollout| Reverse(rollout.since));
    rollouts.truncate(MAX_ROLLOUTS);
    for rollout in &mut rollouts {
        rollout.replica.get_or_insert_with(|| name.to_owned());
        rollout.reason = rollout
            .reason
            .take()
            .map(|reason| shortened(&reason, MAX_REASON_LENGTH).into_owned());
    }
    rollouts
}

/// Returns the reported rollouts of replicas that are alive.
fn reported_rollouts(replicas: &[KnownReplica]) -> Vec<RolloutProgress> {
    let alive = replicas.iter().filter(|replica| replica.is_alive);
    alive.flat_map(|replica| replica.report.rollouts.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_number_and_length_of_reported_rollouts_are_limited() {
        let aborted = json!({
            "stage": "Mutating:pods/a", "subject": Digest::of_bytes("a"), "changes": 1, "step": 0, "state": "aborted",
            "since": "2026-01-01T00:00:00Z", "reason": "it failed",
        });
        let aborted: RolloutProgress = serde_json::from_value(aborted).unwrap();
        let report = bounded_rollouts(vec![aborted.clone()], "web-1");
        assert_eq!(report[0].reason_and_replica().unwrap(), "it failed (in replica web-1)");
        let rollout = |number: u64| {
            let mut rollout = aborted.clone();
            rollout.since.0 += Duration::from_secs(number);
            rollout.reason = Some("x".repeat(1000));
            rollout.replica = Some(format!("{number}"));
            rollout
        };
        let report = bounded_rollouts((0..300).map(rollout).collect(), "web-1");
        assert_eq!(report.len(), MAX_ROLLOUTS);
        assert_eq!(report[0].replica.as_deref(), Some("299"), "the newest");
        assert_eq!(report[0].reason.as_ref().unwrap().len(), MAX_REASON_LENGTH);
    }
}
