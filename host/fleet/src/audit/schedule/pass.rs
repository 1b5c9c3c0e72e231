//! Audits all objects, one resource after the other.

use std::{
    collections::{BTreeSet, HashMap},
    thread,
};

use admittance::{Host, Moment};
use admittance_admission::{NamespaceSource, Object};
use admittance_cluster::AnswerError;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{AUDIT, AuditState, ChainAudit, Inner, REPORTS};
use crate::{
    IGNORE_LABEL,
    audit::{
        auditor::Auditor,
        client::{AuditedResource, Pages},
        ledger::Ledger,
        report_writer::ReportWriter,
        reports::ReportApi,
        status::AuditPass,
        watch::{self, ObjectChange},
    },
    metrics,
};

impl Inner {
    /// Audits all objects, and starts a watch on each audited resource.
    pub(super) async fn audit(
        &self,
        host: &Host,
        work: &mut AuditState,
        sender: mpsc::Sender<(u16, ObjectChange)>,
    ) -> Result<ChainAudit, String> {
        let begun = Instant::now();
        let built = host.audit_table(self.config.calls_webhooks).await;
        let table = built.map_err(|error| error.to_string())?;
        let revision = table.revision();
        let jobs = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let found = work.client.discover(&[&*table]).await;
        let discovered = found.map_err(|error| error.to_string())?;
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
        self.write_as(discovered.reports.filter(|_| self.config.writes_reports), work);
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
        if let Some(report_writer) = &mut work.report_writer {
            let compared = if is_complete {
                report_writer.compare(&work.client, &mut work.ledger).await
            } else {
                Ok(())
            };
            // Reports are usually written while the leader waits for the next audit of all objects. If an audit took
            // longer than `every`, the next one begins without a wait. So the reports are written here too.
            let written = report_writer.write(&work.client, &mut work.ledger).await;
            self.report(
                REPORTS,
                compared.and(written).err().map(|error| error.to_string()),
            );
        }
        Ok(audited)
    }

    /// Directs all further reports to this API. `None` means that no reports are written.
    pub(super) fn write_as(&self, reports: Option<ReportApi>, work: &mut AuditState) {
        if work.report_writer.as_ref().map(|report_writer| report_writer.api) != reports {
            work.report_writer = reports.map(|api| ReportWriter::new(api, self.name.clone()));
        }
        self.status.lock().reports = reports.map(|api| api.api_version().to_owned());
    }

    fn record_pass(&self, ledger: &Ledger, revision: u64, listed: u64, begun: Instant, is_complete: bool) {
        let seconds = begun.elapsed().as_secs_f64();
        metrics::audit_ended(is_complete, seconds);
        self.count(ledger);
        let verdicts = ledger.verdicts();
        let objects: u64 = verdicts.values().sum();
        let refusals = verdicts.iter().filter(|(verdict, _)| verdict.is_refusal());
        let refused: u64 = refusals.map(|(_, count)| count).sum();
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

    pub(super) fn count(&self, ledger: &Ledger) {
        let counts = ledger.verdicts();
        metrics::audited(&counts);
        let verdicts = counts
            .into_iter()
            .map(|(verdict, count)| (verdict.as_str().to_owned(), count));
        self.status.lock().objects = verdicts.collect();
    }

    /// Events expire, and reports are written by audits, so neither are audited.
    fn is_audited(&self, resource: &AuditedResource) -> bool {
        let names = &self.config.resources;
        let group = &*resource.resource.group;
        let is_report = ReportApi::ALL.into_iter().any(|api| api.group() == group);
        let is_left_out = is_report || group == "events.k8s.io" || resource.name() == "events";
        !is_left_out && (names.is_empty() || names.iter().any(|name| resource.is_called(name)))
    }

    /// Lists and audits the objects of a resource, and starts to watch them. Returns their number.
    pub(super) async fn list(
        &self,
        audited: &mut ChainAudit,
        work: &mut AuditState,
        number: u16,
    ) -> Result<u64, AnswerError> {
        let Some(resource) = audited.resources.get(&number).cloned() else {
            return Ok(0);
        };
        let mut pages = Pages::new(&resource, None, self.config.page);
        let mut listed = 0;
        while let Some(page) = pages.next(&work.client).await? {
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
            let (client, sender) = (work.client.clone(), audited.sender.clone());
            let following = watch::follow(client, resource, number, version, sender);
            audited.watches.spawn(following);
        }
        Ok(listed)
    }

    pub(super) async fn is_excluded(
        &self,
        resource: &AuditedResource,
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
                // If the labels of the namespace cannot be read, its objects are audited.
                Err(_) => false,
            };
        known.insert(namespace.clone(), is_excluded);
        is_excluded
    }
}
