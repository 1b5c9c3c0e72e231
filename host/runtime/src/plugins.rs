//! Plugins of the live tables: each is prepared and loaded once, however many tables have it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use admittance_admission::{ClusterKind, Phase};
use admittance_catalog::{CompiledKey, Digest, FetchProgress, Freshness, Module, ModuleReference, Resolver};
use admittance_definitions::{ChainDefinition, Location, PluginDefinition, StageDefinition};
use admittance_sandbox::{Configured, Limits, Plugin, PluginConfig, Prepared, Sandbox};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::{
    RevisionModule, StageErrorCause,
    assembly::{Assembler, Modules, Servers, address},
    metrics,
    status::PluginStatus,
};

/// What loading plugins has come to; for a progress bar or a log.
#[derive(Clone, Debug)]
pub enum Progress {
    /// So many stages with plugins are to be loaded.
    Started {
        /// How many.
        plugins: usize,
    },
    /// A module is on its way.
    Fetching {
        /// Which. Several may be on their way at once.
        reference: ModuleReference,
        /// What has become of it.
        progress: Box<FetchProgress>,
    },
    /// One of them is ready.
    Loaded(Arc<Loaded>),
    /// One of them is that of a table before, as it is.
    Kept,
    /// One of them cannot be loaded. The rest go on, so that all errors are known at the end.
    Failed,
}

/// A plugin that is loaded. Lives as long as a table that has it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The chain that it was loaded for first.
    pub chain: Arc<str>,
    /// The chain's phase.
    pub phase: Phase,
    /// Its stage.
    pub stage: Arc<str>,
    /// What it is.
    pub status: PluginStatus,
    /// The kinds of the control plane that it is granted.
    pub cluster: Vec<ClusterKind>,
    /// How long having, preparing and loading it took.
    pub took: Duration,
    pub(crate) plugin: Arc<Plugin>,
    settings: String,
    config: PluginConfig,
    compiled: CompiledKey,
}

impl Loaded {
    /// What of the store it was made of.
    pub(crate) fn in_store(&self) -> (Option<Digest>, CompiledKey) {
        (self.status.digest.parse().ok(), self.compiled)
    }

    /// What makes it this one: the module, its settings, limits and grants.
    pub(crate) fn identity(&self) -> String {
        format!("{} {} {:?}", self.status.digest, self.settings, self.config)
    }

    pub(crate) fn module(&self, stage: &str, is_candidate: bool) -> RevisionModule {
        RevisionModule {
            stage: stage.to_owned(),
            candidate: is_candidate,
            source: self.status.source.clone(),
            digest: self.status.digest.clone(),
            plugin: self.status.name.clone(),
            version: self.status.version.clone(),
        }
    }
}

/// One plugin that is to be loaded.
pub(crate) struct Order {
    pub(crate) chain: Arc<str>,
    pub(crate) phase: Phase,
    pub(crate) stage: Arc<str>,
    pub(crate) location: Location,
    is_candidate: bool,
    pub(crate) reference: ModuleReference,
    pinned: Option<Digest>,
    settings: String,
    config: PluginConfig,
}

impl Order {
    pub(crate) fn new(
        chain: &ChainDefinition,
        stage: &StageDefinition,
        plugin: &PluginDefinition,
        is_candidate: bool,
    ) -> Self {
        let mut limits = Limits {
            time: stage.spec.timeout,
            ..Limits::default()
        };
        if let Some(memory) = plugin.memory {
            limits.memory = memory;
        }
        Self {
            chain: chain.name.as_str().into(),
            phase: chain.phase,
            stage: stage.spec.name.clone(),
            location: stage.location.clone(),
            is_candidate,
            reference: plugin.source.clone(),
            pinned: plugin.digest,
            settings: plugin.settings.to_string(),
            config: PluginConfig {
                name: stage.spec.name.to_string(),
                limits,
                grants: plugin.allow.clone(),
            },
        }
    }

    /// What its preparation depends on: within a table a reference stands for one module.
    pub(crate) fn preparation(&self) -> (ModuleReference, Option<Digest>, String, usize) {
        (
            self.reference.clone(),
            self.pinned,
            self.settings.clone(),
            self.config.limits.memory,
        )
    }

    fn address(&self) -> (String, bool) {
        (address(self.phase, &self.chain, &self.stage), self.is_candidate)
    }
}

/// The modules of the live table, by where they are from.
pub(crate) type LiveModules = Arc<HashMap<String, Digest>>;

/// What stages with the same module and settings share. Lives while a table is made.
#[derive(Default)]
pub(crate) struct Preparation {
    module: OnceCell<Module>,
    prepared: OnceCell<(Prepared, bool)>,
}

/// The plugins of the live tables, by module and settings. Lives as long as the host; what no table has
/// any more gives its memory back.
#[derive(Debug, Default)]
pub(crate) struct Plugins(Mutex<HashMap<(String, String), Vec<Weak<Loaded>>>>);

impl Plugins {
    /// Load a plugin, or find it among those that are live; and whether it was loaded.
    pub(crate) async fn load(
        &self,
        assembler: &Assembler,
        sandbox: &Sandbox,
        resolver: &Resolver,
        order: &Order,
        modules: &Modules,
        preparation: &Preparation,
    ) -> Result<(Arc<Loaded>, bool), StageErrorCause> {
        let started = Instant::now();
        let module = preparation
            .module
            .get_or_try_init(async || module(assembler, resolver, order, modules).await)
            .await?;
        if let Some(loaded) = self.find(module, order) {
            return Ok((loaded, false));
        }
        let (prepared, from_store) = preparation
            .prepared
            .get_or_try_init(async || prepare(assembler, sandbox, module, order).await)
            .await?;
        let plugin = {
            let _permit = permit(&assembler.loaders).await?;
            let (sandbox, prepared, config) = (sandbox.clone(), prepared.clone(), order.config.clone());
            tokio::task::spawn_blocking(move || sandbox.load(&prepared, &config))
                .await
                .map_err(StageErrorCause::Interrupted)??
        };
        let description = plugin.description();
        let status = PluginStatus {
            name: description.name.clone(),
            version: description.version.clone(),
            source: order.reference.to_string(),
            digest: module.digest().to_string(),
            signature: module.verified().to_string(),
            configured_per_call: match plugin.configured() {
                Configured::Snapshot => None,
                Configured::PerCall { reason } => Some(reason.clone()),
            },
            cluster: order
                .config
                .grants
                .cluster
                .iter()
                .map(ToString::to_string)
                .collect(),
            from_store: *from_store,
        };
        let loaded = Arc::new(Loaded {
            chain: order.chain.clone(),
            phase: order.phase,
            stage: order.stage.clone(),
            status,
            cluster: order.config.grants.cluster.iter().cloned().collect(),
            took: started.elapsed(),
            plugin: Arc::new(plugin),
            settings: order.settings.clone(),
            config: order.config.clone(),
            compiled: compiled_key(sandbox, module, order),
        });
        self.keep(&loaded);
        Ok((loaded, true))
    }

    /// The plugin of this module that is loaded just as the order says.
    fn find(&self, module: &Module, order: &Order) -> Option<Arc<Loaded>> {
        let plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (module.digest().to_string(), order.settings.clone());
        let source = order.reference.to_string();
        let is_it = |loaded: &Arc<Loaded>| {
            loaded.config == order.config
                && loaded.status.source == source
                && loaded.status.signature == module.verified().to_string()
        };
        plugins.get(&key)?.iter().filter_map(Weak::upgrade).find(is_it)
    }

    /// The plugin of the live table that is loaded just as the order says.
    pub(crate) fn find_live(&self, order: &Order, live: &LiveModules) -> Option<Arc<Loaded>> {
        let source = order.reference.to_string();
        let digest = *live.get(&source)?;
        if order.pinned.is_some_and(|pinned| pinned != digest) {
            return None;
        }
        let plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (digest.to_string(), order.settings.clone());
        let is_it = |loaded: &Arc<Loaded>| loaded.config == order.config && loaded.status.source == source;
        plugins.get(&key)?.iter().filter_map(Weak::upgrade).find(is_it)
    }

    fn keep(&self, loaded: &Arc<Loaded>) {
        let mut plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.retain(|_, loaded| {
            loaded.retain(|loaded| loaded.strong_count() > 0);
            !loaded.is_empty()
        });
        let key = (loaded.status.digest.clone(), loaded.settings.clone());
        plugins.entry(key).or_default().push(Arc::downgrade(loaded));
    }

    /// How many are in memory: those of the live table, and those that requests in flight began with.
    pub(crate) fn count(&self) -> usize {
        let plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let live = |loaded: &&Weak<Loaded>| loaded.strong_count() > 0;
        plugins.values().flatten().filter(live).count()
    }
}

/// The module's bytes, checked.
async fn module(
    assembler: &Assembler,
    resolver: &Resolver,
    order: &Order,
    modules: &Modules,
) -> Result<Module, StageErrorCause> {
    let catalog = &assembler.catalog;
    let freshness = match modules {
        Modules::AsOf(digests) => match digests.get(&order.address()) {
            Some(digest) => return Ok(catalog.recall(&order.reference, *digest).await?),
            // It was live without this module.
            None => Freshness::Stored,
        },
        Modules::Current(Servers::All(again)) if again.contains(&order.reference) => Freshness::Again,
        Modules::Current(Servers::Of(asked)) if !asked.contains(&order.reference) => Freshness::Stored,
        Modules::Current(_) => Freshness::Recorded,
    };
    let progress = assembler.progress.clone();
    let on_progress = |fetch| {
        progress(Progress::Fetching {
            reference: order.reference.clone(),
            progress: Box::new(fetch),
        });
    };
    let _permit = match (&order.reference, freshness) {
        (ModuleReference::File(_), _) | (_, Freshness::Stored) => None,
        _ => Some(permit(&assembler.fetchers).await?),
    };
    let module = resolver
        .obtain(&order.reference, order.pinned, freshness, &on_progress)
        .await?;
    if let (ModuleReference::File(_), Some(store)) = (&order.reference, catalog.store()) {
        // Files change, and a rollback wants them as they were.
        let (store, kept) = (store.clone(), module.clone());
        let kept = tokio::task::spawn_blocking(move || store.keep(&kept))
            .await
            .map_err(StageErrorCause::Interrupted)?;
        if let Err(error) = kept {
            metrics::write_failed("store");
            tracing::warn!(%error, "a module could not be kept; it cannot be rolled back to once its file changes");
        }
    }
    Ok(module)
}

async fn permit(semaphore: &Semaphore) -> Result<SemaphorePermit<'_>, StageErrorCause> {
    semaphore.acquire().await.map_err(|_| StageErrorCause::Stopped)
}

fn compiled_key(sandbox: &Sandbox, module: &Module, order: &Order) -> CompiledKey {
    CompiledKey::new(module.digest(), &order.settings, &sandbox.fingerprint())
}

/// The compiled form, and whether it was in the store.
async fn prepare(
    assembler: &Assembler,
    sandbox: &Sandbox,
    module: &Module,
    order: &Order,
) -> Result<(Prepared, bool), StageErrorCause> {
    let store = assembler.catalog.store();
    let key = compiled_key(sandbox, module, order);
    if let Some(store) = store {
        let _permit = permit(&assembler.loaders).await?;
        let store = store.clone();
        let kept = tokio::task::spawn_blocking(move || store.compiled(key))
            .await
            .map_err(StageErrorCause::Interrupted)?;
        if let Some(prepared) = kept.and_then(|bytes| Prepared::from_bytes(bytes).ok()) {
            return Ok((prepared, true));
        }
    }
    let _permit = permit(&assembler.workers).await?;
    let prepared = sandbox
        .prepare(module.bytes().clone(), &order.settings, &order.config)
        .await?;
    if let Some(store) = store {
        let (store, bytes) = (store.clone(), prepared.to_bytes());
        let kept = tokio::task::spawn_blocking(move || store.keep_compiled(key, &bytes)).await;
        if let Ok(Err(error)) = kept {
            metrics::write_failed("store");
            tracing::warn!(%error, "a compiled plugin could not be kept; the next start compiles it again");
        }
    }
    Ok((prepared, false))
}
