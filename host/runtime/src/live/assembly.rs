//! Builds chains from definitions: fetches their modules, and prepares and loads their plugins.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{
    Authorizer, Chain, Deadline, Failure, FailureKind, Hook, NamespaceSource, Phase, PolicyHttp, Reach, Request,
    Response, Stage,
};
use admittance_catalog::{Catalog, Digest, ModuleReference};
use admittance_definitions::{
    CandidateDefinition, ChainDefinition, HookContext, HookError, HookStatus, PreparedHook, Served, StageDefinition,
    WebhookDefinition, module_location,
};
use admittance_sandbox::{Sandbox, SandboxConfig};
use admittance_webhook::{Webhook, WebhookClients, WebhookConfig};
use async_trait::async_trait;
use tokio::{
    sync::{OnceCell, Semaphore},
    task::JoinSet,
};

use crate::{
    Error, RevisionModule, StageError, StageErrorCause,
    changes::smallest_first::SmallestFirstLimit,
    live::plugins::{LiveModules, LivePlugin, LoadedPlugin, PluginOrder, Plugins, Progress, SharedPreparation},
    live::stage::{LiveChain, LiveStage},
    rollout::candidate::{HookWithCandidate, TrialIdentity, Trials},
    status::statistics::Statistics,
};

#[derive(Debug, Default)]
pub(crate) struct AssembledTable {
    pub(crate) chains: Vec<Arc<LiveChain>>,
    /// All plugins of the table's stages, including the plugins of candidates.
    pub(crate) plugins: Vec<(RevisionModule, Arc<LivePlugin>)>,
    /// The errors that did not prevent the table from being built, each with what is served instead.
    pub(crate) tolerated_errors: Vec<(StageError, Served)>,
    errors: Vec<StageError>,
}

#[derive(Clone, Debug)]
pub(crate) enum Modules {
    Current(FetchScope),
    /// The modules that an earlier revision used. Key: the name of the stage (`PHASE:CHAIN/STAGE`), and whether the
    /// module belongs to the stage's candidate (`true`) or to its plugin (`false`). Value: the digest of the module.
    AsOf(Arc<HashMap<(String, bool), Digest>>),
}

/// The modules that may be requested from servers and registries while a table is built.
#[derive(Clone, Debug)]
pub(crate) enum FetchScope {
    /// Any module may be requested from its server if it is not in the store of modules. The modules in this set are
    /// due for a refresh, so they are requested even if they are in the store.
    All(Arc<HashSet<ModuleReference>>),
    /// Only modules in this set may be requested from their servers, and only if they are not in the store of modules.
    Of(Arc<HashSet<ModuleReference>>),
}

impl FetchScope {
    pub(crate) fn all() -> Self {
        Self::All(Arc::default())
    }

    pub(crate) fn none() -> Self {
        Self::Of(Arc::default())
    }
}

/// The stages that may be built although their modules cannot be fetched. Each call of such a stage then fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MissingModules<'a> {
    All,
    Of(&'a HashSet<PathBuf>),
}

impl MissingModules<'_> {
    fn includes(&self, order: &PluginOrder) -> bool {
        match self {
            Self::All => true,
            Self::Of(files) => files.contains(Path::new(&order.location.file)),
        }
    }
}

pub(crate) struct Assembler {
    pub(crate) sandbox: SandboxConfig,
    pub(crate) catalog: Catalog,
    pub(crate) webhooks: WebhookClients,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    /// The sandbox that runs plugins. It reserves much memory, so it is created only when the first plugin is loaded.
    pub(crate) shared_sandbox: OnceCell<Sandbox>,
    pub(crate) plugins: Plugins,
    pub(crate) trials: Trials,
    pub(crate) statistics: Statistics,
    pub(crate) fetchers: Semaphore,
    pub(crate) compilers: SmallestFirstLimit,
    /// Loading has a limit of its own, so that a compiled plugin can be loaded while others are compiled.
    pub(crate) loaders: Semaphore,
    /// Whether fetched modules and compiled plugins are written to the store.
    pub(crate) fills_store: bool,
    pub(crate) reach: Arc<Reach>,
}

/// The maximum number of modules that are fetched, compiled or loaded at a time before the host serves requests.
pub(crate) const WORKERS: usize = 4;

/// The maximum number of plugins that are compiled at a time while the host serves requests. It is two, so that a
/// plugin whose `configure` hangs does not delay all other plugins.
const WORKERS_IN_BACKGROUND: usize = 2;

impl Assembler {
    /// Leaves more resources to requests from now on: one plugin is loaded at a time, and at most two compiled.
    pub(crate) fn limit_to_background(&self) {
        self.compilers.set_limit(WORKERS_IN_BACKGROUND);
        self.loaders.forget_permits(WORKERS - 1);
        if let Some(sandbox) = self.shared_sandbox.get() {
            sandbox.limit_compilations();
        }
    }

    pub(crate) async fn assemble(
        self: &Arc<Self>,
        definitions: Vec<ChainDefinition>,
        modules: Modules,
        live_modules: &LiveModules,
        tolerated_missing: MissingModules<'_>,
    ) -> Result<AssembledTable, Error> {
        let mut loaded_plugins = self
            .load_plugins(&definitions, modules, live_modules, tolerated_missing)
            .await?
            .into_iter();
        let mut table = AssembledTable::default();
        for definition in definitions {
            let name: Arc<str> = definition.name.into();
            let build_stage = |stage: StageDefinition| {
                let plugins = loaded_plugins.by_ref().take(stage.plugins().count()).collect();
                self.build_stage(definition.phase, &name, stage, plugins, &mut table)
            };
            let stages = definition.stages.into_iter().filter_map(build_stage).collect();
            let mut chain = Chain::new(name.clone(), definition.rules, Vec::new()).with_stages(stages);
            chain.phase = definition.phase;
            chain.namespace = definition.namespace.map(Into::into);
            table.chains.push(Arc::new(chain));
        }
        if table.errors.is_empty() {
            Ok(table)
        } else {
            Err(Error::Stages(table.errors))
        }
    }

    pub(crate) fn native_chain(&self, chain: &Chain) -> Arc<LiveChain> {
        let (phase, name) = (chain.phase, chain.name.clone());
        let native_stage = |stage: &Stage| {
            let address = stage_address(phase, &name, &stage.spec.name);
            LiveStage::native(stage.clone(), self.statistics.get_or_create(&address, "native"))
        };
        let stages = chain.stages.iter().map(native_stage).collect();
        Arc::new(chain.clone().with_stages(stages))
    }

    /// Builds a stage that uses these plugins. Adds errors to `table`.
    fn build_stage(
        &self,
        phase: Phase,
        chain: &Arc<str>,
        stage: StageDefinition,
        plugins: Vec<OrderedPlugin>,
        table: &mut AssembledTable,
    ) -> Option<LiveStage> {
        let error_count_before = table.errors.len();
        let loaded_plugins: Vec<_> = plugins
            .into_iter()
            .filter_map(|plugin| plugin.add_to_table(table))
            .collect();
        if table.errors.len() > error_count_before {
            return None;
        }
        let address = stage_address(phase, chain, &stage.spec.name);
        let hook_with_candidate = match (&stage.candidate, &*loaded_plugins) {
            (Some(definition), [Ok(plugin), Ok(candidate)]) => {
                Some(self.create_hook_with_candidate(plugin, candidate, definition, &address, stage.spec.timeout))
            }
            _ => None,
        };
        let connect = |webhook: &WebhookDefinition, phase| self.connect(webhook, phase);
        let http = self.sandbox.http.as_ref().map(|sender| PolicyHttp {
            grants: Arc::clone(&self.sandbox.policy_http),
            sender: Arc::clone(sender),
        });
        let hook_context = HookContext {
            phase,
            plugins: loaded_plugins.into_iter().map(prepare_hook).collect(),
            authorizer: &self.authorizer,
            cluster: self.sandbox.cluster.as_ref(),
            http: http.as_ref(),
            namespaces: &self.namespaces,
            connect: &connect,
        };
        match stage.hook.prepare(hook_context) {
            Ok(prepared_hook) => {
                let statistics = self.statistics.get_or_create(&address, &prepared_hook.identity);
                Some(LiveStage::new(
                    stage.spec,
                    prepared_hook,
                    hook_with_candidate,
                    statistics,
                ))
            }
            Err(error) => {
                let cause = StageErrorCause::Hook(error);
                let error = StageError::new(chain, &stage.spec.name, stage.location, cause);
                table.errors.push(error);
                None
            }
        }
    }

    fn connect(&self, definition: &WebhookDefinition, phase: Phase) -> Result<(Arc<dyn Hook>, String), HookError> {
        let mut config = WebhookConfig::new(definition.protocol.clone(), definition.target.clone());
        config.ca_bundle.clone_from(&definition.ca_bundle);
        config.is_validating = phase == Phase::Validating;
        let webhook = Webhook::new(config, &self.webhooks)?;
        let url = webhook.to_string();
        Ok((Arc::new(webhook), url))
    }

    fn create_hook_with_candidate(
        &self,
        plugin: &LivePlugin,
        candidate: &LivePlugin,
        definition: &CandidateDefinition,
        address: &str,
        timeout: Duration,
    ) -> Arc<HookWithCandidate> {
        let identity = TrialIdentity {
            stage: address.to_owned(),
            plugin: plugin.identity(),
            candidate: candidate.identity(),
            share: definition.share,
            rollout: definition.rollout.clone().map(|rollout| {
                let subject = candidate.content_digest(&rollout.to_json().to_string());
                (rollout, subject)
            }),
        };
        let trial = self
            .trials
            .get_or_create(identity, plugin.status.clone(), candidate.status.clone());
        Arc::new(HookWithCandidate {
            plugin: plugin.plugin.clone(),
            candidate: candidate.plugin.clone(),
            timeout,
            trial,
            decides: None,
        })
    }

    /// Loads the plugins concurrently, and returns them in the order in which the definitions use them.
    async fn load_plugins(
        self: &Arc<Self>,
        definitions: &[ChainDefinition],
        modules: Modules,
        live_modules: &LiveModules,
        tolerated_missing: MissingModules<'_>,
    ) -> Result<Vec<OrderedPlugin>, Error> {
        let plugin_orders = list_orders(definitions);
        if plugin_orders.is_empty() {
            return Ok(Vec::new());
        }
        (self.progress)(Progress::Started {
            plugins: plugin_orders.len(),
        });
        let sandbox = self
            .shared_sandbox
            .get_or_try_init(async || Sandbox::new(self.sandbox.clone()))
            .await
            .map_err(Error::Sandbox)?;
        if self.compilers.limit() <= WORKERS_IN_BACKGROUND {
            sandbox.limit_compilations();
        }
        let mut preparations: HashMap<_, Arc<SharedPreparation>> = HashMap::new();
        let mut tasks = JoinSet::new();
        // All stages share a resolver, so that they get the same version of a module.
        let resolver = Arc::new(self.catalog.resolver());
        for (position, order) in plugin_orders.into_iter().enumerate() {
            let preparation = preparations.entry(order.preparation_key()).or_default().clone();
            let (assembler, sandbox, modules) = (self.clone(), sandbox.clone(), modules.clone());
            let (resolver, live) = (resolver.clone(), live_modules.clone());
            tasks.spawn(async move {
                let plugins = &assembler.plugins;
                let loading = plugins.load(&assembler, &sandbox, &resolver, &order, &modules, &preparation);
                let load_result = plugins.fall_back_to_live(loading.await, &order, &live);
                (assembler.progress)(match &load_result {
                    Ok(LoadedPlugin {
                        plugin, is_new: true, ..
                    }) => Progress::Loaded(plugin.clone()),
                    Ok(_) => Progress::Kept,
                    Err(_) => Progress::Failed,
                });
                (position, order, load_result)
            });
        }
        let mut plugins = Vec::new();
        while let Some(task) = tasks.join_next().await {
            let (position, order, loaded) = task.map_err(Error::Interrupted)?;
            let may_fail = tolerated_missing.includes(&order);
            let plugin = OrderedPlugin {
                order,
                loaded,
                may_fail,
            };
            plugins.push((position, plugin));
        }
        plugins.sort_by_key(|(position, _)| *position);
        Ok(plugins.into_iter().map(|(_, plugin)| plugin).collect())
    }
}

type PluginOrReason = Result<Arc<LivePlugin>, UnavailablePlugin>;

fn prepare_hook(plugin: PluginOrReason) -> PreparedHook {
    match plugin {
        Ok(plugin) => plugin.prepared_hook(),
        Err(unavailable) => {
            let UnavailablePlugin { source, reason } = &unavailable;
            let status = HookStatus::new("unavailable", source.clone())
                .with_fact("source", source.clone())
                .with_fact("reason", reason.clone());
            PreparedHook::new(Arc::new(unavailable), status)
        }
    }
}

struct OrderedPlugin {
    order: PluginOrder,
    loaded: Result<LoadedPlugin, StageErrorCause>,
    /// Whether the stage that uses this plugin may be built even if the plugin cannot be loaded.
    may_fail: bool,
}

impl OrderedPlugin {
    fn add_to_table(self, table: &mut AssembledTable) -> Option<PluginOrReason> {
        let order = self.order;
        let stage_error = |cause| {
            let is_of_module = matches!(cause, StageErrorCause::Module(_));
            let module = is_of_module.then(|| module_location(&order.location, order.is_candidate));
            let location = module.flatten().unwrap_or_else(|| order.location.clone());
            StageError {
                candidate: order.is_candidate,
                ..StageError::new(&order.chain, &order.stage, location, cause)
            }
        };
        match self.loaded {
            Ok(loaded_plugin) => {
                let cause = loaded_plugin.fallback_cause.filter(|cause| !cause.is_not_fetched());
                let tolerated_error = cause.map(|cause| (stage_error(cause), Served::LastModules));
                table.tolerated_errors.extend(tolerated_error);
                let plugin = loaded_plugin.plugin;
                let (address, is_candidate) = order.stage_address();
                let module = plugin.revision_module(&address, is_candidate);
                table.plugins.push((module, plugin.clone()));
                Some(Ok(plugin))
            }
            Err(cause) if self.may_fail && cause.is_transient() => {
                let unavailable = UnavailablePlugin {
                    source: order.reference.to_string(),
                    reason: cause.to_string(),
                };
                table.tolerated_errors.push((stage_error(cause), Served::FailingStages));
                Some(Err(unavailable))
            }
            Err(cause) => {
                table.errors.push(stage_error(cause));
                None
            }
        }
    }
}

/// A hook that takes the place of a plugin whose module cannot be fetched, and fails each call with the reason.
struct UnavailablePlugin {
    source: String,
    reason: String,
}

#[async_trait]
impl Hook for UnavailablePlugin {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        let Self { source, reason } = self;
        let message = format!("the plugin {source} is not loaded: {reason}");
        Err(Failure::new(FailureKind::Unreachable, message))
    }
}

fn list_orders(definitions: &[ChainDefinition]) -> Vec<PluginOrder> {
    let mut orders = Vec::new();
    for chain in definitions {
        for stage in &chain.stages {
            let plugins = stage.plugins();
            orders.extend(plugins.map(|(part, plugin)| PluginOrder::new(chain, part, plugin)));
        }
    }
    orders
}

pub(crate) fn stage_address(phase: Phase, chain: &str, stage: &str) -> String {
    format!("{phase}:{chain}/{stage}")
}
