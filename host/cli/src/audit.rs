//! `admittance audit`: what chains say of the objects that a cluster has.

mod report;

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, sync::Arc, thread};

use admittance::{HostBuilder, Table, definitions::ChainDefinition};
use admittance_admission::UserInfo;
use admittance_cluster::Cluster;
use admittance_driver::{Config, LogFormat};
use admittance_fleet::audit::{Auditor, Discovered, Pages, Reader, Resource};
use clap::Args;
use indicatif::ProgressBar;

use self::report::{Format, Report};
use crate::{
    arguments::definitions_or_configured, cluster::ClusterArguments, host, logging, progress, replay,
};

/// Run the objects that a cluster has through chains, and show what they would refuse or change.
///
/// Each object is run as if it were created, and as if it were updated to what it is, wherever a chain is for that.
/// Look-ups find what the cluster has. Nothing is written to the cluster. Exits with 0 when no object would be refused, and
/// with 1 when one would be, or when a resource could not be listed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance audit chains/
  admittance audit chains/ --namespace shop --resource pods
  admittance audit chains/ --against new-chains/
  admittance audit --config admittance.yaml --output sarif
  admittance audit chains/ --output reports | kubectl apply -f -")]
pub(crate) struct Arguments {
    /// Chain files, or directories of them [default: the definitions of --config].
    #[arg(value_name = "CHAINS", required_unless_present = "config")]
    chains: Vec<PathBuf>,
    /// Compare with these chains: show only the objects of which they say something else.
    #[arg(long, value_name = "CHAINS", num_args = 1..)]
    against: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Only objects of this resource: pods or deployments.apps. May be given more than once [default: every resource
    /// that a chain is for].
    #[arg(long, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// Only objects of this namespace, and none without a namespace.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The user of the requests.
    #[arg(long, value_name = "NAME", default_value = "")]
    user: String,
    /// A group of the user. May be given more than once.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// How many objects are run concurrently [default: the number of processors].
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// How many requests per second are sent to the API server, at most, to list objects.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// How many objects are listed at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    page: u32,
    /// Call the webhooks of the chains for each object, as live traffic does. Chains with webhooks are refused without
    /// it.
    #[arg(long)]
    call_webhooks: bool,
    /// A configuration of `serve`, for its settings of modules, signatures and webhook addresses.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where modules and their compiled forms are kept [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Show log lines of this level and above, including those of plugins.
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "ADMITTANCE_LOG")]
    log: String,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let report = crate::block_on(audit(arguments))??;
    let code = match report.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    report.print(arguments.output)?;
    Ok(code)
}

async fn audit(arguments: &Arguments) -> crate::Result<Report> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let named = definitions_or_configured(&arguments.chains, config.as_ref());
    let cluster = arguments.cluster.connect().await?;
    let build = async |paths: &[PathBuf]| {
        let definitions = replay::load(paths, arguments.call_webhooks)?;
        table(arguments, config.as_ref(), &cluster, definitions).await
    };
    let mut tables = vec![build(&named).await?];
    if !arguments.against.is_empty() {
        tables.push(build(&arguments.against).await?);
    }
    let reader = Reader::new(cluster, arguments.rate);
    let all: Vec<&Table> = tables.iter().map(|table| &**table).collect();
    let Discovered {
        resources, unknown, ..
    } = reader.discover(&all).await?;
    for (group, error) in unknown {
        tracing::warn!("{group} is not audited: {error}");
    }
    let resources = arguments.selected(resources)?;

    let auditor = arguments.auditor(tables);
    let mut report = Report::new(auditor.compares());
    let shown = spinner();
    for resource in resources {
        shown.set_message(resource.name());
        let mut pages = Pages::of(&resource, arguments.namespace.as_deref(), arguments.page);
        loop {
            match pages.next(&reader).await {
                Ok(Some(objects)) => {
                    shown.inc(objects.len() as u64);
                    let objects = objects.into_iter();
                    let requests = objects.map(|object| resource.request(object)).collect();
                    let add = |judged| report.add(&resource, judged);
                    auditor.audit(&resource, requests, add).await;
                }
                Ok(None) => break,
                // The others are audited.
                Err(error) => {
                    report.not_listed(resource.name(), &error.to_string());
                    break;
                }
            }
        }
    }
    shown.finish_and_clear();
    Ok(report)
}

/// Shows on a terminal how many objects have been audited.
fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    progress::styled(
        ProgressBar::new_spinner(),
        "{spinner} {pos} objects, auditing {msg} {elapsed}",
    )
}

/// A table whose look-ups find what the cluster has.
async fn table(
    arguments: &Arguments,
    config: Option<&Config>,
    cluster: &Cluster,
    definitions: Vec<ChainDefinition>,
) -> crate::Result<Arc<Table>> {
    let store = arguments.store.clone();
    let builder = match config {
        Some(config) => host::builder_for_requests(config, store),
        None => host::builder(None, store),
    };
    let mut sandbox = host::sandbox(config);
    sandbox.cluster = Some(Arc::new(cluster.clone()));
    let builder = builder
        .sandbox(sandbox)
        .namespaces(cluster.clone())
        .authorizer(cluster.clone());
    let builder = definitions.into_iter().fold(builder, HostBuilder::definition);
    Ok(builder.build().await?.table())
}

impl Arguments {
    fn auditor(&self, tables: Vec<Arc<Table>>) -> Auditor {
        let mut user = UserInfo::default();
        user.username = self.user.clone();
        user.groups = self.group.clone();
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        Auditor::new(tables, user, self.jobs.unwrap_or_else(processors))
    }

    /// The resources that are audited, of those that a chain is for.
    fn selected(&self, resources: Vec<Resource>) -> crate::Result<Vec<Resource>> {
        for name in &self.resource {
            if !resources.iter().any(|resource| resource.is_called(name)) {
                let known: Vec<_> = resources.iter().map(Resource::name).collect();
                let known = match known.as_slice() {
                    [] => "no chain is for a resource that the cluster has".to_owned(),
                    names => format!("chains are for {}", names.join(", ")),
                };
                return Err(format!("--resource: no chain is for {name} in this cluster; {known}").into());
            }
        }
        let is_selected = |resource: &Resource| {
            let mut names = self.resource.iter();
            (self.resource.is_empty() || names.any(|name| resource.is_called(name)))
                && (self.namespace.is_none() || resource.is_namespaced)
        };
        Ok(resources.into_iter().filter(is_selected).collect())
    }
}
