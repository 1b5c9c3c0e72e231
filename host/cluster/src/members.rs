//! The replicas of a program. Each replica holds a Lease of its own, and reports its state in that Lease's annotations.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::Key,
    connection::Connection,
    lease::{ElectionTimes, LEADER_LABEL, REQUEST_LIMIT, current_time, has_expired},
    metrics::Verb,
    request_error::{RequestError, permission},
    watch::{WatchSelection, WatchView, spawn},
};

pub type Annotations = BTreeMap<String, String>;

const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The Leases of all replicas of this program, including this replica's Lease. Lives as long as the program.
#[derive(Debug)]
pub struct ReplicaMembers {
    connection: Connection,
    api: Api<Lease>,
    /// The name of the leader's Lease.
    leader: String,
    /// The name of this replica's Lease.
    name: String,
    identity: String,
    times: ElectionTimes,
    view: Arc<WatchView<LeaseFields>>,
    /// The last version of each Lease, and the time at which this replica first saw it.
    observations: Mutex<HashMap<String, (LeaseFields, Instant)>>,
    annotations: watch::Sender<Annotations>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
struct LeaseFields {
    spec: LeaseSpec,
    annotations: Annotations,
}

/// A replica that holds a Lease of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseMember {
    /// The name of the replica's Lease.
    pub name: String,
    /// Whether the replica renews its Lease.
    pub is_alive: bool,
    /// The time since the Lease last changed.
    pub unchanged_time: Duration,
    pub is_leader: bool,
    pub annotations: Annotations,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseMembership {
    pub members: Vec<LeaseMember>,
    /// The annotations of the leader's Lease; `None` if there is no such Lease.
    pub leader: Option<Annotations>,
    /// Whether the watch on Leases is refused, because the account of this program lacks the right.
    pub is_refused: bool,
    /// The reason why this list of replicas may be out of date. `None` if it is current.
    pub problem: Option<String>,
}

impl ReplicaMembers {
    /// `identity` is the name of this replica.
    pub(crate) fn new(
        connection: Connection,
        leader: String,
        identity: String,
        times: ElectionTimes,
        runtime: &Handle,
    ) -> Self {
        let view = Arc::new(WatchView::new("replicas"));
        let entry = |lease: Lease| {
            let fields = LeaseFields {
                spec: lease.spec.unwrap_or_default(),
                annotations: lease.metadata.annotations.unwrap_or_default(),
            };
            (Key::new(None, &lease.metadata.name.unwrap_or_default()), fields)
        };
        let task = spawn(
            runtime,
            &connection,
            |client: Client| Api::<Lease>::default_namespaced(client),
            WatchSelection::Labelled(format!("{LEADER_LABEL}={leader}")),
            &view,
            entry,
            permission("`list` and `watch`", "leases", "coordination.k8s.io"),
        );
        Self {
            api: Api::default_namespaced(connection.client()),
            connection,
            leader,
            name: lease_name(&identity),
            identity,
            times,
            view,
            observations: Mutex::default(),
            annotations: watch::Sender::new(Annotations::new()),
            _task: task,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn annotate(&self, annotations: Annotations) {
        self.annotations.send_if_modified(|before| {
            let is_other = *before != annotations;
            *before = annotations;
            is_other
        });
    }

    /// Returns a receiver of a counter that grows with every change of a Lease, and whenever the watch goes down or up.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.view.health.changes()
    }

    /// Returns the current replicas. Must be called every second, as the expiry of Leases is measured between calls.
    pub fn membership(&self) -> LeaseMembership {
        let mut observations = self.observations.lock();
        let now = Instant::now();
        let is_watching = self.view.health.is_watching();
        let leases = self.view.cache.all_objects();
        observations.retain(|name, _| is_watching && leases.iter().any(|(key, _)| key.name == *name));
        let mut leader = None;
        let mut members = Vec::new();
        let holder = |lease_fields: &LeaseFields| lease_fields.spec.holder_identity.clone().unwrap_or_default();
        let lease = leases.iter().find(|(key, _)| key.name == self.leader);
        let leader_identity = lease.map(|(_, leader_fields)| holder(leader_fields));
        let mut is_known = false;
        for (Key { name, .. }, fields) in leases {
            // `since` is the time at which this replica saw the last change of the Lease. It is now, if the Lease has
            // changed or was not seen before.
            let since = match observations.get(&name) {
                Some((before, since)) if before.spec == fields.spec => *since,
                _ => now,
            };
            observations.insert(name.clone(), (fields.clone(), since));
            let unchanged = now.duration_since(since);
            is_known |= name == self.name && unchanged < self.times.duration * 2 / 3;
            if name == self.leader {
                leader = Some(fields.annotations);
                continue;
            }
            members.push(LeaseMember {
                is_alive: !has_expired(&fields.spec, unchanged),
                unchanged_time: unchanged,
                is_leader: leader_identity
                    .as_deref()
                    .is_some_and(|identity| identity == holder(&fields)),
                annotations: fields.annotations,
                name,
            });
        }
        let problem = match (is_watching, is_known) {
            (false, _) => Some("the Leases of the replicas cannot be watched"),
            // If this replica does not see the renewals of its own Lease, the same may be true for the Leases of the
            // other replicas. So the list of replicas may be out of date.
            (true, false) => Some("the Lease of this replica is not renewed"),
            (true, true) => None,
        };
        LeaseMembership {
            members,
            leader,
            is_refused: self.view.health.is_refused(),
            problem: problem.map(str::to_owned),
        }
    }

    /// Creates and renews the Lease of this replica. Never returns; drop the future to stop, and then call
    /// [`leave`](Self::leave).
    pub async fn take_part(&self) {
        let mut annotations = self.annotations.subscribe();
        let mut own_lease = None;
        let mut has_failed = false;
        loop {
            let wanted_annotations = annotations.borrow_and_update().clone();
            let pause = match self.renew(&mut own_lease, wanted_annotations).await {
                Ok(()) => {
                    has_failed = false;
                    self.times.pause
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        let permission = permission(
                            "`get`, `create`, `update` and `delete`",
                            "leases",
                            "coordination.k8s.io",
                        );
                        let reason = error.advice(&permission);
                        tracing::warn!(lease = %self.name, "this replica cannot tell the others what it has: {reason}");
                    }
                    own_lease = None;
                    RETRY_PAUSE.min(self.times.pause)
                }
            };
            tokio::select! {
                () = sleep(pause.mul_f64(0.9 + fastrand::f64() / 5.0)) => {}
                _ = annotations.changed(), if !has_failed => {}
            }
        }
    }

    async fn renew(&self, own_lease: &mut Option<Lease>, annotations: Annotations) -> Result<(), RequestError> {
        let until = Instant::now() + REQUEST_LIMIT;
        if own_lease.is_none() {
            let lease_request = self.connection.ask(Verb::Get, until, self.api.get_opt(&self.name));
            *own_lease = lease_request.await?;
        }
        let metadata = own_lease.as_ref().map(|stored_lease| stored_lease.metadata.clone());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some([(LEADER_LABEL.to_owned(), self.leader.clone())].into()),
                annotations: Some(annotations),
                ..metadata.unwrap_or_default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(self.times.duration.as_secs()).ok(),
                renew_time: Some(current_time()),
                ..LeaseSpec::default()
            }),
        };
        let params = PostParams::default();
        let written_lease = match own_lease {
            None => {
                let create = self.api.create(&params, &lease);
                self.connection.ask(Verb::Create, until, create).await?
            }
            Some(_) => {
                let replace = self.api.replace(&self.name, &params, &lease);
                self.connection.ask(Verb::Replace, until, replace).await?
            }
        };
        *own_lease = Some(written_lease);
        Ok(())
    }

    /// Deletes the Lease of this replica, so that the other replicas do not wait for its expiry.
    pub async fn leave(&self) {
        self.remove(&self.name).await;
    }

    /// Deletes the Lease of a replica that is gone.
    pub async fn remove(&self, name: &str) {
        let params = DeleteParams::default();
        let delete = self.api.delete(name, &params);
        let deleted = self
            .connection
            .ask(Verb::Delete, Instant::now() + REQUEST_LIMIT, delete)
            .await;
        match deleted {
            Ok(_) | Err(RequestError::NotFound(_)) => {}
            Err(error) => tracing::warn!(lease = name, "the lease cannot be deleted: {}", error.sentence()),
        }
    }
}

/// Returns the name of a replica's Lease: the name of the machine or Pod, and a part of the random suffix.
fn lease_name(identity: &str) -> String {
    let (host, suffix) = identity.rsplit_once('_').unwrap_or((identity, ""));
    let sanitize = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || letter == '.' => letter,
        _ => '-',
    };
    let host: String = host.chars().take(200).map(sanitize).collect();
    let suffix: String = suffix.chars().take(8).collect();
    format!("{}-{suffix}", host.trim_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_leases_are_valid_in_kubernetes() {
        assert_eq!(lease_name("web-5d_0123456789"), "web-5d-01234567");
        assert_eq!(lease_name("Build_Host._abc"), "build-host-abc");
    }
}
