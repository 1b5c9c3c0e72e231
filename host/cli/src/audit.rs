//! `admittance audit`: runs the objects of a cluster, or of another control plane, through chains.

mod configured;
mod report;

use std::{collections::BTreeSet, io::IsTerminal, path::PathBuf, process::ExitCode, sync::Arc, thread};

use admittance::{Table, definitions::ChainDefinition};
use admittance_admission::{Request, UserInfo};
use admittance_bcs::zookeeper::Ensembles;
use admittance_cluster::Cluster;
use admittance_driver::{Config, Connections, IncompleteList, LogFormat, UpstreamLists};
use admittance_fleet::audit::{AuditClient, AuditedResource, Auditor, DiscoveredResources, Pages};
use clap::Args;
use indicatif::ProgressBar;

use self::report::{AuditFormat, AuditReport};
use crate::{arguments, cluster::ClusterArguments, host, logging, progress, replay};

/// Run the objects of a cluster through chains, and show what the chains would refuse or change.
///
/// Each object is evaluated as if it were created, and as if it were updated without a change, if the rules of a chain
/// match that operation. Plugins' lookups are answered from the cluster. Nothing is written to the cluster. If the
/// configuration has an upstream with `lists`, such as Nomad or BCS, the objects in these lists are evaluated instead
/// of the objects of a cluster. Exits with 0 when no object would be refused, and with 1 when an object would be
/// refused or a resource could not be listed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance audit chains/
  admittance audit chains/ --namespace shop --resource pods
  admittance audit chains/ --against new-chains/
  admittance audit --config admittance.yaml --output json
  admittance audit chains/ --output reports | kubectl apply -f -")]
pub(crate) struct Arguments {
    /// Chain files, or directories of them [default: the definitions of --config, including resources of the cluster].
    #[arg(value_name = "CHAINS", required_unless_present = "config", value_parser = arguments::parse_existing_path)]
    chains: Vec<PathBuf>,
    /// Compare with these chains: show only the objects that the two sets of chains judge differently.
    #[arg(long, value_name = "CHAINS", num_args = 1.., value_parser = arguments::parse_existing_path)]
    against: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Audit only this resource: pods or deployments.apps. May be given more than once [default: every resource that
    /// the rules of a chain match].
    #[arg(long, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// Audit only the objects in this namespace, and no objects without a namespace.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The user on whose behalf the objects are created and updated in the audit. Chains see this name in the requests.
    #[arg(long, value_name = "NAME", default_value = "")]
    user: String,
    /// A group of this user. May be given more than once.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// The maximum number of requests per second that are sent to the API server or the upstream to read objects.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// The number of objects in a page of a list.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    page: u32,
    /// Call the webhooks of the chains for each object, as for live requests. Without this option, chains with webhooks
    /// are refused.
    #[arg(long)]
    call_webhooks: bool,
    /// A configuration file of `serve`. The audit takes from it the settings for modules, signatures and webhook
    /// addresses, and `upstream.lists`, which names the objects to read from the upstream.
    #[arg(long, value_name = "FILE", value_parser = arguments::parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory in which modules and their compiled forms are stored [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: AuditFormat,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "ADMITTANCE_LOG")]
    log: String,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let report = crate::block_on(audit(arguments))??;
    let code = crate::exit_code(report.is_clean());
    report.print(arguments.output)?;
    Ok(code)
}

async fn audit(arguments: &Arguments) -> crate::Result<AuditReport> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let upstream_config = config.as_ref().filter(|_| !arguments.cluster.are_given());
    let ensembles = config
        .as_ref()
        .map(|config| Ensembles::open(&config.zookeeper))
        .unwrap_or_default();
    let lists = match upstream_config {
        Some(config) => UpstreamLists::open(config, &ensembles, arguments.page, arguments.rate)?,
        None => None,
    };
    match lists {
        Some(lists) => audit_lists(arguments, config.as_ref(), &ensembles, &lists).await,
        None if upstream_config.is_some_and(|config| config.front.dialect().is_some()) => Err(
            "--config: `upstream.lists` is missing; list the paths of the objects that the upstream has, or name a \
             Kubernetes cluster with --kubeconfig or --context"
                .into(),
        ),
        None => audit_cluster(arguments, config.as_ref(), &ensembles).await,
    }
}

async fn audit_cluster(
    arguments: &Arguments,
    config: Option<&Config>,
    ensembles: &Ensembles,
) -> crate::Result<AuditReport> {
    let cluster = match config.and_then(|config| config.cluster.as_ref()) {
        Some(cluster) if !arguments.cluster.are_given() => Cluster::connect(cluster).await?,
        _ => arguments.cluster.connect().await?,
    };
    let tables = arguments.build_tables(config, Some(&cluster), ensembles).await?;
    let client = AuditClient::new(cluster, arguments.rate);
    let all_tables: Vec<&Table> = tables.iter().map(|table| &**table).collect();
    let DiscoveredResources {
        resources,
        undiscovered_groups: unknown,
        ..
    } = client.discover(&all_tables).await?;
    for (group, error) in unknown {
        tracing::warn!("{group} is not audited: {error}");
    }
    let resources = arguments.select_resources(resources)?;

    let auditor = arguments.make_auditor(tables);
    let mut report = AuditReport::new(auditor.compares_tables());
    let progress_bar = spinner();
    for resource in resources {
        progress_bar.set_message(resource.name());
        let mut pages = Pages::new(&resource, arguments.namespace.as_deref(), arguments.page);
        loop {
            match pages.next_page(&client).await {
                Ok(Some(objects)) => {
                    progress_bar.inc(objects.len() as u64);
                    let objects = objects.into_iter();
                    let requests = objects.map(|object| resource.request(object)).collect();
                    let add = |audited_objects| report.add(&resource, audited_objects);
                    auditor.audit(&resource, requests, add).await;
                }
                Ok(None) => break,
                Err(error) => {
                    report.add_unlisted(resource.name(), &error.to_string());
                    break;
                }
            }
        }
    }
    progress_bar.finish_and_clear();
    Ok(report)
}

async fn audit_lists(
    arguments: &Arguments,
    config: Option<&Config>,
    ensembles: &Ensembles,
    lists: &UpstreamLists,
) -> crate::Result<AuditReport> {
    let cluster = match config.and_then(|config| config.cluster.as_ref()) {
        Some(config) => Some(Cluster::connect(config).await?),
        None => None,
    };
    let tables = arguments.build_tables(config, cluster.as_ref(), ensembles).await?;
    let auditor = arguments.make_auditor(tables);
    let mut report = AuditReport::new(auditor.compares_tables());
    let mut resource_names = BTreeSet::new();
    let mut missing_resources: Vec<&String> = arguments.resource.iter().collect();
    let progress_bar = spinner();
    let incomplete_lists = lists
        .read(async |requests| {
            progress_bar.inc(requests.len() as u64);
            let mut requests_by_resource: Vec<(AuditedResource, Vec<Request>)> = Vec::new();
            for request in requests {
                let resource = AuditedResource {
                    kind: request.kind.clone(),
                    resource: request.resource.clone(),
                    is_namespaced: request.namespace.is_some(),
                };
                resource_names.insert(resource.name());
                missing_resources.retain(|name| !resource.has_name(name));
                if !arguments.is_selected(&resource)
                    || (arguments.namespace.is_some() && arguments.namespace != request.namespace)
                {
                    continue;
                }
                match requests_by_resource.iter_mut().find(|(other, _)| *other == resource) {
                    Some((_, requests)) => requests.push(request),
                    None => requests_by_resource.push((resource, vec![request])),
                }
            }
            for (resource, requests) in requests_by_resource {
                progress_bar.set_message(resource.name());
                let add = |audited_objects| report.add(&resource, audited_objects);
                auditor.audit(&resource, requests, add).await;
            }
        })
        .await;
    progress_bar.finish_and_clear();
    if let Some(name) = missing_resources.first()
        && incomplete_lists.is_empty()
        && !resource_names.is_empty()
    {
        let names: Vec<_> = resource_names.into_iter().collect();
        return Err(format!("--resource: no list has {name}; they have {}", names.join(", ")).into());
    }
    for IncompleteList { path, reason } in incomplete_lists {
        report.add_unlisted(path, &reason);
    }
    Ok(report)
}

fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    progress::with_style(
        ProgressBar::new_spinner(),
        "{spinner} {pos} objects, auditing {msg} {elapsed}",
    )
}

async fn build_table(
    arguments: &Arguments,
    config: Option<&Config>,
    cluster: Option<&Cluster>,
    definitions: Vec<ChainDefinition>,
) -> crate::Result<Arc<Table>> {
    let mut builder = host::builder_for_requests(config, arguments.store.clone());
    if let Some(cluster) = cluster {
        let mut sandbox = host::sandbox_config(config);
        sandbox.cluster = Some(Arc::new(cluster.clone()));
        builder = builder
            .sandbox(sandbox)
            .namespaces(cluster.clone())
            .authorizer(cluster.clone());
    }
    Ok(host::build_table(builder, definitions).await?)
}

impl Arguments {
    async fn build_tables(
        &self,
        config: Option<&Config>,
        cluster: Option<&Cluster>,
        ensembles: &Ensembles,
    ) -> crate::Result<Vec<Arc<Table>>> {
        let build = async |definitions: Vec<ChainDefinition>| {
            let definitions = replay::without_candidates(definitions, self.call_webhooks)?;
            build_table(self, config, cluster, definitions).await
        };
        let definitions = match (self.chains.as_slice(), config) {
            ([], Some(config)) => {
                let connections = Connections::new(config, ensembles.clone(), cluster.cloned());
                configured::configured_chains(config, &connections).await?
            }
            (paths, _) => arguments::load_chains(paths)?,
        };
        let mut tables = vec![build(definitions).await?];
        if !self.against.is_empty() {
            tables.push(build(arguments::load_chains(&self.against)?).await?);
        }
        Ok(tables)
    }

    fn make_auditor(&self, tables: Vec<Arc<Table>>) -> Auditor {
        let mut user = UserInfo::default();
        user.username = self.user.clone();
        user.groups = self.group.clone();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Auditor::new(tables, user, processors)
    }

    /// Returns the resources that the arguments select. It is an error to select a resource that no chain matches.
    fn select_resources(&self, resources: Vec<AuditedResource>) -> crate::Result<Vec<AuditedResource>> {
        for name in &self.resource {
            if !resources.iter().any(|resource| resource.has_name(name)) {
                let resource_names: Vec<_> = resources.iter().map(AuditedResource::name).collect();
                let alternatives = match resource_names.as_slice() {
                    [] => "no chain is for a resource that the cluster has".to_owned(),
                    names => format!("chains are for {}", names.join(", ")),
                };
                return Err(format!("--resource: no chain is for {name} in this cluster; {alternatives}").into());
            }
        }
        Ok(resources
            .into_iter()
            .filter(|resource| self.is_selected(resource))
            .collect())
    }

    fn is_selected(&self, resource: &AuditedResource) -> bool {
        let mut names = self.resource.iter();
        (self.resource.is_empty() || names.any(|name| resource.has_name(name)))
            && (self.namespace.is_none() || resource.is_namespaced)
    }
}
