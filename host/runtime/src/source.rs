//! What the table of chains is made of, to make it again.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Authorizer, Chain, NamespaceSource};
use admittance_catalog::{ModuleReference, signature::SIGNATURE_SUFFIXES};
use admittance_definitions::{ChainDefinition, DefinitionSet, HookDefinition, PluginDefinition};
use admittance_watch::Fingerprint;

use crate::{
    Error, RevisionFile, RevisionModule,
    assembly::{Assembled, AssembledChain, Assembler, Modules},
    plugins::Loaded,
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
    /// The most that the store may hold, in bytes; none: as much as comes.
    pub(crate) store_limit: Option<u64>,
    /// What the definitions and the modules that they name held when they were last read.
    pub(crate) seen: Fingerprint,
    /// The modules that are asked for again on a schedule, as of the last reading.
    pub(crate) refreshed: Vec<(ModuleReference, Duration)>,
}

/// All that a table consists of.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) chains: Vec<AssembledChain>,
    pub(crate) plugins: Vec<Arc<Loaded>>,
    pub(crate) modules: Vec<RevisionModule>,
    pub(crate) files: Vec<RevisionFile>,
}

impl Source {
    /// Read the definitions. What changes while they are read is seen to have changed.
    pub(crate) async fn read(&mut self) -> Result<DefinitionSet, Error> {
        let paths = self.definitions.clone();
        // Each is looked at before it is read.
        let (seen, refreshed, set) = tokio::task::spawn_blocking(move || {
            let seen = Fingerprint::of(paths.iter().cloned());
            let set = DefinitionSet::read(&paths);
            // Wrong definitions name no modules; whoever mends them changes them.
            let chains = set
                .as_ref()
                .ok()
                .and_then(|set| set.chains().ok())
                .unwrap_or_default();
            let plugins = || chains.iter().flat_map(plugins);
            let modules = Fingerprint::of(plugins().flat_map(files));
            let refreshed = plugins()
                .filter_map(|plugin| Some((plugin.source.clone(), plugin.refresh?)))
                .collect();
            (seen.and(modules), refreshed, set)
        })
        .await
        .map_err(Error::Interrupted)?;
        self.seen = seen;
        self.refreshed = refreshed;
        Ok(set?)
    }

    /// A table of this set of definitions.
    pub(crate) async fn make(&self, set: DefinitionSet, modules: Modules) -> Result<Made, Error> {
        let given = self.given.clone();
        let (files, definitions) = tokio::task::spawn_blocking(move || {
            let mut definitions = set.chains()?;
            definitions.extend(given);
            let files = set.files().iter().map(|file| RevisionFile {
                path: file.path.clone(),
                text: file.text.clone(),
            });
            Ok::<_, Error>((files.collect(), definitions))
        })
        .await
        .map_err(Error::Interrupted)??;
        let Assembled {
            chains,
            plugins,
            modules,
        } = self.assembler.assemble(definitions, modules).await?;
        let native = self.chains.iter().cloned();
        Ok(Made {
            chains: native
                .map(|chain| self.assembler.native(chain))
                .chain(chains)
                .collect(),
            plugins,
            modules,
            files,
        })
    }
}

fn plugins(chain: &ChainDefinition) -> impl Iterator<Item = &PluginDefinition> {
    chain.stages.iter().flat_map(|stage| {
        let plugin = match &stage.hook {
            HookDefinition::Plugin(plugin) => Some(plugin),
            HookDefinition::Webhook(_) => None,
        };
        let candidate = stage.candidate.as_ref().map(|candidate| &candidate.plugin);
        plugin.into_iter().chain(candidate)
    })
}

/// The files that decide whether this plugin runs: its module, and the signatures beside it.
fn files(plugin: &PluginDefinition) -> Vec<PathBuf> {
    let ModuleReference::File(path) = &plugin.source else {
        return Vec::new();
    };
    let beside = |ending: &&str| {
        let mut name = OsString::from(path);
        name.push(ending);
        PathBuf::from(name)
    };
    let signatures = SIGNATURE_SUFFIXES.iter().map(beside);
    std::iter::once(path.clone()).chain(signatures).collect()
}
