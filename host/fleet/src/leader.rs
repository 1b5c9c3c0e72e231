//! The work that one replica does for all of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admittance::{Host, Moment, RolloutProgress, Status, definitions::DefinitionFile, replicas::Replicas};
use admittance_cluster::{
    Cluster, Election, Event, Events, LeaderStatus, Resource, ResourceError, Resources, Terms,
};
use admittance_net::Backoff;
use futures_util::{StreamExt, future::select_all, stream};
use serde_json::Value;
use tokio::time::{Instant, interval_at, sleep};

use crate::{
    ChainStore, Webhooks,
    audit::Audits,
    chains::{Kind, definition_name, file_of},
    metrics,
    replicas::Leases,
    status::{event, new_status, rollouts},
};

/// Changes within this time are processed together.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// The first and the longest pause after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
pub(crate) const LAST_RETRY: Duration = Duration::from_secs(60);
/// The interval of writing counts of calls, which cover the last five to ten minutes.
const COUNTS: Duration = Duration::from_secs(600);
/// The interval of checking the leader, in addition to changes of this replica's role.
const LOOK: Duration = Duration::from_secs(1);
/// The limit of concurrent writes of statuses.
const WRITES: usize = 8;

/// Writes the statuses of chains as resources, keeps the webhook configurations, and audits what exists, while this replica is the leader.
/// Lives as long as the driver.
#[derive(Debug)]
pub struct Leader {
    election: Arc<Election>,
    chains: Option<ChainStore>,
    webhooks: Option<Webhooks>,
    audits: Option<Audits>,
    events: Events,
}

/// One look at all resources.
pub(crate) struct Pass {
    pub(crate) status: Status,
    /// Whether new counts of calls are reason enough to write a status.
    pub(crate) counts: bool,
    /// The progress of this replica's roll-outs.
    pub(crate) rollouts: Vec<RolloutProgress>,
}

/// A status to be written, with its event.
struct Write {
    resources: Resources,
    id: String,
    namespace: String,
    name: String,
    status: Value,
    event: Option<Event>,
}

impl Leader {
    /// Makes the leader of the replicas that read these chains, or keep these webhook configurations and audits; `None` if
    /// it would have nothing to do. The leader holds the Lease of this name.
    pub fn new(
        cluster: &Cluster,
        chains: Option<ChainStore>,
        webhooks: Option<Webhooks>,
        audits: Option<Audits>,
        lease: impl Into<String>,
        terms: Terms,
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

    /// Takes part in the election, and does the leader's work whenever this replica is the leader. Never returns; drop it
    /// to stop, and then [resign](Self::resign).
    pub async fn follow(&self, host: &Host) {
        tokio::join!(
            self.election.take_part(),
            self.work(host),
            self.follow_rollouts(host)
        );
    }

    pub fn status(&self) -> LeaderStatus {
        self.election.status()
    }

    /// The replicas of which this one may be the leader, to go live together.
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
            // The types of nested futures are limited in depth.
            Some(audits) => Box::pin(audits.keep(host)).await,
            None => std::future::pending().await,
        };
        loop {
            // The sender lives as long as this.
            let _ = is_leader.wait_for(|is_leader| *is_leader).await;
            tokio::select! {
                ((), (), ()) = async { tokio::join!(statuses(), webhooks(), audits()) } => {}
                _ = is_leader.wait_for(|is_leader| !*is_leader) => {}
            }
        }
    }

    /// Lets the leader begin the steps of roll-outs, and goes where the statuses of chains say that it is, forever. Replicas
    /// that go live together also learn from one another.
    async fn follow_rollouts(&self, host: &Host) {
        let followed = async {
            if let Some(chains) = &self.chains {
                follow_statuses(chains, host).await;
            }
        };
        let led = async {
            let mut is_leader = self.election.is_leader();
            while self.chains.is_some() {
                // Without a known leader, as without the permission to elect one, each begins them for itself.
                host.set_rollouts_led(self.election.status().is_another());
                tokio::select! {
                    _ = is_leader.changed() => {}
                    () = sleep(LOOK) => {}
                }
            }
        };
        tokio::join!(followed, led);
    }

    /// Keeps the statuses up to date, forever.
    async fn write_statuses(&self, chains: &ChainStore, host: &Host) {
        let mut changes = host.changes();
        let mut problems = HashMap::new();
        let mut retries = backoff();
        let mut is_time_for_counts = false;
        let mut counts = interval_at(Instant::now() + COUNTS, COUNTS);
        loop {
            changes.mark_unchanged();
            let seen: Vec<_> = chains.0.iter().map(|kind| kind.resources.changes()).collect();
            let mut is_done = true;
            let mut pass = Pass {
                status: host.status(),
                counts: std::mem::take(&mut is_time_for_counts),
                rollouts: Vec::new(),
            };
            for kind in &*chains.0 {
                is_done &= self.write_changed(kind, host, &mut pass, &mut problems).await;
            }
            let retry = match is_done {
                true => {
                    retries.reset();
                    None
                }
                false => Some(retries.after_failure()),
            };
            let changed = chains.0.iter().zip(seen);
            let changed = changed.map(|(kind, seen)| Box::pin(kind.resources.changed_since(seen)));
            tokio::select! {
                _ = changes.changed() => {}
                _ = select_all(changed) => {}
                () = after(retry) => {}
                _ = counts.tick() => is_time_for_counts = true,
            }
            sleep(PAUSE).await;
        }
    }

    /// Writes the statuses of a kind that differ from those in the cluster. Returns whether there was no failure; each is
    /// logged when it is not among the `problems` of before.
    async fn write_changed(
        &self,
        kind: &Kind,
        host: &Host,
        pass: &mut Pass,
        problems: &mut HashMap<String, String>,
    ) -> bool {
        let resources = match kind.list().await {
            Ok(resources) => resources,
            Err(error) => {
                let plural = kind.kind.plural;
                let was = problems.insert(plural.to_owned(), error.to_string());
                if was != Some(error.to_string()) {
                    tracing::warn!("the statuses of {plural} cannot be written: {error}");
                }
                return false;
            }
        };
        // What an earlier leader left, before it is replaced.
        host.follow_rollouts(resources.iter().flat_map(rollouts).collect())
            .await;
        pass.rollouts = host.rollouts();
        let writes = new_statuses(host, pass, kind, &resources)
            .into_iter()
            .map(|write| written(write, self.events.clone()));
        let written: Vec<_> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
        let mut is_done = true;
        for (id, result) in written {
            // It may have been deleted, which is seen as a change.
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

/// Goes where the statuses of chains say that the leader is with roll-outs, forever.
async fn follow_statuses(chains: &ChainStore, host: &Host) {
    let mut changes = host.changes();
    loop {
        changes.mark_unchanged();
        let seen: Vec<_> = chains.0.iter().map(|kind| kind.resources.changes()).collect();
        for kind in &*chains.0 {
            if host.rollouts().is_empty() {
                break;
            }
            // The writer of statuses reports errors. When an error is over, the resources change.
            if let Ok(resources) = kind.list().await {
                host.follow_rollouts(resources.iter().flat_map(rollouts).collect())
                    .await;
            }
        }
        let changed = chains.0.iter().zip(seen);
        let changed = changed.map(|(kind, seen)| Box::pin(kind.resources.changed_since(seen)));
        tokio::select! {
            _ = changes.changed() => {}
            _ = select_all(changed) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Writes a status, and then the event. Returns what it is about, and whether the status is written.
async fn written(write: Write, events: Events) -> (String, Result<(), ResourceError>) {
    let Write {
        resources,
        id,
        namespace,
        name,
        status,
        event,
    } = write;
    let written = resources.apply_status(&namespace, &name, &status).await;
    // The status says the same, so an event is not repeated.
    if let Some(event) = event.filter(|_| written.is_ok())
        && let Err(error) = events.publish(event).await
    {
        tracing::warn!("the event for {id} cannot be written: {error}");
    }
    (id, written)
}

fn new_statuses(host: &Host, pass: &Pass, kind: &Kind, resources: &[Resource]) -> Vec<Write> {
    let files: Vec<DefinitionFile> = resources
        .iter()
        .map(|resource| file_of(&kind.kind, resource))
        .collect();
    let standings = host.standings(&files);
    let now = Moment::now();
    resources
        .iter()
        .zip(standings)
        .filter_map(|(resource, standing)| {
            let status = new_status(&kind.kind, resource, &standing?, pass, now)?;
            Some(Write {
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

/// Waits this long; forever without a retry.
pub(crate) async fn after(retry: Option<Duration>) {
    match retry {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn backoff() -> Backoff {
    Backoff::new(FIRST_RETRY, LAST_RETRY)
}
