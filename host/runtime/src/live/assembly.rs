//! Builds chains from definitions: obtains, prepares and loads their modules.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_admission::{
    Authorizer, Chain, Deadline, Failure, FailureKind, Hook, Mode, Mutator, Mutators, NamespaceSource, Phase,
    Reach, Request, Response, Stage,
};
use admittance_catalog::{Catalog, Digest, ModuleReference};
use admittance_definitions::{
    CandidateDefinition, CelDefinition, ChainDefinition, GroupDefinition, HookDefinition, PluginRole, Served,
    StageDefinition, WebhookDefinition,
};
use admittance_sandbox::{Sandbox, SandboxConfig};
use admittance_webhook::{Webhook, WebhookClients, WebhookConfig};
use async_trait::async_trait;
use tokio::{
    sync::{OnceCell, Semaphore},
    task::JoinSet,
};

use crate::{
    DisabledStage, Error, RevisionModule, StageError, StageErrorCause,
    changes::smallest_first::SmallestFirst,
    live::disabled::Stages,
    live::plugins::{LiveModules, Loaded, LoadedPlugin, Order, Plugins, Preparation, Progress, stage_name},
    rollout::candidate::{Shadowed, Subject, Trial, Trials},
    rollout::{Rollout, RolloutProgress},
    status::HookStatus,
    status::statistics::{StageStatistics, Statistics},
};

/// Chains, with information about their stages.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    pub(crate) chains: Vec<AssembledChain>,
    /// Every plugin, including candidates.
    pub(crate) plugins: Vec<Arc<Loaded>>,
    pub(crate) modules: Vec<RevisionModule>,
    /// Stages that are served in spite of an error, and how.
    pub(crate) tolerated: Vec<(StageError, Served)>,
}

impl Assembled {
    /// Lists the plugins of a stage.
    fn list(&mut self, plugins: &[Found], phase: Phase, chain: &str, stage: &StageDefinition) {
        for ((role, _), plugin) in stage.plugins().zip(plugins) {
            let Ok(plugin) = plugin else { continue };
            let address = address(phase, chain, &stage_name(stage, role));
            let is_candidate = matches!(role, PluginRole::Candidate);
            self.modules.push(plugin.module(&address, is_candidate));
            self.plugins.push(plugin.clone());
        }
    }
}

/// A chain, with information about each of its stages.
#[derive(Clone, Debug)]
pub(crate) struct AssembledChain {
    /// As it is defined.
    pub(crate) defined: Arc<Chain>,
    /// The same with the stages that are disabled, and the shares of candidates.
    pub(crate) chain: Arc<Chain>,
    pub(crate) stages: Vec<AssembledStage>,
}

impl AssembledChain {
    fn new(chain: Arc<Chain>, stages: Vec<AssembledStage>) -> Self {
        Self {
            defined: chain.clone(),
            chain,
            stages,
        }
    }

    /// The same with these stages disabled, and no others, and with the current shares of candidates.
    pub(crate) fn with_disabled(&self, disabled: &Stages) -> Self {
        let mut stages = self.stages.clone();
        let (phase, chain) = (self.defined.phase, &self.defined.name);
        for (stage, known) in self.defined.stages.iter().zip(&mut stages) {
            known.disabled = disabled.of(phase, chain, &stage.spec.name);
            known.progress = disabled.rollouts().of(phase, chain, &stage.spec.name);
        }
        let is_as_defined = |stage: &AssembledStage| stage.disabled.is_none() && stage.progress.is_none();
        if stages.iter().all(is_as_defined) {
            return Self::new(self.defined.clone(), stages);
        }
        let mut chain = Chain::clone(&self.defined);
        for (stage, known) in chain.stages.iter_mut().zip(&stages) {
            match &known.disabled {
                Some(disabled) if disabled.audit => stage.spec.mode = Mode::Audit,
                Some(_) => stage.spec.is_disabled = true,
                None => {}
            }
            if let Some(hook) = known.deciding() {
                stage.hook = Arc::new(hook);
            }
        }
        Self {
            defined: self.defined.clone(),
            chain: Arc::new(chain),
            stages,
        }
    }
}

/// Information about a stage. Lives as long as a table that has it.
#[derive(Clone, Debug)]
pub(crate) struct AssembledStage {
    pub(crate) hook: HookStatus,
    pub(crate) statistics: Arc<StageStatistics>,
    /// Its hook, if that is a plugin with a candidate.
    pub(crate) shadowed: Option<Arc<Shadowed>>,
    /// How far the roll-out of the candidate is, if it has one.
    pub(crate) progress: Option<Arc<RolloutProgress>>,
    /// How it is disabled, if it is.
    pub(crate) disabled: Option<Arc<DisabledStage>>,
}

impl AssembledStage {
    /// The candidate, compared with the plugin.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.shadowed.as_ref().map(|shadowed| &*shadowed.trial)
    }

    pub(crate) fn rollout(&self) -> Option<&Arc<Rollout>> {
        self.trial()?.rollout.as_ref()
    }

    /// The hook with the share of its candidate.
    fn deciding(&self) -> Option<Shadowed> {
        let share = self.progress.as_ref()?.share(self.rollout()?)?;
        Some(self.shadowed.as_ref()?.deciding(share))
    }
}

/// How the references of definitions are resolved to modules.
#[derive(Clone, Debug)]
pub(crate) enum Modules {
    /// The current modules.
    Current(Servers),
    /// The modules of an earlier revision, by phase, chain and stage, and whether it is the candidate's.
    AsOf(Arc<HashMap<(String, bool), Digest>>),
}

/// Which modules are requested from servers and registries while a table is built.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    /// Modules that are not in the store, and additionally these.
    All(Arc<HashSet<ModuleReference>>),
    /// These modules, unless they are in the store.
    Of(Arc<HashSet<ModuleReference>>),
}

impl Servers {
    pub(crate) fn all() -> Self {
        Self::All(Arc::default())
    }

    pub(crate) fn none() -> Self {
        Self::Of(Arc::default())
    }
}

/// Which stages may be built although their modules cannot be fetched now. Their calls fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MayFail<'a> {
    All,
    /// The stages of these definition files.
    Of(&'a HashSet<PathBuf>),
}

impl MayFail<'_> {
    fn includes(&self, order: &Order) -> bool {
        match self {
            Self::All => true,
            Self::Of(files) => files.contains(Path::new(&order.location.file)),
        }
    }
}

/// Builds chains from definitions. Lives as long as the host.
pub(crate) struct Assembler {
    pub(crate) sandbox: SandboxConfig,
    pub(crate) catalog: Catalog,
    pub(crate) webhooks: WebhookClients,
    /// For expressions that check permissions.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// For mutators that select namespaces.
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Created when the first plugin needs it: a host without plugins reserves no pool.
    pub(crate) started: OnceCell<Sandbox>,
    /// The plugins of the live tables.
    pub(crate) plugins: Plugins,
    pub(crate) trials: Trials,
    pub(crate) statistics: Statistics,
    /// Limits concurrent fetches of modules.
    pub(crate) fetchers: Semaphore,
    /// Limits concurrent compilation and configuration of plugins.
    pub(crate) compilers: SmallestFirst,
    /// Limits concurrent loading: a compiled plugin does not wait for the compiler.
    pub(crate) loaders: Semaphore,
    /// Whether modules of files and compiled forms are kept in the store.
    pub(crate) fills_store: bool,
    /// The selection of requests that reach the chains.
    pub(crate) reach: Arc<Reach>,
}

/// The limit of concurrent fetches, compilations and loads before requests are served.
pub(crate) const WORKERS: usize = 4;

/// The limit of concurrent compilations and configurations while requests are served: a plugin whose
/// `configure` hangs does not delay the next.
const WORKERS_IN_BACKGROUND: usize = 2;

/// The index of a chain, that of its stage, and that of one of the stage's plugins.
type Position = (usize, usize, usize);

/// A plugin of a stage, or why its module cannot be fetched now.
type Found = Result<Arc<Loaded>, Unavailable>;

impl Assembler {
    /// From now on gives priority to requests: loads one plugin at a time, and compiles few.
    pub(crate) fn work_in_background(&self) {
        self.compilers.set_limit(WORKERS_IN_BACKGROUND);
        // The permits are taken, so later calls have no effect.
        self.loaders.forget_permits(WORKERS - 1);
        if let Some(sandbox) = self.started.get() {
            sandbox.prepare_in_background();
        }
    }

    pub(crate) async fn assemble(
        self: &Arc<Self>,
        definitions: Vec<ChainDefinition>,
        modules: Modules,
        live: &LiveModules,
        may_fail: MayFail<'_>,
    ) -> Result<Assembled, Error> {
        let mut loaded = self.load_plugins(&definitions, modules, live, may_fail).await?;
        let mut assembled = Assembled {
            tolerated: std::mem::take(&mut loaded.tolerated),
            ..Assembled::default()
        };
        let mut errors = std::mem::take(&mut loaded.errors);
        for (chain_index, definition) in definitions.into_iter().enumerate() {
            let name: Arc<str> = definition.name.into();
            let (mut stages, mut known) = (Vec::new(), Vec::new());
            for (stage_index, stage) in definition.stages.into_iter().enumerate() {
                let address = address(definition.phase, &name, &stage.spec.name);
                let built = match &stage.hook {
                    HookDefinition::Webhook(webhook) => self.webhook(webhook, definition.phase),
                    HookDefinition::Cel(cel) => Ok(self.cel(cel)),
                    HookDefinition::Mutators(mutators) => Ok(self.mutators(mutators)),
                    HookDefinition::Plugin(_) | HookDefinition::Group(_) => {
                        let Some(plugins) = loaded.take(chain_index, stage_index, &stage) else {
                            // Its errors are reported separately.
                            continue;
                        };
                        assembled.list(&plugins, definition.phase, &name, &stage);
                        match &stage.hook {
                            HookDefinition::Group(group) => Ok(BuiltStage::group(group, plugins)),
                            _ => match self.plugin(plugins, &stage, &address) {
                                Some(built) => Ok(built),
                                None => continue,
                            },
                        }
                    }
                };
                match built {
                    Ok(built) => {
                        known.push(AssembledStage {
                            statistics: self.statistics.of(&address, &built.identity),
                            hook: built.status,
                            shadowed: built.shadowed,
                            progress: None,
                            disabled: None,
                        });
                        stages.push(Stage {
                            spec: stage.spec,
                            hook: built.hook,
                        });
                    }
                    Err(cause) => {
                        errors.push(StageError::new(&name, &stage.spec.name, stage.location, cause));
                    }
                }
            }
            let mut chain = Chain::new(name, definition.rules, stages);
            chain.phase = definition.phase;
            chain.namespace = definition.namespace.map(Into::into);
            assembled.chains.push(AssembledChain::new(Arc::new(chain), known));
        }
        if errors.is_empty() {
            Ok(assembled)
        } else {
            Err(Error::Stages(errors))
        }
    }

    /// A chain created by the program itself.
    pub(crate) fn native(&self, chain: Arc<Chain>) -> AssembledChain {
        let known = |stage: &Stage| AssembledStage {
            hook: HookStatus::Native,
            statistics: self
                .statistics
                .of(&address(chain.phase, &chain.name, &stage.spec.name), "native"),
            shadowed: None,
            progress: None,
            disabled: None,
        };
        let stages = chain.stages.iter().map(known).collect();
        AssembledChain::new(chain, stages)
    }

    /// The hook of a stage with one plugin, and perhaps a candidate.
    fn plugin(&self, plugins: Vec<Found>, stage: &StageDefinition, address: &str) -> Option<BuiltStage> {
        let mut plugins = plugins.into_iter();
        Some(match (plugins.next()?, plugins.next(), &stage.candidate) {
            (Err(unavailable), ..) => BuiltStage::unavailable(unavailable),
            (Ok(plugin), Some(Ok(candidate)), Some(definition)) => {
                self.shadowed(&plugin, &candidate, definition, address, stage)
            }
            // Without its candidate there is nothing to compare the plugin with.
            (Ok(plugin), ..) => BuiltStage::plugin(&plugin),
        })
    }

    fn shadowed(
        &self,
        plugin: &Arc<Loaded>,
        candidate: &Arc<Loaded>,
        definition: &CandidateDefinition,
        address: &str,
        stage: &StageDefinition,
    ) -> BuiltStage {
        let subject = Subject {
            stage: address.to_owned(),
            plugin: plugin.identity(),
            candidate: candidate.identity(),
            share: definition.share,
            rollout: definition.rollout.clone().map(|rollout| {
                let subject = candidate.content(&rollout.to_json().to_string());
                (rollout, subject)
            }),
        };
        let trial = self
            .trials
            .of(subject, plugin.status.clone(), candidate.status.clone());
        let shadowed = Arc::new(Shadowed {
            plugin: plugin.plugin.clone(),
            candidate: candidate.plugin.clone(),
            timeout: stage.spec.timeout,
            trial,
            decides: None,
        });
        BuiltStage {
            hook: shadowed.clone(),
            shadowed: Some(shadowed),
            ..BuiltStage::plugin(plugin)
        }
    }

    /// Loads every plugin of the definitions. Plugins that are already live are reused.
    async fn load_plugins(
        self: &Arc<Self>,
        definitions: &[ChainDefinition],
        modules: Modules,
        live: &LiveModules,
        may_fail: MayFail<'_>,
    ) -> Result<LoadedPlugins, Error> {
        let wanted = orders(definitions);
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
        if self.compilers.limit() <= WORKERS_IN_BACKGROUND {
            sandbox.prepare_in_background();
        }
        // Stages with the same module and settings share one preparation.
        let mut preparations: HashMap<_, Arc<Preparation>> = HashMap::new();
        let mut tasks = JoinSet::new();
        // And all stages of a table have the same version of a module.
        let resolver = Arc::new(self.catalog.resolver());
        for (position, order) in wanted {
            let preparation = preparations.entry(order.preparation()).or_default().clone();
            let (assembler, sandbox, modules) = (self.clone(), sandbox.clone(), modules.clone());
            let (resolver, live) = (resolver.clone(), live.clone());
            tasks.spawn(async move {
                let plugins = &assembler.plugins;
                let loading = plugins.load(&assembler, &sandbox, &resolver, &order, &modules, &preparation);
                let loaded = plugins.or_live(loading.await, &order, &live);
                (assembler.progress)(match &loaded {
                    Ok(LoadedPlugin {
                        plugin, is_new: true, ..
                    }) => Progress::Loaded(plugin.clone()),
                    Ok(_) => Progress::Kept,
                    Err(_) => Progress::Failed,
                });
                (position, order, loaded)
            });
        }
        while let Some(task) = tasks.join_next().await {
            let (position, order, loaded) = task.map_err(Error::Interrupted)?;
            let may_fail = may_fail.includes(&order);
            result.add(position, order, loaded, may_fail);
        }
        result
            .errors
            .sort_by(|a, b| (&a.chain, &a.stage).cmp(&(&b.chain, &b.stage)));
        Ok(result)
    }

    fn cel(&self, definition: &CelDefinition) -> BuiltStage {
        BuiltStage {
            identity: definition.policy.identity(),
            status: HookStatus::Cel {
                expressions: definition.policy.summary(),
            },
            hook: definition.hook(self.authorizer.clone(), self.sandbox.cluster.clone()),
            shadowed: None,
        }
    }

    fn mutators(&self, mutators: &Arc<[Mutator]>) -> BuiltStage {
        let names: Vec<String> = mutators.iter().map(|mutator| mutator.name.clone()).collect();
        BuiltStage {
            identity: names.join(" "),
            hook: Arc::new(Mutators::new(Arc::clone(mutators), self.namespaces.clone())),
            status: HookStatus::Mutators { mutators: names },
            shadowed: None,
        }
    }

    fn webhook(&self, definition: &WebhookDefinition, phase: Phase) -> Result<BuiltStage, StageErrorCause> {
        let mut config = WebhookConfig::new(definition.protocol.clone(), definition.target.clone());
        config.ca_bundle.clone_from(&definition.ca_bundle);
        config.validating = phase == Phase::Validating;
        let hook = Webhook::new(config, &self.webhooks)?;
        let url = hook.to_string();
        Ok(BuiltStage {
            hook: Arc::new(hook),
            identity: url.clone(),
            status: HookStatus::Webhook { url },
            shadowed: None,
        })
    }
}

/// A stage's hook, with information about it.
struct BuiltStage {
    hook: Arc<dyn Hook>,
    status: HookStatus,
    /// The key of its statistics: another key starts new ones.
    identity: String,
    /// The hook, if it is a plugin with a candidate.
    shadowed: Option<Arc<Shadowed>>,
}

impl BuiltStage {
    fn unavailable(unavailable: Unavailable) -> Self {
        Self {
            status: HookStatus::Unavailable {
                source: unavailable.source.clone(),
                reason: unavailable.reason.clone(),
            },
            hook: Arc::new(unavailable),
            identity: String::new(),
            shadowed: None,
        }
    }

    /// A group of these plugins.
    fn group(definition: &GroupDefinition, plugins: Vec<Found>) -> Self {
        let expression = definition.expression.text().trim().to_owned();
        let mut identity = expression.clone();
        let (mut hooks, mut statuses) = (Vec::new(), BTreeMap::new());
        for (member, plugin) in definition.members.iter().zip(plugins) {
            let built = match plugin {
                Ok(plugin) => Self::plugin(&plugin),
                Err(unavailable) => Self::unavailable(unavailable),
            };
            identity += &format!(" {}", built.identity);
            hooks.push(built.hook);
            statuses.insert(member.name.to_string(), built.status);
        }
        Self {
            hook: definition.hook(hooks),
            status: HookStatus::Group {
                expression,
                plugins: statuses,
            },
            identity,
            shadowed: None,
        }
    }

    fn plugin(loaded: &Loaded) -> Self {
        Self {
            hook: loaded.plugin.clone(),
            status: HookStatus::Plugin(loaded.status.clone()),
            identity: loaded.status.digest.clone(),
            shadowed: None,
        }
    }
}

#[derive(Default)]
struct LoadedPlugins {
    plugins: HashMap<Position, Found>,
    tolerated: Vec<(StageError, Served)>,
    errors: Vec<StageError>,
}

impl LoadedPlugins {
    fn add(
        &mut self,
        position: Position,
        order: Order,
        loaded: Result<LoadedPlugin, StageErrorCause>,
        may_fail: bool,
    ) {
        let reference = order.reference.to_string();
        let error = |cause| StageError {
            candidate: order.is_candidate,
            ..StageError::new(&order.chain, &order.stage, order.location, cause)
        };
        match loaded {
            Ok(loaded) => {
                self.plugins.insert(position, Ok(loaded.plugin));
                // A skipped fetch is not an error if the previous module is available.
                let cause = loaded.fallback_cause.filter(|cause| !cause.is_not_fetched());
                let tolerated = cause.map(|cause| (error(cause), Served::LastModules));
                self.tolerated.extend(tolerated);
            }
            Err(cause) if may_fail && cause.is_transient() => {
                let unavailable = Unavailable {
                    source: reference,
                    reason: cause.to_string(),
                };
                self.plugins.insert(position, Err(unavailable));
                self.tolerated.push((error(cause), Served::FailingStages));
            }
            Err(cause) => self.errors.push(error(cause)),
        }
    }

    /// The plugins of a stage; `None` if one has an error.
    fn take(&mut self, chain: usize, stage: usize, definition: &StageDefinition) -> Option<Vec<Found>> {
        let plugins = definition.plugins().enumerate();
        plugins
            .map(|(plugin, _)| self.plugins.remove(&(chain, stage, plugin)))
            .collect()
    }
}

/// A placeholder for a plugin whose module cannot be fetched now. Lives until a table has the module.
struct Unavailable {
    source: String,
    reason: String,
}

#[async_trait]
impl Hook for Unavailable {
    async fn admit(&self, _: &Request, _: Deadline) -> Result<Response, Failure> {
        let Self { source, reason } = self;
        let message = format!("the plugin {source} is not loaded: {reason}");
        Err(Failure::new(FailureKind::Unreachable, message))
    }
}

fn orders(definitions: &[ChainDefinition]) -> Vec<(Position, Order)> {
    let mut orders = Vec::new();
    for (chain_index, chain) in definitions.iter().enumerate() {
        for (stage_index, stage) in chain.stages.iter().enumerate() {
            for (plugin_index, (role, plugin)) in stage.plugins().enumerate() {
                let order = Order::new(chain, stage, role, plugin);
                orders.push(((chain_index, stage_index, plugin_index), order));
            }
        }
    }
    orders
}

/// Phase, chain and stage as one text, in the format of commands.
pub(crate) fn address(phase: Phase, chain: &str, stage: &str) -> String {
    format!("{phase}:{chain}/{stage}")
}
