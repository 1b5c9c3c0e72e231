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
    status::{new_status, read_rollouts, status_event},
};

/// The time for which changes are collected before they are processed together.
pub(crate) const PASS_PAUSE: Duration = Duration::from_millis(200);
/// The pause before the first retry of a failed task. It grows up to `MAX_RETRY_PAUSE`.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// The interval at which a status gets new counts of calls. Each count covers the last 5 to 10 minutes.
const COUNT_INTERVAL: Duration = Duration::from_secs(600);
/// The interval at which a replica checks whether there is a leader.
const LEADER_CHECK: Duration = Duration::from_secs(1);
const MAX_CONCURRENT_WRITES: usize = 8;

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
        times: ElectionTimes,
    ) -> Option<Self> {
        if chains.is_some() {
            metrics::initialize_status_counters();
        }
        let has_work = chains.is_some() || webhooks.is_some() || audits.is_some();
        has_work.then(|| Self {
            election: Arc::new(cluster.election(lease, times)),
            chains,
            webhooks,
            audits,
            events: cluster.events(),
        })
    }

    /// Takes part in the election, and runs the leader's tasks whenever this replica is the leader. Never returns: drop
    /// the future to stop, and then [resign](Self::resign).
    pub async fn follow(&self, host: &Host) {
        tokio::join!(
            self.election.take_part(),
            self.run_tasks(host),
            self.follow_rollouts(host)
        );
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

    async fn run_tasks(&self, host: &Host) {
        let mut is_leader = self.election.watch_leadership();
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
            let mut is_leader = self.election.watch_leadership();
            while self.chains.is_some() {
                // The leader decides when rollout steps begin. If no other replica leads, this replica decides it.
                host.set_rollouts_led(self.election.status().has_other_leader());
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
        let mut counts = interval_at(Instant::now() + COUNT_INTERVAL, COUNT_INTERVAL);
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
                Some(retries.pause_after_failure())
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = changed => {}
                () = sleep_or_wait_forever(retry) => {}
                _ = counts.tick() => is_time_for_counts = true,
            }
            sleep(PASS_PAUSE).await;
        }
    }

    /// Writes each status that differs from the one in the cluster. `problems` contains the failures that were logged.
    async fn write_changed(
        &self,
        stored_kind: &StoredKind,
        host: &Host,
        pass: &mut StatusPass,
        problems: &mut HashMap<String, String>,
    ) -> bool {
        let resources = match stored_kind.list().await {
            Ok(resources) => resources,
            Err(error) => {
                let plural = stored_kind.resource_kind.plural;
                let previous_error = problems.insert(plural.to_owned(), error.to_string());
                if previous_error != Some(error.to_string()) {
                    tracing::warn!("the statuses of {plural} cannot be written: {error}");
                }
                return false;
            }
        };
        // The statuses in the cluster may contain the progress of rollouts, written by an earlier leader. The progress
        // is read now, because this leader is about to overwrite the statuses.
        host.follow_rollouts(resources.iter().flat_map(read_rollouts).collect())
            .await;
        pass.rollouts = host.rollouts();
        let writes = new_statuses(host, pass, stored_kind, &resources)
            .into_iter()
            .map(|write| write_status(write, self.events.clone()));
        let write_results: Vec<_> = stream::iter(writes)
            .buffer_unordered(MAX_CONCURRENT_WRITES)
            .collect()
            .await;
        let mut is_done = true;
        for (id, result) in write_results {
            let error = match result {
                Ok(()) | Err(ResourceError::NotFound(_)) => None,
                Err(error) => Some(error.to_string()),
            };
            metrics::record_status_write(error.is_none());
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
        problems.remove(stored_kind.resource_kind.plural);
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
                host.follow_rollouts(resources.iter().flat_map(read_rollouts).collect())
                    .await;
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = changed => {}
        }
        sleep(PASS_PAUSE).await;
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
    let files: Vec<DefinitionFile> = resources
        .iter()
        .map(|resource| file_of(&kind.resource_kind, resource))
        .collect();
    let version_states = host.version_states(&files);
    let now = Moment::now();
    resources
        .iter()
        .zip(version_states)
        .filter_map(|(resource, state)| {
            let status = new_status(&kind.resource_kind, resource, &state?, pass, now)?;
            Some(StatusWrite {
                resources: kind.resources.clone(),
                id: format!(
                    "{}/{}",
                    kind.resource_kind.kind,
                    definition_name(&resource.namespace, &resource.name)
                ),
                namespace: resource.namespace.clone(),
                name: resource.name.clone(),
                event: status_event(&kind.resource_kind, resource, &status),
                status,
            })
        })
        .collect()
}

/// Waits for the pause before the next attempt. If there is no next attempt (`None`), never completes.
pub(crate) async fn sleep_or_wait_forever(retry: Option<Duration>) {
    match retry {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn backoff() -> Backoff {
    Backoff::new(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE)
}
