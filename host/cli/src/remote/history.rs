//! `admittance history` and `diff`: shows previous revisions, and their differences.

use std::fmt::Write as _;

use admittance::{Comparison, ModuleChange, Moment};
use admittance_admin::api::{ListedRevision, RevisionList};
use clap::Args;

use super::{Query, completion, status::made_by};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, sanitize_line, sanitize_lines},
    table::{TableCell, TextTable},
};

/// List previous revisions, the newest first, and which definitions and plugins each revision added, changed and
/// removed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance history --output json")]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    query: Query,
}

impl HistoryArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let text = |list: &RevisionList| revisions_table(list, Moment::now());
        self.query.get_and_print(&["history"], &[], text).map(drop)
    }
}

/// Show how two revisions differ, in the texts of definitions and in modules.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance diff 41 42")]
pub(crate) struct DiffArguments {
    /// The number of the older revision.
    #[arg(value_name = "REVISION", add = completion::revisions())]
    from: u64,
    /// The number of the newer revision.
    #[arg(value_name = "REVISION", add = completion::revisions())]
    to: u64,
    #[command(flatten)]
    query: Query,
}

impl DiffArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let parameters = [("from", self.from.to_string()), ("to", self.to.to_string())];
        let text = |comparison: &Comparison| match differences_text(comparison) {
            text if text.is_empty() => "there are no differences\n".to_owned(),
            text => text,
        };
        self.query.get_and_print(&["diff"], &parameters, text).map(drop)
    }
}

fn revisions_table(list: &RevisionList, now: Moment) -> String {
    let mut table = TextTable::new(["REVISION", "WHEN", "AGE", "BY", "CHAINS", "PLUGINS", "CHANGED"]);
    for ListedRevision {
        revision,
        changed: names,
    } in &list.revisions
    {
        table.push_row([
            TableCell::number(revision.number),
            TableCell::text(human::timestamp(revision.at)),
            TableCell::number(human::age(revision.at, now)),
            TableCell::text(made_by(&revision.origin, revision.by.as_deref())),
            TableCell::number(revision.chains),
            TableCell::number(revision.modules.len()),
            TableCell::text(abbreviated_names(names)),
        ]);
    }
    table.text()
}

const MAX_NAME_COUNT: usize = 5;

fn abbreviated_names(names: &[String]) -> String {
    let (first, rest) = names.split_at(names.len().min(MAX_NAME_COUNT));
    let rest = (!rest.is_empty()).then(|| format!("{} more", rest.len()));
    first.iter().cloned().chain(rest).collect::<Vec<_>>().join(", ")
}

fn stage_label(stage: &str, is_candidate: bool) -> String {
    if is_candidate {
        format!("{stage} (candidate)")
    } else {
        stage.to_owned()
    }
}

/// Describes how two revisions differ. Returns empty text if they do not.
pub(super) fn differences_text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for line in sanitize_lines(&comparison.text).lines() {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => BOLD,
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', ..] => DIM,
            _ => anstyle::Style::new(),
        };
        let _ = writeln!(text, "{style}{line}{style:#}");
    }
    if !comparison.modules.is_empty() && !text.is_empty() {
        text.push('\n');
    }
    for change in &comparison.modules {
        write_module_change(&mut text, change);
    }
    text
}

fn write_module_change(text: &mut String, change: &ModuleChange) {
    let _ = writeln!(
        text,
        "{BOLD}{}{BOLD:#}",
        sanitize_line(&stage_label(&change.stage, change.candidate))
    );
    for (sign, style, module) in [('-', BAD, &change.from), ('+', GOOD, &change.to)] {
        if let Some(module) = module {
            let line = format!(
                "{} {}  {}  {}",
                module.plugin, module.version, module.digest, module.source
            );
            let _ = writeln!(text, "{style}{sign} {}{style:#}", sanitize_line(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    fn listed_revision(number: u64, changed: &[&str]) -> ListedRevision {
        let revision = json!({
            "number": number,
            "at": Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(number * 60)),
            "origin": { "type": "applied" },
            "by": "loopback",
            "chains": 1,
            "modules": [],
            "changed": changed,
        });
        serde_json::from_value(revision).unwrap()
    }

    #[test]
    fn added_changed_and_removed_definitions_are_listed() {
        let list = RevisionList {
            revisions: vec![
                listed_revision(3, &["1", "2", "3", "4", "5", "6", "7"]),
                listed_revision(2, &["added AdmissionChain/a", "removed AdmissionChain/b"]),
                listed_revision(1, &[]),
            ],
        };
        let now = Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(200));
        assert_eq!(
            strip_styles(&revisions_table(&list, now)),
            "\
REVISION  WHEN                    AGE  BY                CHAINS  PLUGINS  CHANGED
       3  1970-01-01T00:03:00Z    20s  apply (loopback)       1        0  1, 2, 3, 4, 5, 2 more
       2  1970-01-01T00:02:00Z  1m20s  apply (loopback)       1        0  added AdmissionChain/a, removed AdmissionChain/b
       1  1970-01-01T00:01:00Z  2m20s  apply (loopback)       1        0  -
"
        );
    }

    #[test]
    fn the_difference_between_two_revisions_shows_texts_and_modules() {
        let change = json!({
            "stage": "Mutating:pods/images",
            "candidate": true,
            "from": {
                "stage": "Mutating:pods/images",
                "candidate": true,
                "source": "file:images.wasm",
                "digest": "sha256:aa",
                "plugin": "images",
                "version": "1.0.0",
            },
        });
        let comparison = json!({
            "from": 1,
            "to": 2,
            "text": "--- a.yaml\n+++ a.yaml\n@@ -1 +1 @@\n-old\n+new\u{1b}\n same\n",
            "modules": [change],
        });
        let mut comparison: Comparison = serde_json::from_value(comparison).unwrap();
        let text = differences_text(&comparison);
        assert!(text.contains(&format!("{GOOD}+new {GOOD:#}")));
        assert_eq!(
            strip_styles(&text),
            "--- a.yaml\n+++ a.yaml\n@@ -1 +1 @@\n-old\n+new \n same\n\n\
             Mutating:pods/images (candidate)\n- images 1.0.0  sha256:aa  file:images.wasm\n"
        );
        comparison.text.clear();
        comparison.modules.clear();
        assert_eq!(differences_text(&comparison), "");
    }
}
