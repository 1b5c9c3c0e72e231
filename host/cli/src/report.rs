//! An outcome, for a terminal and as JSON.

use admittance::admission::{Decision, FailurePolicy, Mode, Object, Outcome, Refusal, StageResult, TraceRow};
use anstyle::Style;
use serde_json::{Value, json};

use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, diff},
    table::{Cell, Table},
};

/// An outcome with further information about the request.
pub(crate) struct Report<'a> {
    pub(crate) outcome: &'a Outcome,
    /// The object before any stage saw it.
    pub(crate) original: Option<&'a Object>,
    /// Operation and resource, which the rules were matched against.
    pub(crate) requested: String,
    /// The chains whose rules do not match the request.
    pub(crate) unmatched: Vec<String>,
}

impl Report<'_> {
    /// A row per stage, the changes, the warnings, and the decision.
    pub(crate) fn text(&self) -> String {
        let outcome = self.outcome;
        let mut text = self.stages();
        if outcome.is_allowed() && outcome.is_changed() {
            let (before, after) = (self.original, outcome.object.as_ref());
            let groups = diff(before.map(Object::value), after.map(Object::value), 3);
            let groups: Vec<_> = groups.iter().map(|lines| lines.join("\n")).collect();
            text += &format!("\n{}\n\n", groups.join(&format!("\n{DIM}  ...{DIM:#}\n")));
        }
        for warning in &outcome.warnings {
            text += &format!("{WARN}warning:{WARN:#} {warning}\n");
        }
        for note in &outcome.audit_annotations {
            text += &format!("{DIM}audit {}:{DIM:#} {}: {}\n", note.stage, note.key, note.value);
        }
        text + &match &outcome.decision {
            Decision::Allowed if outcome.is_changed() => {
                let operations = human::count(outcome.patch.len(), "operation");
                format!("{GOOD}allowed{GOOD:#}, changed by {operations}\n")
            }
            Decision::Allowed => format!("{GOOD}allowed{GOOD:#}, unchanged\n"),
            Decision::Refused(refusal) => format!("{BAD}refused{BAD:#} ({}): {refusal}\n", refusal.code()),
        }
    }

    fn stages(&self) -> String {
        let mut table = Table::new(["CHAIN", "STAGE", "VERDICT", "TIME", "WHY"]);
        for row in &self.outcome.trace {
            let (style, why) = describe(&row.result);
            let mut verdict = row.result.as_str().to_owned();
            if row.mode == Mode::Audit {
                verdict.push_str(" (audit)");
            }
            if row.round > 1 {
                verdict.push_str(" (again)");
            }
            let time = match row.result {
                StageResult::NotReached => String::new(),
                _ => human::duration(row.duration),
            };
            table.row([
                Cell::text(&row.chain),
                Cell::text(&row.stage),
                Cell::text(verdict).styled(style),
                Cell::number(time),
                Cell::text(why),
            ]);
        }
        for chain in &self.unmatched {
            table.row([
                Cell::text(chain),
                Cell::default(),
                Cell::text("not matched").styled(DIM),
                Cell::default(),
                Cell::text(format!("no rule of the chain is for {}", self.requested)),
            ]);
        }
        table.text()
    }

    /// The report for scripts. Its JSON form is part of the program's interface: fields are only added.
    pub(crate) fn json(&self) -> Value {
        let outcome = self.outcome;
        let annotations = outcome.audit_annotations.iter();
        let annotations = annotations
            .map(|note| json!({"stage": &*note.stage, "key": note.key, "value": note.value}))
            .collect::<Vec<_>>();
        let mut report = json!({
            "uid": outcome.uid.as_str(),
            "allowed": outcome.is_allowed(),
            "changed": outcome.is_changed(),
            "unmatchedChains": self.unmatched,
            "stages": outcome.trace.iter().map(stage).collect::<Vec<_>>(),
            "warnings": outcome.warnings,
            "auditAnnotations": annotations,
            "patch": outcome.patch,
            "object": outcome.object.as_ref().map(Object::value),
        });
        if let (Decision::Refused(refusal), Some(report)) = (&outcome.decision, report.as_object_mut()) {
            report.insert("refusal".into(), refused(refusal));
        }
        report
    }
}

fn describe(result: &StageResult) -> (Style, String) {
    match result {
        StageResult::Skipped(reason) => (DIM, reason.to_string()),
        StageResult::NotReached => (DIM, "an earlier stage decided".to_owned()),
        StageResult::Allowed => (GOOD, String::new()),
        StageResult::Changed(patch) => (GOOD, human::count(patch.len(), "operation")),
        StageResult::Denied(denial) => (BAD, format!("{}: {denial}", denial.code())),
        StageResult::Failed { failure, policy } => {
            let style = if *policy == FailurePolicy::Fail { BAD } else { WARN };
            (
                style,
                format!("{}: {} (failurePolicy {policy})", failure.kind, failure.message),
            )
        }
        result => (DIM, result.as_str().to_owned()),
    }
}

fn refused(refusal: &Refusal) -> Value {
    let (chain, stage) = (refusal.chain(), refusal.stage());
    let reason = match refusal {
        Refusal::Denied { denial, .. } => denial.reason.as_str(),
        Refusal::Failed { failure, .. } => failure.kind.as_str(),
        refusal => refusal.as_str(),
    };
    json!({
        "chain": &**chain,
        "stage": &**stage,
        "code": refusal.code(),
        "reason": reason,
        "message": refusal.to_string(),
    })
}

fn stage(row: &TraceRow) -> Value {
    let mut stage = json!({
        "chain": &*row.chain,
        "phase": row.phase.as_str(),
        "round": row.round,
        "stage": &*row.stage,
        "mode": row.mode.as_str(),
        "verdict": row.result.as_str(),
        // At most three decimals, because whole nanoseconds are divided.
        "microseconds": row.duration.as_nanos() as f64 / 1e3,
    });
    let more = match &row.result {
        StageResult::Skipped(reason) => json!({"why": reason.to_string()}),
        StageResult::Changed(patch) => json!({"patch": patch}),
        StageResult::Denied(denial) => {
            json!({"code": denial.code(), "reason": denial.reason, "message": denial.message})
        }
        StageResult::Failed { failure, policy } => {
            json!({"failure": failure.kind.as_str(), "message": failure.message, "failurePolicy": policy.as_str()})
        }
        _ => json!({}),
    };
    if let (Some(stage), Value::Object(more)) = (stage.as_object_mut(), more) {
        stage.extend(more);
    }
    stage
}
