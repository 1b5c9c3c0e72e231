//! Schedules the leader's audits: an audit of all objects at an interval, and of each changed object in between.

mod pass;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use admittance::Host;
use admittance_admission::Mode;
use admittance_cluster::Cluster;
use admittance_net::Backoff;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until},
};

use super::{
    auditor::Auditor,
    client::{AuditClient, AuditedResource},
    ledger::Ledger,
    report_writer::ReportWriter,
    status::{AuditConfig, AuditStatus},
    watch::ObjectChange,
};
use crate::{
    Webhooks,
    leader::{MAX_RETRY_PAUSE, backoff},
    metrics,
};

/// The time for which the chains must stay unchanged before all objects are audited again.
const QUIET_TIME: Duration = Duration::from_secs(5);
/// The time for which changed verdicts are collected before reports are written.
const DEBOUNCE: Duration = Duration::from_secs(2);
/// The interval at which the leader checks whether the API server has begun to serve an API of reports.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);
/// The key in the status for a problem that concerns the audit as a whole, rather than one resource or group.
const AUDIT_PROBLEM_KEY: &str = "audit";
const REPORTS_PROBLEM_KEY: &str = "reports";
/// The maximum number of changed objects that wait for their audit.
const MAX_WAITING_CHANGES: usize = 64;

/// Runs the leader's audits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: AuditConfig,
    cluster: Cluster,
    name: String,
    status: Mutex<AuditStatus>,
}

/// Clears the status of audits when it is dropped, because this replica has stopped auditing.
struct AuditorGuard<'a>(&'a Inner);

impl Drop for AuditorGuard<'_> {
    fn drop(&mut self) {
        *self.0.status.lock() = AuditStatus::default();
        metrics::set_audited_counts(&BTreeMap::new());
    }
}

struct AuditState {
    client: Arc<AuditClient>,
    ledger: Ledger,
    report_writer: Option<ReportWriter>,
}

/// The part of an audit's state that must be built anew when the chains change.
struct ChainAudit {
    auditor: Auditor,
    resources: HashMap<u16, AuditedResource>,
    /// Whether the objects of each namespace that was seen so far are excluded from the audit.
    namespace_exclusions: HashMap<String, bool>,
    /// The pause before the list of a resource is retried, for each resource whose list failed.
    retries: HashMap<u16, Backoff>,
    watches: JoinSet<()>,
    sender: mpsc::Sender<(u16, ObjectChange)>,
}

impl Audits {
    /// Creates the leader's audits. They leave out the namespaces that the webhooks exclude. `name` is the
    /// installation's name.
    pub fn new(cluster: &Cluster, mut config: AuditConfig, name: &str, webhooks: Option<&Webhooks>) -> Self {
        let excluded = webhooks.into_iter().flat_map(Webhooks::excluded_namespaces);
        config.excluded_namespaces.extend(excluded);
        metrics::initialize_audit_counters();
        Self(Arc::new(Inner {
            config,
            cluster: cluster.clone(),
            name: format!("{name}-audit"),
            status: Mutex::default(),
        }))
    }

    pub fn status(&self) -> AuditStatus {
        self.0.status.lock().clone()
    }

    /// Audits all objects, and then each object that changes, while this replica is the leader. Never completes; drop
    /// the future to stop.
    pub(crate) async fn keep(&self, host: &Host) {
        let inner = &*self.0;
        inner.status.lock().is_auditor = true;
        let _guard = AuditorGuard(inner);
        let mut work = AuditState {
            client: Arc::new(AuditClient::new(
                inner.cluster.clone(),
                inner.config.requests_per_second,
            )),
            ledger: Ledger::default(),
            report_writer: None,
        };
        let mut retries = backoff();
        loop {
            let (start, chains) = (Instant::now(), audited_chains(host));
            inner.status.lock().running = true;
            let (sender, changes) = mpsc::channel(MAX_WAITING_CHANGES);
            let audit_result = inner.audit(host, &mut work, sender).await;
            inner.status.lock().running = false;
            let next = match &audit_result {
                Ok(_) => {
                    retries.reset();
                    start + inner.config.interval
                }
                Err(_) => Instant::now() + retries.pause_after_failure(),
            };
            inner.report(AUDIT_PROBLEM_KEY, audit_result.as_ref().err().cloned());
            let follow_changes = async {
                match audit_result {
                    Ok(chain_audit) => inner.follow(chain_audit, &mut work, changes).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow_changes => {}
                () = sleep_until(next) => {}
                () = wait_until_chains_change(host, &chains) => {}
            }
        }
    }
}

/// Returns the revision of the live chains, and whether each stage is disabled and in which mode it is. If anything of
/// this changes, all objects must be audited again.
fn audited_chains(host: &Host) -> (u64, Vec<(bool, Mode)>) {
    let table = host.table();
    let stages = table.chains().flat_map(|chain| &chain.stages);
    let modes = stages.map(|stage| (stage.spec.is_disabled, stage.spec.mode));
    (table.revision(), modes.collect())
}

async fn wait_until_chains_change(host: &Host, before: &(u64, Vec<(bool, Mode)>)) {
    let mut changes = host.changes();
    while audited_chains(host) == *before {
        // The host owns the sender of changes, so this wait cannot fail.
        let _ = changes.changed().await;
    }
    loop {
        changes.mark_unchanged();
        tokio::select! {
            () = sleep(QUIET_TIME) => return,
            _ = changes.changed() => {}
        }
    }
}

impl ChainAudit {
    fn list_later(&mut self, number: u16) {
        let pause = self.retries.entry(number).or_insert_with(backoff).pause_after_failure();
        let sender = self.sender.clone();
        self.watches.spawn(async move {
            sleep(pause).await;
            // Sending fails only if the receiver was dropped. This happens when this replica ceases to be the leader,
            // and then nobody needs the message.
            let _ = sender.send((number, ObjectChange::Expired)).await;
        });
    }
}

impl Inner {
    /// Records a problem with `what`, such as a resource, and logs the problem if it is new. If `problem` is `None`,
    /// `what` has no problem any more.
    fn report(&self, what: &str, problem: Option<String>) {
        let mut status = self.status.lock();
        if status.problems.get(what) == problem.as_ref() {
            return;
        }
        match problem {
            Some(problem) => {
                tracing::warn!(what, "the audit is not complete: {problem}");
                status.problems.insert(what.to_owned(), problem);
            }
            None => {
                tracing::info!(what, "the audit is complete again");
                status.problems.remove(what);
            }
        }
    }

    /// Audits each object that changes, and writes the reports on it. Never completes.
    async fn follow(
        &self,
        mut chain_audit: ChainAudit,
        state: &mut AuditState,
        mut changes: mpsc::Receiver<(u16, ObjectChange)>,
    ) {
        let mut due = (!state.ledger.changed_namespaces().is_empty()).then(|| Instant::now() + MAX_RETRY_PAUSE);
        let mut discovery = interval_at(Instant::now() + DISCOVERY_INTERVAL, DISCOVERY_INTERVAL);
        discovery.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((number, change)) = changes.recv() => {
                    if self.handle_change(&mut chain_audit, state, number, change).await {
                        due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                    }
                }
                _ = discovery.tick(), if state.report_writer.is_none() && self.config.writes_reports => {
                    // The error is ignored, because the next tick asks the API server again whether it serves an API of
                    // reports. If the API server has a lasting problem, other requests fail too, and their errors are
                    // reported.
                    if let Ok(Some(api)) = state.client.preferred_report_api().await {
                        self.set_report_api(Some(api), state);
                        due = Some(Instant::now());
                    }
                }
                () = is_due => {
                    self.publish_counts(&state.ledger);
                    due = None;
                    if let Some(report_writer) = &mut state.report_writer {
                        let write_result = report_writer.write(&state.client, &mut state.ledger).await;
                        if write_result.is_err() {
                            due = Some(Instant::now() + MAX_RETRY_PAUSE);
                        }
                        self.report(REPORTS_PROBLEM_KEY, write_result.err().map(|error| error.to_string()));
                    }
                }
            }
        }
    }

    async fn handle_change(
        &self,
        chain_audit: &mut ChainAudit,
        state: &mut AuditState,
        number: u16,
        change: ObjectChange,
    ) -> bool {
        let Some(resource) = chain_audit.resources.get(&number).cloned() else {
            return false;
        };
        match change {
            ObjectChange::Works => self.report(&resource.name(), None),
            ObjectChange::Fails(error) => self.report(&resource.name(), Some(error.to_string())),
            ObjectChange::Gone(object) => {
                let head = object.head();
                let name = head.name.clone().unwrap_or_default();
                state.ledger.remove(number, head.namespace.clone(), &name);
                return true;
            }
            ObjectChange::Present(object) => {
                if self
                    .is_excluded(&resource, &object, &mut chain_audit.namespace_exclusions)
                    .await
                {
                    return false;
                }
                let judged_object = chain_audit.auditor.judge(&resource, &resource.request(object)).await;
                state.ledger.record(number, judged_object);
                return true;
            }
            ObjectChange::Expired => {
                tracing::debug!(resource = resource.name(), "listing again");
                state.ledger.begin_list(&resource.name());
                let list_result = self.list(chain_audit, state, number).await;
                match &list_result {
                    Ok(_) => drop(chain_audit.retries.remove(&number)),
                    Err(_) => chain_audit.list_later(number),
                }
                self.report(&resource.name(), list_result.err().map(|error| error.to_string()));
                return true;
            }
        }
        false
    }
}
