//! Evaluates requests with definitions that are not live, in a separate sandbox.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{Outcome, Phase, Request, Selection};
use admittance_definitions::{ChainDefinition, ChainId};
use admittance_sandbox::SharedModule;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::{Instant, timeout},
};

use crate::{
    DecisionRecord, Error, Host, Table,
    changes::smallest_first::SmallestFirstLimit,
    changes::start::modules_of,
    history::HistoryEntry,
    live::assembly::{AssembledTable, Assembler, FetchScope, MissingModules, Modules},
    live::plugins::{LiveModules, LivePlugin, Plugins},
    live::source::{TableSource, plugins, run_blocking},
    live::stage::{LiveChain, stage_calling_server},
};

/// The maximum number of evaluations at a time. Each of them runs its plugins on at most one thread.
const MAX_EVALUATIONS: usize = 2;

/// The maximum number of plugin calls at a time in all evaluations. These calls take no slots from the live plugins.
const MAX_CALLS_IN_FLIGHT: u32 = 8;

/// The number of evaluations whose plugins stay loaded. Users often evaluate several objects with the same chains, and
/// then only the first evaluation has to compile the plugins.
const MAX_KEPT_EVALUATIONS: usize = 4;

/// The maximum number of plugins of one evaluation that stay loaded. If an evaluation has more, none stays loaded.
const MAX_KEPT_PLUGINS: usize = 16;

/// The maximum size of a settings schema in the result of an evaluation, in bytes. A larger schema is omitted.
const MAX_SCHEMA_SIZE: usize = 256 << 10;

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The chains with which [`Host::evaluate`] evaluates a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EvaluatedChains<'a> {
    /// The chains that the definitions in this text define. The definitions need not be stored.
    Text {
        /// The text of one or more definitions, as in a definition file.
        text: &'a str,
        /// The name of the text in error messages, such as `chain.yaml`.
        name: &'a str,
    },
    /// A chain of the live table. It is evaluated with the same modules as in the live table.
    Live(&'a ChainId),
}

/// Options of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EvaluateOptions {
    /// Settings that replace the settings of plugins. The key is the name of a stage, such as `images`. If the stage
    /// has a group of plugins, the key also names the member of the group: `images/signed`.
    pub settings: BTreeMap<String, Json>,
    /// Whether webhooks may be called. If not, the evaluation fails if a matching chain contains a webhook.
    pub call_webhooks: bool,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EvaluationResult {
    /// The request that was evaluated, marked as a dry run.
    pub request: Request,
    /// The outcome of the evaluated chains.
    pub outcome: Outcome,
    /// The decision on the evaluated request, in the form of the admin API. Its id is 0, because it is not in the log.
    pub decision: DecisionRecord,
    /// The JSON Schema of the settings of each stage's plugin. A stage is left out if its plugin has none.
    pub settings_schemas: BTreeMap<String, Json>,
    /// The chains that the request did not pass, because none of their rules matches.
    pub unmatched: Vec<UnmatchedChain>,
}

/// A chain that a request does not pass, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnmatchedChain {
    /// The name of the chain.
    pub chain: String,
    /// The phase of the chain.
    pub phase: Phase,
    /// The rule that comes closest to matching the request, and the part of it that does not match.
    pub reason: String,
}

impl UnmatchedChain {
    /// Returns the chain, with the reason why it does not match the request; `None` if it matches.
    pub(crate) fn explain(chain: &LiveChain, request: &Request) -> Option<Self> {
        Some(Self {
            chain: chain.name.to_string(),
            phase: chain.phase,
            reason: chain.mismatch(request)?.to_string(),
        })
    }
}

/// The reason why an evaluation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The text contains mistakes.
    #[error(transparent)]
    Definitions(#[from] admittance_definitions::PlanError),
    /// The chains cannot be built.
    #[error(transparent)]
    Chains(#[from] Error),
    /// The live table has no chain of this name, or the chain has no definition because it was defined in code.
    #[error("there is no definition of a live chain {0}")]
    NoSuchChain(ChainId),
    /// The options contain settings for a stage without a plugin.
    #[error(
        "there are settings for {0}, but none of the chains has a plugin of that name: write the stage, `images`, or the stage and the member of its group, `images/signed`"
    )]
    NoSuchPlugin(String),
    /// A chain that matches the request has a stage that calls a webhook. The webhook would get the request, and the
    /// options of this evaluation do not permit that.
    #[error("{0} calls a webhook, which would be sent the request; allow that explicitly (`callWebhooks`)")]
    Webhook(String),
    /// The evaluation exceeded its time limit.
    #[error(
        "the evaluation took longer than {} s, most of it before any stage was called; if its modules take long to \
         compile, a dry run of `apply` compiles them into the store first", TIME_LIMIT.as_secs()
    )]
    TookTooLong,
    /// The maximum number of evaluations is running already, and none of them ended while this one waited.
    #[error("{} evaluations are going on, and none ended in time; try again", MAX_EVALUATIONS)]
    TooMany,
}

#[derive(derive_more::Debug)]
#[debug("Evaluator {{ .. }}")]
pub(crate) struct Evaluator {
    pub(crate) assembler: Arc<Assembler>,
    slots: Semaphore,
    kept_plugins: Mutex<VecDeque<KeptPlugins>>,
}

/// The plugins of an evaluation, which stay loaded until later evaluations replace them.
struct KeptPlugins {
    plugins: Vec<Arc<LivePlugin>>,
    /// The part of the modules' compiled code that does not depend on settings. While it is kept here, another
    /// evaluation of the same modules with other settings need not compile this part again.
    _modules: Vec<SharedModule>,
}

impl Evaluator {
    /// Creates an evaluator with slots and a compiler of its own, so that evaluations do not delay requests.
    pub(crate) fn new(live_assembler: &Assembler) -> Self {
        let mut sandbox = live_assembler.sandbox.clone();
        sandbox.calls_in_flight = sandbox.calls_in_flight.min(MAX_CALLS_IN_FLIGHT);
        let assembler = Assembler {
            sandbox,
            catalog: live_assembler.catalog.clone(),
            webhooks: live_assembler.webhooks.clone(),
            authorizer: live_assembler.authorizer.clone(),
            namespaces: live_assembler.namespaces.clone(),
            progress: Arc::new(|_| ()),
            shared_sandbox: OnceCell::new(),
            plugins: Plugins::default(),
            trials: Default::default(),
            statistics: Default::default(),
            fetchers: Semaphore::new(1),
            compilers: SmallestFirstLimit::new(1),
            loaders: Semaphore::new(1),
            fills_store: false,
            reach: live_assembler.reach.clone(),
        };
        Self {
            assembler: Arc::new(assembler),
            slots: Semaphore::new(MAX_EVALUATIONS),
            kept_plugins: Mutex::default(),
        }
    }

    fn keep_loaded(&self, plugins: Vec<Arc<LivePlugin>>) {
        let Some(sandbox) = self.assembler.shared_sandbox.get() else {
            return;
        };
        if plugins.is_empty() || plugins.len() > MAX_KEPT_PLUGINS {
            return;
        }
        let digests = plugins.iter().filter_map(|plugin| plugin.status.digest.parse().ok());
        let modules = digests.map(|digest| sandbox.share(digest)).collect();
        let mut kept_plugins = self.kept_plugins.lock();
        let is_same = |entry: &KeptPlugins| {
            let mut pairs = entry.plugins.iter().zip(&plugins);
            entry.plugins.len() == plugins.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
        };
        kept_plugins.retain(|entry| !is_same(entry));
        kept_plugins.push_front(KeptPlugins {
            plugins,
            _modules: modules,
        });
        kept_plugins.truncate(MAX_KEPT_EVALUATIONS);
    }
}

impl Host {
    /// Evaluates a request with chains that are not live, or with a chain that is. Nothing goes live. The evaluation is
    /// not counted, recorded or written to the history. The request is a dry run, so that a stage with side effects
    /// refuses it.
    ///
    /// Candidates are not called. An evaluation may take 30 s, and at most two run at a time. Plugins have their usual
    /// limits, but run in slots of their own. Dropping the future ends the evaluation, including compilations.
    ///
    /// # Errors
    ///
    /// Fails if the chains cannot be built, or the time limit is exceeded.
    pub async fn evaluate(
        &self,
        chains: EvaluatedChains<'_>,
        request: Request,
        options: &EvaluateOptions,
    ) -> Result<EvaluationResult, EvaluateError> {
        let start_time = Instant::now();
        let evaluator = &self.0.evaluator;
        let permit = timeout(TIME_LIMIT, evaluator.slots.acquire()).await;
        let _turn = permit.ok().and_then(Result::ok).ok_or(EvaluateError::TooMany)?;
        let remaining_time = TIME_LIMIT.saturating_sub(start_time.elapsed());
        timeout(remaining_time, self.evaluate_now(chains, request, options))
            .await
            .map_err(|_| EvaluateError::TookTooLong)?
    }

    async fn evaluate_now(
        &self,
        chains: EvaluatedChains<'_>,
        mut request: Request,
        options: &EvaluateOptions,
    ) -> Result<EvaluationResult, EvaluateError> {
        let source = self.0.state.lock().await.source.clone();
        let (mut definitions, modules) = match chains {
            EvaluatedChains::Text { text, name } => chains_of_text(&source, text, name).await?,
            EvaluatedChains::Live(id) => chains_of_live_table(&source, &self.0.live.load_full().entry, id).await?,
        };
        replace_settings(&mut definitions, &options.settings)?;
        add_exceptions(&mut definitions, &self.table());
        let evaluator = &self.0.evaluator;
        let (live_modules, no_files) = (LiveModules::default(), HashSet::new());
        let assembler = &evaluator.assembler;
        let assembling = assembler.assemble(definitions, modules, &live_modules, MissingModules::Of(&no_files));
        let AssembledTable { chains, plugins, .. } = assembling.await?;
        let plugins: Vec<_> = plugins.into_iter().map(|(_, plugin)| plugin).collect();
        let settings_schemas = collect_schemas(&plugins);
        evaluator.keep_loaded(plugins);

        request.dry_run = true;
        let unmatched = chains
            .iter()
            .filter_map(|chain| UnmatchedChain::explain(chain, &request))
            .collect();
        let table = Table {
            revision: self.table().revision(),
            ..Table::without_observer(&source, chains)
        };
        let matching_chains = table.find_matching_chains(&request, &Selection::All);
        if let Some(stage) = stage_calling_server(&matching_chains).filter(|_| !options.call_webhooks) {
            return Err(EvaluateError::Webhook(stage));
        }
        let start_time = Instant::now();
        let (request, outcome) = table.evaluate(request, &matching_chains, Duration::MAX).await;
        let observed = table.observe_decision(request.clone(), &Selection::All, &outcome, start_time);
        Ok(EvaluationResult {
            decision: self
                .decisions()
                .unlogged_decision(observed.into_decided_request())
                .record(),
            settings_schemas,
            request,
            outcome,
            unmatched,
        })
    }
}

fn collect_schemas(plugins: &[Arc<LivePlugin>]) -> BTreeMap<String, Json> {
    let schema = |plugin: &Arc<LivePlugin>| {
        let text = plugin.plugin.description().settings_schema.as_deref()?;
        let schema = serde_json::from_str(text)
            .ok()
            .filter(|_| text.len() <= MAX_SCHEMA_SIZE)?;
        Some((plugin.stage.to_string(), schema))
    };
    plugins.iter().filter_map(schema).collect()
}

async fn chains_of_text(
    source: &TableSource,
    text: &str,
    name: &str,
) -> Result<(Vec<ChainDefinition>, Modules), EvaluateError> {
    let (stores, text, name) = (source.stores.clone(), text.to_owned(), name.to_owned());
    let parse = move || stores.known_set().chains_of(&text, &name, &|id| stores.destination(id));
    let chains = run_blocking(parse).await??;
    let references = chains.iter().flat_map(plugins).map(|plugin| plugin.source.clone());
    let servers = FetchScope::Of(Arc::new(references.collect()));
    Ok((chains, Modules::Current(servers)))
}

async fn chains_of_live_table(
    source: &TableSource,
    live_entry: &HistoryEntry,
    id: &ChainId,
) -> Result<(Vec<ChainDefinition>, Modules), EvaluateError> {
    let (set, chain_definitions) = (source.stores.set_of(live_entry), source.chain_definitions.clone());
    let read_chains = move || {
        let mut chains = set.chains()?;
        chains.extend(chain_definitions);
        Ok::<_, Error>(chains)
    };
    let mut chains = run_blocking(read_chains).await??;
    chains.retain(|chain| chain.phase == id.phase && chain.name == id.name);
    if chains.is_empty() {
        return Err(EvaluateError::NoSuchChain(id.clone()));
    }
    Ok((chains, modules_of(live_entry)))
}

fn replace_settings(
    definitions: &mut [ChainDefinition],
    settings: &BTreeMap<String, Json>,
) -> Result<(), EvaluateError> {
    let mut unused_settings = settings.clone();
    for stage in definitions.iter_mut().flat_map(|chain| &mut chain.stages) {
        stage.candidate = None;
        let names: Vec<_> = stage.plugins().map(|(part, _)| part.name).collect();
        for (name, plugin) in names.iter().zip(stage.plugins_mut()) {
            if let Some(settings) = settings.get(&**name) {
                plugin.settings = settings.clone();
                unused_settings.remove(&**name);
            }
        }
    }
    match unused_settings.into_keys().next() {
        Some(name) => Err(EvaluateError::NoSuchPlugin(name)),
        None => Ok(()),
    }
}

fn add_exceptions(definitions: &mut [ChainDefinition], live_table: &Table) {
    for definition in definitions {
        let Some(chain) = live_table.chain(definition.phase, &definition.name) else {
            continue;
        };
        for stage in &mut definition.stages {
            let Some(live) = chain
                .stages
                .iter()
                .find(|live_stage| live_stage.spec.name == stage.spec.name)
            else {
                continue;
            };
            for exception in &live.spec.exceptions {
                if !stage.spec.exceptions.contains(exception) {
                    stage.spec.exceptions.push(exception.clone());
                }
            }
        }
    }
}
