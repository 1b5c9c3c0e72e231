//! `admittance run`: runs hooks on requests.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use admittance::{
    HostBuilder, ModuleReference, Table,
    admission::Grants,
    definitions::{self, ChainDefinition},
    sandbox::CallMeter,
};
use admittance_definitions::document::to_json;
use admittance_driver::{Config, LogFormat};
use admittance_net::causes;
use admittance_watch::{Watch, WatchConfig};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    arguments::parse_existing_path,
    check, files, host, logging, modules,
    output::{BAD, DIM, Output},
    report::{MismatchedChain, RunReport, RunReports},
    request_file::{self, LocatedRequest, ObjectArguments},
    serve::DEFAULT_CONFIG,
    simulation::SurroundingFiles,
};

/// Run requests through a chain or a plugin, without a server.
///
/// The command prints a row per stage, the changes and the decision if there is one request, and a line for each
/// request if there are several. Exits with 0 when every request is allowed and with 1 when one is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance run chains/pods.yaml pod.yaml
  admittance run stock:sidecar-injector pod.json --settings '{\"containers\": [{\"name\": \"log\", \"image\": \"log:1\"}]}'
  admittance run chains/ request.http --output json
  admittance run chains/ --request 'PUT /v1/services/web' body.json
  admittance run stock:edge-health endpoints.yaml --allow cluster=v1/Node --cluster nodes.yaml
  admittance run scanned.wasm pod.yaml --allow http=https://scanner.example.com --http answers.yaml
  admittance run chain.yaml pod.yaml --watch
  kubectl get pods -A -o yaml | admittance run chains/ -")]
pub(crate) struct Arguments {
    #[command(flatten)]
    hooks: HookArguments,
    #[command(flatten)]
    requests: RequestArguments,
    /// Run the requests again whenever a file changes: the chain or plugin, a module of the chain, a request, a
    /// simulated object or a simulated answer. Ctrl-C ends the command.
    #[arg(long)]
    watch: bool,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "ADMITTANCE_LOG")]
    log: String,
}

/// The chain or plugin through which requests are run, and what it needs.
#[derive(Debug, Args)]
pub(crate) struct HookArguments {
    /// A chain file, a directory of them, a plugin (.wasm), or a stock plugin (stock:image-policy).
    #[arg(value_name = "CHAIN|PLUGIN", value_parser = modules::hooks)]
    pub(crate) hooks: PathBuf,
    /// The plugin's settings: JSON or YAML text, or @FILE.
    #[arg(long, value_name = "SETTINGS")]
    settings: Option<String>,
    /// Grant the plugin a capability: cluster=v1/Node, http=https://policy.example.com, images=ghcr.io or
    /// environment=NAME=VALUE. May be given more than once.
    #[arg(long, value_name = "CAPABILITY")]
    allow: Vec<Grants>,
    #[command(flatten)]
    surroundings: SurroundingFiles,
    /// A configuration of `serve`. Its dialect reads HTTP requests, and its settings for modules and signatures are
    /// used to load plugins [default: admittance.yaml here with --request, and otherwise none]. Without a
    /// configuration, HTTP requests are read with the dialect of the BCS driver.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory of modules and their compiled forms [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RequestArguments {
    /// Files with AdmissionReviews or bare objects (JSON or YAML, any number of documents), or with an HTTP
    /// request and its head; directories of them; - for standard input.
    #[arg(value_name = "REQUEST", required_unless_present = "request", value_parser = parse_existing_path)]
    requests: Vec<PathBuf>,
    #[command(flatten)]
    object: ObjectArguments,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    if !arguments.watch {
        return crate::block_on(evaluate_with_hint(arguments))?;
    }
    if arguments.requests.requests.iter().any(|path| path == Path::new("-")) {
        return Err("--watch reads the requests again and again; name a file in place of standard input".into());
    }
    crate::block_on(async {
        tokio::select! {
            code = evaluate_on_changes(arguments) => code,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| ExitCode::SUCCESS)?),
        }
    })?
}

async fn evaluate_on_changes(arguments: &Arguments) -> crate::Result<ExitCode> {
    loop {
        let mut watch = Watch::new(arguments.watched_paths(), WatchConfig::default()).await;
        if let Err(error) = evaluate_with_hint(arguments).await {
            anstream::eprintln!("{BAD}error:{BAD:#} {}", causes::chain(&*error));
        }
        anstream::eprintln!("{DIM}waiting for a change (Ctrl-C ends it){DIM:#}");
        watch.changed().await;
    }
}

async fn evaluate_with_hint(arguments: &Arguments) -> crate::Result<ExitCode> {
    evaluate(arguments)
        .await
        .map_err(|error| arguments.swapped_arguments_hint().map_or(error, Into::into))
}

async fn evaluate(arguments: &Arguments) -> crate::Result<ExitCode> {
    let config = arguments.hooks.read_config(&arguments.requests)?;
    let requests = arguments.requests.read(config.as_ref())?;
    let builder = arguments
        .hooks
        .host_builder(&arguments.hooks.hooks, config.as_ref(), None)?;
    let table = builder.build().await.map_err(check::locate_settings_mistakes)?.table();
    let mut reports = Vec::new();
    for located_request in requests {
        reports.push(run_request(&table, located_request).await);
    }
    let reports = RunReports(reports);
    arguments.output.print(&reports.json(), |_| reports.text())?;
    Ok(crate::exit_code(reports.are_allowed()))
}

impl Arguments {
    fn swapped_arguments_hint(&self) -> Option<String> {
        let is_hooks = |path: &&PathBuf| {
            files::is_module(path)
                || definitions::load(std::slice::from_ref(path)).is_ok_and(|chains| !chains.is_empty())
        };
        let first = Some(&self.hooks.hooks).filter(|path| !is_hooks(path))?;
        let last = self.requests.requests.iter().find(is_hooks)?;
        let (first, last) = (first.display(), last.display());
        Some(format!(
            "{last} is a chain or a plugin, which comes before the requests: `admittance run {last} {first}`"
        ))
    }

    fn watched_paths(&self) -> Vec<PathBuf> {
        let HookArguments {
            hooks,
            settings,
            surroundings: SurroundingFiles { cluster, http },
            config,
            ..
        } = &self.hooks;
        let of_settings = settings.iter().filter_map(|text| text.strip_prefix('@'));
        let mut paths: Vec<_> = of_settings.map(PathBuf::from).collect();
        paths.push(hooks.clone());
        paths.extend(config.clone());
        let lists = [cluster, http, &self.requests.requests];
        paths.extend(lists.into_iter().flatten().cloned());
        if !files::is_module(hooks) {
            // Errors are ignored here. If the chain cannot be read, that is reported when the requests are run.
            let chains = definitions::load(std::slice::from_ref(hooks)).unwrap_or_default();
            for stage in chains.into_iter().flat_map(|chain| chain.stages) {
                for (_, plugin) in stage.plugins() {
                    if let ModuleReference::File(path) = &plugin.source {
                        paths.push(path.clone());
                    }
                }
            }
        }
        paths
    }
}

impl RequestArguments {
    pub(crate) fn read(&self, config: Option<&Config>) -> Result<Vec<LocatedRequest>, String> {
        let dialect = config.and_then(|config| config.front.dialect());
        request_file::read_requests(&self.requests, &self.object, dialect.as_deref())
    }
}

async fn run_request(table: &Table, LocatedRequest { location, request }: LocatedRequest) -> RunReport {
    let unmatched = table
        .chains()
        .filter_map(|chain| MismatchedChain::new(chain, &request))
        .collect();
    let outcome = table.admit(request.clone()).await;
    RunReport {
        location,
        request,
        outcome,
        unmatched_chains: unmatched,
    }
}

impl HookArguments {
    pub(crate) fn read_config(&self, requests: &RequestArguments) -> crate::Result<Option<Config>> {
        let default = Path::new(DEFAULT_CONFIG);
        let default = (requests.object.request.is_some() && default.exists()).then_some(default);
        Ok(self.config.as_deref().or(default).map(Config::read).transpose()?)
    }

    /// Returns a host builder with the hooks of a chain file, of a directory of chain files, or of one plugin.
    pub(crate) fn host_builder(
        &self,
        hooks: &Path,
        config: Option<&Config>,
        meter: Option<&Arc<CallMeter>>,
    ) -> crate::Result<HostBuilder> {
        let mut sandbox = host::sandbox_config(config);
        sandbox.meter = meter.cloned();
        let builder = host::host_builder(config, self.store.clone());
        let builder = self.surroundings.simulate(builder, sandbox)?;
        if files::is_module(hooks) {
            let settings = parse_settings(self.settings.as_deref())?;
            let mut allow = Grants::default();
            self.allow.iter().cloned().for_each(|grants| allow.extend(grants));
            return Ok(builder.definition(ChainDefinition::of_plugin(hooks, settings, allow)));
        }
        for (flag, is_given) in [
            ("--settings", self.settings.is_some()),
            ("--allow", !self.allow.is_empty()),
        ] {
            if is_given {
                let error = format!("{flag} is only for a plugin (.wasm); a chain file contains its own");
                return Err(error.into());
            }
        }
        Ok(builder.definitions(hooks))
    }
}

fn parse_settings(text: Option<&str>) -> crate::Result<Value> {
    let Some(text) = text else {
        return Ok(json!({}));
    };
    let settings = match text.strip_prefix('@') {
        None => to_json("--settings", text)?,
        Some(path) => to_json(path, &files::read(Path::new(path))?)?,
    };
    match settings {
        Value::String(path) if Path::new(&path).is_file() => {
            Err(format!("--settings: `{path}` is a text; write @{path} to read the file").into())
        }
        settings => Ok(settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_settings_are_given_as_text_or_as_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.yaml");
        std::fs::write(&file, "label: team").unwrap();
        let file = file.to_str().unwrap();
        let read_settings = |text: &str| parse_settings(Some(text)).map_err(|error| error.to_string());
        let expected = Ok(json!({"label": "team"}));
        assert_eq!(parse_settings(None).unwrap(), json!({}));
        for text in ["{label: team}", r#"{"label": "team"}"#, &format!("@{file}")] {
            assert_eq!(read_settings(text), expected, "{text}");
        }
        let forgotten = read_settings(file).unwrap_err();
        assert!(forgotten.contains(&format!("write @{file}")), "{forgotten}");
        assert_eq!(read_settings("team"), Ok(json!("team")));
    }
}
