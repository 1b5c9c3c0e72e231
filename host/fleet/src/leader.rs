//! What one replica does for all of them.

use std::{collections::HashMap, time::Duration};

use admittance::{Host, Moment, definitions::DefinitionFile};
use admittance_cluster::{Cluster, Election, Event, Events, Resource, ResourceError, Terms};
use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    ChainStore,
    chains::file_of,
    metrics,
    status::{event, new_status},
};

/// The Lease that the leader holds.
const LEASE: &str = "admittance";
/// Changes within this time are looked at together.
const PAUSE: Duration = Duration::from_millis(200);
/// The first and the longest pause after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// How many statuses are written at a time.
const WRITES: usize = 8;

/// Writes the statuses of chains as resources while this replica is the leader. Lives as long as the driver.
#[derive(Debug)]
pub struct Leader {
    election: Election,
    chains: ChainStore,
    events: Events,
}

/// What is written of a chain.
struct Write {
    name: String,
    status: Value,
    event: Option<Event>,
}

impl Leader {
    /// Of the replicas that read these chains of the cluster.
    pub fn new(cluster: &Cluster, chains: ChainStore, terms: Terms) -> Self {
        Self {
            election: cluster.election(LEASE, terms),
            chains,
            events: cluster.events(),
        }
    }

    /// Takes part in the election, and does the leader's work whenever this replica is the leader. Never returns; drop it
    /// to stop, and then [resign](Self::resign).
    pub async fn follow(&self, host: &Host) {
        tokio::join!(self.election.take_part(), self.work(host));
    }

    /// Lets another replica become the leader at once.
    pub async fn resign(&self) {
        self.election.resign().await;
    }

    async fn work(&self, host: &Host) {
        let mut is_leader = self.election.is_leader();
        loop {
            // The sender lives as long as this.
            let _ = is_leader.wait_for(|is_leader| *is_leader).await;
            tokio::select! {
                () = self.write_statuses(host) => {}
                _ = is_leader.wait_for(|is_leader| !*is_leader) => {}
            }
        }
    }

    /// Keeps the statuses up to date, forever.
    async fn write_statuses(&self, host: &Host) {
        let mut changes = host.changes();
        let mut problems = HashMap::new();
        let mut retries = None;
        loop {
            changes.mark_unchanged();
            let seen = self.chains.0.changes();
            let is_done = self.write_changed(host, &mut problems).await;
            let retry = match is_done {
                true => {
                    retries = None;
                    None
                }
                false => retries.get_or_insert_with(backoff).next(),
            };
            let retry = async {
                match retry {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = self.chains.0.changed_since(seen) => {}
                () = retry => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Writes the statuses that differ from those in the cluster. Returns whether there was no failure; each is logged
    /// when it is not among the `problems` of before.
    async fn write_changed(&self, host: &Host, problems: &mut HashMap<String, String>) -> bool {
        let resources = match self.chains.0.list().await {
            Ok(resources) => resources,
            Err(error) => {
                let was = problems.insert(String::new(), error.to_string());
                if was != Some(error.to_string()) {
                    tracing::warn!("the statuses of chains cannot be written: {error}");
                }
                return false;
            }
        };
        let new = new_statuses(host, &resources);
        let writes = new.into_iter().map(|write| {
            let (chains, events) = (self.chains.0.clone(), self.events.clone());
            async move {
                let Write { name, status, event } = write;
                let written = chains.apply_status("", &name, &status).await;
                // The status says the same, so an event is not repeated.
                if let Some(event) = event.filter(|_| written.is_ok())
                    && let Err(error) = events.publish(event).await
                {
                    tracing::warn!(chain = name, "the event for a chain cannot be written: {error}");
                }
                (name, written)
            }
        });
        let written: Vec<_> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
        let before = std::mem::take(problems);
        for (name, result) in written {
            let error = match result {
                // It was deleted, which is seen as a change.
                Ok(()) | Err(ResourceError::NotFound(_)) => {
                    metrics::status_written(true);
                    continue;
                }
                Err(error) => error.to_string(),
            };
            metrics::status_written(false);
            if before.get(&name) != Some(&error) {
                tracing::warn!(chain = name, "the status of a chain cannot be written: {error}");
            }
            problems.insert(name, error);
        }
        problems.is_empty()
    }
}

/// The statuses to be written.
fn new_statuses(host: &Host, resources: &[Resource]) -> Vec<Write> {
    let files: Vec<DefinitionFile> = resources.iter().map(file_of).collect();
    let standings = host.standings(&files);
    let (status, now) = (host.status(), Moment::now());
    resources
        .iter()
        .zip(standings)
        .filter_map(|(resource, standing)| {
            let status = new_status(resource, &standing?, &status, now)?;
            Some(Write {
                name: resource.name.clone(),
                event: event(resource, &status),
                status,
            })
        })
        .collect()
}

fn backoff() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_RETRY)
        .with_max_delay(LAST_RETRY)
        .with_jitter()
        .without_max_times()
        .build()
}
