//! `admittance candidates`: shows how candidates compare with the plugins of their stages.

use std::fmt::Write as _;

use admittance::{AnswerSample, CandidateStatus, DifferenceSample};
use admittance_admin::api::CandidateList;
use clap::Args;

use super::Query;
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, sanitize_line},
    table::{TableCell, TextTable},
};

/// Show how often each candidate agreed with the plugin of its stage, and on which requests it did not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance candidates")]
pub(crate) struct CandidatesArguments {
    #[command(flatten)]
    query: Query,
}

impl CandidatesArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        self.query
            .get_and_print(&["candidates"], &[], candidates_text)
            .map(drop)
    }
}

fn candidates_text(list: &CandidateList) -> String {
    if list.candidates.is_empty() {
        return "there are no candidates; write `candidate:` next to `plugin:` of a stage to try a version\n"
            .to_owned();
    }
    let candidates = list.candidates.iter();
    let mut text = candidates_table(candidates.map(|report| (report.stage.as_str(), &report.candidate)));
    for report in &list.candidates {
        for sample in &report.samples {
            write_difference(&mut text, &report.stage, sample);
        }
    }
    text
}

pub(super) fn candidates_table<'a, S: AsRef<str>>(
    candidates: impl Iterator<Item = (S, &'a CandidateStatus)>,
) -> String {
    let mut table = TextTable::new([
        "CANDIDATE OF",
        "PLUGIN",
        "VERSION",
        "DIGEST",
        "SHARE",
        "SAME",
        "DIFFERENT",
        "FAILED",
        "PASSED OVER",
    ]);
    for (stage, candidate) in candidates {
        table.push_row([
            TableCell::text(stage),
            TableCell::text(&candidate.plugin.name),
            TableCell::text(&candidate.plugin.version),
            TableCell::text(human::short_digest(&candidate.plugin.digest)),
            TableCell::text(&candidate.share),
            TableCell::number(candidate.same),
            TableCell::count(candidate.different, WARN),
            TableCell::count(candidate.failed, BAD),
            TableCell::number(candidate.passed_over),
        ]);
    }
    table.text()
}

fn write_difference(text: &mut String, stage: &str, sample: &DifferenceSample) {
    let object = human::object_name(sample.namespace.as_deref(), &sample.name);
    let request = format!("{} of {} {object}", sample.operation, sample.kind);
    let _ = writeln!(
        text,
        "\n{BOLD}{}{BOLD:#}  {} {DIM}uid {} at {}{DIM:#}",
        sanitize_line(stage),
        sanitize_line(&request),
        sanitize_line(&sample.uid),
        human::timestamp(sample.at),
    );
    write_answer(text, "plugin", &sample.plugin);
    write_answer(text, "candidate", &sample.candidate);
}

fn write_answer(text: &mut String, who: &str, answer: &AnswerSample) {
    let style = match answer.verdict.as_str() {
        "allow" | "patch" => GOOD,
        _ => BAD,
    };
    let answer_text = answer.message.as_deref();
    let message = answer_text.map_or_else(String::new, |message| format!("  {}", sanitize_line(message)));
    let _ = writeln!(
        text,
        "  {who:9}  {style}{}{style:#}{message}",
        sanitize_line(&answer.verdict)
    );
    let left_out = match answer.operations_left_out {
        0 => String::new(),
        count => format!(" and {} more", human::count(count, "operation")),
    };
    let patch = answer
        .patch
        .iter()
        .map(|patch| ("patch", format!("{}{left_out}", **patch)));
    let warnings = answer.warnings.iter().map(|warning| ("warning", warning.clone()));
    let notes = answer.audit_annotations.iter().map(|note| ("audit", note.clone()));
    for (what, line) in patch.chain(warnings).chain(notes) {
        let _ = writeln!(text, "  {:9}  {DIM}{what}:{DIM:#} {}", "", sanitize_line(&line));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    #[test]
    fn differences_between_candidate_and_plugin_are_shown_with_both_answers() {
        let moment = "1970-01-01T00:00:00Z";
        let plugin = json!({
            "name": "images",
            "version": "2.0.0",
            "source": "",
            "digest": "sha256:00",
            "signature": "",
            "fromStore": false,
        });
        let candidate = json!({
            "plugin": plugin,
            "share": "100%",
            "since": moment,
            "same": 0,
            "different": 1,
            "failed": 0,
            "passedOver": 0,
        });
        let sample = json!({
            "at": moment,
            "uid": "u-1",
            "operation": "CREATE",
            "kind": "v1/Pod",
            "namespace": "default",
            "name": "web",
            "plugin": { "verdict": "patch", "patch": [], "warnings": ["old"] },
            "candidate": { "verdict": "deny", "message": "no\nwhere", "auditAnnotations": ["a=b"] },
        });
        let report = json!({
            "stage": "Mutating:pods/images",
            "plugin": plugin,
            "candidate": candidate,
            "samples": [sample],
        });
        let list: CandidateList = serde_json::from_value(json!({"candidates": [report]})).unwrap();
        let text = strip_styles(&super::candidates_text(&list));
        assert_eq!(
            text.split_once("\n\n").unwrap().1,
            "\
Mutating:pods/images  CREATE of v1/Pod default/web uid u-1 at 1970-01-01T00:00:00Z
  plugin     patch
             patch: []
             warning: old
  candidate  deny  no where
             audit: a=b
"
        );
        let none = CandidateList { candidates: Vec::new() };
        assert!(super::candidates_text(&none).contains("candidate:"));
    }
}
