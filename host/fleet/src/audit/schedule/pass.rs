//! Audits all objects, one resource after the other.

use std::{
    collections::{BTreeSet, HashMap},
    thread,
};

use admittance::{Host, Moment};
use admittance_admission::{NamespaceSource, Object};
use admittance_cluster::AnswerError;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{AUDIT_PROBLEM_KEY, AuditState, ChainAudit, Inner, REPORTS_PROBLEM_KEY};
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
        state: &mut AuditState,
        sender: mpsc::Sender<(u16, ObjectChange)>,
    ) -> Result<ChainAudit, String> {
        let start = Instant::now();
        let table_result = host.audit_table(self.config.calls_webhooks).await;
        let table = table_result.map_err(|error| error.to_string())?;
        let revision = table.revision();
        let jobs = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let discovery = state.client.discover(&[&*table]).await;
        let discovered = discovery.map_err(|error| error.to_string())?;
        let mut chain_audit = ChainAudit {
            auditor: Auditor::new(vec![table], self.config.user.clone(), jobs),
            resources: HashMap::new(),
            namespace_exclusions: HashMap::new(),
            retries: HashMap::new(),
            watches: JoinSet::new(),
            sender,
        };
        let previous_problems: Vec<_> = self.status.lock().problems.keys().cloned().collect();
        let mut failed_subjects: BTreeSet<_> = [AUDIT_PROBLEM_KEY, REPORTS_PROBLEM_KEY].map(str::to_owned).into();
        let knows_all = discovered.undiscovered_groups.is_empty();
        let mut is_complete = knows_all;
        for (group, error) in discovered.undiscovered_groups {
            self.report(&group, Some(error.to_string()));
            failed_subjects.insert(group);
        }
        self.set_report_api(discovered.report_api.filter(|_| self.config.writes_reports), state);
        let mut object_count = 0;
        for resource in discovered.resources {
            if !self.is_audited(&resource) {
                continue;
            }
            let name = resource.name();
            let number = state.ledger.begin_list(&name);
            chain_audit.resources.insert(number, resource);
            match self.list(&mut chain_audit, state, number).await {
                Ok(count) => object_count += count,
                Err(error) => {
                    self.report(&name, Some(error.to_string()));
                    failed_subjects.insert(name);
                    is_complete = false;
                    chain_audit.list_later(number);
                }
            }
        }
        for subject in previous_problems.iter().filter(|key| !failed_subjects.contains(*key)) {
            self.report(subject, None);
        }
        if knows_all {
            let numbers: Vec<_> = chain_audit.resources.keys().copied().collect();
            state.ledger.keep_only(&numbers);
        }
        self.record_pass(&state.ledger, revision, object_count, start, is_complete);
        if let Some(report_writer) = &mut state.report_writer {
            let comparison = if is_complete {
                report_writer
                    .compare_with_cluster(&state.client, &mut state.ledger)
                    .await
            } else {
                Ok(())
            };
            // Reports are usually written while the leader waits for the next audit of all objects. If an audit took
            // longer than the interval, the next one begins without a wait. So the reports are written here too.
            let write_result = report_writer.write(&state.client, &mut state.ledger).await;
            self.report(
                REPORTS_PROBLEM_KEY,
                comparison.and(write_result).err().map(|error| error.to_string()),
            );
        }
        Ok(chain_audit)
    }

    /// Directs all further reports to this API. `None` means that no reports are written.
    pub(super) fn set_report_api(&self, reports: Option<ReportApi>, work: &mut AuditState) {
        if work.report_writer.as_ref().map(|report_writer| report_writer.api) != reports {
            work.report_writer = reports.map(|api| ReportWriter::new(api, self.name.clone()));
        }
        self.status.lock().reports = reports.map(|api| api.api_version().to_owned());
    }

    fn record_pass(&self, ledger: &Ledger, revision: u64, listed: u64, start: Instant, is_complete: bool) {
        let seconds = start.elapsed().as_secs_f64();
        metrics::record_audit_end(is_complete, seconds);
        self.publish_counts(ledger);
        let verdicts = ledger.verdicts();
        let objects: u64 = verdicts.values().sum();
        let refusals = verdicts.iter().filter(|(verdict, _)| verdict.is_refusal());
        let refused: u64 = refusals.map(|(_, count)| count).sum();
        tracing::info!(revision, listed, objects, refused, seconds, is_complete, "audited");
        self.status.lock().last = Some(AuditPass {
            at: Moment::now(),
            seconds,
            revision,
            listed,
        });
    }

    pub(super) fn publish_counts(&self, ledger: &Ledger) {
        let counts = ledger.verdicts();
        metrics::set_audited_counts(&counts);
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
        !is_left_out && (names.is_empty() || names.iter().any(|name| resource.has_name(name)))
    }

    /// Lists and audits the objects of a resource, and starts to watch them. Returns their number.
    pub(super) async fn list(
        &self,
        chain_audit: &mut ChainAudit,
        state: &mut AuditState,
        number: u16,
    ) -> Result<u64, AnswerError> {
        let Some(resource) = chain_audit.resources.get(&number).cloned() else {
            return Ok(0);
        };
        let mut pages = Pages::new(&resource, None, self.config.page_size);
        let mut object_count = 0;
        while let Some(page) = pages.next_page(&state.client).await? {
            object_count += page.len() as u64;
            let mut requests = Vec::with_capacity(page.len());
            for object in page {
                if !self
                    .is_excluded(&resource, &object, &mut chain_audit.namespace_exclusions)
                    .await
                {
                    requests.push(resource.request(object));
                }
            }
            let record = |judged_object| state.ledger.record(number, judged_object);
            chain_audit.auditor.audit(&resource, requests, record).await;
        }
        state.ledger.end_list(number);
        if let Some(version) = pages.into_version() {
            let (client, sender) = (state.client.clone(), chain_audit.sender.clone());
            let watch_task = watch::follow(client, resource, number, version, sender);
            chain_audit.watches.spawn(watch_task);
        }
        Ok(object_count)
    }

    pub(super) async fn is_excluded(
        &self,
        resource: &AuditedResource,
        object: &Object,
        exclusion_cache: &mut HashMap<String, bool>,
    ) -> bool {
        let head = object.head();
        let namespace = match resource.name().as_str() {
            "namespaces" => head.name.as_ref(),
            _ => head.namespace.as_ref(),
        };
        let Some(namespace) = namespace else {
            return false;
        };
        if let Some(is_excluded) = exclusion_cache.get(namespace) {
            return *is_excluded;
        }
        let is_excluded = self.config.excluded_namespaces.contains(namespace)
            || match self.cluster.labels(namespace).await {
                Ok(labels) => labels.contains_key(IGNORE_LABEL),
                // If the labels of the namespace cannot be read, its objects are audited.
                Err(_) => false,
            };
        exclusion_cache.insert(namespace.clone(), is_excluded);
        is_excluded
    }
}
