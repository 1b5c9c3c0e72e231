//! `admittance import`: converts policies of other systems to native chains.

mod bcs;
mod cluster;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use admittance_definitions::{DefinitionFile, DefinitionSet, Import, ImportResult, import};
use anstyle::Style;
use clap::Args;
use serde_json::{Value as Json, json};

use crate::{
    arguments::{no_definition, parse_existing_path, read_definitions},
    cluster::ClusterArguments,
    files::{self, PUBLIC_MODE},
    output::{BAD, BOLD, DIM, GOOD, Output, WARN},
    table::{TableCell, TextTable},
};

/// Write policies of other systems as native chains, and report which ones are translated exactly.
///
/// The command reads webhook configurations and policies of Kubernetes, policies of Kubewarden and Kyverno, documents
/// of Gatekeeper, SidecarSets of OpenKruise and BCS admissionwebhooks, from manifests, from a cluster, or both. A
/// policy for which there is an equivalent native chain is written as that chain. Any other policy is kept as it is,
/// because this program can evaluate it. Exits with 1 if a policy has mistakes.
///
/// The options --bcs-api and --bcs-mesos-driver convert a configuration instead of policies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance import policies/ --dry-run
  admittance import --cluster --to chains/imported.yaml
  admittance import --bcs-api bcs-api.yaml --to admittance.yaml
  kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -o yaml | admittance import - --to chains/imported.yaml")]
pub(crate) struct Arguments {
    /// Manifests to read: files, directories with *.yaml, *.yml and *.json files, or `-` for standard input. Documents
    /// that are not policies are skipped.
    #[arg(value_name = "FILE", required_unless_present_any = ["cluster", "kubeconfig", "context", "bcs_api", "bcs_mesos_driver"], value_parser = parse_existing_path)]
    files: Vec<PathBuf>,
    /// Read the policies of a cluster: the one that kubectl would use, unless --kubeconfig or --context names another.
    #[arg(long)]
    cluster: bool,
    #[command(flatten)]
    source: ClusterArguments,
    /// Convert this bcs-api.yaml to a gateway's configuration, instead of converting policies. Each key without an
    /// equivalent becomes a comment.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "cluster", "kubeconfig", "context", "output"], value_parser = parse_existing_path)]
    bcs_api: Option<PathBuf>,
    /// Convert this bcs-mesos-driver.json to a driver's configuration, instead of converting policies.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "cluster", "kubeconfig", "context", "output", "bcs_api"], value_parser = parse_existing_path)]
    bcs_mesos_driver: Option<PathBuf>,
    /// The file to write, with the definitions or the configuration.
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
    to: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Only report; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// The output format of the report.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// The file name that messages use if the output is not written to a file.
const DEFAULT_FILE_NAME: &str = "imported.yaml";

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    let to = arguments.to.as_deref().unwrap_or(Path::new(DEFAULT_FILE_NAME));
    let writes = !arguments.dry_run;
    if writes && !arguments.force && to.exists() {
        return Err(format!(
            "{} already exists; give --force to replace it, or another --to",
            to.display()
        )
        .into());
    }
    let configuration = match (&arguments.bcs_api, &arguments.bcs_mesos_driver) {
        (Some(path), _) => Some(bcs::gateway_config(path)?),
        (None, Some(path)) => Some(bcs::driver_config(path)?),
        (None, None) => None,
    };
    if let Some(text) = configuration {
        if writes {
            files::FileDraft::new(to, text.as_bytes(), PUBLIC_MODE)?.publish(arguments.force)?
        } else {
            anstream::print!("{text}")
        }
        return Ok(ExitCode::SUCCESS);
    }
    let imported = import(&read_sources(arguments)?, to)?;
    if imported.definitions.is_empty() && imported.skipped_mistakes.is_empty() {
        return Err(no_definition(&arguments.files).into());
    }
    let has_text = !imported.text.is_empty();
    if has_text {
        DefinitionSet::of_files(vec![DefinitionFile::file(to, imported.text.clone())]).chains()?;
    }
    let writes_file = writes && has_text;
    if writes_file {
        files::FileDraft::new(to, imported.text.as_bytes(), PUBLIC_MODE)?.publish(arguments.force)?;
    }
    let report = report_json(&imported, writes_file.then_some(to));
    arguments
        .output
        .print(&report, |_| report_text(&imported, writes_file.then_some(to)))?;
    let mut results = imported.definitions.iter().map(|definition| definition.result);
    Ok(crate::exit_code(
        !imported.definitions.is_empty() && results.all(|result| result != ImportResult::Invalid),
    ))
}

fn read_sources(arguments: &Arguments) -> crate::Result<Vec<DefinitionFile>> {
    let mut sources = read_definitions(&arguments.files, &mut io::stdin())?;
    if arguments.cluster || arguments.source.are_given() {
        sources.extend(crate::block_on(cluster::read_from_cluster(&arguments.source))??);
    }
    Ok(sources)
}

/// Returns the report as JSON. Scripts depend on its form, so fields may only be added.
fn report_json(imported: &Import, output_path: Option<&Path>) -> Json {
    json!({
        "definitions": imported.definitions,
        "skipped": imported.skipped_mistakes,
        "written": output_path,
    })
}

fn report_text(imported: &Import, output_path: Option<&Path>) -> String {
    let mut table = TextTable::new(["DEFINITION", "RESULT", "CHAIN"]);
    for definition in &imported.definitions {
        table.push_row([
            TableCell::text(definition.id.to_string()),
            TableCell::text(definition.result.as_str()).with_style(result_style(definition.result)),
            TableCell::text(definition.chain.as_deref().unwrap_or_default()),
        ]);
    }
    let mut text = table.text();
    let mut noted = Vec::new();
    for definition in &imported.definitions {
        let of_chain = (&definition.chain, &definition.notes);
        if definition.notes.is_empty() || (definition.chain.is_some() && noted.contains(&of_chain)) {
            continue;
        }
        noted.push(of_chain);
        text += &format!("\n{BOLD}{}{BOLD:#}\n", definition.id);
        for note in &definition.notes {
            text += &format!("  {note}\n");
        }
    }
    if !imported.skipped_mistakes.is_empty() {
        text += &format!("\n{DIM}passed over:{DIM:#}\n");
        for reason in &imported.skipped_mistakes {
            text += &format!("  {reason}\n");
        }
    }
    match output_path {
        Some(path) => text += &format!("\n{GOOD}written{GOOD:#} to {}\n", path.display()),
        None => text += &format!("\n{DIM}nothing was written{DIM:#}\n"),
    }
    text
}

fn result_style(result: ImportResult) -> Style {
    match result {
        ImportResult::Exact => GOOD,
        ImportResult::Differs | ImportResult::Kept => WARN,
        ImportResult::LeftOut => DIM,
        ImportResult::Invalid => BAD,
    }
}
