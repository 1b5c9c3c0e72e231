//! Elects a leader among the replicas, and runs the leader's tasks: statuses, webhook configurations and audits.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admittance::{Host, Moment, RolloutProgress, Status, definitions::DefinitionFile, replicas::Replicas};
use admittance_cluster::{
    Cluster, ClusterEvent, Election, ElectionTimes, EventWriter, LeaderStatus, Resource, ResourceError,
    WatchedResources,
};
use admittance_definitions::definition_name;
use admittance_net::Backoff;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, interval_at, sleep};

use crate::{
    ChainStore, Webhooks,
    audit::Audits,
    chains::{StoredKind, file_of},
    metrics,
    replicas::Leases,
    status::{event, new_status, rollouts},
};

/// The time for which changes are collected before they are processed together.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// The pause before the first retry of a failed task. It grows up to `LAST_RETRY`.
const FIRST_RETRY: Duration = Duration::from_secs(1);
pub(crate) const LAST_RETRY: Duration = Duration::from_secs(60);
/// The interval at which a status gets new counts of calls. Each count covers the last 5 to 10 minutes.
const COUNTS: Duration = Duration::from_secs(600);
/// The interval at which a replica checks whether there is a leader.
const LEADER_CHECK: Duration = Duration::from_secs(1);
const WRITES: usize = 8;

/// Takes part in the election. While this replica is the leader, writes the statuses of chains in the cluster, updates
/// the webhook configurations, and audits existing objects.
#[derive(Debug)]
pub struct Leader {
    election: Arc<Election>,
    chains: Option<ChainStore>,
    webhooks: Option<Webhooks>,
    audits: Option<Audits>,
    events: EventWriter,
}

pub(crate) struct StatusPass {
    pub(crate) status: Status,
    /// The counts of calls in a status change all the time. If this is true, a status is written even if only its
    /// counts have changed.
    pub(crate) writes_counts: bool,
    pub(crate) rollouts: Vec<RolloutProgress>,
}

struct StatusWrite {
    resources: WatchedResources,
    id: String,
    namespace: String,
    name: String,
    status: Value,
    event: Option<ClusterEvent>,
}

impl Leader {
    /// Creates the leader's tasks, and a candidate in the election with this Lease. `None` if no task is configured.
    pub fn new(
        cluster: &Cluster,
        chains: Option<ChainStore>,
        webhooks: Option<Webhooks>,
        audits: Option<Audits>,
        lease: impl Into<String>,
        terms: ElectionTimes,
    ) -> Option<Self> {
        if chains.is_some() {
            metrics::statuses_begin_at_zero();
        }
        let has_work = chains.is_some() || webhooks.is_some() || audits.is_some();
        has_work.then(|| Self {
            election: Arc::new(cluster.election(lease, terms)),
            chains,
            webhooks,
            audits,
            events: cluster.events(),
        })
    }

    /// Takes part in the election, and runs the leader's tasks whenever this replica is the leader. Never returns: drop
    /// the future to stop, and then [resign](Self::resign).
    pub async fn follow(&self, host: &Host) {
        tokio::join!(self.election.take_part(), self.work(host), self.follow_rollouts(host));
    }

    pub fn status(&self) -> LeaderStatus {
        self.election.status()
    }

    /// Returns the replicas that take part in this election. All switch to a new table of chains at the same time.
    pub fn replicas(&self) -> Replicas {
        Replicas::new(Leases::new(self.election.clone()))
    }

    /// Lets another replica become the leader at once.
    pub async fn resign(&self) {
        self.election.resign().await;
    }

    async fn work(&self, host: &Host) {
        let mut is_leader = self.election.is_leader();
        let statuses = async || match &self.chains {
            Some(chains) => self.write_statuses(chains, host).await,
            None => std::future::pending().await,
        };
        let webhooks = async || match &self.webhooks {
            Some(webhooks) => webhooks.keep(host).await,
            None => std::future::pending().await,
        };
        let audits = async || match &self.audits {
            // The box keeps the type of the surrounding future small.
            Some(audits) => Box::pin(audits.keep(host)).await,
            None => std::future::pending().await,
        };
        loop {
            // Waiting cannot fail, because `self` owns the sender.
            let _ = is_leader.wait_for(|is_leader| *is_leader).await;
            tokio::select! {
                ((), (), ()) = async { tokio::join!(statuses(), webhooks(), audits()) } => {}
                _ = is_leader.wait_for(|is_leader| !*is_leader) => {}
            }
        }
    }

    /// Keeps track of rollouts: reads their progress from the statuses of chains, and leaves the decision when their
    /// steps begin to the leader. Never returns.
    async fn follow_rollouts(&self, host: &Host) {
        let status_follower = async {
            if let Some(chains) = &self.chains {
                follow_statuses(chains, host).await;
            }
        };
        let leader_watch = async {
            let mut is_leader = self.election.is_leader();
            while self.chains.is_some() {
                // The leader decides when rollout steps begin. If no other replica leads, this replica decides it.
                host.set_rollouts_led(self.election.status().is_another());
                tokio::select! {
                    _ = is_leader.changed() => {}
                    () = sleep(LEADER_CHECK) => {}
                }
            }
        };
        tokio::join!(status_follower, leader_watch);
    }

    async fn write_statuses(&self, chains: &ChainStore, host: &Host) {
        let mut changes = host.changes();
        let mut problems = HashMap::new();
        let mut retries = backoff();
        let mut is_time_for_counts = false;
        let mut counts = interval_at(Instant::now() + COUNTS, COUNTS);
        loop {
            changes.mark_unchanged();
            let changed = chains.next_change();
            let mut is_done = true;
            let mut pass = StatusPass {
                status: host.status(),
                writes_counts: std::mem::take(&mut is_time_for_counts),
                rollouts: Vec::new(),
            };
            for kind in &*chains.0 {
                is_done &= self.write_changed(kind, host, &mut pass, &mut problems).await;
            }
            let retry = if is_done {
                retries.reset();
                None
            } else {
                Some(retries.after_failure())
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = changed => {}
                () = after(retry) => {}
                _ = counts.tick() => is_time_for_counts = true,
            }
            sleep(PAUSE).await;
        }
    }

    /// Writes each status that differs from the one in the cluster. `problems` contains the failures that were logged.
    async fn write_changed(
        &self,
        kind: &StoredKind,
        host: &Host,
        pass: &mut StatusPass,
        problems: &mut HashMap<String, String>,
    ) -> bool {
        let resources = match kind.list().await {
            Ok(resources) => resources,
            Err(error) => {
                let plural = kind.kind.plural;
                let previous_error = problems.insert(plural.to_owned(), error.to_string());
                if previous_error != Some(error.to_string()) {
                    tracing::warn!("the statuses of {plural} cannot be written: {error}");
                }
                return false;
            }
        };
        // The statuses in the cluster may contain the progress of rollouts, written by an earlier leader. The progress
        // is read now, because this leader is about to overwrite the statuses.
        host.follow_rollouts(resources.iter().flat_map(rollouts).collect())
            .await;
        pass.rollouts = host.rollouts();
        let writes = new_statuses(host, pass, kind, &resources)
            .into_iter()
            .map(|write| write_status(write, self.events.clone()));
        let write_results: Vec<_> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
        let mut is_done = true;
        for (id, result) in write_results {
            let error = match result {
                Ok(()) | Err(ResourceError::NotFound(_)) => None,
                Err(error) => Some(error.to_string()),
            };
            metrics::status_written(error.is_none());
            let Some(error) = error else {
                problems.remove(&id);
                continue;
            };
            is_done = false;
            if problems.get(&id) != Some(&error) {
                tracing::warn!("the status of {id} cannot be written: {error}");
            }
            problems.insert(id, error);
        }
        problems.remove(kind.kind.plural);
        is_done
    }
}

async fn follow_statuses(chains: &ChainStore, host: &Host) {
    let mut changes = host.changes();
    loop {
        changes.mark_unchanged();
        let changed = chains.next_change();
        for kind in &*chains.0 {
            if host.rollouts().is_empty() {
                break;
            }
            if let Ok(resources) = kind.list().await {
                host.follow_rollouts(resources.iter().flat_map(rollouts).collect())
                    .await;
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = changed => {}
        }
        sleep(PAUSE).await;
    }
}

/// Writes a status, and then publishes the event about it.
async fn write_status(write: StatusWrite, events: EventWriter) -> (String, Result<(), ResourceError>) {
    let StatusWrite {
        resources,
        id,
        namespace,
        name,
        status,
        event,
    } = write;
    let write_result = resources.apply_status(&namespace, &name, &status).await;
    if let Some(event) = event.filter(|_| write_result.is_ok())
        && let Err(error) = events.publish(event).await
    {
        tracing::warn!("the event for {id} cannot be written: {error}");
    }
    (id, write_result)
}

fn new_statuses(host: &Host, pass: &StatusPass, kind: &StoredKind, resources: &[Resource]) -> Vec<StatusWrite> {
    let files: Vec<DefinitionFile> = resources.iter().map(|resource| file_of(&kind.kind, resource)).collect();
    let version_states = host.version_states(&files);
    let now = Moment::now();
    resources
        .iter()
        .zip(version_states)
        .filter_map(|(resource, state)| {
            let status = new_status(&kind.kind, resource, &state?, pass, now)?;
            Some(StatusWrite {
                resources: kind.resources.clone(),
                id: format!(
                    "{}/{}",
                    kind.kind.kind,
                    definition_name(&resource.namespace, &resource.name)
                ),
                namespace: resource.namespace.clone(),
                name: resource.name.clone(),
                event: event(&kind.kind, resource, &status),
                status,
            })
        })
        .collect()
}

/// Waits for the pause before the next attempt. If there is no next attempt (`None`), never completes.
pub(crate) async fn after(retry: Option<Duration>) {
    match retry {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn backoff() -> Backoff {
    Backoff::new(FIRST_RETRY, LAST_RETRY)
}
