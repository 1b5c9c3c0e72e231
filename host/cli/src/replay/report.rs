//! The report of differences, for a terminal and for scripts.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::{
    answer::{Answer, Part},
    recorded::Recorded,
};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, ODD, harmless, harmless_lines},
};

/// The result of a replay. Its JSON form is part of the program's interface: fields are only added.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) requests: u64,
    pub(super) same: u64,
    pub(super) different: u64,
    /// The number of requests with redacted values.
    pub(super) redacted: u64,
    pub(super) differences: Vec<Differing>,
}

/// A request with a different answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Differing {
    number: u64,
    uid: String,
    operation: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    different: Vec<Part>,
    before: Answer,
    after: Answer,
    /// As it was sent.
    #[serde(skip)]
    object: Option<Value>,
}

impl Differing {
    pub(super) fn new(recorded: &Recorded, different: Vec<Part>, before: Answer, after: Answer) -> Self {
        let request = &recorded.request;
        Self {
            number: recorded.number,
            uid: request.uid.as_str().to_owned(),
            operation: request.operation.as_str().to_owned(),
            kind: request.kind.to_string(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            different,
            before,
            after,
            object: request.object.as_ref().map(|object| object.value().clone()),
        }
    }
}

/// With ANSI colours.
pub(super) fn for_people(report: &Report) -> String {
    let mut text = String::new();
    for differing in &report.differences {
        request(&mut text, differing);
    }
    if report.redacted > 0 {
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "{ODD}note:{ODD:#} values were left out of {} when they were recorded; hooks saw `[redacted]` \
             in their place, and may have answered differently because of it",
            human::count(report.redacted, "request", "requests")
        );
    }
    let style = if report.different == 0 { GOOD } else { BAD };
    let _ = writeln!(
        text,
        "{}: {} the same, {style}{} different{style:#}",
        human::count(report.requests, "request", "requests"),
        report.same,
        report.different
    );
    text
}

fn request(text: &mut String, differing: &Differing) {
    let object = match &differing.namespace {
        Some(namespace) => format!("{namespace}/{}", differing.name),
        None => differing.name.clone(),
    };
    let _ = writeln!(
        text,
        "{BOLD}request {}{BOLD:#}  {} of {} {}  {DIM}uid {}{DIM:#}",
        differing.number,
        differing.operation,
        harmless(&differing.kind),
        harmless(&object),
        harmless(&differing.uid)
    );
    let (before, after) = (&differing.before, &differing.after);
    for part in &differing.different {
        match part {
            Part::Verdict => pair(text, "verdict", &before.verdict(), &after.verdict()),
            Part::Message => {
                let message = |answer: &Answer| answer.message.clone().unwrap_or_default();
                pair(text, "message", &message(before), &message(after));
            }
            Part::Warnings => pair(
                text,
                "warnings",
                &before.warnings.join("; "),
                &after.warnings.join("; "),
            ),
            Part::Patch => objects(text, differing),
        }
    }
    text.push('\n');
}

fn pair(text: &mut String, name: &str, before: &str, after: &str) {
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            harmless(text)
        }
    };
    let _ = writeln!(text, "  {name:8}  {BAD}- {}{BAD:#}", or_dash(before));
    let _ = writeln!(text, "  {:8}  {GOOD}+ {}{GOOD:#}", "", or_dash(after));
}

/// The difference of the resulting objects, line by line.
fn objects(text: &mut String, differing: &Differing) {
    let pretty = |answer: &Answer| {
        let object = answer.object.as_ref().or(differing.object.as_ref());
        let object = object.and_then(|object| serde_json::to_string_pretty(object).ok());
        harmless_lines(&(object.unwrap_or_default() + "\n"))
    };
    let (before, after) = (pretty(&differing.before), pretty(&differing.after));
    let diff = TextDiff::from_lines(&before, &after);
    let mut name = "object";
    for group in diff.grouped_ops(2) {
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let content = change.value().trim_end_matches('\n');
            let _ = match change.tag() {
                ChangeTag::Equal => writeln!(text, "  {name:8}    {content}"),
                ChangeTag::Delete => writeln!(text, "  {name:8}  {BAD}- {content}{BAD:#}"),
                ChangeTag::Insert => writeln!(text, "  {name:8}  {GOOD}+ {content}{GOOD:#}"),
            };
            name = "";
        }
    }
}
