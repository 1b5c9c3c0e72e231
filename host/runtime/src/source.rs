//! What the table of chains is made of, to make it again.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Authorizer, Chain, NamespaceSource};
use admittance_catalog::{ModuleReference, signature::SIGNATURE_SUFFIXES};
use admittance_definitions::{
    BadDefinition, ChainDefinition, DefinitionFile, DefinitionSet, HookDefinition, OnBadDefinition,
    PluginDefinition, Usable,
};
use admittance_module::Digest;
use admittance_watch::Fingerprint;
use serde_json::Value as Json;
use tokio::time::{Instant, timeout_at};

use crate::{
    Error, RevisionFile, RevisionModule, StageError,
    assembly::{Assembled, AssembledChain, Assembler, Modules},
    history::Entry,
    plugins::Loaded,
    stores::{Look, Stores},
};

/// Lives as long as the host; a clone, as long as a table is made beside.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) stores: Arc<Stores>,
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
    /// What the files of definitions, and those of the modules that definitions name, held when a table was
    /// last made of them, or tried to be.
    pub(crate) seen: Fingerprint,
    /// The modules that are asked for again on a schedule, as of the last reading.
    pub(crate) refreshed: Vec<(ModuleReference, Duration)>,
    /// What becomes of a definition in a store that cannot be used.
    pub(crate) on_bad: OnBadDefinition,
    /// What the live table was made of.
    pub(crate) in_force: Arc<[DefinitionFile]>,
}

/// All that a table consists of.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) chains: Vec<AssembledChain>,
    pub(crate) plugins: Vec<Arc<Loaded>>,
    pub(crate) modules: Vec<RevisionModule>,
    pub(crate) files: Vec<RevisionFile>,
    /// What stores hold that is not in it.
    pub(crate) bad: Vec<BadDefinition>,
}

/// How long a start waits for a store that cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for news of it before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

impl Source {
    /// Read the definitions, to make a table of them. What changes while they are read is seen to have
    /// changed.
    pub(crate) async fn read(&mut self) -> Result<Usable, Error> {
        let look = self.stores.look().await?;
        self.act_upon(look).await
    }

    /// As [`read`](Self::read), and wait for stores that may soon be there: a start may come before the
    /// first connection.
    pub(crate) async fn read_first(&mut self) -> Result<Usable, Error> {
        let latest = Instant::now() + PATIENCE;
        loop {
            let look = self.stores.look().await?;
            if !look.is_lost() || Instant::now() >= latest {
                return self.act_upon(look).await;
            }
            let next = (Instant::now() + PAUSE).min(latest);
            let _ = timeout_at(next, self.stores.changed()).await;
        }
    }

    /// Take this for what is made a table of.
    pub(crate) async fn act_upon(&mut self, look: Look) -> Result<Usable, Error> {
        self.stores.act_upon(&look);
        // A store that is lost goes on naming its modules.
        let whole = self.usable(look.whole(&self.stores.known())).await?;
        let (modules, refreshed) = tokio::task::spawn_blocking(move || {
            // Wrong definitions name no modules; whoever mends them changes them.
            let chains = whole.served().chains().unwrap_or_default();
            let plugins = || chains.iter().flat_map(plugins);
            let modules = Fingerprint::of(plugins().flat_map(files));
            let refreshed = plugins().filter_map(|plugin| Some((plugin.source.clone(), plugin.refresh?)));
            (modules, refreshed.collect())
        })
        .await
        .map_err(Error::Interrupted)?;
        self.seen = look.seen.clone().and(modules);
        self.refreshed = refreshed;
        self.usable(look.set()?).await
    }

    /// These definitions with what cannot be used set aside.
    pub(crate) async fn usable(&self, set: DefinitionSet) -> Result<Usable, Error> {
        let (in_force, on_bad) = (self.in_force.clone(), self.on_bad);
        let usable = tokio::task::spawn_blocking(move || set.usable(&in_force, on_bad));
        usable.await.map_err(Error::Interrupted)
    }

    /// From now on this revision is live.
    pub(crate) fn is_live(&mut self, entry: &Entry) {
        self.in_force = definition_files(entry).into();
    }

    /// What the definitions said when a table was last made of them, or tried to be, as a text.
    pub(crate) fn said(&self) -> String {
        let files = self.seen.digest();
        let known = self.stores.known();
        if known.is_empty() {
            return Digest::from(files).to_string();
        }
        let mut parts: Vec<Vec<u8>> = vec![files.to_vec()];
        for held in known {
            parts.push(
                held.as_ref()
                    .map(|held| held.len().to_string())
                    .unwrap_or_default()
                    .into_bytes(),
            );
            for file in held.iter().flat_map(|held| held.iter()) {
                parts.push(file.path.as_os_str().as_encoded_bytes().to_vec());
                parts.push(comparable(&file.text).into_bytes());
            }
        }
        Digest::of_parts(parts.iter().map(Vec::as_slice)).to_string()
    }

    /// A table of these definitions. One of a store whose stages cannot be made is set aside too, unless it is in
    /// force as it is, or one of `required`.
    pub(crate) async fn make(
        &self,
        mut usable: Usable,
        required: &[PathBuf],
        modules: Modules,
    ) -> Result<Made, Error> {
        loop {
            let errors = match self.make_of(usable.served(), modules.clone()).await {
                Err(Error::Stages(errors)) => errors,
                Ok(made) => {
                    return Ok(Made {
                        bad: usable.bad,
                        ..made
                    });
                }
                Err(error) => return Err(error),
            };
            let mut by_path: BTreeMap<PathBuf, Vec<&StageError>> = BTreeMap::new();
            for error in &errors {
                let path = PathBuf::from(&error.location.file);
                by_path.entry(path).or_default().push(error);
            }
            let can_go = |path: &PathBuf| !required.contains(path) && usable.is_new(path, &self.in_force);
            if !by_path.keys().all(can_go) {
                return Err(Error::Stages(errors));
            }
            for (path, errors) in by_path {
                let is_transient = errors.iter().any(|error| error.is_transient());
                let reasons = errors.iter().map(ToString::to_string).collect();
                usable.set_aside(&path, reasons, is_transient, (&self.in_force, self.on_bad));
            }
        }
    }

    /// A table of this set of definitions, all of them.
    pub(crate) async fn make_of(&self, set: DefinitionSet, modules: Modules) -> Result<Made, Error> {
        let given = self.given.clone();
        let (files, definitions) = tokio::task::spawn_blocking(move || {
            let mut definitions = set.chains()?;
            definitions.extend(given);
            Ok::<_, Error>((revision_files(&set), definitions))
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
            bad: Vec::new(),
        })
    }
}

/// What a revision was made of.
pub(crate) fn definition_files(entry: &Entry) -> Vec<DefinitionFile> {
    let file = |file: &RevisionFile| DefinitionFile {
        path: file.path.clone(),
        text: file.text.clone(),
        place: None,
    };
    entry.detail.files.iter().map(file).collect()
}

/// The texts of a revision. Those of stores are put in one form, since a store may write in another what it
/// was given.
pub(crate) fn revision_files(set: &DefinitionSet) -> Vec<RevisionFile> {
    let of_system = |file: &DefinitionFile| RevisionFile {
        path: file.path.clone(),
        text: file.text.clone(),
    };
    let stored = |file: &DefinitionFile| RevisionFile {
        path: file.path.clone(),
        text: comparable(&file.text),
    };
    let files = set.of_system().iter().map(of_system);
    files.chain(set.stored().iter().map(stored)).collect()
}

/// The same text for the same JSON, one field a line; of anything else the text itself.
fn comparable(text: &str) -> String {
    match serde_json::from_str::<Json>(text) {
        Ok(mut value) => {
            value.sort_all_objects();
            format!("{value:#}\n")
        }
        Err(_) => text.to_owned(),
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
