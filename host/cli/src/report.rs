//! An outcome, for a terminal and as JSON.

use std::fmt::Write as _;

use admittance::admission::{
    Decision, FailurePolicy, Mode, Object, Outcome, Patch, Refusal, StageResult, TraceRow,
};
use anstyle::Style;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, ODD},
};

/// An outcome with further information about the request.
pub(crate) struct Report<'a> {
    pub(crate) outcome: &'a Outcome,
    /// The object before any stage saw it.
    pub(crate) original: Option<&'a Object>,
    /// Operation and resource, which the rules were matched against.
    pub(crate) asked: String,
    /// The chains whose rules do not match the request.
    pub(crate) unmatched: Vec<String>,
}

/// The human-readable report: a row per stage, the changes, the warnings, and the decision. Contains ANSI
/// colours; print it through a stream that removes them where they are not supported.
pub(crate) fn for_people(report: &Report<'_>) -> String {
    let Report {
        outcome, original, ..
    } = *report;
    let mut text = String::new();
    stages(&mut text, report);
    if outcome.is_allowed() && outcome.is_changed() {
        difference(&mut text, original, outcome.object.as_ref());
    }
    for warning in &outcome.warnings {
        line(&mut text, format_args!("{ODD}warning:{ODD:#} {warning}"));
    }
    for note in &outcome.audit_annotations {
        line(
            &mut text,
            format_args!("{DIM}audit {}:{DIM:#} {}: {}", note.stage, note.key, note.value),
        );
    }
    match &outcome.decision {
        Decision::Allowed if outcome.is_changed() => {
            line(
                &mut text,
                format_args!(
                    "{GOOD}allowed{GOOD:#}, changed by {} operations",
                    outcome.patch.len()
                ),
            );
        }
        Decision::Allowed => line(&mut text, format_args!("{GOOD}allowed{GOOD:#}, unchanged")),
        Decision::Refused(refusal) => {
            line(
                &mut text,
                format_args!("{BAD}refused{BAD:#} ({}): {refusal}", refusal.code()),
            );
        }
    }
    text
}

fn stages(text: &mut String, report: &Report<'_>) {
    let trace = &report.outcome.trace;
    let longest = |heading: &str, names: &mut dyn Iterator<Item = &str>| {
        names
            .map(|name| name.chars().count())
            .max()
            .unwrap_or_default()
            .max(heading.len())
    };
    let of_trace = trace.iter().map(|row| &*row.chain);
    let chains = longest(
        "CHAIN",
        &mut of_trace.chain(report.unmatched.iter().map(String::as_str)),
    );
    let names = longest("STAGE", &mut trace.iter().map(|row| &*row.stage));
    line(
        text,
        format_args!(
            "{BOLD}{:chains$}  {:names$}  {:12}  {:>9}  {}{BOLD:#}",
            "CHAIN", "STAGE", "VERDICT", "TIME", "WHY"
        ),
    );
    for row in trace {
        let (style, why) = describe(&row.result);
        let mut verdict = row.result.as_str().to_owned();
        if row.mode == Mode::Audit {
            verdict.push_str(" (audit)");
        }
        if row.round > 1 {
            verdict.push_str(" (again)");
        }
        let time = match row.result {
            StageResult::NotReached => "-".to_owned(),
            _ => human::duration(row.duration),
        };
        line(
            text,
            format_args!(
                "{:chains$}  {:names$}  {style}{verdict:12}{style:#}  {time:>9}  {why}",
                row.chain, row.stage
            ),
        );
    }
    for chain in &report.unmatched {
        let why = format!("no rule of the chain is for {}", report.asked);
        line(
            text,
            format_args!(
                "{chain:chains$}  {:names$}  {DIM}{:12}{DIM:#}  {:>9}  {why}",
                "-", "not matched", "-"
            ),
        );
    }
}

fn describe(result: &StageResult) -> (Style, String) {
    match result {
        StageResult::Skipped(reason) => (DIM, reason.to_string()),
        StageResult::NotReached => (DIM, "an earlier stage decided".to_owned()),
        StageResult::Allowed => (GOOD, String::new()),
        StageResult::Changed(patch) => (GOOD, operations(patch)),
        StageResult::Denied(denial) => (BAD, format!("{}: {denial}", denial.code())),
        StageResult::Failed { failure, policy } => {
            let style = if *policy == FailurePolicy::Fail { BAD } else { ODD };
            (
                style,
                format!("{}: {} (failurePolicy {policy})", failure.kind, failure.message),
            )
        }
        result => (DIM, result.as_str().to_owned()),
    }
}

fn operations(patch: &Patch) -> String {
    match patch.len() {
        1 => "1 operation".to_owned(),
        count => format!("{count} operations"),
    }
}

fn difference(text: &mut String, before: Option<&Object>, after: Option<&Object>) {
    let (before, after) = (pretty(before), pretty(after));
    let diff = TextDiff::from_lines(&before, &after);
    text.push('\n');
    for (index, group) in diff.grouped_ops(3).iter().enumerate() {
        if index > 0 {
            line(text, format_args!("{DIM}  ...{DIM:#}"));
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let content = change.value().trim_end_matches('\n');
            match change.tag() {
                ChangeTag::Equal => line(text, format_args!("  {content}")),
                ChangeTag::Delete => line(text, format_args!("{BAD}- {content}{BAD:#}")),
                ChangeTag::Insert => line(text, format_args!("{GOOD}+ {content}{GOOD:#}")),
            }
        }
    }
    text.push('\n');
}

fn pretty(object: Option<&Object>) -> String {
    let text = object.and_then(|object| serde_json::to_string_pretty(object.value()).ok());
    text.unwrap_or_default() + "\n"
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing into a String does not fail.
    let _ = writeln!(text, "{content}");
}

/// The report for scripts. Its JSON form is part of the program's interface: fields are only added.
pub(crate) fn for_scripts(report: &Report<'_>) -> Value {
    let Report {
        outcome, unmatched, ..
    } = report;
    let mut report = json!({
        "uid": outcome.uid.as_str(),
        "allowed": outcome.is_allowed(),
        "changed": outcome.is_changed(),
        "unmatchedChains": unmatched,
        "stages": outcome.trace.iter().map(stage).collect::<Vec<_>>(),
        "warnings": outcome.warnings,
        "auditAnnotations": outcome.audit_annotations.iter().map(|note| {
            json!({"stage": &*note.stage, "key": note.key, "value": note.value})
        }).collect::<Vec<_>>(),
        "patch": outcome.patch,
        "object": outcome.object.as_ref().map(Object::value),
    });
    if let (Decision::Refused(refusal), Some(report)) = (&outcome.decision, report.as_object_mut()) {
        report.insert("refusal".into(), refused(refusal));
    }
    report
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
