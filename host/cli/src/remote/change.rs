//! `admittance apply`, `delete`, `promote` and `rollback`: changes the live table.

use std::{io, path::PathBuf};

use admittance::{Applied, AppliedEffect, Revision};
use admittance_admin::api::{PromoteRequest, RollbackRequest};
use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionSet, StageId};
use clap::Args;
use http::Method;

use super::{
    JSON, Query, client::Message, completion, definitions::path_of, history::differences_text, status::made_by,
};
use crate::{
    arguments::{no_definition, parse_existing_path, read_definitions, revision},
    output::{BAD, BOLD, DIM, GOOD, WARN},
    table::{TableCell, TextTable},
};

/// Make definitions live: add new ones, and replace existing ones of the same kind and name.
///
/// The driver first builds a table with the new definitions, then writes its definition files, and then makes the table
/// live. If anything is wrong, nothing changes. Relative paths in the definitions are relative to the driver's files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance apply -f chains/pods.yaml --dry-run
  admittance apply -f chains/")]
pub(crate) struct ApplyArguments {
    /// A file of definitions, a directory of *.yaml, *.yml and *.json files, or - for standard input. May be
    /// given more than once; all definitions go live together.
    #[arg(long = "file", short, value_name = "FILE|DIRECTORY", required = true, num_args = 1.., value_parser = parse_existing_path)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Delete a definition from the driver's files and from the live table.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance delete AdmissionChain/pods")]
pub(crate) struct DeleteArguments {
    /// The kind and name of the definition: AdmissionChain/pods.
    #[arg(value_name = "KIND/NAME", add = completion::definitions())]
    id: DefinitionId,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Replace the plugin of a stage with its candidate, in the driver's files and in the live table.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance promote pods/images --dry-run")]
pub(crate) struct PromoteArguments {
    /// The stage: pods/images, or Mutating:pods/images if both phases have a chain of that name.
    #[arg(value_name = "CHAIN/STAGE", add = completion::stages())]
    stage: StageId,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Make an earlier revision live, with its definitions and exactly its modules.
///
/// The driver's files are not changed: the revision stays live until the files, or the modules that they name, change
/// again. Revisions are numbered by each replica on its own, so roll back each replica separately, with its number.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance rollback 41")]
pub(crate) struct RollbackArguments {
    /// The number of the revision; `history` lists them.
    #[arg(value_parser = revision, add = completion::revisions())]
    revision: u64,
    #[command(flatten)]
    query: Query,
}

#[derive(Debug, Args)]
struct ChangeArguments {
    /// Validate the change and show its effect, without making it.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    query: Query,
}

impl ChangeArguments {
    fn send_change(
        &self,
        method: Method,
        path: &[&str],
        name: Option<String>,
        body: Option<(&'static str, String)>,
    ) -> crate::Result<()> {
        let mut parameters = vec![("dryRun", self.dry_run.to_string())];
        parameters.extend(name.map(|name| ("name", name)));
        let message = Message {
            parameters: &parameters,
            body,
        };
        self.query.send_and_print(method, path, message, applied_text).map(drop)
    }
}

impl ApplyArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let files = read_definitions(&self.files, &mut io::stdin())?;
        let (name, text) = join_files(files)?;
        let body = Some(("application/yaml", text));
        self.change
            .send_change(Method::POST, &["definitions"], Some(name), body)
    }
}

impl DeleteArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        self.change.send_change(Method::DELETE, &path_of(&self.id), None, None)
    }
}

impl PromoteArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let stage = self.stage.to_string();
        let body = serde_json::to_string(&PromoteRequest { stage })?;
        self.change
            .send_change(Method::POST, &["promote"], None, Some((JSON, body)))
    }
}

impl RollbackArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let revision = self.revision;
        let text = |revision: &Revision| {
            format!(
                "{GOOD}live{GOOD:#} as revision {}, by {}; it stays live until the definitions change\n",
                revision.number,
                made_by(&revision.origin, revision.by.as_deref())
            )
        };
        self.query
            .post_and_print(&["rollback"], &RollbackRequest { revision }, text)
    }
}

fn join_files(mut files: Vec<DefinitionFile>) -> crate::Result<(String, String)> {
    match files.as_mut_slice() {
        [] => Err(no_definition(&[]).into()),
        [file] => Ok((file.path.display().to_string(), std::mem::take(&mut file.text))),
        files => {
            // Mistakes in the files are reported here, before the files are joined into one text. A message can then
            // name the line of a file, and not a line of the joined text.
            DefinitionSet::of_files(files.to_vec()).chains()?;
            let texts: Vec<_> = files
                .iter()
                .map(|file| file.text.trim_start_matches('\u{feff}'))
                .map(|text| text.strip_suffix('\n').unwrap_or(text))
                .collect();
            Ok((format!("{} files", files.len()), texts.join("\n---\n") + "\n"))
        }
    }
}

fn applied_text(applied: &Applied) -> String {
    let mut table = TextTable::new(["DEFINITION", "EFFECT"]);
    for definition in &applied.definitions {
        let (effect, style) = match definition.effect {
            AppliedEffect::Created => ("created", GOOD),
            AppliedEffect::Changed => ("changed", GOOD),
            AppliedEffect::Unchanged => ("unchanged", DIM),
            AppliedEffect::Deleted => ("deleted", BAD),
        };
        table.push_row([
            TableCell::text(&definition.id),
            TableCell::text(effect).with_style(style),
        ]);
    }
    let mut text = table.text();
    let differences = differences_text(&applied.comparison);
    if !differences.is_empty() {
        text += &format!("\n{differences}");
    }
    for warning in &applied.warnings {
        text += &format!("\n{WARN}warning:{WARN:#} {warning}\n");
    }
    let revision = applied.revision;
    text + &match (applied.dry_run, differences.is_empty()) {
        (true, true) => format!("\n{BOLD}dry run:{BOLD:#} nothing would change\n"),
        (true, false) => {
            format!("\n{BOLD}dry run:{BOLD:#} valid, and would be revision {revision}; nothing was changed\n")
        }
        (false, _) if applied.waits => {
            format!(
                "\n{WARN}prepared:{WARN:#} it goes live when all replicas have prepared it; see `admittance status --fleet`\n"
            )
        }
        (false, true) => format!("\n{DIM}nothing changed:{DIM:#} revision {revision}\n"),
        (false, false) => format!("\n{GOOD}live{GOOD:#} as revision {revision}\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    const CHAIN: &str = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: NAME }\n\
        spec:\n  rules: [{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }]\n  \
        stages: [{ name: a, plugin: { source: \"file:a.wasm\" } }]\n";

    #[test]
    fn definitions_in_several_files_are_sent_as_one_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.yaml"), CHAIN.replace("NAME", "a")).unwrap();
        std::fs::write(path("b.yaml"), CHAIN.replace("NAME", "b")).unwrap();
        std::fs::write(path("c.txt"), "no definition").unwrap();

        let (name, text) = join_files(read_definitions(&[path("a.yaml")], &mut io::empty()).unwrap()).unwrap();
        assert_eq!(name, path("a.yaml").display().to_string());
        assert_eq!(text, CHAIN.replace("NAME", "a"));

        let input = CHAIN.replace("NAME", "c");
        let files = read_definitions(&[folder.path().to_owned(), "-".into()], &mut input.as_bytes()).unwrap();
        let (name, text) = join_files(files).unwrap();
        assert_eq!(name, "3 files");
        let chains = admittance::definitions::load_text("all", &text).unwrap();
        let names: Vec<_> = chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);

        std::fs::write(path("b.yaml"), CHAIN.replace("rules:", "rulez:")).unwrap();
        let files = read_definitions(&[folder.path().to_owned()], &mut io::empty()).unwrap();
        let error = join_files(files).unwrap_err().to_string();
        assert!(error.contains("b.yaml") && error.contains("rulez"), "{error}");

        assert!(read_definitions(&[path("none.yaml")], &mut io::empty()).is_err());
        assert!(
            join_files(Vec::new())
                .unwrap_err()
                .to_string()
                .contains("no definition")
        );
    }

    #[test]
    fn the_effect_of_a_change_of_definitions_is_printed() {
        let applied = |dry_run: bool, text: &str| -> Applied {
            let applied = json!({
                "revision": 4,
                "dryRun": dry_run,
                "definitions": [
                    { "id": "AdmissionChain/pods", "effect": "changed" },
                    { "id": "AdmissionChain/nodes", "effect": "unchanged" },
                ],
                "comparison": { "from": 3, "to": 4, "text": text, "modules": [] },
                "warnings": ["a.yaml:1:1: chain pods: pods/ephemeralcontainers"],
            });
            serde_json::from_value(applied).unwrap()
        };
        assert_eq!(
            strip_styles(&super::applied_text(&applied(false, "-a\n+b\n"))),
            "\
DEFINITION            EFFECT
AdmissionChain/pods   changed
AdmissionChain/nodes  unchanged

-a
+b

warning: a.yaml:1:1: chain pods: pods/ephemeralcontainers

live as revision 4
"
        );
        for (dry_run, text, last) in [
            (
                true,
                "+b\n",
                "dry run: valid, and would be revision 4; nothing was changed",
            ),
            (true, "", "dry run: nothing would change"),
            (false, "", "nothing changed: revision 4"),
        ] {
            let text = strip_styles(&super::applied_text(&applied(dry_run, text)));
            assert_eq!(text.lines().last(), Some(last));
        }
    }

    #[test]
    fn invalid_arguments_of_commands_that_change_the_live_table_are_refused() {
        crate::assert_acceptance(&[
            ("apply -f Cargo.toml", true),
            ("apply -f Cargo.toml src -f - --dry-run -o json", true),
            ("apply", false),
            ("apply a.yaml", false),
            ("delete AdmissionChain/pods --dry-run", true),
            ("delete pods", false),
            ("promote pods/images", true),
            ("promote Mutating:pods/images -o yaml", true),
            ("promote pods", false),
            ("rollback 3", true),
            ("rollback -3", false),
            ("rollback", false),
        ]);
    }
}
