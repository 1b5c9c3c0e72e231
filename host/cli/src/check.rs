//! `admittance check`: validates documents.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use admittance::{
    Error, HostBuilder, Moment, StageError, StageErrorCause,
    admission::Exception,
    definitions::{ChainDefinition, Definitions, ExceptionDefinition, Location, Mistake, Mistakes},
};
use admittance_definitions::{ambiguities, empty_directory_mistake, module_location, setting_location};
use admittance_driver::Config;
use clap::Args;
use serde_json::{Value, json};

use crate::{
    arguments::parse_existing_path,
    host, human,
    output::{BAD, GOOD, Output, WARN},
    serve::DEFAULT_CONFIG,
};

/// Check chain definitions, and report every mistake of every file with its line, its field and the fix.
///
/// Settings that are valid but probably unintended are reported as warnings, which do not change the exit code.
///
/// Plugins are loaded and given their settings, so that a wrong setting or a missing module is found too. Definitions
/// in ZooKeeper or a cluster are not read, and are reported as unchecked. Exits with 1 when something is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance check
  admittance check chains/
  admittance check --config admittance.yaml --output json")]
pub(crate) struct Arguments {
    /// Files with definitions, or directories, whose *.yaml, *.yml and *.json files are read.
    #[arg(value_name = "FILE", value_parser = parse_existing_path)]
    files: Vec<PathBuf>,
    /// A configuration of `serve` to check, together with the definitions that it names [default: admittance.yaml here,
    /// if no FILE is given]. Plugins are loaded with its settings for modules and signatures. If it limits what the
    /// namespaced chains of a cluster may do, namespaced chains in the files get the same limits.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// Check only the documents; load no plugins.
    #[arg(long)]
    documents_only: bool,
    /// The directory of modules and their compiled forms [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

pub(crate) fn run(mut arguments: Arguments) -> crate::Result<ExitCode> {
    if arguments.files.is_empty() && arguments.config.is_none() {
        arguments.config = Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists());
    }
    if arguments.files.is_empty() && arguments.config.is_none() {
        return Err(
            "there is nothing to check; give files or directories of definitions (`admittance check chains/`), or \
             the configuration of a driver (`admittance check --config admittance.yaml`)"
                .into(),
        );
    }
    let report = check(&arguments)?;
    arguments.output.print(&report.json(), |_| report.text())?;
    Ok(match report {
        CheckReport::Valid { .. } => ExitCode::SUCCESS,
        CheckReport::Documents { .. } | CheckReport::Stages(_) => ExitCode::FAILURE,
    })
}

pub(crate) struct CheckedConfiguration {
    pub(crate) problems: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn check_configuration(path: &Path, store: Option<PathBuf>) -> crate::Result<CheckedConfiguration> {
    let report = check(&Arguments {
        files: Vec::new(),
        config: Some(path.to_owned()),
        documents_only: false,
        store,
        output: Output::Text,
    })?;
    let problems = report.problems();
    let warnings = match report {
        CheckReport::Valid { warnings, .. } | CheckReport::Documents { warnings, .. } => warnings,
        CheckReport::Stages(_) => Vec::new(),
    };
    Ok(CheckedConfiguration { problems, warnings })
}

enum CheckReport {
    Valid {
        definitions: Definitions,
        warnings: Vec<String>,
        unchecked_stores: Vec<String>,
    },
    Documents {
        mistakes: Mistakes,
        /// Warnings about values without quotes that YAML 1.1 and YAML 1.2 read differently.
        warnings: Vec<String>,
    },
    Stages(Vec<StageMistake>),
}

struct StageMistake {
    location: Location,
    chain: Arc<str>,
    stage: Arc<str>,
    is_candidate: bool,
    message: String,
}

impl StageMistake {
    /// Returns a mistake for each setting that the plugin rejected. If the error is not about settings, returns one
    /// mistake for the whole stage.
    fn from_stage_error(error: &StageError) -> Vec<Self> {
        let stage_mistake = |location, message| Self {
            location,
            chain: error.chain.clone(),
            stage: error.stage.clone(),
            is_candidate: error.candidate,
            message,
        };
        let StageErrorCause::Plugin(admittance_sandbox::Error::Settings(mistakes)) = &error.cause else {
            let module = module_location(&error.location, error.candidate);
            return vec![stage_mistake(
                module.unwrap_or_else(|| error.location.clone()),
                error.cause.to_string(),
            )];
        };
        let problems = mistakes.iter().map(|mistake| {
            // The value of a setting may be a text of several lines, such as a Rego policy. A plugin's message about
            // such a text begins with a line number within the text, such as `line 3:`.
            let line_and_text = mistake
                .message
                .strip_prefix("line ")
                .and_then(|rest| rest.split_once(':'));
            let line = line_and_text.and_then(|(line, _)| line.parse().ok());
            let location = setting_location(&error.location, error.candidate, &mistake.pointer, line);
            let message = format!("the plugin rejected its settings: {mistake}");
            stage_mistake(location.unwrap_or_else(|| error.location.clone()), message)
        });
        problems.collect()
    }
}

impl fmt::Display for StageMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            location,
            chain,
            stage,
            is_candidate: candidate,
            message,
        } = self;
        let candidate = if *candidate { "the candidate of " } else { "" };
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(f, "{location}: {candidate}stage {stage} of chain {chain}: {message}")
    }
}

/// Adds the field to correct to each mistake in a stage. Other errors are returned unchanged.
pub(crate) fn locate_settings_mistakes(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
    match &error {
        Error::Stages(errors) if !error.is_transient() => {
            let mistakes = errors.iter().flat_map(StageMistake::from_stage_error);
            let lines: Vec<_> = mistakes.map(|mistake| mistake.to_string()).collect();
            lines.join("\n").into()
        }
        _ => error.into(),
    }
}

fn check(arguments: &Arguments) -> crate::Result<CheckReport> {
    let (definitions, config) = match read_documents(arguments) {
        Ok(documents) => documents,
        Err(mistakes) => {
            let warnings = ambiguities(&arguments.files);
            return Ok(CheckReport::Documents {
                mistakes,
                warnings: warnings.iter().map(ToString::to_string).collect(),
            });
        }
    };
    if !arguments.documents_only {
        let builder = host::host_builder(config.as_ref(), arguments.store.clone());
        // The host loads only plugins that a stage calls. Some plugins of a chain may be idle: no stage calls them. To
        // load and check these as well, each of them becomes a stage here.
        let chains_with_idle_stages = definitions.chains.iter().cloned().map(|mut chain| {
            chain.stages.append(&mut chain.idle_stages);
            chain
        });
        let builder = chains_with_idle_stages.fold(builder, HostBuilder::definition);
        match crate::block_on(builder.build())? {
            Ok(_) => {}
            Err(Error::Stages(errors)) => {
                return Ok(CheckReport::Stages(
                    errors.iter().flat_map(StageMistake::from_stage_error).collect(),
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let config_warnings = config.iter().flat_map(Config::warnings);
    let reach = config.as_ref().map(|config| config.front.reach()).unwrap_or_default();
    let chain_warnings = definitions
        .chains
        .iter()
        .flat_map(|chain| chain.warnings().into_iter().chain(chain.unreached_warnings(&reach)));
    let now = Moment::now();
    let exception_warnings = definitions.exceptions.iter().flat_map(|exception| {
        // An unknown stage is only a warning, because it may be in a store that this command does not read.
        let unknown = exception.unknown_stage_mistakes(&definitions.chains);
        exception.expiry_warning(now).into_iter().chain(unknown)
    });
    let argument_paths = arguments.files.iter().map(PathBuf::as_path);
    let paths = argument_paths.chain(config.iter().flat_map(Config::definition_files));
    let directory_warnings = paths.filter_map(empty_directory_mistake);
    let definition_warnings = directory_warnings.chain(chain_warnings).chain(exception_warnings);
    Ok(CheckReport::Valid {
        warnings: config_warnings
            .chain(definition_warnings.map(|warning| warning.to_string()))
            .collect(),
        unchecked_stores: unread_stores(config.as_ref()),
        definitions,
    })
}

fn unread_stores(config: Option<&Config>) -> Vec<String> {
    let locations = config.into_iter().flat_map(|config| &config.definitions);
    let unread = locations.filter(|location| location.path().is_none());
    unread.map(|location| location.name()).collect()
}

fn read_documents(arguments: &Arguments) -> Result<(Definitions, Option<Config>), Mistakes> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let mut paths = arguments.files.clone();
    let config_paths = config.iter().flat_map(Config::definition_files);
    paths.extend(config_paths.map(Path::to_owned));
    let definitions = Definitions::load(&paths)?;
    let mut mistakes = Mistakes::new();
    if let Some(config) = &config {
        mistakes.extend(namespaced_chain_mistakes(config, &definitions));
        let file = arguments.config.as_deref();
        mistakes.extend(file.and_then(|file| config.own_address_mistake(file)));
    }
    if unread_stores(config.as_ref()).is_empty() {
        let exceptions = definitions.exceptions.iter();
        mistakes.extend(exceptions.flat_map(|exception| exception.unknown_stage_mistakes(&definitions.chains)));
    }
    if definitions == Definitions::default() && config.is_none() {
        mistakes.extend(paths.iter().filter_map(|path| empty_directory_mistake(path)));
    }
    mistakes.into_result((definitions, config))
}

/// Returns a mistake for each feature that a namespaced chain uses although the configuration forbids it.
fn namespaced_chain_mistakes(config: &Config, definitions: &Definitions) -> Vec<Mistake> {
    let namespaced = config
        .definitions
        .iter()
        .find_map(|location| location.namespaced_chains());
    let is_from_arguments = |chain: &&ChainDefinition| {
        let mut config_paths = config.definition_files();
        !config_paths.any(|path| Path::new(&chain.location.file).starts_with(path))
    };
    let chains = definitions.chains.iter().filter(is_from_arguments);
    let mistakes = namespaced
        .into_iter()
        .flat_map(|namespaced| chains.clone().flat_map(|chain| namespaced.mistakes(chain)));
    mistakes.collect()
}

fn warning_line(warning: &String) -> String {
    format!("{WARN}warning:{WARN:#} {warning}\n")
}

impl CheckReport {
    fn problems(&self) -> Vec<String> {
        match self {
            Self::Documents { mistakes, .. } => mistakes.iter().map(ToString::to_string).collect(),
            Self::Stages(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
            Self::Valid { .. } => Vec::new(),
        }
    }

    fn text(&self) -> String {
        let lines = match self {
            Self::Documents { .. } | Self::Stages(_) => self.problems(),
            Self::Valid {
                definitions,
                warnings,
                unchecked_stores: unchecked,
            } => {
                let chains = definitions.chains.iter().map(|chain| {
                    format!(
                        "{GOOD}ok{GOOD:#}  {}  {}\n",
                        chain.name,
                        stage_names(chain).join(" -> ")
                    )
                });
                let exceptions = definitions.exceptions.iter().map(|definition| {
                    let Exception { name, until, .. } = &*definition.exception;
                    let stages = excepted_stages(definition).join(", ");
                    format!(
                        "{GOOD}ok{GOOD:#}  exception {name} until {}: {stages}\n",
                        human::timestamp(*until)
                    )
                });
                let supporting = definitions.supporting.iter();
                let unchecked_lines = unchecked.iter().map(|store| {
                    format!("not checked: the definitions in {store}; `serve` checks them when it starts\n")
                });
                return chains
                    .chain(exceptions)
                    .chain(supporting.map(|name| format!("{GOOD}ok{GOOD:#}  {name}\n")))
                    .chain(warnings.iter().map(warning_line))
                    .chain(unchecked_lines)
                    .collect();
            }
        };
        let count = human::count(lines.len(), "mistake");
        let warnings = match self {
            Self::Documents { warnings, .. } => warnings.as_slice(),
            _ => &[],
        };
        let warnings: String = warnings.iter().map(warning_line).collect();
        format!("{}\n{warnings}{BAD}{count}{BAD:#}\n", lines.join("\n"))
    }

    /// Returns the report as JSON. Scripts depend on its form, so fields may only be added.
    fn json(&self) -> Value {
        match self {
            Self::Valid {
                definitions,
                warnings,
                unchecked_stores: unchecked,
            } => {
                let chain_json = |chain: &ChainDefinition| json!({"name": chain.name, "stages": stage_names(chain)});
                let chains: Vec<_> = definitions.chains.iter().map(chain_json).collect();
                let rows = definitions.exceptions.iter().map(|definition| {
                    let Exception { name, until, .. } = &*definition.exception;
                    json!({"name": &**name, "expires": until, "stages": excepted_stages(definition)})
                });
                let exceptions: Vec<_> = rows.collect();
                json!({
                    "ok": true,
                    "chains": chains,
                    "exceptions": exceptions,
                    "supporting": definitions.supporting,
                    "warnings": warnings,
                    "unchecked": unchecked,
                })
            }
            Self::Documents { mistakes, warnings } => {
                json!({"ok": false, "mistakes": mistakes, "warnings": warnings})
            }
            Self::Stages(mistakes) => {
                let mistakes = mistakes.iter().map(|error| {
                    json!({
                        "file": error.location.file,
                        "line": error.location.line,
                        "column": error.location.column,
                        "chain": &*error.chain,
                        "stage": &*error.stage,
                        "message": error.message,
                    })
                });
                json!({"ok": false, "mistakes": mistakes.collect::<Vec<_>>()})
            }
        }
    }
}

fn excepted_stages(definition: &ExceptionDefinition) -> Vec<String> {
    definition.stages.iter().map(ToString::to_string).collect()
}

fn stage_names(chain: &ChainDefinition) -> Vec<&str> {
    chain.stages.iter().map(|stage| &*stage.spec.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_files_that_do_not_fit_together_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let config = "definitions: [chains]\nupstream: { servers: [\"http://127.0.0.1:8081\"] }\ndialect: { rest: { routes: \
                      [{ method: [PUT], path: '/s/{id}', operation: UPDATE, resource: services, kind: Service }] } }\n";
        let chain = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\nspec:\n  rules: \
                     [{ operations: [UPDATE], resources: [services], kinds: [Service] }]\n  stages: [{ name: s, plugin: \
                     { source: 'file:s.wasm' } }]\n";
        // (configuration, chain's file name, chain's text, whether configuration and chain are valid, expected message)
        for (config, name, chain, is_valid, expected) in [
            (config.to_owned(), "a.yaml", chain.to_owned(), true, None),
            (
                config.to_owned(),
                "a.ymal",
                chain.to_owned(),
                true,
                Some("a.ymal is not read"),
            ),
            (
                config.to_owned(),
                "a.yaml",
                chain.replace("[Service]", "[Servce]"),
                true,
                Some("spec.rules[0].kinds[0]: chain a: `Servce` in `kinds` matches no request"),
            ),
            (
                config.replace("8081", "8080"),
                "a.yaml",
                chain.to_owned(),
                false,
                Some("a port of this program itself"),
            ),
        ] {
            std::fs::create_dir(path("chains")).unwrap();
            std::fs::write(path("admittance.yaml"), config).unwrap();
            std::fs::write(path("chains").join(name), chain).unwrap();
            let report = check(&Arguments {
                files: Vec::new(),
                config: Some(path("admittance.yaml")),
                documents_only: true,
                store: None,
                output: Output::Text,
            });
            let (was_valid, messages) = match report.unwrap() {
                CheckReport::Valid { warnings, .. } => (true, warnings),
                report => (false, report.problems()),
            };
            assert_eq!(
                (was_valid, messages.len()),
                (is_valid, expected.iter().len()),
                "{messages:?}"
            );
            let is_found = expected.is_none_or(|expected| messages.iter().any(|text| text.contains(expected)));
            assert!(is_found, "{messages:?}");
            std::fs::remove_dir_all(path("chains")).unwrap();
        }
    }
}
