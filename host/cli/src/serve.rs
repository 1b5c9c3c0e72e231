//! `admittance serve`: runs the driver.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use admittance::{Host, admission::NamespaceSelector};
use admittance_admin::AdminConfig;
use admittance_bcs::zookeeper::Ensembles;
use admittance_cluster::Cluster;
use admittance_driver::{
    AdminPort, Config, Connections, Driver, LogFormat, ReviewsConfig, Shutdown, ShutdownResult, Traces, parse_lease,
    with_definitions,
};
use admittance_fleet::{Webhooks, certificates::Service};
use admittance_net::{Metric, limits::raise_descriptor_limit, upstream::UpstreamServer, workers::Workers};
use admittance_outbound::Outbound;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    arguments::{parse_existing_path, socket_address, word},
    directories,
    exporter::ExportedMetrics,
    files, host, logging, process_metrics,
};

pub(crate) const DEFAULT_CONFIG: &str = "admittance.yaml";

/// Run the driver: an intercepting proxy in front of a control plane, or a webhook of kube-apiserver.
///
/// The first SIGTERM or SIGINT lets requests in flight finish; the second ends the program at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance serve
  admittance serve --config admittance.yaml --listen 127.0.0.1:8080 --admin 127.0.0.1:9090")]
pub(crate) struct Arguments {
    /// The configuration file.
    #[arg(
        long,
        short,
        value_name = "FILE",
        default_value = DEFAULT_CONFIG,
        env = "ADMITTANCE_CONFIG"
    )]
    config: PathBuf,
    /// Listen on this address, instead of listen.address in the configuration.
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address, env = "ADMITTANCE_LISTEN")]
    listen: Option<SocketAddr>,
    /// Serve /healthz, /readyz, /metrics and the API on this address instead of the configuration's
    /// admin.address.
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address, env = "ADMITTANCE_ADMIN")]
    admin: Option<SocketAddr>,
    /// Forward to these servers instead of the configuration's upstream.servers or upstream.discover.
    #[arg(long, value_name = "URL", env = "ADMITTANCE_UPSTREAM", value_delimiter = ',')]
    upstream: Vec<http::Uri>,
    /// Keep modules and their compiled forms in this directory, instead of store.directory in the configuration
    /// [default: admittance in the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// Keep the history of live revisions in this directory, instead of history.directory in the configuration. Each
    /// driver needs a directory of its own [default: one in the user's state directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_HISTORY")]
    history: Option<PathBuf>,
    /// Register webhooks for this Service, instead of dialect.kubernetes.webhookConfigurations.service in the
    /// configuration.
    #[arg(long, value_name = "NAME.NAMESPACE", env = "ADMITTANCE_SERVICE")]
    service: Option<Service>,
    /// Elect the leader with the Lease of this name. It takes precedence over the Lease in the configuration, which is
    /// `lease` of the entry `kubernetes` in `definitions` [default: admittance].
    #[arg(long, value_name = "NAME", value_parser = parse_lease, env = "ADMITTANCE_LEASE")]
    lease: Option<String>,
    /// Write log lines of this level or filter (`info,admittance=debug`), instead of log.level in the configuration.
    #[arg(long, value_name = "LEVEL", env = "ADMITTANCE_LOG")]
    log: Option<String>,
    /// Log in this format instead of log.format; auto is pretty on a terminal, and json otherwise.
    #[arg(long, value_name = "FORMAT", value_parser = word::<LogFormat>(), env = "ADMITTANCE_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

pub(crate) fn run(arguments: Arguments) -> crate::Result<ExitCode> {
    let mut config = read(&arguments.config)?;
    config.listen.address = arguments.listen.unwrap_or(config.listen.address);
    if let Some(address) = arguments.admin {
        config.admin = Some(match config.admin {
            Some(admin) => admin.with_address(address)?,
            None => AdminConfig::new(address),
        });
    }
    if !arguments.upstream.is_empty() {
        let servers = arguments.upstream.into_iter().map(UpstreamServer::new);
        let set = config.front.set_servers(servers.collect::<Result<Vec<_>, _>>()?);
        set.map_err(|reason| format!("--upstream: {reason}"))?;
    }
    if let Some(mistake) = config.own_address_mistake(&arguments.config) {
        return Err(mistake.into());
    }
    if let Some(service) = &arguments.service {
        let reviews = config.front.downcast_mut::<ReviewsConfig>();
        let Some(webhooks) = reviews.and_then(|reviews| reviews.webhooks.as_mut()) else {
            return Err("--service: dialect.kubernetes.webhookConfigurations is not configured".into());
        };
        let (name, namespace) = service.parts();
        webhooks.registration.name = name.to_owned();
        webhooks.registration.namespace = namespace.to_owned();
    }
    if let Some(name) = arguments.lease {
        if !config.has_lease() {
            return Err(
                "--lease: these replicas have no leader; add `kubernetes: {}` to `definitions`, or write \
                 `dialect.kubernetes.webhookConfigurations` or `.audit`"
                    .into(),
            );
        }
        config.lease = Some(name);
    }
    let level = config.log.level.as_str();
    let level = arguments.log.unwrap_or_else(|| level.to_owned());
    let format = arguments.log_format.unwrap_or(config.log.format);
    config.store.directory = arguments.store.or(config.store.directory);
    let history_directory = arguments.history.or(config.history.directory);
    config.history.directory = directories::history_directory(history_directory, &arguments.config);
    let metrics = install_metrics()?;
    crate::block_on(async {
        let traces = Traces::start(config.tracing.take())?;
        logging::start_with(&level, format, traces.as_ref())?;
        traces.iter().for_each(Traces::keep_tls_fresh);
        raise_descriptor_limit();
        let served = serve(config, metrics).await;
        if let Some(traces) = traces {
            traces.shut_down().await;
        }
        served
    })?
}

fn read(path: &Path) -> crate::Result<Config> {
    check_config_exists(path)?;
    Ok(Config::read(path)?)
}

pub(crate) fn check_config_exists(path: &Path) -> Result<(), String> {
    if path == Path::new(DEFAULT_CONFIG) && !path.exists() {
        return Err(format!(
            "there is no {DEFAULT_CONFIG} here; name the configuration with `--config FILE` (or ADMITTANCE_CONFIG), \
             or write one, with a chain and a request to try: `admittance init rest` in front of any JSON API, \
             `admittance init kubernetes` for a webhook of kube-apiserver, `admittance init bcs`"
        ));
    }
    if !path.exists() {
        parse_existing_path(&path.to_string_lossy()).map_err(files::error_at(path))?;
    }
    Ok(())
}

async fn serve(mut config: Config, metrics: ExportedMetrics) -> crate::Result<ExitCode> {
    let cluster = match &config.cluster {
        Some(config) => Some(Cluster::connect(config).await?),
        None => None,
    };
    let mut connections = Connections::new(&config, Ensembles::open(&config.zookeeper), cluster);
    let maintained = metrics.clone();
    let render = move || {
        process_metrics::collect();
        metrics.render()
    };
    let refusal = config.admin.as_ref().and_then(AdminConfig::refusal);
    let admin = AdminPort::open(&config, Arc::new(render)).await?;
    if let Some(admin) = &admin {
        tracing::info!(admin = %admin.address(), "starting");
        if let Some(why) = refusal {
            tracing::info!("admin.address: {why}");
        }
    }
    let host = build_host(&config, &connections).await?;
    match &connections.cluster {
        Some(cluster) => watch_cluster_objects(cluster, &host),
        None => warn_of_conditions(&host),
    }
    connections.webhooks = open_webhooks(&mut config, &connections).await?;
    let driver = Driver::bind(config, connections, host, admin)
        .await?
        .with_workers(Workers::start()?);
    let shutdown = Shutdown::default();
    tokio::spawn(stop_on_signals(shutdown.clone(), shutdown_signals()?));
    tokio::spawn(run_metrics_upkeep(maintained));
    Ok(match driver.run(shutdown).await {
        ShutdownResult::Cleanly => {
            tracing::info!("stopped: every request was answered");
            ExitCode::SUCCESS
        }
        ShutdownResult::Cut => {
            tracing::warn!("stopped: requests in flight were cut off");
            ExitCode::FAILURE
        }
    })
}

async fn open_webhooks(config: &mut Config, connections: &Connections) -> crate::Result<Option<Webhooks>> {
    let Some((webhooks, cluster)) = config.front.webhooks().zip(connections.cluster.as_ref()) else {
        return Ok(None);
    };
    let checks_definitions = connections.chain_store.is_some();
    let request_timeout = config.limits.request_timeout;
    let webhooks = Webhooks::open(cluster, webhooks.clone(), request_timeout, checks_definitions).await?;
    if let Some(tls) = webhooks.tls() {
        config.listen.tls = Some(tls);
    }
    Ok(Some(webhooks))
}

async fn build_host(config: &Config, connections: &Connections) -> crate::Result<Host> {
    let mut builder = host::builder_for_requests(Some(config), None)
        .decisions(config.decisions.clone())
        .revisions(config.history.max_revisions)
        .store_limit(config.store.size_limit)
        .on_bad_definition(config.on_bad_definition)
        .start_without_modules();
    if connections.goes_live_together {
        builder = builder.go_live_on_request();
    }
    if let Some(history) = &config.history.directory {
        builder = builder.history(history);
    }
    let mut sandbox = host::sandbox_config(Some(config));
    sandbox.http = Some(Arc::new(Outbound::new(config.plugin_http.clone())?));
    if let Some(cluster) = &connections.cluster {
        sandbox.cluster = Some(Arc::new(cluster.clone()));
        builder = builder.namespaces(cluster.clone()).authorizer(cluster.clone());
    }
    let builder = with_definitions(builder.sandbox(sandbox), &config.definitions, connections)?;
    Ok(builder.build().await?)
}

/// Warns about match conditions that ask the authorizer although no cluster is configured. Such a condition always
/// fails, and then the request is usually denied.
fn warn_of_conditions(host: &Host) {
    for chain in host.table().chains() {
        for stage in chain.stages.iter().filter(|stage| stage.spec.uses_authorizer()) {
            tracing::warn!(
                chain = %chain.name,
                stage = %stage.spec.name,
                "a match condition uses the authorizer, but no cluster is configured; write `cluster: {{}}`"
            );
        }
    }
}

/// Starts to watch what the chains look up in the cluster: namespaces, and the kinds that plugins read. Then the first
/// requests need not wait until these watches have begun.
fn watch_cluster_objects(cluster: &Cluster, host: &Host) {
    let table = host.table();
    let mut stages = table.chains().flat_map(|chain| &chain.stages);
    // An empty selector matches every namespace, so the labels of namespaces are needed only for other selectors.
    let needs_labels =
        |selector: &NamespaceSelector| matches!(selector, NamespaceSelector::Labels(selector) if !selector.is_empty());
    if stages.any(|stage| stage.spec.namespace_selector.as_ref().is_some_and(needs_labels)) {
        cluster.watch_namespaces();
    }
    for plugin in table.plugins() {
        cluster.watch_kinds(&plugin.cluster);
    }
}

fn install_metrics() -> crate::Result<ExportedMetrics> {
    let metrics = ExportedMetrics::install()?;
    admittance_driver::describe_metrics();
    let other_metrics = [admittance_outbound::METRICS, process_metrics::METRICS];
    other_metrics.into_iter().flatten().for_each(Metric::describe);
    Ok(metrics)
}

async fn run_metrics_upkeep(metrics: ExportedMetrics) {
    let mut ticks = tokio::time::interval(Duration::from_secs(5));
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

fn shutdown_signals() -> std::io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

async fn stop_on_signals(shutdown: Shutdown, [mut terminate, mut interrupt]: [Signal; 2]) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        shutdown.signal();
    }
}
