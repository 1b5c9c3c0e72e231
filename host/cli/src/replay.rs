//! `admittance replay`: replays recorded requests through chains, and compares the answers.

pub(crate) mod answer;
mod chains;
pub(crate) mod recorded;
mod report;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use admittance::{
    ModuleReference, Table,
    definitions::{self, ChainDefinition, StageId},
};
use admittance_driver::{Config, LogFormat};
use clap::Args;

pub(crate) use self::chains::{load_without_candidates, without_candidates};
use self::{
    answer::ReplayAnswer,
    recorded::RecordedAdmission,
    report::{ReplayDifference, ReplayReport},
};
use crate::{
    arguments::{definitions_or_configured, parse_existing_path},
    files, host, logging, modules,
    output::Output,
    simulation::SimulatedSurroundings,
};

/// Replay recorded requests through other chains or another version of a plugin, and show every difference.
///
/// Nothing is sent to a driver. The command compares the verdict, the message, the resulting object and the warnings.
/// Exits with 0 when there is no difference and with 1 when there is one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance replay requests.ndjson new-chains/
  admittance replay requests.ndjson chains/ --module images-2.wasm --stage pods/images
  admittance replay reviews.json new-chains/ --against chains/")]
pub(crate) struct Arguments {
    /// A file from `record`, or a file of concatenated AdmissionReviews.
    #[arg(value_name = "REQUESTS", value_parser = parse_existing_path)]
    requests: PathBuf,
    /// Chain files, or directories of them [default: the definitions of --config].
    #[arg(value_name = "CHAINS", required_unless_present = "config", value_parser = parse_existing_path)]
    chains: Vec<PathBuf>,
    /// The module to run in place of the plugin of --stage: a file or a reference.
    #[arg(long, value_name = "FILE|REFERENCE", requires = "stage", value_parser = modules::module_or_file)]
    module: Option<ModuleReference>,
    /// The stage whose plugin --module replaces: pods/images, or Mutating:pods/images.
    #[arg(long, value_name = "CHAIN/STAGE", requires = "module")]
    stage: Option<StageId>,
    /// Compare with the answers of these chains, instead of the recorded answers.
    #[arg(long, value_name = "CHAINS", num_args = 1.., value_parser = parse_existing_path)]
    against: Vec<PathBuf>,
    /// Call the webhooks of the chains for each request, as live traffic does. Without this option, chains with
    /// webhooks are refused.
    #[arg(long)]
    call_webhooks: bool,
    /// A configuration of `serve`. The replay takes from it the settings for modules, signatures, namespaces and
    /// webhook addresses.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory of modules and their compiled forms [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "ADMITTANCE_LOG")]
    log: String,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let replayed = crate::block_on(replay(arguments))?;
    let report = replayed.map_err(|error| arguments.swapped_arguments_hint().map_or(error, Into::into))?;
    arguments.output.print(&report, ReplayReport::text)?;
    Ok(crate::exit_code(report.different == 0))
}

impl Arguments {
    fn swapped_arguments_hint(&self) -> Option<String> {
        let (requests, chains) = (self.requests.display(), files::join_paths(&self.chains));
        let loaded = definitions::load(std::slice::from_ref(&self.requests));
        loaded.is_ok_and(|loaded_chains| !loaded_chains.is_empty()).then(|| {
            format!("{requests} has chains, which come after the requests: `admittance replay {chains} {requests}`")
        })
    }
}

async fn replay(arguments: &Arguments) -> crate::Result<ReplayReport> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let chain_paths = definitions_or_configured(&arguments.chains, config.as_ref());
    let webhooks = arguments.call_webhooks;
    let mut definitions = chains::load_without_candidates(&chain_paths, webhooks)?;
    if let (Some(module), Some(stage)) = (&arguments.module, &arguments.stage) {
        chains::replace_module(&mut definitions, stage, module)?;
    }
    let current = SimulatedSurroundings::default();
    let against = match arguments.against.as_slice() {
        [] => None,
        paths => {
            let definitions = chains::load_without_candidates(paths, webhooks)?;
            Some(build_table(arguments, config.as_ref(), &current, definitions).await?)
        }
    };
    let table = build_table(arguments, config.as_ref(), &current, definitions).await?;

    let mut report = ReplayReport::default();
    for recorded in recorded::open_recording(&arguments.requests)? {
        let recorded = recorded?;
        let before = match &against {
            Some(against) => replay_request(against, &current, &recorded).await?,
            None => recorded.recorded_answer()?,
        };
        let after = replay_request(&table, &current, &recorded).await?;
        report.requests += 1;
        report.redacted += u64::from(recorded.is_redacted);
        let parts = before.differences(&after, recorded.is_redacted);
        if parts.is_empty() {
            report.same += 1;
        } else {
            report.different += 1;
            let differing = ReplayDifference::new(&recorded, parts, before, after);
            report.differences.push(differing);
        }
    }
    if report.requests == 0 {
        return Err(files::error_at(&arguments.requests)("it contains no request").into());
    }
    Ok(report)
}

async fn replay_request(
    table: &Table,
    surroundings: &SimulatedSurroundings,
    recorded: &RecordedAdmission,
) -> crate::Result<ReplayAnswer> {
    surroundings.set_current(recorded.surroundings.clone());
    let outcome = table.admit(recorded.request.clone()).await;
    Ok(ReplayAnswer::from_outcome(&recorded.request, &outcome)?)
}

async fn build_table(
    arguments: &Arguments,
    config: Option<&Config>,
    surroundings: &SimulatedSurroundings,
    definitions: Vec<ChainDefinition>,
) -> Result<Arc<Table>, admittance::Error> {
    let builder = host::builder_for_requests(config, arguments.store.clone());
    host::build_table(builder.sandbox(surroundings.sandbox(config)), definitions).await
}

#[cfg(test)]
mod tests;
