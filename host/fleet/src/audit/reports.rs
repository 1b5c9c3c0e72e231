//! Writes findings as reports of OpenReports or its predecessors, one per namespace and one for the cluster.
//!
//! All kinds of reports have the same fields. The oldest is `wgpolicyk8s.io` of the Kubernetes policy working group.
//! `reports.x-k8s.io/v1beta2` renamed the kinds and added `source`, and OpenReports adopted both changes (see the
//! directory `policy-report` in the history of github.com/openreports/reports-api).

use admittance_admission::shortened;
use serde_json::{Value, json};

use super::finding::{AuditVerdict, Finding};

/// The maximum number of results in a report, because etcd stores objects of at most 1.5 MiB.
pub(super) const MAX_RESULTS: usize = 1000;

/// The longest message in a report, in bytes.
const MAX_MESSAGE_LENGTH: usize = 500;

/// The label of all reports that this program writes.
pub(super) const MANAGED_BY_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "admittance");

/// An API that defines reports on policies. The variants are sorted, and the last one is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportApi {
    /// The API `wgpolicyk8s.io/v1alpha2`.
    PolicyReport,
    /// The API `reports.x-k8s.io/v1beta2`.
    KubernetesReports,
    /// The API `openreports.io/v1alpha1`.
    OpenReports,
}

impl ReportApi {
    pub const ALL: [Self; 3] = [Self::PolicyReport, Self::KubernetesReports, Self::OpenReports];

    pub(super) fn from_api_version(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.api_version() == api_version)
    }

    pub fn group(self) -> &'static str {
        let (group, _) = self.api_version().split_once('/').unwrap_or_default();
        group
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Self::PolicyReport => "wgpolicyk8s.io/v1alpha2",
            Self::KubernetesReports => "reports.x-k8s.io/v1beta2",
            Self::OpenReports => "openreports.io/v1alpha1",
        }
    }

    /// Returns the plural of this API's reports, as it is written in API paths. If `is_namespaced`, it is the plural of
    /// the reports on the objects of a namespace, and otherwise that of the reports on objects without a namespace.
    pub fn plural(self, is_namespaced: bool) -> &'static str {
        match (self, is_namespaced) {
            (Self::PolicyReport, true) => "policyreports",
            (Self::PolicyReport, false) => "clusterpolicyreports",
            (Self::KubernetesReports | Self::OpenReports, true) => "reports",
            (Self::KubernetesReports | Self::OpenReports, false) => "clusterreports",
        }
    }

    fn kind(self, is_namespaced: bool) -> &'static str {
        match (self, is_namespaced) {
            (Self::PolicyReport, true) => "PolicyReport",
            (Self::PolicyReport, false) => "ClusterPolicyReport",
            (Self::KubernetesReports | Self::OpenReports, true) => "Report",
            (Self::KubernetesReports | Self::OpenReports, false) => "ClusterReport",
        }
    }

    pub(super) fn path(self, is_namespaced: bool) -> String {
        format!("/apis/{}/{}", self.api_version(), self.plural(is_namespaced))
    }

    pub(super) fn report_path(self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            None => format!("{}/{name}", self.path(false)),
            Some(namespace) => format!(
                "/apis/{}/namespaces/{namespace}/{}/{name}",
                self.api_version(),
                self.plural(true)
            ),
        }
    }

    /// Returns the report on a namespace, or on the objects without a namespace. `verdicts` counts all objects, but
    /// `findings` may lack some, because a report has a maximum size.
    pub fn document<'a>(
        self,
        name: &str,
        namespace: Option<&str>,
        findings: impl IntoIterator<Item = &'a Finding>,
        verdicts: impl IntoIterator<Item = (AuditVerdict, u64)>,
    ) -> Value {
        let results: Vec<_> = findings.into_iter().take(MAX_RESULTS).map(result_document).collect();
        let mut summary = json!({"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0});
        for (verdict, count) in verdicts {
            if let Some(sum) = summary.get_mut(result_word(verdict)) {
                *sum = (sum.as_u64().unwrap_or_default() + count).into();
            }
        }
        let mut metadata = json!({"name": name, "labels": {MANAGED_BY_LABEL.0: MANAGED_BY_LABEL.1}});
        if let (Some(namespace), Some(metadata)) = (namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        let mut document = json!({
            "apiVersion": self.api_version(),
            "kind": self.kind(namespace.is_some()),
            "metadata": metadata,
        });
        if let Some(document) = document.as_object_mut() {
            if self != Self::PolicyReport {
                document.insert("source".to_owned(), "admittance".into());
            }
            document.insert("summary".to_owned(), summary);
            document.insert("results".to_owned(), results.into());
        }
        document
    }
}

fn result_document(finding: &Finding) -> Value {
    let judgement = &finding.judgement;
    let (policy, rule) = judgement
        .stage
        .as_deref()
        .and_then(|stage| stage.rsplit_once('/'))
        .unwrap_or_default();
    let mut resource = json!({
        "apiVersion": finding.api_version,
        "kind": finding.kind,
        "name": finding.name,
    });
    if let (Some(namespace), Some(resource)) = (&finding.namespace, resource.as_object_mut()) {
        resource.insert("namespace".to_owned(), namespace.as_str().into());
    }
    json!({
        "source": "admittance",
        "policy": policy,
        "rule": rule,
        "result": result_word(judgement.verdict),
        "message": shortened(&judgement.message, MAX_MESSAGE_LENGTH),
        "resources": [resource],
        "properties": {"operation": finding.operation, "verdict": judgement.verdict},
    })
}

fn result_word(verdict: AuditVerdict) -> &'static str {
    match verdict {
        AuditVerdict::Denied => "fail",
        AuditVerdict::Failed => "error",
        AuditVerdict::WouldBeDenied | AuditVerdict::FailureIgnored | AuditVerdict::Changed => "warn",
        AuditVerdict::Allowed => "pass",
    }
}
