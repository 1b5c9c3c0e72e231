//! The decision that the chains would make about an existing object.

use admittance_admission::{
    Decision, FailurePolicy, Mode, Outcome, Patch, RefusalCause, RequestRefusal, StageResult, TraceRow, keywords,
};
use serde::Serialize;

/// The verdict on an object. The variants are sorted, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditVerdict {
    Denied,
    /// A stage with the failure policy `Fail` failed.
    Failed,
    /// A stage in mode `Audit` denied the object.
    WouldBeDenied,
    /// A stage with the failure policy `Ignore` failed.
    FailureIgnored,
    Changed,
    /// All stages allow the object, and none changes it.
    Allowed,
}

keywords!(AuditVerdict, "verdict": Denied = "denied", Failed = "failed", WouldBeDenied = "would-be-denied", FailureIgnored = "failure-ignored", Changed = "changed", Allowed = "allowed");

impl AuditVerdict {
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Denied | Self::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditResult {
    pub verdict: AuditVerdict,
    /// The stage that gave the verdict, or that changed the object first, as `chain/stage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Patch::is_empty")]
    pub patch: Patch,
}

impl AuditResult {
    pub(super) fn from_outcome(outcome: &Outcome) -> Self {
        let judgement = |verdict, row: Option<&TraceRow>, message| Self {
            verdict,
            stage: row.map(|row| format!("{}/{}", row.chain, row.stage)),
            message,
            patch: Patch::default(),
        };
        if let Decision::Refused(refusal) = &outcome.decision {
            return Self {
                verdict: match refusal.cause {
                    RefusalCause::Denied(_) => AuditVerdict::Denied,
                    _ => AuditVerdict::Failed,
                },
                stage: Some(format!("{}/{}", refusal.chain, refusal.stage)),
                message: message_of(refusal),
                patch: Patch::default(),
            };
        }
        let mut audited_rows = outcome.trace.iter().filter(|row| row.mode == Mode::Audit);
        let audit_denial = audited_rows.find_map(|row| match &row.result {
            StageResult::Denied(denial) => Some((row, denial)),
            _ => None,
        });
        if let Some((row, denial)) = audit_denial {
            return judgement(AuditVerdict::WouldBeDenied, Some(row), denial.to_string());
        }
        let ignored_failure = outcome.trace.iter().find_map(|row| match &row.result {
            StageResult::Failed {
                failure,
                policy: FailurePolicy::Ignore,
            } => Some((row, failure)),
            _ => None,
        });
        if let Some((row, failure)) = ignored_failure {
            let message = format!("{}: {}", failure.kind, failure.message);
            return judgement(AuditVerdict::FailureIgnored, Some(row), message);
        }
        if !outcome.is_changed() {
            return judgement(AuditVerdict::Allowed, None, String::new());
        }
        let is_change = |row: &&TraceRow| row.mode == Mode::Enforce && matches!(row.result, StageResult::Changed(_));
        Self {
            patch: outcome.patch.clone(),
            ..judgement(
                AuditVerdict::Changed,
                outcome.trace.iter().find(is_change),
                match outcome.patch.len() {
                    1 => "a patch of 1 operation".to_owned(),
                    count => format!("a patch of {count} operations"),
                },
            )
        }
    }
}

/// Returns the message of a refusal. Leaves out the names of chain and stage, because a finding has fields for them.
fn message_of(refusal: &RequestRefusal) -> String {
    match &refusal.cause {
        RefusalCause::Denied(denial) => denial.to_string(),
        RefusalCause::Failed(failure) => format!("{}: {}", failure.kind, failure.message),
        _ => refusal.to_string(),
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The name of the object's resource, such as `pods` or `deployments.apps`.
    pub resource: String,
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// The operation that was evaluated: `CREATE` or `UPDATE`.
    pub operation: &'static str,
    #[serde(flatten)]
    pub judgement: AuditResult,
    /// The verdict by the previous chains, if the audit compares two tables of chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<AuditResult>,
}

impl Finding {
    /// Returns the object as `namespace/name`, or as its name alone if it has no namespace.
    pub fn object(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    pub fn is_new_refusal(&self) -> bool {
        let was_refused = self.before.as_ref().is_some_and(|before| before.verdict.is_refusal());
        self.judgement.verdict.is_refusal() && !was_refused
    }
}
