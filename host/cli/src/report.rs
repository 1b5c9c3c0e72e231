//! Shows what chains decided about requests, on a terminal or as JSON.

use admittance::admission::{
    Chain, Decision, FailurePolicy, Mode, Object, Outcome, RefusalCause, Request, RequestRefusal, StageResult, TraceRow,
};
use anstyle::Style;
use serde_json::{Value, json};

use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, diff},
    table::{TableCell, TextTable},
};

pub(crate) struct RunReport {
    /// The file and the document in it that contain the request.
    pub(crate) location: String,
    /// The request before any stage changed it.
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
    /// The chains whose rules do not match the request.
    pub(crate) unmatched_chains: Vec<MismatchedChain>,
}

#[derive(derive_more::Display)]
#[display("{chain}: {reason}")]
pub(crate) struct MismatchedChain {
    chain: String,
    reason: String,
}

impl MismatchedChain {
    pub(crate) fn new<S>(chain: &Chain<S>, request: &Request) -> Option<Self> {
        Some(Self {
            chain: chain.name.to_string(),
            reason: chain.mismatch(request)?.to_string(),
        })
    }
}

pub(crate) struct RunReports(pub(crate) Vec<RunReport>);

impl RunReports {
    pub(crate) fn are_allowed(&self) -> bool {
        self.0.iter().all(|report| report.outcome.is_allowed())
    }

    pub(crate) fn text(&self) -> String {
        if let [report] = self.0.as_slice() {
            return report.text();
        }
        let mut table = TextTable::new(["DECISION", "REQUEST", "WHERE", "WHY"]);
        let (mut allowed, mut refused, mut unmatched) = (0u64, 0u64, 0u64);
        for report in &self.0 {
            let outcome = &report.outcome;
            let (count, decision, style, why) = match &outcome.decision {
                Decision::Refused(refusal) => (&mut refused, "refused", BAD, refusal.to_string()),
                Decision::Allowed if outcome.trace.is_empty() => {
                    let reasons: Vec<_> = report.unmatched_chains.iter().map(ToString::to_string).collect();
                    (&mut unmatched, "not matched", WARN, reasons.join("; "))
                }
                Decision::Allowed if outcome.is_changed() => {
                    let operations = human::count(outcome.patch.len(), "operation");
                    (&mut allowed, "changed", GOOD, operations)
                }
                Decision::Allowed => (&mut allowed, "allowed", GOOD, String::new()),
            };
            *count += 1;
            let request = &report.request;
            let object = human::object_name(request.namespace.as_deref(), &request.name);
            table.push_row([
                TableCell::text(decision).with_style(style),
                TableCell::text(format!("{} {} {object}", request.operation, request.kind)),
                TableCell::text(&report.location),
                TableCell::text(why),
            ]);
        }
        let total = human::count(self.0.len(), "request");
        let summary = format!("{total}: {allowed} allowed, {refused} refused, {unmatched} not matched");
        format!("{}\n{summary}\n", table.text())
    }

    /// Returns the report of a single request as JSON, or a list of reports. Scripts depend on its form, so fields may
    /// only be added.
    pub(crate) fn json(&self) -> Value {
        match self.0.as_slice() {
            [report] => report.json(),
            reports => json!({"requests": reports.iter().map(RunReport::json).collect::<Vec<_>>()}),
        }
    }
}

impl RunReport {
    pub(crate) fn text(&self) -> String {
        let outcome = &self.outcome;
        let mut text = self.stages_text();
        if outcome.is_allowed() && outcome.is_changed() {
            let (before, after) = (self.request.object.as_ref(), outcome.object.as_ref());
            let diffs = diff(before.map(Object::value), after.map(Object::value), 3);
            let groups: Vec<_> = diffs.iter().map(|lines| lines.join("\n")).collect();
            text += &format!("\n{}\n\n", groups.join(&format!("\n{DIM}  ...{DIM:#}\n")));
        }
        for warning in &outcome.warnings {
            text += &format!("{WARN}warning:{WARN:#} {warning}\n");
        }
        for row in &outcome.trace {
            for cause in denial_causes(&row.result) {
                text += &format!("{DIM}cause {}:{DIM:#} {cause}\n", row.stage);
            }
        }
        for note in &outcome.audit_annotations {
            text += &format!("{DIM}audit {}:{DIM:#} {}: {}\n", note.stage, note.key, note.value);
        }
        text + &match &outcome.decision {
            Decision::Allowed if outcome.is_changed() => {
                let operations = human::count(outcome.patch.len(), "operation");
                format!("{GOOD}allowed{GOOD:#}, changed by {operations}\n")
            }
            Decision::Allowed if outcome.trace.is_empty() => {
                format!("{WARN}allowed{WARN:#}, because no chain is for it\n")
            }
            Decision::Allowed => format!("{GOOD}allowed{GOOD:#}, unchanged\n"),
            Decision::Refused(refusal) => format!("{BAD}refused{BAD:#} ({}): {refusal}\n", refusal.code()),
        }
    }

    fn stages_text(&self) -> String {
        let mut table = TextTable::new(["CHAIN", "STAGE", "VERDICT", "TIME", "WHY"]);
        let refusal = match &self.outcome.decision {
            Decision::Refused(refusal) => Some(refusal),
            Decision::Allowed => None,
        };
        for row in &self.outcome.trace {
            let (style, why) = describe_result(row, refusal.is_some_and(|refusal| is_refused_by(refusal, row)));
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
            table.push_row([
                TableCell::text(&row.chain),
                TableCell::text(&row.stage),
                TableCell::text(verdict).with_style(style),
                TableCell::number(time),
                TableCell::text(why),
            ]);
        }
        for MismatchedChain { chain, reason: why } in &self.unmatched_chains {
            table.push_row([
                TableCell::text(chain),
                TableCell::default(),
                TableCell::text("not matched").with_style(DIM),
                TableCell::default(),
                TableCell::text(why),
            ]);
        }
        table.text()
    }

    fn json(&self) -> Value {
        let outcome = &self.outcome;
        let notes = outcome.audit_annotations.iter();
        let annotations = notes
            .map(|note| json!({"stage": &*note.stage, "key": note.key, "value": note.value}))
            .collect::<Vec<_>>();
        let mut report = json!({
            "uid": outcome.uid.as_str(),
            "source": self.location,
            "allowed": outcome.is_allowed(),
            "changed": outcome.is_changed(),
            "unmatchedChains": self.unmatched_chains.iter().map(|unmatched| &unmatched.chain).collect::<Vec<_>>(),
            "stages": outcome.trace.iter().map(stage_json).collect::<Vec<_>>(),
            "warnings": outcome.warnings,
            "auditAnnotations": annotations,
            "patch": outcome.patch,
            "object": outcome.object.as_ref().map(Object::value),
        });
        if let (Decision::Refused(refusal), Some(report)) = (&outcome.decision, report.as_object_mut()) {
            report.insert("refusal".into(), refusal_json(refusal));
        }
        report
    }
}

fn is_refused_by(refusal: &RequestRefusal, row: &TraceRow) -> bool {
    let is_decided = matches!(row.result, StageResult::Denied(_) | StageResult::Failed { .. });
    is_decided && (&refusal.chain, &refusal.stage) == (&row.chain, &row.stage)
}

/// Describes what a stage did, for its row in a table. If the stage decided the request, its message is left out here,
/// because it is printed below the table.
fn describe_result(row: &TraceRow, is_decisive: bool) -> (Style, String) {
    match &row.result {
        StageResult::Skipped(reason) => match &row.exception {
            Some(exception) => (WARN, format!("exception {exception}")),
            None => (DIM, reason.to_string()),
        },
        StageResult::NotReached => (DIM, "an earlier stage decided".to_owned()),
        StageResult::Allowed => (GOOD, String::new()),
        StageResult::Changed(patch) => (GOOD, human::count(patch.len(), "operation")),
        StageResult::Denied(denial) if is_decisive => (BAD, denial.code().to_string()),
        StageResult::Denied(denial) => (BAD, format!("{}: {denial}", denial.code())),
        StageResult::Failed { failure, policy } => {
            let style = if *policy == FailurePolicy::Fail { BAD } else { WARN };
            let (kind, message) = (&failure.kind, &failure.message);
            let description = if is_decisive {
                format!("{kind} (failurePolicy {policy})")
            } else {
                format!("{kind}: {message} (failurePolicy {policy})")
            };
            (style, description)
        }
        result => (DIM, result.as_str().to_owned()),
    }
}

fn denial_causes(result: &StageResult) -> Vec<String> {
    let StageResult::Denied(denial) = result else {
        return Vec::new();
    };
    let causes = denial.details.get("causes").and_then(Value::as_array);
    let texts = causes.into_iter().flatten().filter_map(|cause| {
        let text = |key: &str| cause.get(key).and_then(Value::as_str);
        let message = text("message")?;
        Some(match text("field") {
            Some(field) => format!("{field}: {message}"),
            None => message.to_owned(),
        })
    });
    texts.collect()
}

fn refusal_json(refusal: &RequestRefusal) -> Value {
    let RequestRefusal { chain, stage, cause } = refusal;
    let reason = match cause {
        RefusalCause::Denied(denial) => denial.reason.as_str(),
        RefusalCause::Failed(failure) => failure.kind.as_str(),
        cause => cause.as_str(),
    };
    json!({
        "chain": &**chain,
        "stage": &**stage,
        "code": refusal.code(),
        "reason": reason,
        "message": refusal.to_string(),
    })
}

fn stage_json(row: &TraceRow) -> Value {
    let mut stage = json!({
        "chain": &*row.chain,
        "phase": row.phase.as_str(),
        "round": row.round,
        "stage": &*row.stage,
        "mode": row.mode.as_str(),
        "verdict": row.result.as_str(),
        "microseconds": row.duration.as_nanos() as f64 / 1e3,
    });
    let result_fields = match &row.result {
        StageResult::Skipped(reason) => match &row.exception {
            Some(exception) => json!({"why": reason.to_string(), "exception": &**exception}),
            None => json!({"why": reason.to_string()}),
        },
        StageResult::Changed(patch) => json!({"patch": patch}),
        StageResult::Denied(denial) => {
            let mut details = json!({"code": denial.code(), "reason": denial.reason, "message": denial.message});
            let causes = denial_causes(&row.result);
            if let (false, Some(fields)) = (causes.is_empty(), details.as_object_mut()) {
                fields.insert("causes".to_owned(), json!(causes));
            }
            details
        }
        StageResult::Failed { failure, policy } => {
            json!({"failure": failure.kind.as_str(), "message": failure.message, "failurePolicy": policy.as_str()})
        }
        _ => json!({}),
    };
    if let (Some(stage), Value::Object(extra_fields)) = (stage.as_object_mut(), result_fields) {
        stage.extend(extra_fields);
    }
    stage
}
