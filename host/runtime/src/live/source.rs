use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{
    Authorizer, Chain, Digest, ModuleReference, NamespaceSource, Reach, on_thread_for_long_work,
};
use admittance_catalog::signature::SIGNATURE_SUFFIXES;
use admittance_definitions::{
    BadDefinition, ChainDefinition, DefinitionFile, DefinitionSet, Definitions, Location, Mistake, OnBadDefinition,
    PluginDefinition, Served, StageDefinition, Usable,
};
use admittance_watch::Fingerprint;
use tokio::time::{Instant, timeout_at};

use crate::{
    Error, Moment, NamespacedChains, RevisionFile, RevisionModule, StageError,
    changes::stores::{StoreContents, Stores},
    decisions::observer::Observer,
    history::HistoryEntry,
    live::assembly::{AssembledTable, Assembler, MissingModules, Modules, stage_address},
    live::exceptions::LiveException,
    live::hash,
    live::plugins::{LiveModules, LivePlugin},
    live::stage::LiveChain,
};

/// The source from which tables are built. A build in the background uses a clone of it.
#[derive(Clone)]
pub(crate) struct TableSource {
    pub(crate) stores: Arc<Stores>,
    pub(crate) chain_definitions: Vec<ChainDefinition>,
    /// The chains that the embedding program defined in code. They come before the chains of definitions.
    pub(crate) native_chains: Arc<[Chain]>,
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) request_timeout: Duration,
    pub(crate) assembler: Arc<Assembler>,
    pub(crate) observer: Arc<Observer>,
    /// The maximum size of the module store in bytes; `None` for no limit.
    pub(crate) store_limit: Option<u64>,
    /// The fingerprint of the module files at the last attempt to build a table, whether the attempt succeeded or not.
    pub(crate) module_fingerprint: Fingerprint,
    /// The number of times that the definitions were read. If it has changed, a plan or a build that began before is
    /// outdated.
    pub(crate) version: u64,
    /// The modules that are refreshed on a schedule, each with its interval.
    pub(crate) refresh_intervals: Vec<(ModuleReference, Duration)>,
    pub(crate) on_bad_definition: OnBadDefinition,
    pub(crate) namespaced_chains: Arc<NamespacedChains>,
    pub(crate) starts_without_modules: bool,
    pub(crate) live_files: Arc<[DefinitionFile]>,
    pub(crate) live_modules: LiveModules,
}

pub(crate) struct Input {
    contents: StoreContents,
    /// The definitions that were read. For a store that could not be read, its last known definitions.
    usable: Usable,
    module_fingerprint: Fingerprint,
    refresh_intervals: Vec<(ModuleReference, Duration)>,
}

#[derive(Debug)]
pub(crate) struct BuiltTable {
    pub(crate) chains: Vec<Arc<LiveChain>>,
    pub(crate) plugins: Vec<Arc<LivePlugin>>,
    pub(crate) modules: Vec<RevisionModule>,
    pub(crate) files: Vec<RevisionFile>,
    pub(crate) exceptions: Vec<LiveException>,
    pub(crate) hash: Digest,
    /// The definitions that are not served as written: they are invalid, or their modules cannot be fetched.
    pub(crate) bad_definitions: Vec<BadDefinition>,
    /// Whether a module is missing because the build was not allowed to request it from a server.
    pub(crate) lacks_modules: bool,
}

#[derive(Debug)]
pub(crate) enum Purpose<'a> {
    Start,
    Follow,
    /// A table is built because a user requested a change. The change writes the definition files with these paths.
    Change(&'a [PathBuf]),
}

/// The maximum time that a start waits for a store that cannot be reached.
const MAX_START_WAIT: Duration = Duration::from_secs(5);
const READ_PAUSE: Duration = Duration::from_millis(500);

impl TableSource {
    /// Reads the definitions for the first table. Waits a few seconds for a store that cannot be reached.
    pub(crate) async fn read_first_definitions(&mut self) -> Result<Usable, Error> {
        let wait_end = Instant::now() + MAX_START_WAIT;
        loop {
            let contents = self.stores.read().await;
            if !contents.has_unreachable_store() || Instant::now() >= wait_end {
                return self.record_contents(contents).await;
            }
            let retry_time = (Instant::now() + READ_PAUSE).min(wait_end);
            let _ = timeout_at(retry_time, self.stores.wait_for_change()).await;
        }
    }

    pub(crate) async fn record_contents(&mut self, contents: StoreContents) -> Result<Usable, Error> {
        self.record(self.prepare_input(contents).await?)
    }

    /// Prepares the definitions in `contents` for the next table: checks them, and takes a fingerprint of the module
    /// files that they refer to.
    pub(crate) async fn prepare_input(&self, contents: StoreContents) -> Result<Input, Error> {
        // The last known definitions of an unreachable store are included, so that their modules are watched.
        let usable = self.find_usable(self.stores.set_after_reading(&contents)).await?;
        let served_definitions = usable.served_set();
        let (module_fingerprint, refresh_intervals, is_current) = run_blocking(move || {
            let chains = served_definitions.chains().unwrap_or_default();
            let plugins = || chains.iter().flat_map(plugins);
            let module_fingerprint = Fingerprint::read(plugins().flat_map(watched_files));
            let intervals = plugins().filter_map(|plugin| Some((plugin.source.clone(), plugin.refresh?)));
            (module_fingerprint, intervals.collect(), served_definitions.is_current())
        })
        .await?;
        // A definition may refer to other files, such as a file with settings. The cache keeps definitions together
        // with what was read from these files. If a file has changed since then, the cached definitions are outdated,
        // and no later event would say so. `uncached` empties the cache, so that the files are read again.
        let usable = if is_current { usable } else { usable.uncached() };
        Ok(Input {
            contents,
            usable,
            module_fingerprint,
            refresh_intervals,
        })
    }

    /// Records what was read for the next table: definitions, module files and refresh intervals. Returns the
    /// definitions, or the error of a store that could not be read.
    pub(crate) fn record(&mut self, input: Input) -> Result<Usable, Error> {
        self.version += 1;
        self.stores.set_known(&input.contents);
        (self.module_fingerprint, self.refresh_intervals) = (input.module_fingerprint, input.refresh_intervals);
        input.contents.into_set().map(|_| input.usable)
    }

    pub(crate) async fn find_usable(&self, set: DefinitionSet) -> Result<Usable, Error> {
        let (in_force, on_bad) = (self.live_files.clone(), self.on_bad_definition);
        let namespaced_chains = self.namespaced_chains.clone();
        run_blocking(move || {
            set.usable_definitions_with_check(&in_force, on_bad, &|chain| namespaced_chains.mistakes(chain))
        })
        .await
    }

    /// Returns the mistakes that can be found in these definitions without building a table; `None` if there are none.
    pub(crate) async fn mistakes_in(&self, usable: Usable) -> Option<Error> {
        let served = usable.served_set();
        match run_blocking(move || served.definitions().map(drop)).await {
            Ok(Err(mistakes)) => Some(mistakes.into()),
            _ => (!usable.bad_definitions.is_empty()).then(|| Error::BadDefinitions(usable.bad_definitions)),
        }
    }

    pub(crate) fn record_live(&mut self, entry: &HistoryEntry) {
        self.live_files = self.stores.set_of(entry).files().into();
        let revision_modules = entry.revision().modules.iter();
        let modules = revision_modules.filter_map(|module| Some((module.source.clone(), module.digest.parse().ok()?)));
        self.live_modules = Arc::new(modules.collect::<HashMap<_, _>>());
    }

    /// Returns a digest of the definitions and module files at the last attempt to build a table.
    pub(crate) fn input_digest(&self) -> String {
        let mut parts: Vec<Vec<u8>> = vec![self.module_fingerprint.digest().to_vec()];
        for content in self.stores.known_content() {
            let length = content.as_ref().map(|content| content.len().to_string());
            parts.push(length.unwrap_or_default().into_bytes());
            for file in content.iter().flat_map(|content| content.iter()) {
                parts.push(file.path.as_os_str().as_encoded_bytes().to_vec());
                parts.push(file.normalized().as_bytes().to_vec());
            }
        }
        Digest::of_parts(parts.iter().map(Vec::as_slice)).to_string()
    }

    /// Builds a table of these definitions, as far as that is possible now. Not every mistake is an error:
    ///
    /// - If a new version of an entry in a store cannot be built, the entry is left out, or its previous version is
    ///   served.
    /// - If the modules of a file cannot be fetched now, the previous version of the file is served.
    /// - If the same version of a definition is live already, it is served with the modules that it has. A stage
    ///   without a module fails its calls.
    ///
    /// All other mistakes are errors. A mistake in a file that a change writes is always an error.
    pub(crate) async fn build(
        &self,
        mut usable: Usable,
        modules: Modules,
        purpose: Purpose<'_>,
    ) -> Result<BuiltTable, Error> {
        let all_definitions = usable.served_set();
        let mut failing_files = HashSet::new();
        let mut has_unfetched_modules = false;
        loop {
            let build_result = self
                .build_all(usable.served_set(), modules.clone(), MissingModules::Of(&failing_files))
                .await;
            let errors = match build_result {
                Err(Error::Stages(errors)) => errors,
                Err(error) => return Err(error),
                Ok(mut built_table) => {
                    built_table.bad_definitions.splice(0..0, usable.bad_definitions);
                    built_table.lacks_modules |= has_unfetched_modules;
                    return Ok(built_table);
                }
            };
            let mut by_path: BTreeMap<PathBuf, Vec<&StageError>> = BTreeMap::new();
            for error in &errors {
                let path = PathBuf::from(&error.location.file);
                by_path.entry(path).or_default().push(error);
            }
            let (mut unloadable_files, mut is_refused) = (Vec::new(), false);
            for (path, errors) in by_path {
                let is_transient = errors.iter().all(|error| error.is_transient());
                match self.find_substitute(&usable, &path, is_transient, &purpose) {
                    Some(Served::FailingStages) if failing_files.insert(path.clone()) => {}
                    Some(Served::LastVersion) => {
                        has_unfetched_modules |= errors.iter().any(|error| error.cause.is_not_fetched());
                        let reasons = errors.iter().map(ToString::to_string).collect();
                        let is_transient = errors.iter().any(|error| error.is_transient());
                        unloadable_files.push((path, reasons, is_transient));
                    }
                    _ => is_refused = true,
                }
            }
            if is_refused {
                return Err(Error::Stages(errors));
            }
            let has_files = unloadable_files.iter().any(|(path, ..)| usable.is_file(path));
            for (path, reasons, is_transient) in unloadable_files {
                usable.set_aside(&path, reasons, is_transient, (&self.live_files, self.on_bad_definition));
            }
            if has_files && self.loses_stages(&all_definitions, &usable.served_set()).await? {
                return Err(Error::Stages(errors));
            }
        }
    }

    /// Returns what is served instead of a file whose stages cannot be built; `None` if no table can be built.
    fn find_substitute(
        &self,
        usable: &Usable,
        path: &Path,
        is_transient: bool,
        purpose: &Purpose<'_>,
    ) -> Option<Served> {
        let is_new = usable.is_new(path, &self.live_files);
        let is_live_file = self.live_files.iter().any(|file| file.path == path);
        match purpose {
            Purpose::Change(files) if files.iter().any(|file| file == path) => None,
            Purpose::Start if is_transient && !self.starts_without_modules => {
                (is_new && !usable.is_file(path)).then_some(Served::LastVersion)
            }
            Purpose::Start if is_transient && !is_live_file => Some(Served::FailingStages),
            _ if is_transient && !is_new => Some(Served::FailingStages),
            _ => (is_new && (is_transient || !usable.is_file(path))).then_some(Served::LastVersion),
        }
    }

    /// Returns whether serving `served` would remove a live stage that is still in `complete_set`. `complete_set` is
    /// the set of all definitions, and `served` is the part of it that can be served.
    async fn loses_stages(&self, complete_set: &DefinitionSet, served: &DefinitionSet) -> Result<bool, Error> {
        let (complete_set, served, in_force) = (complete_set.clone(), served.clone(), self.live_files.clone());
        run_blocking(move || {
            let in_force = complete_set.with_contents(in_force.to_vec());
            let [in_force, complete_stages, served] = [in_force, complete_set, served].map(|set| stage_addresses(&set));
            in_force
                .iter()
                .any(|stage| complete_stages.contains(stage) && !served.contains(stage))
        })
        .await
    }

    pub(crate) async fn build_all(
        &self,
        set: DefinitionSet,
        modules: Modules,
        tolerated_missing: MissingModules<'_>,
    ) -> Result<BuiltTable, Error> {
        let chain_definitions = self.chain_definitions.clone();
        let (files, definitions_hash, definitions, exceptions) = run_blocking(move || {
            let parsed_definitions = set.definitions()?;
            let chains = &parsed_definitions.chains;
            let live_exceptions = parsed_definitions
                .exceptions
                .into_iter()
                .map(|definition| LiveException {
                    unknown: texts(definition.unknown_stage_mistakes(chains)),
                    definition,
                });
            let exceptions: Vec<_> = live_exceptions.collect();
            let mut chains = parsed_definitions.chains;
            chains.extend(chain_definitions);
            let hash = hash::of_definitions(&set);
            Ok::<_, Error>((revision_files(&set), hash, chains, exceptions))
        })
        .await??;
        let assembled_table = self
            .assembler
            .assemble(definitions, modules, &self.live_modules, tolerated_missing)
            .await?;
        let hash = hash::of_table(definitions_hash, &assembled_table);
        let AssembledTable {
            chains,
            plugins,
            tolerated_errors,
            ..
        } = assembled_table;
        let (modules, plugins) = plugins.into_iter().unzip();
        let native = self.native_chains.iter();
        Ok(BuiltTable {
            chains: native
                .map(|chain| self.assembler.native_chain(chain))
                .chain(chains)
                .collect(),
            plugins,
            modules,
            files,
            exceptions,
            hash,
            lacks_modules: tolerated_errors.iter().any(|(error, _)| error.cause.is_not_fetched()),
            bad_definitions: bad_definitions_of(&tolerated_errors),
        })
    }
}

fn bad_definitions_of(tolerated_errors: &[(StageError, Served)]) -> Vec<BadDefinition> {
    let mut bad_by_file: BTreeMap<&str, BadDefinition> = BTreeMap::new();
    for (error, served) in tolerated_errors {
        let file = &error.location.file;
        let bad_definition = bad_by_file
            .entry(file)
            .or_insert_with(|| BadDefinition::new(file, *served, true));
        bad_definition.reasons.push(error.to_string());
        if *served == Served::FailingStages {
            bad_definition.served = *served;
        }
    }
    bad_by_file.into_values().collect()
}

fn stage_addresses(set: &DefinitionSet) -> HashSet<String> {
    let chains = set.chains().unwrap_or_default();
    let addresses = chains.iter().flat_map(|chain| {
        let stages = chain.stages.iter();
        stages.map(|stage| stage_address(chain.phase, &chain.name, &stage.spec.name))
    });
    addresses.collect()
}

pub(crate) fn modules_and_warnings(
    set: &DefinitionSet,
    files: &[PathBuf],
    reach: &Reach,
) -> (HashSet<ModuleReference>, Vec<String>) {
    let Definitions {
        mut chains, exceptions, ..
    } = set.definitions().unwrap_or_default();
    let is_of_files = |source: &Location| files.iter().any(|path| path == Path::new(&source.file));
    let now = Moment::now();
    let exception_warnings: Vec<_> = exceptions
        .iter()
        .filter(|exception| is_of_files(&exception.location))
        .flat_map(|exception| {
            let unknown = exception.unknown_stage_mistakes(&chains);
            exception.expiry_warning(now).into_iter().chain(unknown)
        })
        .collect();
    chains.retain(|chain| is_of_files(&chain.location));
    let modules = chains.iter().flat_map(plugins).map(|plugin| plugin.source.clone());
    let warnings = chains
        .iter()
        .flat_map(|chain| chain.warnings().into_iter().chain(chain.unreached_warnings(reach)));
    (modules.collect(), texts(warnings.chain(exception_warnings)))
}

fn texts(mistakes: impl IntoIterator<Item = Mistake>) -> Vec<String> {
    mistakes.into_iter().map(|mistake| mistake.to_string()).collect()
}

fn revision_files(set: &DefinitionSet) -> Vec<RevisionFile> {
    let to_revision_file = |file: &DefinitionFile| RevisionFile {
        path: file.path.clone(),
        text: file.normalized().into_owned(),
    };
    set.files().iter().map(to_revision_file).collect()
}

pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    on_thread_for_long_work(work).await.map_err(Error::Interrupted)
}

pub(crate) fn plugins(chain: &ChainDefinition) -> impl Iterator<Item = &PluginDefinition> {
    let plugins = chain.stages.iter().flat_map(StageDefinition::plugins);
    plugins.map(|(_, plugin)| plugin)
}

/// Returns the files that a plugin depends on: its module, the signatures next to it, and the files with its settings.
fn watched_files(plugin: &PluginDefinition) -> Vec<PathBuf> {
    let mut files = plugin.read_from.clone();
    let ModuleReference::File(path) = &plugin.source else {
        return files;
    };
    let signature_path = |ending: &&str| {
        let mut name = OsString::from(path);
        name.push(ending);
        PathBuf::from(name)
    };
    let signatures = SIGNATURE_SUFFIXES.iter().map(signature_path);
    files.push(path.clone());
    files.extend(signatures);
    files
}
