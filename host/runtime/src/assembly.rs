//! From definitions to chains: modules are read, prepared or taken from the cache, and loaded.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{Chain, ClusterKind, Hook, Phase, Stage};
use admittance_catalog::{CompiledCache, CompiledKey, Digest, Module, ModuleReference};
use admittance_definitions::{
    AllowDefinition, ChainDefinition, HookDefinition, Location, PluginDefinition, ServiceNaming,
    StageDefinition, WebhookDefinition, WebhookProtocol, WebhookTarget,
};
use admittance_sandbox::{
    Configured, Grants, Limits, Origin, Plugin, PluginConfig, Prepared, Sandbox, SandboxConfig,
};
use admittance_webhook::{Naming, Protocol, Target, Webhook, WebhookClients, WebhookConfig};
use tokio::{sync::OnceCell, task::JoinSet};

use crate::{Error, StageError, StageErrorCause};

/// What loading plugins has come to; for a progress bar or a log.
#[derive(Clone, Debug)]
pub enum Progress {
    /// So many stages with plugins are to be loaded.
    Started {
        /// How many.
        plugins: usize,
    },
    /// One of them is ready.
    Loaded(PluginStatus),
    /// One of them cannot be loaded. The rest go on, so that all errors are known at the end.
    Failed,
}

/// A plugin of the live table.
#[derive(Clone, Debug)]
pub struct PluginStatus {
    /// The chain that it is in.
    pub chain: Arc<str>,
    /// The chain's phase.
    pub phase: Phase,
    /// Its stage.
    pub stage: Arc<str>,
    /// What it calls itself.
    pub plugin: String,
    /// Its own version.
    pub version: String,
    /// Of its module.
    pub digest: Digest,
    /// The kinds of the control plane that it is granted.
    pub cluster: Vec<ClusterKind>,
    /// How it got its settings: once, or in every call.
    pub configured: Configured,
    /// Whether its compiled form was in the cache.
    pub from_cache: bool,
    /// How long reading, preparing and loading took.
    pub took: Duration,
}

/// Chains and what is in them.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    pub(crate) chains: Vec<Chain>,
    pub(crate) plugins: Vec<PluginStatus>,
}

/// Makes chains of definitions. Lives as long as the host.
pub(crate) struct Assembler {
    pub(crate) sandbox: SandboxConfig,
    pub(crate) cache: Option<CompiledCache>,
    pub(crate) webhooks: WebhookClients,
    pub(crate) progress: Box<dyn Fn(Progress) + Send + Sync>,
    /// Made when the first plugin needs it: a host without plugins reserves no pool.
    pub(crate) started: OnceCell<Sandbox>,
}

/// Stages with the same module and settings share one preparation.
type Preparations = HashMap<(ModuleReference, Option<Digest>, String, usize), Arc<OnceCell<Ready>>>;

#[derive(Clone)]
struct Ready {
    prepared: Prepared,
    digest: Digest,
    from_cache: bool,
}

impl Assembler {
    pub(crate) async fn assemble(
        self: &Arc<Self>,
        definitions: Vec<ChainDefinition>,
    ) -> Result<Assembled, Error> {
        let mut plugins = self.load_plugins(&definitions).await?;
        let mut assembled = Assembled::default();
        let mut errors = std::mem::take(&mut plugins.errors);
        for (chain_index, definition) in definitions.into_iter().enumerate() {
            let name: Arc<str> = definition.name.into();
            let mut stages = Vec::with_capacity(definition.stages.len());
            for (stage_index, stage) in definition.stages.into_iter().enumerate() {
                let hook: Arc<dyn Hook> = match &stage.hook {
                    HookDefinition::Plugin(_) => match plugins.loaded.remove(&(chain_index, stage_index)) {
                        Some((plugin, status)) => {
                            assembled.plugins.push(status);
                            Arc::new(plugin)
                        }
                        // Its error is in the list.
                        None => continue,
                    },
                    HookDefinition::Webhook(webhook) => match self.webhook(webhook, definition.phase) {
                        Ok(webhook) => Arc::new(webhook),
                        Err(cause) => {
                            errors.push(StageError::new(&name, &stage.name, stage.location, cause));
                            continue;
                        }
                    },
                };
                stages.push(Stage {
                    name: stage.name.into(),
                    hook,
                    rules: stage.rules,
                    namespace_selector: stage.namespace_selector,
                    object_selector: stage.object_selector,
                    match_conditions: stage.match_conditions,
                    failure_policy: stage.failure_policy,
                    timeout: stage.timeout,
                    mode: stage.mode,
                    side_effects: stage.side_effects,
                    reinvocation: stage.reinvocation,
                });
            }
            assembled.chains.push(Chain {
                name,
                phase: definition.phase,
                rules: definition.rules,
                stages,
            });
        }
        if errors.is_empty() {
            Ok(assembled)
        } else {
            Err(Error::Stages(errors))
        }
    }

    /// Load every plugin of the definitions, as many at once as the sandbox prepares.
    async fn load_plugins(self: &Arc<Self>, definitions: &[ChainDefinition]) -> Result<LoadedPlugins, Error> {
        let mut preparations = Preparations::new();
        let mut tasks = JoinSet::new();
        let mut wanted = Vec::new();
        for (chain_index, chain) in definitions.iter().enumerate() {
            for (stage_index, stage) in chain.stages.iter().enumerate() {
                if let HookDefinition::Plugin(plugin) = &stage.hook {
                    wanted.push(((chain_index, stage_index), chain, stage, plugin));
                }
            }
        }
        let mut result = LoadedPlugins::default();
        if wanted.is_empty() {
            return Ok(result);
        }
        (self.progress)(Progress::Started {
            plugins: wanted.len(),
        });
        let sandbox = self
            .started
            .get_or_try_init(async || Sandbox::new(self.sandbox.clone()))
            .await
            .map_err(Error::Sandbox)?;
        for (position, chain, stage, plugin) in wanted {
            let order = Order::new(chain, stage, plugin);
            let key = (
                order.reference.clone(),
                order.pinned,
                order.settings.clone(),
                order.config.limits.memory,
            );
            let preparation = preparations.entry(key).or_default().clone();
            let (assembler, sandbox) = (self.clone(), sandbox.clone());
            tasks.spawn(async move {
                let loaded = assembler.load(&sandbox, &order, &preparation).await;
                (assembler.progress)(match &loaded {
                    Ok((_, status)) => Progress::Loaded(status.clone()),
                    Err(_) => Progress::Failed,
                });
                (position, order.chain, order.stage, order.location, loaded)
            });
        }
        while let Some(task) = tasks.join_next().await {
            let (position, chain, stage, location, loaded) = task.map_err(Error::Interrupted)?;
            match loaded {
                Ok(loaded) => {
                    result.loaded.insert(position, loaded);
                }
                Err(cause) => result
                    .errors
                    .push(StageError::new(&chain, &stage, location, cause)),
            }
        }
        result
            .errors
            .sort_by(|a, b| (&a.chain, &a.stage).cmp(&(&b.chain, &b.stage)));
        Ok(result)
    }

    async fn load(
        &self,
        sandbox: &Sandbox,
        order: &Order,
        preparation: &OnceCell<Ready>,
    ) -> Result<(Plugin, PluginStatus), StageErrorCause> {
        let started = Instant::now();
        let ready = preparation
            .get_or_try_init(async || self.prepare(sandbox, order).await)
            .await?;
        let plugin = sandbox.load(&ready.prepared, &order.config)?;
        let description = plugin.description();
        let status = PluginStatus {
            chain: order.chain.clone(),
            phase: order.phase,
            stage: order.stage.clone(),
            plugin: description.name.clone(),
            version: description.version.clone(),
            digest: ready.digest,
            cluster: order.config.grants.cluster.iter().cloned().collect(),
            configured: plugin.configured().clone(),
            from_cache: ready.from_cache,
            took: started.elapsed(),
        };
        Ok((plugin, status))
    }

    async fn prepare(&self, sandbox: &Sandbox, order: &Order) -> Result<Ready, StageErrorCause> {
        let (reference, pinned) = (order.reference.clone(), order.pinned);
        let module = tokio::task::spawn_blocking(move || Module::read(&reference, pinned))
            .await
            .map_err(StageErrorCause::Interrupted)??;
        let digest = module.digest;
        let Some(cache) = self.cache.clone() else {
            let prepared = sandbox
                .prepare(module.bytes, &order.settings, &order.config)
                .await?;
            return Ok(Ready {
                prepared,
                digest,
                from_cache: false,
            });
        };
        let key = CompiledKey::new(digest, &order.settings, &sandbox.fingerprint());
        let reader = cache.clone();
        let cached = tokio::task::spawn_blocking(move || reader.get(key))
            .await
            .map_err(StageErrorCause::Interrupted)?;
        if let Some(prepared) = cached.and_then(|bytes| Prepared::from_bytes(bytes).ok()) {
            return Ok(Ready {
                prepared,
                digest,
                from_cache: true,
            });
        }
        let prepared = sandbox
            .prepare(module.bytes, &order.settings, &order.config)
            .await?;
        let bytes = prepared.to_bytes();
        let kept = tokio::task::spawn_blocking(move || cache.put(key, &bytes)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "a compiled plugin could not be kept; the next start compiles it again");
        }
        Ok(Ready {
            prepared,
            digest,
            from_cache: false,
        })
    }

    fn webhook(&self, definition: &WebhookDefinition, phase: Phase) -> Result<Webhook, StageErrorCause> {
        let protocol = match &definition.protocol {
            WebhookProtocol::BcsResource => Protocol::BcsResource,
            WebhookProtocol::AdmissionReview { versions } => Protocol::AdmissionReview {
                versions: versions.iter().copied().map(review_version).collect(),
            },
        };
        let target = match &definition.target {
            WebhookTarget::Url(url) => Target::Url(url.clone()),
            WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
                naming,
            } => Target::Service {
                namespace: namespace.clone(),
                name: name.clone(),
                port: *port,
                path: path.clone(),
                naming: match naming {
                    ServiceNaming::Bcs => Naming::Bcs,
                    ServiceNaming::Kubernetes => Naming::Kubernetes,
                },
            },
        };
        let mut config = WebhookConfig::new(protocol, target);
        config.ca_bundle.clone_from(&definition.ca_bundle);
        config.validating = phase == Phase::Validating;
        Ok(Webhook::new(config, &self.webhooks)?)
    }
}

fn review_version(version: admittance_definitions::ReviewVersion) -> admittance_webhook::ReviewVersion {
    match version {
        admittance_definitions::ReviewVersion::V1 => admittance_webhook::ReviewVersion::V1,
        admittance_definitions::ReviewVersion::V1Beta1 => admittance_webhook::ReviewVersion::V1Beta1,
    }
}

#[derive(Default)]
struct LoadedPlugins {
    loaded: HashMap<(usize, usize), (Plugin, PluginStatus)>,
    errors: Vec<StageError>,
}

/// One plugin that is to be loaded.
struct Order {
    chain: Arc<str>,
    phase: Phase,
    stage: Arc<str>,
    location: Location,
    reference: ModuleReference,
    pinned: Option<Digest>,
    settings: String,
    config: PluginConfig,
}

impl Order {
    fn new(chain: &ChainDefinition, stage: &StageDefinition, plugin: &PluginDefinition) -> Self {
        let mut limits = Limits {
            time: stage.timeout,
            ..Limits::default()
        };
        if let Some(memory) = plugin.memory {
            limits.memory = memory;
        }
        Self {
            chain: chain.name.as_str().into(),
            phase: chain.phase,
            stage: stage.name.as_str().into(),
            location: stage.location.clone(),
            reference: plugin.source.clone(),
            pinned: plugin.digest,
            settings: plugin.settings.to_string(),
            config: PluginConfig {
                name: stage.name.clone(),
                limits,
                grants: grants(&plugin.allow),
            },
        }
    }
}

fn grants(allow: &AllowDefinition) -> Grants {
    Grants {
        cluster: allow.cluster.iter().cloned().collect(),
        // Each is https, or it would not have been read.
        http: allow.http.iter().filter_map(Origin::of).collect(),
        environment: allow.environment.clone(),
    }
}
