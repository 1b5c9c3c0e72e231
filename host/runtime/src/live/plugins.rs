//! Loads the plugins of tables. A plugin that several tables use is prepared and loaded only once.

mod loading;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use admittance_admission::{ClusterKind, Phase};
use admittance_catalog::{CompiledKey, Digest, FetchProgress, Module, ModuleReference, ReferenceResolver};
use admittance_definitions::{ChainDefinition, Location, PluginDefinition, PluginPart, PreparedHook};
use admittance_sandbox::{CallLimits, ConfigurationTime, Plugin, PluginConfig, Sandbox};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::loading::{compiled_key, fetch_module, load_or_compile};
use crate::{
    RevisionModule, StageErrorCause,
    live::assembly::{Assembler, Modules, stage_address},
    status::PluginStatus,
};

/// The progress of loading plugins, for a progress bar or a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// The host starts to load plugins.
    Started {
        /// The number of plugins to load.
        plugins: usize,
    },
    /// A module is being fetched.
    Fetching {
        /// The reference of the module that is being fetched. Several modules may be fetched concurrently.
        reference: ModuleReference,
        /// The number of bytes of the module that were received so far.
        progress: Box<FetchProgress>,
    },
    /// The store of modules has no compiled form of this plugin, so the plugin is configured and compiled now.
    Preparing {
        /// The first chain that needs the plugin.
        chain: Arc<str>,
        /// The name of the first stage that needs the plugin.
        stage: Arc<str>,
        /// The digest of the plugin's module.
        digest: Digest,
        /// The size of the plugin's module in bytes.
        size: usize,
    },
    /// A plugin has been loaded.
    Loaded(Arc<LivePlugin>),
    /// A plugin of the new table is in memory already, so it is not loaded again.
    Kept,
    /// A plugin cannot be loaded. The rest are loaded nevertheless, so that all errors can be reported together.
    Failed,
}

/// A loaded plugin. It lives as long as any table that contains it.
#[derive(Debug)]
#[non_exhaustive]
pub struct LivePlugin {
    /// The name of the chain that needed the plugin first.
    pub chain: Arc<str>,
    /// The phase of the chain whose stage was the first to need the plugin.
    pub phase: Phase,
    /// The name of the stage that needed the plugin first.
    pub stage: Arc<str>,
    /// The plugin's status in the admin API.
    pub status: PluginStatus,
    /// The kinds of objects that the plugin may read from the control plane.
    pub cluster: Vec<ClusterKind>,
    /// The time that it took to fetch, prepare and load the plugin.
    pub took: Duration,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) settings: String,
    config: PluginConfig,
    compiled_key: CompiledKey,
}

impl LivePlugin {
    pub(crate) fn store_keys(&self) -> (Option<Digest>, CompiledKey) {
        (self.status.digest.parse().ok(), self.compiled_key)
    }

    /// Returns a string that identifies the plugin by its module, settings, limits and grants.
    pub(crate) fn identity(&self) -> String {
        format!("{} {} {:?}", self.status.digest, self.settings, self.config)
    }

    /// Returns a digest of the plugin's module, its settings and the string `with`.
    pub(crate) fn content_digest(&self, with: &str) -> Digest {
        Digest::of_parts([&self.status.digest, &self.settings, with].map(str::as_bytes))
    }

    pub(crate) fn prepared_hook(&self) -> PreparedHook {
        let mut hook = PreparedHook::new(self.plugin.clone(), (&self.status).into());
        hook.identity.clone_from(&self.status.digest);
        hook.failures = PluginDefinition::FAILURES;
        hook
    }

    pub(crate) fn revision_module(&self, stage: &str, is_candidate: bool) -> RevisionModule {
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

pub(crate) struct PluginOrder {
    pub(crate) chain: Arc<str>,
    pub(crate) phase: Phase,
    /// The name of the stage; in a plugin group, with the member's name: `images/signed`.
    pub(crate) stage: Arc<str>,
    pub(crate) location: Location,
    pub(crate) is_candidate: bool,
    pub(crate) reference: ModuleReference,
    pinned_digest: Option<Digest>,
    settings: String,
    config: PluginConfig,
}

impl PluginOrder {
    pub(crate) fn new(chain: &ChainDefinition, part: PluginPart<'_>, plugin: &PluginDefinition) -> Self {
        let mut limits = CallLimits {
            time: part.timeout,
            ..CallLimits::default()
        };
        if let Some(memory) = plugin.memory {
            limits.memory = memory;
        }
        Self {
            chain: chain.name.as_str().into(),
            phase: chain.phase,
            location: part.location.clone(),
            is_candidate: part.is_candidate,
            reference: plugin.source.clone(),
            pinned_digest: plugin.digest,
            settings: plugin.settings.to_string(),
            config: PluginConfig {
                name: part.name.to_string(),
                limits,
                grants: plugin.allow.clone(),
            },
            stage: part.name,
        }
    }

    /// Returns the key of a prepared plugin: module, expected digest, settings and memory limit. Stages with an equal
    /// key share the prepared plugin.
    pub(crate) fn preparation_key(&self) -> (ModuleReference, Option<Digest>, String, usize) {
        (
            self.reference.clone(),
            self.pinned_digest,
            self.settings.clone(),
            self.config.limits.memory,
        )
    }

    fn key(&self, module: Digest) -> PluginKey {
        (module.to_string(), self.settings.clone(), self.config.name.clone())
    }

    pub(crate) fn stage_address(&self) -> (String, bool) {
        (stage_address(self.phase, &self.chain, &self.stage), self.is_candidate)
    }
}

/// The digest of the module of each source in the live table.
pub(crate) type LiveModules = Arc<HashMap<String, Digest>>;

/// A module and its prepared plugin, which are shared by the stages with the same module and settings.
#[derive(Default)]
pub(crate) struct SharedPreparation {
    module: OnceCell<Module>,
    plugin: OnceCell<(Arc<Plugin>, bool)>,
}

#[derive(Debug, Default)]
pub(crate) struct Plugins(Mutex<HashMap<PluginKey, Vec<Weak<LivePlugin>>>>);

/// The key of a loaded plugin: the digest of its module, its settings, and the name of its stage.
type PluginKey = (String, String, String);

pub(crate) struct LoadedPlugin {
    pub(crate) plugin: Arc<LivePlugin>,
    pub(crate) is_new: bool,
    /// The error because of which the requested plugin could not be loaded; `None` if it was loaded. After an error,
    /// the field `plugin` contains the plugin that the live table uses, which takes the place of the requested one.
    pub(crate) fallback_cause: Option<StageErrorCause>,
}

impl LoadedPlugin {
    fn reuse(plugin: Arc<LivePlugin>, fallback_cause: Option<StageErrorCause>) -> Self {
        Self {
            plugin,
            is_new: false,
            fallback_cause,
        }
    }
}

impl Plugins {
    pub(crate) async fn load(
        &self,
        assembler: &Assembler,
        sandbox: &Sandbox,
        resolver: &ReferenceResolver,
        order: &PluginOrder,
        modules: &Modules,
        preparation: &SharedPreparation,
    ) -> Result<LoadedPlugin, StageErrorCause> {
        let start_time = Instant::now();
        let module = preparation
            .module
            .get_or_try_init(async || fetch_module(assembler, resolver, order, modules).await)
            .await?;
        if let Some(loaded) = self.find_loaded(module, order) {
            return Ok(LoadedPlugin::reuse(loaded, None));
        }
        let (plugin, from_store) = preparation
            .plugin
            .get_or_try_init(async || match self.find_plugin_with_same_code(module, order) {
                Some(live_plugin) => Ok((live_plugin.plugin.clone(), live_plugin.status.from_store)),
                None => load_or_compile(assembler, sandbox, module, order).await,
            })
            .await?;
        let plugin = plugin.with_config(&order.config)?;
        let description = plugin.description();
        for undeclared in description.undeclared_capabilities(&order.config.grants) {
            tracing::warn!(
                chain = %order.chain,
                stage = %order.stage,
                "the plugin is granted {undeclared} without declaring it; add it to the capabilities in its description, \
                 or remove the grant"
            );
        }
        let status = PluginStatus {
            name: description.name.clone(),
            version: description.version.clone(),
            source: order.reference.to_string(),
            digest: module.digest().to_string(),
            signature: module.verified_signature().to_string(),
            configured_per_call: match plugin.configuration_time() {
                ConfigurationTime::Snapshot => None,
                ConfigurationTime::PerCall { reason } => Some(reason.clone()),
            },
            cluster: order.config.grants.cluster.iter().map(ToString::to_string).collect(),
            from_store: *from_store,
        };
        let loaded = LivePlugin {
            chain: order.chain.clone(),
            phase: order.phase,
            stage: order.stage.clone(),
            status,
            cluster: order.config.grants.cluster.iter().cloned().collect(),
            took: start_time.elapsed(),
            plugin: Arc::new(plugin),
            settings: order.settings.clone(),
            config: order.config.clone(),
            compiled_key: compiled_key(sandbox, module, order),
        };
        Ok(self.keep(loaded))
    }

    /// Returns the plugin that was loaded. A temporary error, such as an unreachable server, must not take a plugin out
    /// of service. After such an error, the plugin that the live table uses is returned, if there is one.
    pub(crate) fn fall_back_to_live(
        &self,
        loaded: Result<LoadedPlugin, StageErrorCause>,
        order: &PluginOrder,
        live: &LiveModules,
    ) -> Result<LoadedPlugin, StageErrorCause> {
        match loaded {
            Err(cause) if cause.is_transient() => match self.find_live(order, live) {
                Some(last) => Ok(LoadedPlugin::reuse(last, Some(cause))),
                None => Err(cause),
            },
            loaded => loaded,
        }
    }

    fn find_loaded(&self, module: &Module, order: &PluginOrder) -> Option<Arc<LivePlugin>> {
        let source = order.reference.to_string();
        find_alive(&self.0.lock(), &order.key(module.digest()), |loaded| {
            loaded.config == order.config
                && loaded.status.source == source
                && loaded.status.signature == module.verified_signature().to_string()
        })
    }

    fn find_plugin_with_same_code(&self, module: &Module, order: &PluginOrder) -> Option<Arc<LivePlugin>> {
        let digest = module.digest().to_string();
        let plugins = self.0.lock();
        let of_module = |(key, _): &(&PluginKey, _)| key.0 == digest && key.1 == order.settings;
        let mut module_plugins = plugins.iter().filter(of_module).flat_map(|(_, loaded)| loaded);
        module_plugins.find_map(|loaded| {
            let has_same_memory = |loaded: &Arc<LivePlugin>| loaded.config.limits.memory == order.config.limits.memory;
            loaded.upgrade().filter(has_same_memory)
        })
    }

    fn find_live(&self, order: &PluginOrder, live: &LiveModules) -> Option<Arc<LivePlugin>> {
        let source = order.reference.to_string();
        let digest = *live.get(&source)?;
        if order.pinned_digest.is_some_and(|pinned| pinned != digest) {
            return None;
        }
        find_alive(&self.0.lock(), &order.key(digest), |loaded| {
            loaded.config == order.config && loaded.status.source == source
        })
    }

    fn keep(&self, new: LivePlugin) -> LoadedPlugin {
        let mut plugins = self.0.lock();
        if plugins.len() == plugins.capacity() {
            plugins.retain(|_, loaded| {
                loaded.retain(|loaded| loaded.strong_count() > 0);
                !loaded.is_empty()
            });
        }
        let key = (new.status.digest.clone(), new.settings.clone(), new.config.name.clone());
        let is_same = |loaded: &Arc<LivePlugin>| {
            loaded.config == new.config
                && loaded.status.source == new.status.source
                && loaded.status.signature == new.status.signature
        };
        if let Some(loaded) = find_alive(&plugins, &key, is_same) {
            return LoadedPlugin::reuse(loaded, None);
        }
        let plugin = Arc::new(new);
        plugins.entry(key).or_default().push(Arc::downgrade(&plugin));
        LoadedPlugin {
            plugin,
            is_new: true,
            fallback_cause: None,
        }
    }

    /// Returns the number of plugins in memory. It includes plugins of tables that only requests in flight use.
    pub(crate) fn count(&self) -> usize {
        let plugins = self.0.lock();
        let is_live = |loaded: &&Weak<LivePlugin>| loaded.strong_count() > 0;
        plugins.values().flatten().filter(is_live).count()
    }
}

fn find_alive(
    plugins: &HashMap<PluginKey, Vec<Weak<LivePlugin>>>,
    key: &PluginKey,
    condition: impl Fn(&Arc<LivePlugin>) -> bool,
) -> Option<Arc<LivePlugin>> {
    plugins.get(key)?.iter().filter_map(Weak::upgrade).find(condition)
}
