//! Reads the chains that a configuration names, once, from all stores of definitions.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use admittance::NamespacedChains;
use admittance_definitions::{
    ChainDefinition, DefinitionFile, DefinitionSet, DefinitionStore, OnBadDefinition, StoreError, read_files,
};
use admittance_driver::{Config, Connections};
use tokio::time::{Instant, timeout_at};

use crate::arguments::no_definition;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads all definitions. Unusable entries of a store are left out with a warning, as at the start of `serve`.
pub(super) async fn configured_chains(
    config: &Config,
    connections: &Connections,
) -> crate::Result<Vec<ChainDefinition>> {
    let mut locations: Vec<PathBuf> = config.definition_files().map(Path::to_owned).collect();
    let mut files = match locations.as_slice() {
        [] => Vec::new(),
        paths => read_files(paths)?,
    };
    let mut may_use = NamespacedChains::default();
    for location in &config.definitions {
        if let Some(namespaced) = location.namespaced_chains() {
            may_use = namespaced.clone();
        }
        for store in location.stores(connections)? {
            files.extend(read_store(&*store).await?);
            locations.push(store.location().into());
        }
    }
    let set = DefinitionSet::of_files(files);
    let usable = set.usable_definitions_with_check(&[], OnBadDefinition::ServeRest, &|chain| may_use.mistakes(chain));
    for bad in &usable.bad_definitions {
        tracing::warn!("{bad}");
    }
    match usable.served_set().chains()? {
        chains if chains.is_empty() => Err(no_definition(&locations).into()),
        chains => Ok(chains),
    }
}

async fn read_store(store: &dyn DefinitionStore) -> Result<Vec<DefinitionFile>, StoreError> {
    let latest = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match store.read().await {
            Err(StoreError::Unreachable { .. }) if Instant::now() < latest => {
                let _ = timeout_at(latest, store.wait_for_change()).await;
            }
            read => return read,
        }
    }
}
