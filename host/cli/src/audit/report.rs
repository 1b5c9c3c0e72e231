//! Reports the findings of an audit, for people, scripts or CI.

use std::collections::BTreeMap;

use admittance_definitions::document::to_yaml;
use admittance_fleet::audit::{AuditVerdict, AuditedResource, Finding, JudgedObject, MAX_FINDINGS, ReportApi};
use anstyle::Style;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, sanitize_line, write},
    table::{TableCell, TextTable},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum AuditFormat {
    /// Human-readable, coloured on a terminal.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Report resources of OpenReports for `kubectl apply`: one for each namespace, and one for the objects without a
    /// namespace.
    Reports,
}

/// The findings of an audit. An object that passes unchanged, or that both tables of chains judge alike, has no finding
/// and is only counted.
#[derive(Debug)]
pub(super) struct AuditReport {
    is_comparison: bool,
    objects: BTreeMap<String, u64>,
    /// The number of objects with each verdict, by namespace. The key `None` stands for objects without a namespace.
    verdicts: BTreeMap<Option<String>, BTreeMap<AuditVerdict, u64>>,
    /// The findings that the report shows, at most [`MAX_FINDINGS`].
    findings: Vec<Finding>,
    left_out_count: u64,
    /// Whether the chains refuse at least one object. If the audit compares two tables of chains, an object does not
    /// count if both tables refuse it.
    has_new_refusals: bool,
    unlisted_resources: Vec<(String, String)>,
}

impl AuditReport {
    pub(super) fn new(compares: bool) -> Self {
        Self {
            is_comparison: compares,
            objects: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            findings: Vec::new(),
            left_out_count: 0,
            has_new_refusals: false,
            unlisted_resources: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, resource: &AuditedResource, judged: JudgedObject) {
        let findings = judged.findings;
        let Some(worst) = findings.iter().min_by_key(|finding| finding.judgement.verdict) else {
            return;
        };
        *self.objects.entry(resource.name()).or_default() += 1;
        let of_namespace = self.verdicts.entry(worst.namespace.clone()).or_default();
        *of_namespace.entry(worst.judgement.verdict).or_default() += 1;
        let is_shown = |finding: &Finding| match &finding.before {
            Some(before) => *before != finding.judgement,
            None => finding.judgement.verdict != AuditVerdict::Allowed,
        };
        for finding in findings.into_iter().filter(is_shown) {
            self.has_new_refusals |= finding.is_new_refusal();
            if self.findings.len() < MAX_FINDINGS {
                self.findings.push(finding);
            } else {
                self.left_out_count += 1;
            }
        }
    }

    pub(super) fn add_unlisted(&mut self, resource: String, why: &str) {
        self.unlisted_resources.push((resource, why.to_owned()));
    }

    pub(super) fn is_clean(&self) -> bool {
        self.unlisted_resources.is_empty() && !self.has_new_refusals
    }

    pub(super) fn print(mut self, format: AuditFormat) -> crate::Result<()> {
        // Objects are audited concurrently, so their findings arrive in no fixed order.
        let key = |finding: &Finding| (finding.resource.clone(), finding.object(), finding.operation);
        self.findings.sort_by_cached_key(key);
        let text = match format {
            AuditFormat::Text => self.text(),
            AuditFormat::Json => serde_json::to_string_pretty(&self.json())? + "\n",
            AuditFormat::Yaml => to_yaml(&self.json()),
            AuditFormat::Reports => {
                if let Some(left_out) = self.left_out_note() {
                    tracing::warn!("{left_out}");
                }
                self.reports()
            }
        };
        Ok(write(&text)?)
    }

    fn left_out_note(&self) -> Option<String> {
        let more = human::count(self.left_out_count, "more finding");
        (self.left_out_count > 0).then(|| format!("{more} not shown: at most {MAX_FINDINGS} are kept"))
    }

    fn reports(&self) -> String {
        let documents = self.verdicts.iter().map(|(namespace, verdicts)| {
            let findings = self.findings.iter();
            let of_namespace = findings.filter(|finding| finding.namespace == *namespace);
            let verdicts = verdicts.iter().map(|(verdict, count)| (*verdict, *count));
            ReportApi::OpenReports.document("admittance-audit", namespace.as_deref(), of_namespace, verdicts)
        });
        documents.map(|document| to_yaml(&document)).collect()
    }

    fn verdict_count(&self, verdict: AuditVerdict) -> u64 {
        let of_namespaces = self.verdicts.values();
        of_namespaces.filter_map(|verdicts| verdicts.get(&verdict)).sum()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if !self.findings.is_empty() {
            let rows = self.findings.iter().map(|finding| {
                let verdict = finding.judgement.verdict;
                let before = finding.before.as_ref().map_or("", |before| before.verdict.as_str());
                [
                    TableCell::text(&finding.resource),
                    TableCell::text(finding.object()),
                    TableCell::text(finding.operation),
                    TableCell::text(before),
                    TableCell::text(verdict.as_str()).with_style(verdict_style(verdict)),
                    TableCell::text(finding.judgement.stage.as_deref().unwrap_or_default()),
                    TableCell::text(&finding.judgement.message),
                ]
            });
            text += &if self.is_comparison {
                let mut table = TextTable::new([
                    "RESOURCE",
                    "OBJECT",
                    "OPERATION",
                    "BEFORE",
                    "VERDICT",
                    "STAGE",
                    "MESSAGE",
                ]);
                rows.for_each(|row| table.push_row(row));
                table.text()
            } else {
                let mut table = TextTable::new(["RESOURCE", "OBJECT", "OPERATION", "VERDICT", "STAGE", "MESSAGE"]);
                for [resource, object, operation, _, verdict, stage, message] in rows {
                    table.push_row([resource, object, operation, verdict, stage, message]);
                }
                table.text()
            };
            text.push('\n');
        }
        if let Some(left_out) = self.left_out_note() {
            text += &format!("{WARN}{left_out}{WARN:#}\n");
        }
        for (resource, why) in &self.unlisted_resources {
            text += &format!("{BAD}not listed{BAD:#}: {resource}: {}\n", sanitize_line(why));
        }
        text + &self.summary()
    }

    fn summary(&self) -> String {
        let total: u64 = self.objects.values().sum();
        if total == 0 {
            return format!("{WARN}no chain is for an object that was found{WARN:#}\n");
        }
        let verdict_counts = AuditVerdict::ALL.into_iter().filter_map(|verdict| {
            let (count, style) = (self.verdict_count(verdict), verdict_style(verdict));
            (count > 0).then(|| format!("{style}{count} {}{style:#}", verdict.as_str()))
        });
        let differing = if self.is_comparison {
            format!(
                "; {}",
                human::count(self.findings.len() as u64 + self.left_out_count, "difference")
            )
        } else {
            String::new()
        };
        format!(
            "{BOLD}{}{BOLD:#} of {}: {}{differing}\n",
            human::count(total, "object"),
            human::count(self.objects.len() as u64, "resource"),
            verdict_counts.collect::<Vec<_>>().join(", ")
        )
    }

    /// Returns the audit's result for `--output json`. Scripts depend on its form, so fields may only be added.
    fn json(&self) -> Value {
        let verdicts: serde_json::Map<_, _> = AuditVerdict::ALL
            .into_iter()
            .map(|verdict| (verdict.as_str().to_owned(), self.verdict_count(verdict).into()))
            .collect();
        let reasons = self.unlisted_resources.iter();
        let not_listed = reasons.map(|(resource, why)| json!({"resource": resource, "message": why}));
        json!({
            "objects": self.objects,
            "verdicts": verdicts,
            "findings": self.findings,
            "leftOut": self.left_out_count,
            "notListed": not_listed.collect::<Vec<_>>(),
        })
    }
}

fn verdict_style(verdict: AuditVerdict) -> Style {
    match verdict {
        AuditVerdict::Denied | AuditVerdict::Failed => BAD,
        AuditVerdict::WouldBeDenied | AuditVerdict::FailureIgnored => WARN,
        AuditVerdict::Changed => DIM,
        AuditVerdict::Allowed => GOOD,
    }
}

#[cfg(test)]
mod tests {
    use admittance_admission::{GroupVersionKind, GroupVersionResource, Patch};
    use admittance_fleet::audit::AuditResult;

    use super::*;

    fn pods() -> AuditedResource {
        AuditedResource {
            kind: GroupVersionKind::from_api_version("v1", "Pod".to_owned()),
            resource: GroupVersionResource {
                group: String::new(),
                version: "v1".to_owned(),
                resource: "pods".to_owned(),
            },
            is_namespaced: true,
        }
    }

    fn judged_pod(number: usize, verdict: AuditVerdict) -> JudgedObject {
        let name = format!("pod-{number}");
        let finding = Finding {
            resource: "pods".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: Some("shop".to_owned()),
            name: name.clone(),
            operation: "CREATE",
            judgement: AuditResult {
                verdict,
                stage: Some("chain/stage".to_owned()),
                message: String::new(),
                patch: Patch::default(),
            },
            before: None,
        };
        JudgedObject {
            namespace: finding.namespace.clone(),
            name,
            findings: vec![finding],
        }
    }

    #[test]
    fn findings_beyond_the_limit_are_only_counted() {
        const EXTRA_FINDINGS: usize = 3;
        let mut report = AuditReport::new(false);
        let resource = pods();
        for number in 0..MAX_FINDINGS + EXTRA_FINDINGS - 1 {
            report.add(&resource, judged_pod(number, AuditVerdict::Changed));
        }
        assert!(report.is_clean());
        report.add(
            &resource,
            judged_pod(MAX_FINDINGS + EXTRA_FINDINGS, AuditVerdict::Denied),
        );
        assert!(!report.is_clean(), "the refusal is not among those that are kept");
        assert_eq!(report.findings.len(), MAX_FINDINGS);

        let left_out = "3 more findings not shown: at most 50000 are kept";
        assert!(report.text().contains(left_out));
        assert!(report.summary().contains("1 denied"), "{}", report.summary());
        let json = report.json();
        assert_eq!(json.get("leftOut"), Some(&json!(EXTRA_FINDINGS)));
        assert_eq!(
            json.pointer("/verdicts/changed"),
            Some(&json!(MAX_FINDINGS + EXTRA_FINDINGS - 1))
        );
    }
}
