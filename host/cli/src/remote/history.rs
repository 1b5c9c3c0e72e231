//! `admittance history` and `diff`: shows previous revisions, and their differences.

use std::fmt::Write as _;

use admittance::{Comparison, ModuleChange, Moment, Revision, RevisionModule};
use admittance_admin::api::RevisionList;
use clap::Args;

use super::{Query, completion, status::made_by};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, harmless, harmless_lines},
    table::{Cell, Table},
};

/// List previous revisions, the newest first, with the plugins that each added, changed and removed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance history --output json")]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    query: Query,
}

impl HistoryArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let text = |list: &RevisionList| revisions(list, Moment::now());
        self.query.show(&["history"], &[], text).map(drop)
    }
}

/// Show the differences between two revisions, in the texts of definitions and in modules.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance diff 41 42")]
pub(crate) struct DiffArguments {
    /// The older revision.
    #[arg(value_name = "REVISION", add = completion::revisions())]
    from: u64,
    /// The newer revision.
    #[arg(value_name = "REVISION", add = completion::revisions())]
    to: u64,
    #[command(flatten)]
    query: Query,
}

impl DiffArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let parameters = [("from", self.from.to_string()), ("to", self.to.to_string())];
        let text = |comparison: &Comparison| match differences(comparison) {
            text if text.is_empty() => "there are no differences\n".to_owned(),
            text => text,
        };
        self.query.show(&["diff"], &parameters, text).map(drop)
    }
}

fn revisions(list: &RevisionList, now: Moment) -> String {
    let mut table = Table::new(["REVISION", "WHEN", "AGE", "BY", "CHAINS", "PLUGINS", "CHANGED"]);
    let older = list.revisions.iter().skip(1).map(Some).chain([None]);
    for (revision, older) in list.revisions.iter().zip(older) {
        table.row([
            Cell::number(revision.number),
            Cell::text(human::clock(revision.at)),
            Cell::number(human::age(revision.at, now)),
            Cell::text(made_by(&revision.origin, revision.by.as_deref())),
            Cell::number(revision.chains),
            Cell::number(revision.modules.len()),
            Cell::text(older.map(|older| changed(older, revision)).unwrap_or_default()),
        ]);
    }
    table.text()
}

/// Lists the plugins that a revision added, changed and removed.
fn changed(older: &Revision, revision: &Revision) -> String {
    let find = |modules: &[RevisionModule], wanted: &RevisionModule| {
        let same_stage =
            |module: &&RevisionModule| (&module.stage, module.candidate) == (&wanted.stage, wanted.candidate);
        modules
            .iter()
            .find(same_stage)
            .map(|module| module.digest.clone())
    };
    let mut changes = Vec::new();
    for module in &revision.modules {
        let added = match find(&older.modules, module) {
            Some(digest) if digest == module.digest => continue,
            Some(_) => "",
            None => "added ",
        };
        let RevisionModule { plugin, version, .. } = module;
        let digest = human::short_digest(&module.digest);
        let stage = name(&module.stage, module.candidate);
        changes.push(format!("{added}{stage}: {plugin} {version} ({digest})"));
    }
    let removed = older
        .modules
        .iter()
        .filter(|module| find(&revision.modules, module).is_none());
    changes.extend(removed.map(|module| format!("removed {}", name(&module.stage, module.candidate))));
    changes.join(", ")
}

fn name(stage: &str, is_candidate: bool) -> String {
    if is_candidate {
        format!("{stage} (candidate)")
    } else {
        stage.to_owned()
    }
}

/// Writes the differences between two revisions; empty if there are none.
pub(super) fn differences(comparison: &Comparison) -> String {
    let mut text = String::new();
    for line in harmless_lines(&comparison.text).lines() {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => BOLD,
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', ..] => DIM,
            _ => anstyle::Style::new(),
        };
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "{style}{line}{style:#}");
    }
    if !comparison.modules.is_empty() && !text.is_empty() {
        text.push('\n');
    }
    for change in &comparison.modules {
        module(&mut text, change);
    }
    text
}

fn module(text: &mut String, change: &ModuleChange) {
    let _ = writeln!(
        text,
        "{BOLD}{}{BOLD:#}",
        harmless(&name(&change.stage, change.candidate))
    );
    for (sign, style, module) in [('-', BAD, &change.from), ('+', GOOD, &change.to)] {
        if let Some(module) = module {
            let line = format!(
                "{} {}  {}  {}",
                module.plugin, module.version, module.digest, module.source
            );
            let _ = writeln!(text, "{style}{sign} {}{style:#}", harmless(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::table::plain;

    fn module(digest: &str, is_candidate: bool) -> RevisionModule {
        let module = json!({
            "stage": "Mutating:pods/images",
            "candidate": is_candidate,
            "source": "file:images.wasm",
            "digest": digest,
            "plugin": "images",
            "version": "1.0.0",
        });
        serde_json::from_value(module).unwrap()
    }

    fn revision(number: u64, modules: Vec<RevisionModule>) -> Revision {
        let revision = json!({
            "number": number,
            "at": Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(number * 60)),
            "origin": { "type": "applied" },
            "by": "loopback",
            "chains": 1,
            "modules": modules,
        });
        serde_json::from_value(revision).unwrap()
    }

    #[test]
    fn added_changed_and_removed_plugins_are_listed() {
        let list = RevisionList {
            revisions: vec![
                revision(4, vec![module("sha256:bb", false)]),
                revision(3, vec![module("sha256:bb", false), module("sha256:cc", true)]),
                revision(2, vec![module("sha256:aa", false)]),
                revision(1, vec![module("sha256:aa", false)]),
            ],
        };
        let now = Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(260));
        assert_eq!(
            plain(&revisions(&list, now)),
            "\
REVISION  WHEN                    AGE  BY                CHAINS  PLUGINS  CHANGED
       4  1970-01-01T00:04:00Z    20s  apply (loopback)       1        1  removed Mutating:pods/images (candidate)
       3  1970-01-01T00:03:00Z  1m20s  apply (loopback)       1        2  Mutating:pods/images: images 1.0.0 (bb), added Mutating:pods/images (candidate): images 1.0.0 (cc)
       2  1970-01-01T00:02:00Z  2m20s  apply (loopback)       1        1  -
       1  1970-01-01T00:01:00Z  3m20s  apply (loopback)       1        1  -
"
        );
    }

    #[test]
    fn a_difference_shows_texts_and_modules() {
        let change = json!({
            "stage": "Mutating:pods/images",
            "candidate": true,
            "from": module("sha256:aa", true),
        });
        let comparison = json!({
            "from": 1,
            "to": 2,
            "text": "--- a.yaml\n+++ a.yaml\n@@ -1 +1 @@\n-old\n+new\u{1b}\n same\n",
            "modules": [change],
        });
        let mut comparison: Comparison = serde_json::from_value(comparison).unwrap();
        let text = differences(&comparison);
        assert!(text.contains(&format!("{GOOD}+new {GOOD:#}")));
        assert_eq!(
            plain(&text),
            "--- a.yaml\n+++ a.yaml\n@@ -1 +1 @@\n-old\n+new \n same\n\n\
             Mutating:pods/images (candidate)\n- images 1.0.0  sha256:aa  file:images.wasm\n"
        );
        comparison.text.clear();
        comparison.modules.clear();
        assert_eq!(differences(&comparison), "");
    }
}
