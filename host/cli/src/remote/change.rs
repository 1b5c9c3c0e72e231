//! `admittance apply`, `delete`, `promote` and `rollback`: changes of what is live.

use std::{
    fmt::Write as _,
    io::{self, Read},
    path::{Path, PathBuf},
};

use admittance::{
    Applied, AppliedEffect, Revision,
    definitions::{DefinitionFile, DefinitionId, DefinitionSet, StageId, read_files},
};
use admittance_admin::api::{PromoteRequest, RollbackRequest};
use clap::Args;
use reqwest::Method;

use super::{
    client::{Client, Sent},
    connection::Connection,
    definitions::path_of,
    history::differences,
    status::made_by,
};
use crate::{
    output::{BAD, BOLD, DIM, Form, GOOD, ODD},
    table::{Cell, Table},
};

/// Go live with definitions: new ones, and ones that replace those of their kind and name.
///
/// The driver makes the whole table first, then writes its definition files, then goes live; when anything
/// is wrong, nothing changes. Relative paths in the definitions are taken from the driver's files.
#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// A file of definitions, a directory whose *.yaml, *.yml and *.json are taken, or - for standard
    /// input. May be given again; all of them go live together.
    #[arg(long = "file", short, value_name = "FILE|DIRECTORY", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

/// Remove a definition from the driver's files, and from what is live.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// Kind and name: AdmissionChain/pods.
    #[arg(value_name = "KIND/NAME")]
    id: DefinitionId,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

/// Make the candidate of a stage its plugin, in the driver's files and in what is live.
#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    /// The stage: pods/images, or Mutating:pods/images where there is a chain of that name in both phases.
    #[arg(value_name = "CHAIN/STAGE")]
    stage: StageId,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

/// Go live with an earlier revision, its definitions and its very modules.
///
/// The driver's files are not touched: the revision holds until they, or the modules that they name, change
/// again.
#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    /// Which revision; `history` lists them.
    revision: u64,
    /// How to print the new revision.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

/// How a change is made and shown.
#[derive(Debug, Args)]
struct How {
    /// Check it and show what it would change; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// How to print what became of it.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
}

impl How {
    fn query(&self) -> Vec<(&'static str, String)> {
        vec![("dryRun", self.dry_run.to_string())]
    }

    fn print(&self, applied: &Applied) -> crate::Result<()> {
        self.output.print(applied, for_people)
    }
}

pub(crate) fn run_apply(arguments: &ApplyArguments) -> crate::Result<()> {
    let (name, text) = text_of(read(&arguments.files, &mut io::stdin())?)?;
    let client = Client::new(&arguments.connection)?;
    let mut query = arguments.how.query();
    query.push(("name", name));
    let sent = Sent {
        query: &query,
        body: Some(("application/yaml", text)),
    };
    let applied = client.ask(Method::POST, &["definitions"], sent);
    arguments.how.print(&crate::block_on(applied)??)
}

pub(crate) fn run_delete(arguments: &DeleteArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    let sent = Sent {
        query: &arguments.how.query(),
        body: None,
    };
    let path = path_of(&arguments.id);
    let applied = client.ask(Method::DELETE, &path, sent);
    arguments.how.print(&crate::block_on(applied)??)
}

pub(crate) fn run_promote(arguments: &PromoteArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    let body = serde_json::to_string(&PromoteRequest {
        stage: arguments.stage.to_string(),
    })?;
    let sent = Sent {
        query: &arguments.how.query(),
        body: Some(("application/json", body)),
    };
    let applied = client.ask(Method::POST, &["promote"], sent);
    arguments.how.print(&crate::block_on(applied)??)
}

pub(crate) fn run_rollback(arguments: &RollbackArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    let body = serde_json::to_string(&RollbackRequest {
        revision: arguments.revision,
    })?;
    let sent = Sent {
        body: Some(("application/json", body)),
        ..Sent::default()
    };
    let revision = client.ask::<Revision>(Method::POST, &["rollback"], sent);
    let revision = crate::block_on(revision)??;
    arguments.output.print(&revision, |revision| {
        format!(
            "{GOOD}live{GOOD:#} as revision {}, by {}; it holds until the definitions change\n",
            revision.number,
            made_by(&revision.origin, revision.by.as_deref())
        )
    })
}

/// The texts of these files and directories; `-` is standard input.
fn read(paths: &[PathBuf], input: &mut impl Read) -> crate::Result<Vec<DefinitionFile>> {
    let (inputs, paths): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(|path| path == Path::new("-"));
    let mut files = read_files(&paths)?;
    if !inputs.is_empty() {
        let mut text = String::new();
        input
            .read_to_string(&mut text)
            .map_err(|error| format!("standard input: {error}"))?;
        files.push(DefinitionFile::file("standard input", text));
    }
    Ok(files)
}

/// One text of them all, and what it is called in mistakes.
fn text_of(mut files: Vec<DefinitionFile>) -> crate::Result<(String, String)> {
    match files.as_mut_slice() {
        [] => Err(
            "no definition was found; name a file, or a directory with *.yaml, *.yml or *.json in it".into(),
        ),
        [file] => Ok((file.path.display().to_string(), std::mem::take(&mut file.text))),
        files => {
            // The driver sees one text, in which lines are others: mistakes are told here.
            let name = format!("{} files", files.len());
            DefinitionSet::of_files(files.to_vec()).chains()?;
            let mut text = String::new();
            for file in files {
                if !text.is_empty() {
                    text += if text.ends_with('\n') { "---\n" } else { "\n---\n" };
                }
                text += file.text.trim_start_matches('\u{feff}');
            }
            Ok((name, text))
        }
    }
}

/// With ANSI colours.
fn for_people(applied: &Applied) -> String {
    let mut table = Table::new(["DEFINITION", "EFFECT"]);
    for definition in &applied.definitions {
        let (effect, style) = match definition.effect {
            AppliedEffect::Created => ("created", GOOD),
            AppliedEffect::Changed => ("changed", GOOD),
            AppliedEffect::Unchanged => ("unchanged", DIM),
            AppliedEffect::Deleted => ("deleted", BAD),
        };
        table.row([Cell::text(&definition.id), Cell::text(effect).styled(style)]);
    }
    let mut text = table.text();
    let differences = differences(&applied.comparison);
    if !differences.is_empty() {
        text.push('\n');
        text.push_str(&differences);
    }
    for warning in &applied.warnings {
        // Writing into a String does not fail.
        let _ = writeln!(text, "\n{ODD}warning:{ODD:#} {warning}");
    }
    let is_same = differences.is_empty();
    // Writing into a String does not fail.
    let _ = match (applied.dry_run, is_same) {
        (true, true) => writeln!(text, "\n{BOLD}dry run:{BOLD:#} nothing would change"),
        (true, false) => writeln!(
            text,
            "\n{BOLD}dry run:{BOLD:#} it is right, and would be revision {}; nothing was changed",
            applied.revision
        ),
        (false, true) => writeln!(
            text,
            "\n{DIM}nothing changed:{DIM:#} revision {}",
            applied.revision
        ),
        (false, false) => writeln!(text, "\n{GOOD}live{GOOD:#} as revision {}", applied.revision),
    };
    text
}

#[cfg(test)]
mod tests {
    use admittance::{AppliedDefinition, Comparison};
    use clap::Parser;

    use super::*;
    use crate::table::plain;

    const CHAIN: &str = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: NAME }\n\
        spec:\n  rules: [{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }]\n  \
        stages: [{ name: a, plugin: { source: \"file:a.wasm\" } }]\n";

    #[test]
    fn several_files_are_one_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.yaml"), CHAIN.replace("NAME", "a")).unwrap();
        std::fs::write(path("b.yaml"), CHAIN.replace("NAME", "b")).unwrap();
        std::fs::write(path("c.txt"), "no definition").unwrap();

        let (name, text) = text_of(read(&[path("a.yaml")], &mut io::empty()).unwrap()).unwrap();
        assert_eq!(name, path("a.yaml").display().to_string());
        assert_eq!(text, CHAIN.replace("NAME", "a"));

        let given = CHAIN.replace("NAME", "c");
        let files = read(&[folder.path().to_owned(), "-".into()], &mut given.as_bytes()).unwrap();
        let (name, text) = text_of(files).unwrap();
        assert_eq!(name, "3 files");
        let chains = admittance::definitions::load_text("all", &text).unwrap();
        let names: Vec<_> = chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);

        // Each mistake is told where it is, though the driver would see one text.
        std::fs::write(path("b.yaml"), CHAIN.replace("rules:", "rulez:")).unwrap();
        let files = read(&[folder.path().to_owned()], &mut io::empty()).unwrap();
        let error = text_of(files).unwrap_err().to_string();
        assert!(error.contains("b.yaml") && error.contains("rulez"), "{error}");

        assert!(read(&[path("none.yaml")], &mut io::empty()).is_err());
        assert!(
            text_of(Vec::new())
                .unwrap_err()
                .to_string()
                .contains("no definition")
        );
    }

    #[test]
    fn what_became_of_it() {
        let applied = |dry_run, text: &str| Applied {
            revision: 4,
            dry_run,
            definitions: vec![
                AppliedDefinition {
                    id: "AdmissionChain/pods".to_owned(),
                    effect: AppliedEffect::Changed,
                },
                AppliedDefinition {
                    id: "AdmissionChain/nodes".to_owned(),
                    effect: AppliedEffect::Unchanged,
                },
            ],
            comparison: Comparison {
                from: 3,
                to: 4,
                text: text.to_owned(),
                modules: Vec::new(),
            },
            warnings: vec!["a.yaml:1:1: chain pods: pods/ephemeralcontainers".to_owned()],
        };
        assert_eq!(
            plain(&for_people(&applied(false, "-a\n+b\n"))),
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
                "dry run: it is right, and would be revision 4; nothing was changed",
            ),
            (true, "", "dry run: nothing would change"),
            (false, "", "nothing changed: revision 4"),
        ] {
            let text = plain(&for_people(&applied(dry_run, text)));
            assert_eq!(text.lines().last(), Some(last));
        }
    }

    #[derive(Parser)]
    enum Commands {
        Apply(ApplyArguments),
        Delete(DeleteArguments),
        Promote(PromoteArguments),
        Rollback(RollbackArguments),
    }

    #[test]
    fn arguments_are_checked() {
        for (line, is_right) in [
            ("apply -f a.yaml", true),
            ("apply -f a.yaml b.yaml -f - --dry-run -o json", true),
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
        ] {
            let words = ["admittance"].into_iter().chain(line.split_whitespace());
            assert_eq!(Commands::try_parse_from(words).is_ok(), is_right, "{line}");
        }
    }
}
