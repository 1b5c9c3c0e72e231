//! Elects one of several programs as the leader by a Lease, as client-go does. The clocks of machines are not compared:
//! a Lease has expired when this program has seen no renewal for the duration of the Lease.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
    time::{Instant, sleep_until},
};

use crate::{
    connection::Connection,
    members::ReplicaMembers,
    metrics::{self, Verb},
    request_error::{RequestError, permission},
};

/// Returns the current time for a field of a Lease. No decision depends on it.
#[allow(clippy::disallowed_methods, reason = "Leases have timestamps of jiff")]
pub(crate) fn current_time() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// The timeout of a request about a Lease.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// The label of the Leases that the replicas hold, one each. Its value is the name of the leader's Lease.
pub(crate) const LEADER_LABEL: &str = "admittance.dev/replicas-of";

/// The times of an election. The defaults are the same as in client-go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimes {
    /// The time without a renewal after which another program becomes the leader, in whole seconds. A leader that
    /// cannot renew its Lease resigns after two thirds of this time.
    pub duration: Duration,
    /// The pause between two renewals by the leader, and between two checks of the Lease by the other programs.
    pub pause: Duration,
}

impl Default for ElectionTimes {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            pause: Duration::from_secs(2),
        }
    }
}

/// The leader of the replicas of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// The name of the Lease that the leader holds.
    pub lease: String,
    /// The identity of the leader: the name of its Pod, and a random suffix. It is absent if the leader is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Whether this replica is the leader.
    #[serde(rename = "self")]
    pub is_self: bool,
}

impl LeaderStatus {
    pub fn has_other_leader(&self) -> bool {
        self.holder.is_some() && !self.is_self
    }
}

/// A candidate in the election. Lives as long as the program.
#[derive(Debug)]
pub struct Election {
    connection: Connection,
    api: Api<Lease>,
    name: String,
    identity: String,
    times: ElectionTimes,
    is_leader: watch::Sender<bool>,
    annotations: watch::Sender<BTreeMap<String, String>>,
    holder: parking_lot::Mutex<Option<String>>,
    lease: Mutex<Option<ObservedLease>>,
}

#[derive(Debug)]
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

impl Election {
    pub(crate) fn new(connection: Connection, name: String, terms: ElectionTimes) -> Self {
        let host = rustix::system::uname();
        let suffix = uuid::Uuid::new_v4().simple();
        metrics::set_leader(&name, false);
        Self {
            api: Api::default_namespaced(connection.client()),
            connection,
            name,
            identity: format!("{}_{suffix}", host.nodename().to_string_lossy()),
            times: terms,
            is_leader: watch::Sender::new(false),
            annotations: watch::Sender::default(),
            holder: parking_lot::Mutex::default(),
            lease: Mutex::new(None),
        }
    }

    pub fn watch_leadership(&self) -> watch::Receiver<bool> {
        self.is_leader.subscribe()
    }

    /// Returns the replicas of this program, including itself. Each replica holds a Lease of its own. `times` says how
    /// often a replica renews its Lease, and after which time without a renewal a Lease has expired.
    pub fn members(&self, terms: ElectionTimes) -> ReplicaMembers {
        let (leader, identity) = (self.name.clone(), self.identity.clone());
        ReplicaMembers::new(self.connection.clone(), leader, identity, terms, &Handle::current())
    }

    /// Sets an annotation of the Lease at once, if this program is the leader.
    pub fn annotate(&self, key: &str, value: &str) {
        if *self.is_leader.borrow() {
            self.annotations.send_if_modified(|annotations| {
                let before = annotations.insert(key.to_owned(), value.to_owned());
                before.is_none_or(|before| before != value)
            });
        }
    }

    pub fn status(&self) -> LeaderStatus {
        let is_self = *self.is_leader.borrow();
        let holder = self.holder.lock().clone();
        LeaderStatus {
            lease: self.name.clone(),
            holder: if is_self {
                Some(self.identity.clone())
            } else {
                holder.filter(|holder| !holder.is_empty())
            },
            is_self,
        }
    }

    /// Takes part in the election. Never returns; drop it to stop, and then [resign](Self::resign).
    pub async fn take_part(&self) {
        let mut lease = self.lease.lock().await;
        let mut end = None;
        let mut has_failed = false;
        let mut annotations = self.annotations.subscribe();
        loop {
            annotations.mark_unchanged();
            let start = Instant::now();
            let limit = end.unwrap_or(start + REQUEST_LIMIT);
            match self.try_lead(&mut lease, limit).await {
                Ok(is_leader) => {
                    end = is_leader.then(|| start + self.times.duration * 2 / 3);
                    has_failed = false;
                    let spec = lease
                        .as_ref()
                        .and_then(|observed_lease| observed_lease.lease.spec.as_ref());
                    let holder = spec.and_then(|spec| spec.holder_identity.clone());
                    *self.holder.lock() = holder;
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        let reason = error.advice(&permission(
                            "`get`, `create` and `update`",
                            "leases",
                            "coordination.k8s.io",
                        ));
                        tracing::warn!(lease = %self.name, "cannot take part in the election: {reason}");
                    }
                    if matches!(error, RequestError::Conflict(_) | RequestError::NotFound(_)) {
                        *lease = None;
                    }
                }
            }
            end = end.filter(|end| *end > Instant::now());
            self.set_leader(end.is_some());
            let next = Instant::now() + self.times.pause.mul_f64(0.9 + fastrand::f64() / 5.0);
            tokio::select! {
                () = sleep_until(end.map_or(next, |end| end.min(next))) => {}
                _ = annotations.changed(), if !has_failed => {}
            }
        }
    }

    /// Renews the Lease, or takes it if it is free. Returns whether this program holds it.
    async fn try_lead(&self, observed_lease: &mut Option<ObservedLease>, until: Instant) -> Result<bool, RequestError> {
        let is_leader = *self.is_leader.borrow();
        if observed_lease.is_none() || !is_leader {
            let lease_request = self.connection.ask(Verb::Get, until, self.api.get_opt(&self.name));
            observe(observed_lease, lease_request.await?);
        }
        let written_lease = match observed_lease {
            None => {
                let lease = Lease {
                    metadata: self.annotate_metadata(ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    }),
                    spec: Some(self.renewed_spec(None)),
                };
                let create = async { self.api.create(&PostParams::default(), &lease).await };
                self.connection.ask(Verb::Create, until, create).await?
            }
            Some(ObservedLease { lease, since }) => {
                let spec = lease.spec.as_ref();
                let is_free = spec.is_none_or(|spec| has_expired(spec, since.elapsed()));
                if !self.is_holder(spec) {
                    if !is_free {
                        return Ok(false);
                    }
                    self.annotations.send_replace(BTreeMap::new());
                }
                let lease = Lease {
                    metadata: self.annotate_metadata(lease.metadata.clone()),
                    spec: Some(self.renewed_spec(spec)),
                };
                self.replace(&lease, until).await?
            }
        };
        observe(observed_lease, Some(written_lease));
        Ok(true)
    }

    /// If this program is the leader, lets another program become the leader at once.
    pub async fn resign(&self) {
        let observed_lease = self.lease.lock().await.take();
        if !self.is_leader.send_replace(false) {
            return;
        }
        metrics::set_leader(&self.name, false);
        let Some(ObservedLease { lease, .. }) = observed_lease else {
            return;
        };
        if let Err(error) = self.release(lease).await {
            tracing::warn!(
                lease = %self.name,
                "the lease cannot be released: {}",
                error.sentence()
            );
        }
    }

    async fn release(&self, last_lease: Lease) -> Result<(), RequestError> {
        let until = Instant::now() + REQUEST_LIMIT;
        let release_result = self.replace(&without_holder(last_lease), until).await;
        let Err(RequestError::Conflict(_)) = release_result else {
            return release_result.map(drop);
        };
        // The write failed because the Lease has changed since it was read. Perhaps this program itself has renewed the
        // Lease, but stopped waiting before the reply came. So the Lease is read again, and released if this program
        // still holds it.
        let lease_request = self.connection.ask(Verb::Get, until, self.api.get_opt(&self.name));
        match lease_request.await?.filter(|lease| self.is_holder(lease.spec.as_ref())) {
            Some(lease) => self.replace(&without_holder(lease), until).await.map(drop),
            None => Ok(()),
        }
    }

    async fn replace(&self, lease: &Lease, until: Instant) -> Result<Lease, RequestError> {
        let params = PostParams::default();
        let replace = self.api.replace(&self.name, &params, lease);
        self.connection.ask(Verb::Replace, until, replace).await
    }

    fn annotate_metadata(&self, mut metadata: ObjectMeta) -> ObjectMeta {
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(LEADER_LABEL.to_owned(), self.name.clone());
        let annotations = self.annotations.borrow().clone();
        metadata.annotations.get_or_insert_default().extend(annotations);
        metadata
    }

    fn is_holder(&self, spec: Option<&LeaseSpec>) -> bool {
        spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.identity)
    }

    fn renewed_spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = current_time();
        let is_takeover = !self.is_holder(before);
        let before = before.cloned().unwrap_or_default();
        let had_holder = before.holder_identity.is_some();
        let transitions = before.lease_transitions.unwrap_or_default();
        LeaseSpec {
            acquire_time: if is_takeover {
                Some(now.clone())
            } else {
                before.acquire_time
            },
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.duration.as_secs()).ok(),
            lease_transitions: Some(transitions.saturating_add((is_takeover && had_holder).into())),
            renew_time: Some(now),
            ..before
        }
    }

    fn set_leader(&self, is_leader: bool) {
        if self.is_leader.send_replace(is_leader) == is_leader {
            return;
        }
        metrics::set_leader(&self.name, is_leader);
        let (lease, identity) = (&self.name, &self.identity);
        if is_leader {
            tracing::info!(lease, identity, "this replica is the leader")
        } else {
            tracing::warn!(lease, identity, "this replica is no longer the leader")
        }
    }
}

fn without_holder(mut lease: Lease) -> Lease {
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(current_time());
    }
    lease
}

fn observe(observed_lease: &mut Option<ObservedLease>, current_lease: Option<Lease>) {
    let since = observed_lease
        .take()
        .filter(|previous| {
            current_lease
                .as_ref()
                .is_some_and(|current| current.spec == previous.lease.spec)
        })
        .map_or_else(Instant::now, |unchanged_lease| unchanged_lease.since);
    *observed_lease = current_lease.map(|lease| ObservedLease { lease, since });
}

pub(crate) fn has_expired(spec: &LeaseSpec, unchanged: Duration) -> bool {
    let has_holder = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    let duration = Duration::from_secs(seconds.try_into().unwrap_or_default());
    !has_holder || unchanged >= duration
}
