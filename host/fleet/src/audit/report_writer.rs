//! Writes the leader's reports on audited objects to the cluster.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use admittance_cluster::AnswerError;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;

use super::{
    client::{AuditClient, content_error, page_query},
    ledger::Ledger,
    reports::{MANAGED_BY_LABEL, ReportApi},
};
use crate::metrics;

const APPLY_CONTENT_TYPE: &str = "application/apply-patch+yaml";
const PAGE_SIZE: u32 = 100;

/// Writes reports to the API `api`, each under the name of the installation.
#[derive(Debug)]
pub(super) struct ReportWriter {
    pub(super) api: ReportApi,
    name: String,
    written_hashes: HashMap<Option<String>, u64>,
}

#[derive(Deserialize)]
struct Reports {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<WrittenReport>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct WrittenReport {
    metadata: ReportMetadata,
}

#[derive(Deserialize)]
struct ReportMetadata {
    name: String,
    namespace: Option<String>,
}

impl ReportWriter {
    pub(super) fn new(api: ReportApi, name: String) -> Self {
        Self {
            api,
            name,
            written_hashes: HashMap::new(),
        }
    }

    /// Writes the reports that are outdated. A report without findings is deleted instead. If a write fails, or the
    /// returned future is dropped, the report remains outdated until a later call writes it.
    pub(super) async fn write(&mut self, client: &AuditClient, ledger: &mut Ledger) -> Result<(), AnswerError> {
        let mut result = Ok(());
        for namespace in ledger.changed_namespaces() {
            match self.write_report(client, ledger, &namespace).await {
                Ok(()) => ledger.mark_written(&namespace),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    async fn write_report(
        &mut self,
        client: &AuditClient,
        ledger: &Ledger,
        namespace: &Option<String>,
    ) -> Result<(), AnswerError> {
        let shard = ledger.shard(namespace).filter(|_| ledger.has_findings(namespace));
        let Some(shard) = shard else {
            return if self.written_hashes.contains_key(namespace) {
                self.delete_report(client, namespace).await
            } else {
                Ok(())
            };
        };
        let namespace_name = namespace.as_deref();
        let document = self
            .api
            .document(&self.name, namespace_name, shard.findings(), shard.verdicts())
            .to_string();
        let hash = hash_of(&document);
        if self.written_hashes.get(namespace) == Some(&hash) {
            return Ok(());
        }
        let path = self.api.report_path(namespace_name, &self.name);
        let query = format!("{path}?fieldManager=admittance&force=true");
        let request = client.send(Method::PATCH, &query, Some((APPLY_CONTENT_TYPE, Bytes::from(document))));
        let write_result = match request.await {
            // The namespace was deleted, and its report with it.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => return Ok(()),
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(answer.error(&path)),
            Err(error) => Err(error),
        };
        metrics::record_report_write(write_result.is_ok());
        write_result?;
        self.written_hashes.insert(namespace.clone(), hash);
        Ok(())
    }

    async fn delete_report(&mut self, client: &AuditClient, namespace: &Option<String>) -> Result<(), AnswerError> {
        let path = self.api.report_path(namespace.as_deref(), &self.name);
        let delete_result = match client.send(Method::DELETE, &path, None).await {
            Ok(answer) => answer.body_unless_missing(&path).map(drop),
            Err(error) => Err(error),
        };
        metrics::record_report_write(delete_result.is_ok());
        delete_result?;
        self.written_hashes.remove(namespace);
        Ok(())
    }

    /// Compares the reports in the cluster with those that this program has written. Deletes reports without findings.
    /// If a written report is missing in the cluster, marks it as outdated, so that it is written again.
    pub(super) async fn compare_with_cluster(
        &mut self,
        client: &AuditClient,
        ledger: &mut Ledger,
    ) -> Result<(), AnswerError> {
        let mut reported_namespaces = HashSet::new();
        for is_namespaced in [true, false] {
            let path = self.api.path(is_namespaced);
            let (label, value) = MANAGED_BY_LABEL;
            let mut token = String::new();
            loop {
                let page = page_query(PAGE_SIZE, &token);
                let query = format!("{path}?labelSelector={label}%3D{value}&{page}");
                let Some(body) = client.get(&query).await?.body_unless_missing(&path)? else {
                    break;
                };
                let page: Reports = serde_json::from_slice(&body).map_err(|error| content_error(&path, &error))?;
                let all_metadata = page.items.into_iter().map(|report| report.metadata);
                let own_metadata = all_metadata.filter(|metadata| metadata.name == self.name);
                reported_namespaces.extend(own_metadata.map(|metadata| metadata.namespace.filter(|_| is_namespaced)));
                token = page.metadata.next;
                if token.is_empty() {
                    break;
                }
            }
        }
        self.written_hashes.retain(|namespace, _| {
            let is_reported = reported_namespaces.contains(namespace);
            if !is_reported {
                ledger.mark_outdated(namespace);
            }
            is_reported
        });
        for namespace in reported_namespaces {
            if !ledger.has_findings(&namespace) {
                self.delete_report(client, &namespace).await?;
            }
        }
        Ok(())
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
