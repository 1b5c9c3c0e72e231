//! Findings as resources of OpenReports: a `Report` for each namespace, and a `ClusterReport`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::finding::{Finding, Verdict};

/// The limit of results in one report: etcd keeps objects of up to 1.5 MiB.
const RESULTS: usize = 1000;

/// Reports of these findings, and of the verdicts on all objects of each namespace. Objects without a namespace have the
/// name `None`.
pub(super) fn documents(
    findings: &[Finding],
    verdicts: &BTreeMap<Option<String>, BTreeMap<Verdict, u64>>,
) -> Vec<Value> {
    let documents = verdicts.iter().map(|(namespace, verdicts)| {
        let of_namespace = findings.iter().filter(|finding| finding.namespace == *namespace);
        let results: Vec<_> = of_namespace.take(RESULTS).map(result).collect();
        let count = |wanted: &str| -> u64 {
            let counts = verdicts.iter().filter(|(verdict, _)| word(**verdict) == wanted);
            counts.map(|(_, count)| count).sum()
        };
        let mut metadata = json!({
            "name": "admittance-audit",
            "labels": {"app.kubernetes.io/managed-by": "admittance"},
        });
        if let (Some(namespace), Some(metadata)) = (namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
        }
        json!({
            "apiVersion": "openreports.io/v1alpha1",
            "kind": if namespace.is_some() { "Report" } else { "ClusterReport" },
            "metadata": metadata,
            "source": "admittance",
            "summary": {
                "pass": count("pass"),
                "fail": count("fail"),
                "warn": count("warn"),
                "error": count("error"),
                "skip": 0,
            },
            "results": results,
        })
    });
    documents.collect()
}

fn result(finding: &Finding) -> Value {
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
        "result": word(judgement.verdict),
        "message": judgement.message,
        "resources": [resource],
        "properties": {"operation": finding.operation, "verdict": judgement.verdict},
    })
}

/// The results of OpenReports.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Denied => "fail",
        Verdict::Failed => "error",
        Verdict::WouldBeDenied | Verdict::FailureIgnored | Verdict::Changed => "warn",
        Verdict::Allowed => "pass",
    }
}
