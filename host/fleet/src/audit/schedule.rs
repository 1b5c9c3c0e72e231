//! The audits of the leader: it audits all objects at an interval, and each object that changes in between.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    thread,
    time::Duration,
};

use admittance::{Host, Moment};
use admittance_admission::{Mode, NamespaceSource, Object};
use admittance_cluster::{AnswerError, Cluster};
use admittance_net::Backoff;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until},
};

use super::{
    auditor::Auditor,
    ledger::Ledger,
    reader::{Pages, Reader, Resource},
    reports::ReportApi,
    status::{AuditConfig, AuditPass, AuditStatus},
    watch::{self, Change},
    writer::Writer,
};
use crate::{
    IGNORE_LABEL, Webhooks,
    leader::{LAST_RETRY, backoff},
    metrics,
};

/// The time without further changes of chains after which the next audit begins.
const QUIET: Duration = Duration::from_secs(5);
/// The time from a change of the verdicts until reports are written.
const DEBOUNCE: Duration = Duration::from_secs(2);
/// The interval of discovering kinds of reports, as long as the API server has none.
const REPORT_DISCOVERY: Duration = Duration::from_secs(10);
/// The name of a problem that concerns no single resource or group.
const AUDIT: &str = "audit";
/// The name of a problem with reports.
const REPORTS: &str = "reports";
/// The limit of object changes that wait to be audited. Beyond it, watches stop reading from the API server.
const WAITING: usize = 64;

/// The audits of the leader. Cheap to clone; lives as long as the driver.
#[derive(Clone, Debug)]
pub struct Audits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: AuditConfig,
    cluster: Cluster,
    name: String,
    status: Mutex<AuditStatus>,
}

/// Clears the status when this replica stops auditing.
struct AuditorGuard<'a>(&'a Inner);

impl Drop for AuditorGuard<'_> {
    fn drop(&mut self) {
        *self.0.status.lock() = AuditStatus::default();
        metrics::audited(&BTreeMap::new());
    }
}

/// The state of the audits while this replica is the leader.
struct AuditState {
    reader: Arc<Reader>,
    ledger: Ledger,
    writer: Option<Writer>,
}

/// An audit with one version of the chains.
struct ChainAudit {
    auditor: Auditor,
    resources: HashMap<u16, Resource>,
    /// Whether each namespace that was seen is left out.
    excluded: HashMap<String, bool>,
    /// The pauses before resources that could not be listed are listed again.
    retries: HashMap<u16, Backoff>,
    watches: JoinSet<()>,
    sender: mpsc::Sender<(u16, Change)>,
}

impl Audits {
    /// Audits the objects of this cluster, except in the namespaces that the webhooks exclude. `name` is the name of the
    /// installation.
    pub fn new(cluster: &Cluster, mut config: AuditConfig, name: &str, webhooks: Option<&Webhooks>) -> Self {
        let excluded = webhooks.into_iter().flat_map(Webhooks::excluded_namespaces);
        config.excluded_namespaces.extend(excluded);
        metrics::audits_begin_at_zero();
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

    /// Audits all objects, and then each change, as the leader. Never completes; drop it to stop.
    pub(crate) async fn keep(&self, host: &Host) {
        let inner = &*self.0;
        inner.status.lock().is_auditor = true;
        let _guard = AuditorGuard(inner);
        let mut work = AuditState {
            reader: Arc::new(Reader::new(inner.cluster.clone(), inner.config.rate)),
            ledger: Ledger::default(),
            writer: None,
        };
        let mut retries = backoff();
        loop {
            let (begun, chains) = (Instant::now(), audited_chains(host));
            inner.status.lock().running = true;
            let (sender, changes) = mpsc::channel(WAITING);
            let audited = inner.audit(host, &mut work, sender).await;
            inner.status.lock().running = false;
            let next = match &audited {
                Ok(_) => {
                    retries.reset();
                    begun + inner.config.every
                }
                Err(_) => Instant::now() + retries.after_failure(),
            };
            inner.report(AUDIT, audited.as_ref().err().cloned());
            let following = async {
                match audited {
                    Ok(audited) => inner.follow(audited, &mut work, changes).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = following => {}
                () = sleep_until(next) => {}
                () = chains_changed(host, &chains) => {}
            }
        }
    }
}

/// Returns the revision of the live chains and the modes of their stages, on which an audit depends.
fn audited_chains(host: &Host) -> (u64, Vec<(bool, Mode)>) {
    let table = host.table();
    let stages = table.chains().flat_map(|chain| &chain.stages);
    let stages = stages.map(|stage| (stage.spec.is_disabled, stage.spec.mode));
    (table.revision(), stages.collect())
}

/// Waits until other chains are live, and no further change follows for a while.
async fn chains_changed(host: &Host, before: &(u64, Vec<(bool, Mode)>)) {
    let mut changes = host.changes();
    while audited_chains(host) == *before {
        // The sender lives as long as the host.
        let _ = changes.changed().await;
    }
    loop {
        changes.mark_unchanged();
        tokio::select! {
            () = sleep(QUIET) => return,
            _ = changes.changed() => {}
        }
    }
}

impl ChainAudit {
    /// Schedules another list of a resource that could not be listed.
    fn list_later(&mut self, number: u16) {
        let pause = self.retries.entry(number).or_insert_with(backoff).after_failure();
        let sender = self.sender.clone();
        self.watches.spawn(async move {
            sleep(pause).await;
            // An error means that the leader has resigned.
            let _ = sender.send((number, Change::Expired)).await;
        });
    }
}

impl Inner {
    /// Records a problem or its end, and logs it when it is new.
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

    /// Audits all objects, and begins to watch them.
    async fn audit(
        &self,
        host: &Host,
        work: &mut AuditState,
        sender: mpsc::Sender<(u16, Change)>,
    ) -> Result<ChainAudit, String> {
        let begun = Instant::now();
        let table = host.audit_table(self.config.calls_webhooks).await;
        let table = table.map_err(|error| error.to_string())?;
        let revision = table.revision();
        let jobs = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let discovered = work.reader.discover(&[&*table]).await;
        let discovered = discovered.map_err(|error| error.to_string())?;
        let mut audited = ChainAudit {
            auditor: Auditor::new(vec![table], self.config.user.clone(), jobs),
            resources: HashMap::new(),
            excluded: HashMap::new(),
            retries: HashMap::new(),
            watches: JoinSet::new(),
            sender,
        };
        let previous_problems: Vec<_> = self.status.lock().problems.keys().cloned().collect();
        let mut failed: BTreeSet<_> = [AUDIT, REPORTS].map(str::to_owned).into();
        let knows_all = discovered.unknown.is_empty();
        let mut is_complete = knows_all;
        for (group, error) in discovered.unknown {
            self.report(&group, Some(error.to_string()));
            failed.insert(group);
        }
        let reports = discovered.reports.filter(|_| self.config.writes_reports);
        self.write_as(reports, work);
        let mut listed = 0;
        for resource in discovered.resources {
            if !self.is_audited(&resource) {
                continue;
            }
            let name = resource.name();
            let number = work.ledger.begin(&name);
            audited.resources.insert(number, resource);
            match self.list(&mut audited, work, number).await {
                Ok(count) => listed += count,
                Err(error) => {
                    self.report(&name, Some(error.to_string()));
                    failed.insert(name);
                    is_complete = false;
                    audited.list_later(number);
                }
            }
        }
        for what in previous_problems.iter().filter(|what| !failed.contains(*what)) {
            self.report(what, None);
        }
        if knows_all {
            let numbers: Vec<_> = audited.resources.keys().copied().collect();
            work.ledger.keep_only(&numbers);
        }
        self.record_pass(&work.ledger, revision, listed, begun, is_complete);
        if let Some(writer) = &mut work.writer {
            let compared = if is_complete {
                writer.compare(&work.reader, &mut work.ledger).await
            } else {
                Ok(())
            };
            // Reports are written here, because the next audit begins at once if this one took longer than `every`.
            let written = writer.write(&work.reader, &mut work.ledger).await;
            self.report(
                REPORTS,
                compared.and(written).err().map(|error| error.to_string()),
            );
        }
        Ok(audited)
    }

    /// Writes reports of these kinds from now on.
    fn write_as(&self, reports: Option<ReportApi>, work: &mut AuditState) {
        if work.writer.as_ref().map(|writer| writer.api) != reports {
            work.writer = reports.map(|api| Writer::new(api, self.name.clone()));
        }
        self.status.lock().reports = reports.map(|api| api.api_version().to_owned());
    }

    /// Records that all objects were audited.
    fn record_pass(&self, ledger: &Ledger, revision: u64, listed: u64, begun: Instant, is_complete: bool) {
        let seconds = begun.elapsed().as_secs_f64();
        metrics::audit_ended(is_complete, seconds);
        self.count(ledger);
        let verdicts = ledger.verdicts();
        let objects: u64 = verdicts.values().sum();
        let refused = verdicts.iter().filter(|(verdict, _)| verdict.is_refusal());
        let refused: u64 = refused.map(|(_, count)| count).sum();
        tracing::info!(
            revision,
            listed,
            objects,
            refused,
            seconds,
            is_complete,
            "audited"
        );
        self.status.lock().last = Some(AuditPass {
            at: Moment::now(),
            seconds,
            revision,
            listed,
        });
    }

    fn count(&self, ledger: &Ledger) {
        let verdicts = ledger.verdicts();
        metrics::audited(&verdicts);
        let verdicts = verdicts
            .into_iter()
            .map(|(verdict, count)| (verdict.as_str().to_owned(), count));
        self.status.lock().objects = verdicts.collect();
    }

    /// Returns whether a resource is audited. Events are not, because they expire, nor are reports, which audits write.
    fn is_audited(&self, resource: &Resource) -> bool {
        let names = &self.config.resources;
        let group = &*resource.resource.group;
        let is_report = ReportApi::ALL.into_iter().any(|api| api.group() == group);
        let is_left_out = is_report || group == "events.k8s.io" || resource.name() == "events";
        !is_left_out && (names.is_empty() || names.iter().any(|name| resource.is_called(name)))
    }

    /// Lists and audits the objects of a resource, and watches them from then on. Returns the number of objects.
    async fn list(
        &self,
        audited: &mut ChainAudit,
        work: &mut AuditState,
        number: u16,
    ) -> Result<u64, AnswerError> {
        let Some(resource) = audited.resources.get(&number).cloned() else {
            return Ok(0);
        };
        let mut pages = Pages::of(&resource, None, self.config.page);
        let mut listed = 0;
        while let Some(page) = pages.next(&work.reader).await? {
            listed += page.len() as u64;
            let mut requests = Vec::with_capacity(page.len());
            for object in page {
                if !self.is_excluded(&resource, &object, &mut audited.excluded).await {
                    requests.push(resource.request(object));
                }
            }
            let record = |judged| work.ledger.record(number, judged);
            audited.auditor.audit(&resource, requests, record).await;
        }
        work.ledger.end(number);
        if let Some(version) = pages.into_version() {
            let (reader, sender) = (work.reader.clone(), audited.sender.clone());
            let following = watch::follow(reader, resource, number, version, sender);
            audited.watches.spawn(following);
        }
        Ok(listed)
    }

    /// Returns whether the namespace of an object is left out.
    async fn is_excluded(
        &self,
        resource: &Resource,
        object: &Object,
        known: &mut HashMap<String, bool>,
    ) -> bool {
        let head = object.head();
        let namespace = match resource.name().as_str() {
            "namespaces" => head.name.as_ref(),
            _ => head.namespace.as_ref(),
        };
        let Some(namespace) = namespace else {
            return false;
        };
        if let Some(is_excluded) = known.get(namespace) {
            return *is_excluded;
        }
        let is_excluded = self.config.excluded_namespaces.contains(namespace)
            || match self.cluster.labels(namespace).await {
                Ok(labels) => labels.contains_key(IGNORE_LABEL),
                // The next audit tries again.
                Err(_) => false,
            };
        known.insert(namespace.clone(), is_excluded);
        is_excluded
    }

    /// Audits objects that change, and writes their reports. Never completes.
    async fn follow(
        &self,
        mut audited: ChainAudit,
        work: &mut AuditState,
        mut changes: mpsc::Receiver<(u16, Change)>,
    ) {
        // Reports that the audit could not write are tried again.
        let mut due = (!work.ledger.changed().is_empty()).then(|| Instant::now() + LAST_RETRY);
        let mut discovery = interval_at(Instant::now() + REPORT_DISCOVERY, REPORT_DISCOVERY);
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
                    if self.handle_change(&mut audited, work, number, change).await {
                        due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                    }
                }
                _ = discovery.tick(), if work.writer.is_none() && self.config.writes_reports => {
                    // The next discovery may succeed, and other requests report an API server that does not answer.
                    if let Ok(Some(api)) = work.reader.reports().await {
                        self.write_as(Some(api), work);
                        due = Some(Instant::now());
                    }
                }
                () = is_due => {
                    self.count(&work.ledger);
                    due = None;
                    if let Some(writer) = &mut work.writer {
                        let written = writer.write(&work.reader, &mut work.ledger).await;
                        if written.is_err() {
                            due = Some(Instant::now() + LAST_RETRY);
                        }
                        self.report(REPORTS, written.err().map(|error| error.to_string()));
                    }
                }
            }
        }
    }

    /// Audits a change. Returns whether reports may have changed.
    async fn handle_change(
        &self,
        audited: &mut ChainAudit,
        work: &mut AuditState,
        number: u16,
        change: Change,
    ) -> bool {
        let Some(resource) = audited.resources.get(&number).cloned() else {
            return false;
        };
        match change {
            Change::Works => self.report(&resource.name(), None),
            Change::Fails(error) => self.report(&resource.name(), Some(error.to_string())),
            Change::Gone(object) => {
                let head = object.head();
                let name = head.name.clone().unwrap_or_default();
                work.ledger.remove(number, head.namespace.clone(), &name);
                return true;
            }
            Change::Present(object) => {
                if self.is_excluded(&resource, &object, &mut audited.excluded).await {
                    return false;
                }
                let request = resource.request(object);
                let judged = audited.auditor.judge(&resource, &request).await;
                work.ledger.record(number, judged);
                return true;
            }
            Change::Expired => {
                tracing::debug!(resource = resource.name(), "listing again");
                work.ledger.begin(&resource.name());
                let listed = self.list(audited, work, number).await;
                match &listed {
                    Ok(_) => drop(audited.retries.remove(&number)),
                    Err(_) => audited.list_later(number),
                }
                let problem = listed.err().map(|error| error.to_string());
                self.report(&resource.name(), problem);
                return true;
            }
        }
        false
    }
}
