//! Evaluates the chains for existing objects, as if each object were created and then updated.

use std::sync::Arc;

use admittance::Table;
use admittance_admission::{Operation, Request, UserInfo};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    client::{AuditedResource, OPERATIONS},
    finding::{AuditResult, Finding},
};

/// Evaluates the chains for existing objects. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Auditor {
    user: Arc<UserInfo>,
    jobs: usize,
    tables: Arc<[Arc<Table>]>,
}

#[derive(Debug)]
pub struct JudgedObject {
    pub namespace: Option<String>,
    pub name: String,
    /// The findings on the audited object; empty if no chain matches it.
    pub findings: Vec<Finding>,
}

impl Auditor {
    /// Creates an auditor that judges objects as if this user created and updated them. It judges `jobs` objects at a
    /// time. If there are two tables of chains, a finding contains the verdict of the second table, and its field
    /// `before` contains the verdict of the first table.
    pub fn new(tables: Vec<Arc<Table>>, user: UserInfo, jobs: usize) -> Self {
        Self {
            user: Arc::new(user),
            jobs: jobs.max(1),
            tables: tables.into(),
        }
    }

    pub fn compares_tables(&self) -> bool {
        self.tables.len() > 1
    }

    /// Audits objects of a resource, several at a time, in no particular order. Dropping the future stops the audit.
    pub async fn audit(&self, resource: &AuditedResource, requests: Vec<Request>, mut take: impl FnMut(JudgedObject)) {
        let (sender, mut receiver) = mpsc::channel(self.jobs);
        let mut tasks = JoinSet::new();
        let share = requests.len().div_ceil(self.jobs).max(1);
        let mut requests = requests.into_iter();
        loop {
            let requests: Vec<_> = requests.by_ref().take(share).collect();
            if requests.is_empty() {
                break;
            }
            let (auditor, resource, sender) = (self.clone(), resource.clone(), sender.clone());
            tasks.spawn(async move {
                for request in requests {
                    let judged_object = auditor.judge(&resource, &request).await;
                    if sender.send(judged_object).await.is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        while let Some(object) = receiver.recv().await {
            take(object);
        }
    }

    pub async fn judge(&self, resource: &AuditedResource, object: &Request) -> JudgedObject {
        let mut findings: Vec<Finding> = Vec::new();
        for operation in OPERATIONS {
            let mut request = object.clone();
            request.operation = operation;
            request.user = (*self.user).clone();
            request.dry_run = true;
            if operation == Operation::Update {
                request.old_object = request.object.clone();
            }
            let mut judgements = Vec::with_capacity(self.tables.len());
            let mut is_matched = false;
            for table in &*self.tables {
                let outcome = table.admit(request.clone()).await;
                is_matched |= !outcome.trace.is_empty();
                judgements.push(AuditResult::from_outcome(&outcome));
            }
            if !is_matched {
                continue;
            }
            let (before, judgement) = match (judgements.pop(), judgements.pop()) {
                (Some(after), before) => (before, after),
                (None, _) => continue,
            };
            let finding = Finding {
                resource: resource.name(),
                api_version: resource.api_version(),
                kind: request.kind.kind,
                namespace: request.namespace,
                name: request.name,
                operation: operation.as_str(),
                judgement,
                before,
            };
            let is_duplicate = |earlier_finding: &Finding| {
                earlier_finding.judgement == finding.judgement && earlier_finding.before == finding.before
            };
            if !findings.iter().any(is_duplicate) {
                findings.push(finding);
            }
        }
        JudgedObject {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            findings,
        }
    }
}
