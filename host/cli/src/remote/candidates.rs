//! `admittance candidates`: what came of the versions on trial.

use std::fmt::Write as _;

use admittance::{AnswerSample, CandidateReport, CandidateStatus, DifferenceSample};
use admittance_admin::api::CandidateList;
use anstyle::Style;
use clap::Args;

use super::{client::Client, connection::Connection};
use crate::{
    human,
    output::{BAD, BOLD, DIM, Form, GOOD, ODD, harmless},
    table::{Cell, Table},
};

/// Show the candidates: how often each answered as the plugin beside it, and where it did not.
#[derive(Debug, Args)]
pub(crate) struct CandidatesArguments {
    /// How to print them.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(arguments: &CandidatesArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    let list: CandidateList = crate::block_on(client.get(&["candidates"], &[]))??;
    arguments.output.print(&list, for_people)
}

fn for_people(list: &CandidateList) -> String {
    if list.candidates.is_empty() {
        return "there is no candidate; write `candidate:` beside `plugin:` of a stage to try a version\n"
            .to_owned();
    }
    let rows: Vec<_> = list
        .candidates
        .iter()
        .map(|report| (report.stage.clone(), report.candidate.clone()))
        .collect();
    let mut text = table(&rows);
    for report in &list.candidates {
        samples(&mut text, report);
    }
    text
}

/// A row for each, with its stage.
pub(super) fn table(candidates: &[(String, CandidateStatus)]) -> String {
    let mut table = Table::new([
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
    let red = |number: u64, style: Style| {
        Cell::number(number).styled(if number > 0 { style } else { Style::new() })
    };
    for (stage, candidate) in candidates {
        table.row([
            Cell::text(stage),
            Cell::text(&candidate.plugin.name),
            Cell::text(&candidate.plugin.version),
            Cell::text(human::short_digest(&candidate.plugin.digest)),
            Cell::text(&candidate.share),
            Cell::number(candidate.same),
            red(candidate.different, ODD),
            red(candidate.failed, BAD),
            Cell::number(candidate.passed_over),
        ]);
    }
    table.text()
}

fn samples(text: &mut String, report: &CandidateReport) {
    for DifferenceSample {
        at,
        uid,
        operation,
        kind,
        namespace,
        name,
        plugin,
        candidate,
    } in &report.samples
    {
        let object = match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        };
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "\n{BOLD}{}{BOLD:#}  {} {DIM}uid {} at {}{DIM:#}",
            harmless(&report.stage),
            harmless(&format!("{operation} of {kind} {object}")),
            harmless(uid),
            human::clock(*at),
        );
        answer(text, "plugin", plugin);
        answer(text, "candidate", candidate);
    }
}

fn answer(text: &mut String, who: &str, answer: &AnswerSample) {
    let style = match answer.verdict.as_str() {
        "allow" | "patch" => GOOD,
        _ => BAD,
    };
    let message = answer.message.iter();
    let message: String = message
        .map(|message| format!("  {}", harmless(message)))
        .collect();
    let _ = writeln!(
        text,
        "  {who:9}  {style}{}{style:#}{message}",
        harmless(&answer.verdict)
    );
    let patch = answer.patch.iter().map(|patch| ("patch", patch));
    let warnings = answer.warnings.iter().map(|warning| ("warning", warning));
    let notes = answer.audit_annotations.iter().map(|note| ("audit", note));
    for (what, line) in patch.chain(warnings).chain(notes) {
        let _ = writeln!(text, "  {:9}  {DIM}{what}:{DIM:#} {}", "", harmless(line));
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use admittance::{Moment, PluginStatus};

    use super::*;
    use crate::table::plain;

    #[test]
    fn differences_are_told_with_both_answers() {
        let moment = Moment(SystemTime::UNIX_EPOCH);
        let plugin = PluginStatus {
            name: "images".to_owned(),
            version: "2.0.0".to_owned(),
            source: String::new(),
            digest: "sha256:00".to_owned(),
            signature: String::new(),
            configured_per_call: None,
            cluster: Vec::new(),
            from_store: false,
        };
        let list = CandidateList {
            candidates: vec![CandidateReport {
                stage: "Mutating:pods/images".to_owned(),
                plugin: plugin.clone(),
                candidate: CandidateStatus {
                    plugin,
                    share: "100%".to_owned(),
                    since: moment,
                    same: 0,
                    different: 1,
                    failed: 0,
                    passed_over: 0,
                },
                samples: vec![DifferenceSample {
                    at: moment,
                    uid: "u-1".to_owned(),
                    operation: "CREATE".to_owned(),
                    kind: "v1/Pod".to_owned(),
                    namespace: Some("default".to_owned()),
                    name: "web".to_owned(),
                    plugin: AnswerSample {
                        verdict: "patch".to_owned(),
                        message: None,
                        patch: Some("[]".to_owned()),
                        warnings: vec!["old".to_owned()],
                        audit_annotations: Vec::new(),
                    },
                    candidate: AnswerSample {
                        verdict: "deny".to_owned(),
                        message: Some("no\nwhere".to_owned()),
                        patch: None,
                        warnings: Vec::new(),
                        audit_annotations: vec!["a=b".to_owned()],
                    },
                }],
            }],
        };
        let text = plain(&for_people(&list));
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
        let none = CandidateList {
            candidates: Vec::new(),
        };
        assert!(for_people(&none).contains("candidate:"));
    }
}
