//! `admittance run`: runs hooks on a request.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use admittance::{
    HostBuilder,
    admission::{Labels, StaticNamespaces},
    definitions::ChainDefinition,
};
use admittance_definitions::document::to_json;
use admittance_driver::{Config, LogFormat};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    arguments::key_value,
    files, host, logging,
    output::Output,
    report::Report,
    request_file::{self, ObjectArguments},
};

/// Run one request through a chain or a plugin, without a server.
///
/// Prints a row per stage, what changed, and the decision. Exits with 0 when the request is allowed
/// and with 1 when it is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance run chains/pods.yaml pod.yaml
  admittance run sidecar_injector.wasm pod.json --settings '{\"containers\": [{\"name\": \"log\", \"image\": \"log:1\"}]}'
  admittance run chains/ request.http --output json")]
pub(crate) struct Arguments {
    /// A chain file, a directory of them, or a plugin (.wasm).
    #[arg(value_name = "CHAIN|PLUGIN")]
    hooks: PathBuf,
    /// An AdmissionReview, a bare object (JSON or YAML), or an HTTP request with its head; - for
    /// standard input.
    request: PathBuf,
    /// The plugin's settings: JSON or YAML text, or @FILE.
    #[arg(long, value_name = "SETTINGS")]
    settings: Option<String>,
    #[command(flatten)]
    object: ObjectArguments,
    /// A label of the request's namespace, for namespace selectors. May be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    namespace_label: Vec<(String, String)>,
    /// The configuration whose dialect reads an HTTP request [default: the BCS driver's]. Its settings of
    /// modules and signatures are used too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connect to ADDRESS for the webhook host HOST. May be given more than once.
    #[arg(long, value_name = "HOST=ADDRESS", value_parser = key_value)]
    resolve: Vec<(String, String)>,
    /// Where modules and their compiled forms are kept [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show log lines of this level and above, including those of plugins.
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "ADMITTANCE_LOG")]
    log: String,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let dialect = config.as_ref().and_then(|config| config.front.dialect());
    let request = request_file::read(&arguments.request, &arguments.object, dialect.as_deref())?;
    let namespace = request.namespace.clone().unwrap_or_default();
    let labels: Labels = arguments.namespace_label.iter().cloned().collect();
    let builder = hooks(arguments, config.as_ref())?.namespaces(StaticNamespaces::new([(namespace, labels)]));
    let original = request.object.clone();
    let requested = format!(
        "{} of {}, kind {}",
        request.operation, request.resource, request.kind.kind
    );
    let (unmatched, outcome) = crate::block_on(async {
        let table = builder.build().await?.table();
        let unmatched = table.chains().filter(|chain| !chain.matches(&request));
        let unmatched = unmatched.map(|chain| chain.name.to_string()).collect();
        Ok::<_, admittance::Error>((unmatched, table.admit(request).await))
    })??;
    let report = Report {
        outcome: &outcome,
        original: original.as_ref(),
        requested,
        unmatched,
    };
    arguments.output.print(&report.json(), |_| report.text())?;
    Ok(if outcome.is_allowed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn hooks(arguments: &Arguments, config: Option<&Config>) -> crate::Result<HostBuilder> {
    let mut builder = host::builder(config, arguments.store.clone());
    for (host, address) in &arguments.resolve {
        builder = builder.resolve(host, address);
    }
    if arguments.hooks.extension() == Some(OsStr::new("wasm")) {
        let settings = settings(arguments.settings.as_deref())?;
        Ok(builder.definition(ChainDefinition::of_plugin(&arguments.hooks, settings)))
    } else if arguments.settings.is_some() {
        Err("--settings is only for a plugin (.wasm); a chain file contains its own settings".into())
    } else {
        Ok(builder.definitions(&arguments.hooks))
    }
}

fn settings(text: Option<&str>) -> crate::Result<Value> {
    let Some(text) = text else {
        return Ok(json!({}));
    };
    Ok(match text.strip_prefix('@') {
        None => to_json("--settings", text)?,
        Some(path) => to_json(path, &files::read(Path::new(path))?)?,
    })
}
