//! Builds hosts from a configuration.

use std::{env, path::PathBuf, sync::Arc};

use admittance::{Error, Host, HostBuilder, SandboxConfig, Table, definitions::ChainDefinition};
use admittance_driver::{Config, NamespacesConfig};

use crate::{directories, progress};

/// Returns the settings of the sandbox. Plugins are compiled by a child process, which runs the same program as this
/// process, even if the program's file has been replaced meanwhile.
pub(crate) fn sandbox_config(config: Option<&Config>) -> SandboxConfig {
    let mut sandbox = config.map(|config| config.sandbox.clone()).unwrap_or_default();
    sandbox.compiler = Some(running_program());
    sandbox
}

pub(crate) fn running_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        env::current_exe().unwrap_or_default()
    }
}

/// Returns a builder of hosts. A host keeps its modules in `store`. If this is `None`, it keeps them in the configured
/// directory, or else in the user's default directory.
pub(crate) fn host_builder(config: Option<&Config>, store: Option<PathBuf>) -> HostBuilder {
    let mut builder = Host::builder()
        .on_progress(progress::loading_display())
        .sandbox(sandbox_config(config));
    if let Some(config) = config {
        builder = builder.catalog(config.catalog.clone());
    }
    let configured = || config.and_then(|config| config.store.directory.clone());
    match directories::store_directory(store.or_else(configured)) {
        Some(directory) => builder.store(directory),
        None => builder,
    }
}

/// Returns a [`host_builder`] with the namespaces, webhook addresses and request timeout of the configuration.
pub(crate) fn builder_for_requests(config: Option<&Config>, store: Option<PathBuf>) -> HostBuilder {
    let builder = host_builder(config, store);
    let Some(config) = config else {
        return builder;
    };
    let builder = builder
        .request_timeout(config.limits.request_timeout)
        .reach(config.front.reach());
    let builder = match &config.namespaces {
        NamespacesConfig::Listed(namespaces) => builder.namespaces(namespaces.clone()),
        NamespacesConfig::File(namespaces) => builder.namespaces(namespaces.clone()),
    };
    let builder = if config.accepts_short_keys {
        builder.accept_short_webhook_keys()
    } else {
        builder
    };
    let addresses = config.webhook_addresses.iter();
    addresses.fold(builder, |builder, (host, address)| builder.resolve(host, address))
}

pub(crate) async fn build_table(builder: HostBuilder, definitions: Vec<ChainDefinition>) -> Result<Arc<Table>, Error> {
    let builder = definitions.into_iter().fold(builder, HostBuilder::definition);
    Ok(builder.build().await?.table())
}
