//! `admittance check`: validates documents.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use admittance::{Error, Host, definitions};
use admittance_driver::{Config, DefinitionPlace};
use clap::Args;
use serde_json::json;

use crate::{
    modules,
    output::{BAD, GOOD, ODD, Output},
    progress,
};

/// Check chain definitions: every mistake of every file, with its line, its field and the fix.
///
/// Valid but probably unintended settings are reported as warnings, which do not change the exit code.
///
/// Plugins are loaded and given their settings, so that a wrong setting or a missing module is found
/// too. Nothing is read from ZooKeeper or a cluster: definitions that are kept there are reported as
/// unchecked. Exits with 1 when something is wrong.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Files with chains or BCS admissionwebhooks, or directories, of which *.yaml, *.yml and *.json are
    /// read.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A configuration of `serve`: it is checked too, with the definitions that it names. Its settings of
    /// modules and signatures apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check only the documents; load no plugins.
    #[arg(long)]
    documents_only: bool,
    /// Where modules and their compiled forms are kept [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// How to print what was found.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    if arguments.files.is_empty() && arguments.config.is_none() {
        return Err(
            "there is nothing to check; give files or directories of definitions (`admittance check chains/`), or \
             the configuration of a driver (`admittance check --config admittance.yaml`)"
                .into(),
        );
    }
    let (mut unchecked, mut warnings) = (Vec::new(), Vec::new());
    let found = match documents(arguments) {
        Ok((chains, config)) => {
            warnings.extend(config.iter().flat_map(Config::warnings));
            let of_chains = chains.iter().flat_map(definitions::ChainDefinition::warnings);
            warnings.extend(of_chains.map(|warning| warning.to_string()));
            let places = config.iter().flat_map(|config| &config.definitions);
            unchecked.extend(places.filter_map(unread_store));
            if arguments.documents_only {
                Ok(chains)
            } else {
                load(arguments, config.as_ref(), chains.clone())?.map(|()| chains)
            }
        }
        Err(mistakes) => Err(Wrong::Documents(mistakes)),
    };
    match arguments.output {
        Output::Text => print(&found, &unchecked, &warnings),
        Output::Json => anstream::println!("{:#}", report(&found, &unchecked, &warnings)),
    }
    Ok(if found.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What was found to be wrong.
enum Wrong {
    Documents(definitions::Mistakes),
    Stages(Vec<admittance::StageError>),
}

/// Definition stores that are not read by this command.
fn unread_store(place: &DefinitionPlace) -> Option<String> {
    match place {
        DefinitionPlace::File(_) => None,
        DefinitionPlace::ZooKeeper { path } => Some(format!("zookeeper:{path}")),
        DefinitionPlace::CustomResources { namespace } => Some(format!("customresources:{namespace}")),
    }
}

/// The chains of every document, and the configuration. Finding none is a mistake.
fn documents(
    arguments: &Arguments,
) -> Result<(Vec<definitions::ChainDefinition>, Option<Config>), definitions::Mistakes> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let mut paths = arguments.files.clone();
    paths.extend(
        config
            .iter()
            .flat_map(Config::definition_files)
            .map(Path::to_owned),
    );
    let chains = definitions::load(&paths)?;
    if chains.is_empty() && config.is_none() {
        let mut mistakes = definitions::Mistakes::new();
        for path in &paths {
            mistakes.push(definitions::Mistake {
                location: definitions::Location::of_file(path.display().to_string()),
                path: String::new(),
                message: "no definition was found".to_owned(),
                fix: "name a file, or a directory with *.yaml, *.yml or *.json in it".to_owned(),
            });
        }
        return mistakes.into_result((chains, config));
    }
    Ok((chains, config))
}

/// Loads the plugins of the chains, as a host would.
fn load(
    arguments: &Arguments,
    config: Option<&Config>,
    chains: Vec<definitions::ChainDefinition>,
) -> crate::Result<Result<(), Wrong>> {
    let builder = Host::builder().on_progress(progress::show());
    let mut builder = modules::configured(builder, config, arguments.store.clone());
    for chain in chains {
        builder = builder.definition(chain);
    }
    match crate::block_on(builder.build())? {
        Ok(_) => Ok(Ok(())),
        Err(Error::Stages(errors)) => Ok(Err(Wrong::Stages(errors))),
        Err(error) => Err(error.into()),
    }
}

fn print(
    found: &Result<Vec<definitions::ChainDefinition>, Wrong>,
    unchecked: &[String],
    warnings: &[String],
) {
    let count = match found {
        Ok(chains) => {
            for chain in chains {
                let stages: Vec<_> = chain.stages.iter().map(|stage| &*stage.spec.name).collect();
                anstream::println!("{GOOD}ok{GOOD:#}  {}  {}", chain.name, stages.join(" -> "));
            }
            for warning in warnings {
                anstream::println!("{ODD}warning:{ODD:#} {warning}");
            }
            for place in unchecked {
                anstream::println!(
                    "not checked: the definitions in {place}; `serve` checks them when it \
                starts"
                );
            }
            return;
        }
        Err(Wrong::Documents(mistakes)) => {
            for mistake in mistakes.iter() {
                anstream::println!("{mistake}");
            }
            mistakes.iter().count()
        }
        Err(Wrong::Stages(errors)) => {
            for error in errors {
                anstream::println!("{error}");
            }
            errors.len()
        }
    };
    let noun = if count == 1 { "mistake" } else { "mistakes" };
    anstream::println!("{BAD}{count} {noun}{BAD:#}");
}

fn report(
    found: &Result<Vec<definitions::ChainDefinition>, Wrong>,
    unchecked: &[String],
    warnings: &[String],
) -> serde_json::Value {
    match found {
        Ok(chains) => json!({
            "ok": true,
            "chains": chains.iter().map(|chain| json!({
                "name": chain.name,
                "stages": chain.stages.iter().map(|stage| &*stage.spec.name).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "warnings": warnings,
            "unchecked": unchecked,
        }),
        Err(Wrong::Documents(mistakes)) => {
            json!({"ok": false, "mistakes": mistakes.iter().collect::<Vec<_>>()})
        }
        Err(Wrong::Stages(errors)) => json!({
            "ok": false,
            "mistakes": errors.iter().map(|error| json!({
                "file": error.location.file,
                "line": error.location.line,
                "column": error.location.column,
                "chain": &*error.chain,
                "stage": &*error.stage,
                "message": error.cause.to_string(),
            })).collect::<Vec<_>>(),
        }),
    }
}
