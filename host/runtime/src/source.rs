//! What the table of chains is made of, to make it again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Authorizer, Chain, NamespaceSource};
use admittance_definitions::{ChainDefinition, HookDefinition, ModuleReference};
use admittance_watch::Fingerprint;

use crate::{
    Error, Table,
    assembly::{Assembled, Assembler},
    measure,
};

/// Lives as long as the host.
pub(crate) struct Source {
    /// Files and directories.
    pub(crate) definitions: Vec<PathBuf>,
    /// Those that the program itself read or made.
    pub(crate) given: Vec<ChainDefinition>,
    /// Chains that the program itself made; they come first.
    pub(crate) chains: Vec<Arc<Chain>>,
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) request_timeout: Duration,
    pub(crate) assembler: Arc<Assembler>,
    /// What the definitions and the modules that they name held at the last attempt.
    pub(crate) seen: Fingerprint,
}

impl Source {
    /// A table of what the definitions say now.
    pub(crate) async fn table(&mut self) -> Result<Table, Error> {
        let table = self.make().await;
        measure::table_made(&table);
        table
    }

    async fn make(&mut self) -> Result<Table, Error> {
        let paths = self.definitions.clone();
        let given = self.given.clone();
        // Each is looked at before it is read: what changes meanwhile is seen to differ.
        let (seen, definitions) = tokio::task::spawn_blocking(move || {
            let seen = Fingerprint::of(paths.iter().cloned());
            let mut definitions = match admittance_definitions::load(&paths) {
                Ok(definitions) => definitions,
                Err(mistakes) => return (seen, Err(mistakes)),
            };
            definitions.extend(given);
            let modules = Fingerprint::of(definitions.iter().flat_map(modules));
            (seen.and(modules), Ok(definitions))
        })
        .await
        .map_err(Error::Interrupted)?;
        self.seen = seen;
        let definitions = definitions?;
        let Assembled { chains, plugins } = self.assembler.assemble(definitions).await?;
        let chains = self
            .chains
            .iter()
            .cloned()
            .chain(chains.into_iter().map(Arc::new));
        Ok(Table::new(
            chains.collect(),
            plugins,
            self.namespaces.clone(),
            self.authorizer.clone(),
            self.request_timeout,
        ))
    }
}

fn modules(chain: &ChainDefinition) -> impl Iterator<Item = PathBuf> {
    chain.stages.iter().filter_map(|stage| match &stage.hook {
        HookDefinition::Plugin(plugin) => match &plugin.source {
            ModuleReference::File(path) => Some(path.clone()),
            ModuleReference::Https(_) | ModuleReference::Oci(_) => None,
        },
        HookDefinition::Webhook(_) => None,
    })
}
