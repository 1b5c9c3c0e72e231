use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_admission::{ChainIndex, Digest, Outcome, Request};
use admittance_catalog::InUse;
use admittance_definitions::{BadDefinition, FileChange};
use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, watch};

use crate::{
    DecisionLog, Error, HostBuilder, Moment, Origin, Recording, RecordingConfig, Revision, RevisionDetail,
    Table,
    changes::stores::Stores,
    decisions::observer::Observer,
    history::{History, HistoryEntry},
    live::assembly::{Assembler, MayFail, Modules, Servers},
    live::disabled::{DisabledStages, follow_ends},
    live::exceptions,
    live::prepared::{PreparedHashes, PreparedTable, PreparedTables},
    live::source::{BuiltTable, Purpose, Source},
    live::{self, Live, TableProblem, TableSlots},
    requests::evaluate::Evaluator,
    rollout::Rollouts,
    status::metrics,
    status::{CandidateReport, Status, StorageStatus},
};

/// The entry point for embedders: holds the live table of chains. Cheap to clone; lives as long as the
/// program.
#[derive(Clone)]
pub struct Host(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// Replaced while `disabled` is locked.
    pub(crate) table: ArcSwap<Table>,
    pub(crate) live: ArcSwap<Live>,
    pub(crate) stores: Arc<Stores>,
    request_timeout: Duration,
    /// The inputs of tables. Locked while they are replaced and while a table goes live, never while definitions are
    /// read or a table is built.
    pub(crate) state: Mutex<TableState>,
    /// Counts rollbacks: each cancels tables that are being built.
    pub(crate) rollbacks: watch::Sender<u64>,
    pub(crate) building: AtomicUsize,
    pub(crate) changes: watch::Sender<()>,
    assembler: Arc<Assembler>,
    slots: TableSlots,
    pub(crate) evaluator: Evaluator,
    observer: Arc<Observer>,
    pub(crate) disabled: Arc<DisabledStages>,
    /// Whether tables go live only when the program [says so](Host::go_live_with).
    pub(crate) waits: bool,
    /// Notified when newer definitions are not in the live table, and must be read again.
    pub(crate) again: Notify,
}

/// The inputs of tables, and the history.
pub(crate) struct TableState {
    pub(crate) source: Source,
    pub(crate) history: History,
    /// The tables that wait until the program says that they may go live.
    pub(crate) prepared: PreparedTables,
}

impl TableState {
    /// The newest table: the one that waits, or the live one.
    pub(crate) fn newest(&self) -> Option<&HistoryEntry> {
        self.prepared
            .newest()
            .or_else(|| self.history.last().map(|last| &**last))
    }

    /// Whether this is the newest table already, by its definitions. If it is the live one, no other table waits any more.
    pub(crate) fn is_newest(&mut self, entry: &HistoryEntry) -> bool {
        if self.history.is_newest(entry) {
            self.prepared.are_live();
            return true;
        }
        self.prepared
            .newest()
            .is_some_and(|newest| newest.is_like(entry) && newest.instead_of.is_none())
    }
}

/// Counts a table as being built until it is dropped.
pub(crate) struct Building<'a>(&'a Inner);

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.building.fetch_sub(1, Ordering::Release);
        self.0.changes.send_replace(());
    }
}

impl Host {
    /// Starts building a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Goes live with the first table.
    pub(crate) async fn start(mut source: Source, mut history: History, waits: bool) -> Result<Self, Error> {
        complete_change(&source.stores, &mut history).await?;
        let slots = TableSlots::default();
        let slot = slots.take(Duration::ZERO).await?;
        if let Some(last) = history.last() {
            source.is_live(last);
            source.stores.were_live(&source.in_force).await;
        }
        let FirstTable {
            built,
            entry,
            problem,
        } = first_table(&mut source, &history).await?;
        if history.last() != Some(&entry) {
            history.note(entry.clone());
            if let Err(error) = history.write().await {
                tracing::error!("{error}");
            }
        }
        let revision = entry.revision().number;
        if let Some(problem) = &problem
            && problem.bad().is_empty()
        {
            tracing::error!(
                revision,
                "the definitions cannot be loaded; serving the last live table: {}",
                problem.error
            );
        }
        live::log_bad(None, problem.as_ref());
        source.is_live(&entry);
        metrics::table_made(problem.is_none());
        metrics::table_live(revision, built.hash, problem.is_none());
        source.assembler.work_in_background();
        let live = Live {
            revision: Arc::new(entry.revision().clone()),
            since: Moment::now(),
            problem,
            prepared: PreparedHashes::default(),
            history: history.status(),
            revisions: history.entries(),
        };
        let disabled = Arc::new(DisabledStages::open(history.directory()));
        let table = table(&source, built, revision, slot);
        let adopt = |rollouts: &mut Rollouts| rollouts.adopt(table.rollouts());
        let has_new_rollouts = disabled.lock().change_rollouts(adopt);
        let table = table.with_disabled(&disabled.lock());
        metrics::stages_live(&table.chains);
        let now = Moment::now();
        exceptions::changed(&[], &table.exceptions, now);
        let ends = {
            let mut disabled = disabled.lock();
            disabled.watch_exceptions(&table.exceptions, now);
            disabled.ends()
        };
        let host = Self(Arc::new(Inner {
            table: ArcSwap::from_pointee(table),
            live: ArcSwap::from_pointee(live),
            stores: source.stores.clone(),
            request_timeout: source.request_timeout,
            rollbacks: watch::Sender::default(),
            building: AtomicUsize::new(0),
            changes: watch::Sender::default(),
            evaluator: Evaluator::new(&source.assembler),
            assembler: source.assembler.clone(),
            observer: source.observer.clone(),
            state: Mutex::new(TableState {
                source,
                history,
                prepared: PreparedTables::default(),
            }),
            waits,
            again: Notify::new(),
            slots,
            disabled,
        }));
        let limits = host.0.assembler.trials.limits.clone();
        tokio::spawn(follow_ends(Arc::downgrade(&host.0), ends, limits));
        if has_new_rollouts {
            // A failure is logged.
            let _ = host.0.disabled.keep_rollouts().await;
        }
        host.prune(&*host.0.state.lock().await);
        Ok(host)
    }

    /// The live table.
    pub fn table(&self) -> Arc<Table> {
        self.0.table.load_full()
    }

    /// The content hash of the live table: the same in every host that serves the same.
    pub fn hash(&self) -> Digest {
        self.0.table.load().hash
    }

    /// Passes a request through the chains that match it.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.table().admit(request).await
    }

    /// The status of the live table.
    pub fn status(&self) -> Status {
        let (table, live) = (self.table(), self.0.live.load_full());
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: live.revision.number,
            hash: table.hash,
            prepared: live.prepared.newest,
            live_since: live.since,
            origin: live.revision.origin.clone(),
            by: live.revision.by.clone(),
            problem: live.problem.as_ref().map(TableProblem::problem),
            building: self.0.building.load(Ordering::Relaxed) > 0,
            tables: self.0.slots.taken(),
            plugins: self.0.assembler.plugins.count(),
            history: live.history.clone(),
            disabled_missing: self.0.disabled.lock().missing(&table),
            stores: self.0.stores.status(),
            chains: table.status(&self.0.assembler.reach),
            exceptions: table.status_of_exceptions(),
        }
    }

    /// The space that the store and the history take on disk.
    pub async fn storage(&self) -> Vec<StorageStatus> {
        let limit = self.0.state.lock().await.source.store_limit;
        let store = self.0.assembler.catalog.store();
        let store = store.map(|store| store.directory().to_owned());
        let history = self.0.live.load().history.directory.clone();
        let read = move || {
            let store = store.map(|directory| StorageStatus::of("store", directory, limit));
            let history = history.map(|directory| StorageStatus::of("history", directory, None));
            store.into_iter().chain(history).collect()
        };
        // It fails only while the runtime stops.
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Reports about the candidates of the live table.
    pub fn candidates(&self) -> Vec<CandidateReport> {
        let table = self.table();
        let stages = table.chains.iter().flat_map(|chain| &chain.stages);
        stages
            .filter_map(|stage| Some(stage.trial()?.report(stage.progress.as_deref())))
            .collect()
    }

    /// Starts recording requests that pass chains. They are delivered as they are answered, until the
    /// recording is dropped.
    pub fn record(&self, config: RecordingConfig) -> Recording {
        self.0.observer.recorders.open(config)
    }

    /// The decisions on the last requests. Empty without [`HostBuilder::decisions`].
    pub fn decisions(&self) -> &DecisionLog {
        &self.0.observer.decisions
    }

    /// Goes live with a table, and writes it to the history. The table stays live even if that fails.
    pub(crate) async fn go_live(
        &self,
        state: &mut TableState,
        PreparedTable { built, entry, slot }: PreparedTable,
        problem: Option<TableProblem>,
    ) -> Arc<Table> {
        state.history.note(entry.clone());
        let table = self.swap(&state.source, built, &entry, slot);
        self.is_live(&entry, state, problem);
        if let Err(error) = state.history.write().await {
            tracing::error!("{error}");
        }
        self.show(&state.history);
        table
    }

    /// Keeps the store within its limit, in the background. Live modules and modules of the history stay.
    fn prune(&self, state: &TableState) {
        let (Some(store), Some(limit)) = (self.0.assembler.catalog.store(), state.source.store_limit) else {
            return;
        };
        let mut in_use = InUse::default();
        in_use.modules.extend(state.history.modules());
        let table = self.table();
        for plugin in table.plugins().iter().chain(state.prepared.plugins()) {
            let (module, compiled) = plugin.in_store();
            in_use.modules.extend(module);
            in_use.compiled.insert(compiled);
        }
        let store = store.clone();
        tokio::task::spawn_blocking(move || {
            let pruned = store.prune(limit, &in_use);
            if pruned.entries > 0 {
                tracing::info!(
                    entries = pruned.entries,
                    bytes = pruned.bytes,
                    left = pruned.left,
                    "the least recently used entries are removed from the store"
                );
            }
        });
    }

    pub(crate) fn building(&self) -> Building<'_> {
        self.0.building.fetch_add(1, Ordering::Relaxed);
        Building(&self.0)
    }

    /// Waits for a slot for one more table, at most until all requests on older tables must have ended.
    pub(crate) async fn slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        let patience = self.0.request_timeout + Duration::from_secs(10);
        self.0.slots.take(patience).await
    }

    /// Makes this table live.
    pub(crate) fn swap(
        &self,
        source: &Source,
        built: BuiltTable,
        entry: &HistoryEntry,
        slot: OwnedSemaphorePermit,
    ) -> Arc<Table> {
        let number = entry.revision().number;
        let table = table(source, built, number, slot);
        let table = {
            let mut disabled = self.0.disabled.lock();
            if disabled.change_rollouts(|rollouts| rollouts.adopt(table.rollouts())) {
                let disabled = self.0.disabled.clone();
                // A failure is logged.
                tokio::spawn(async move { disabled.keep_rollouts().await });
            }
            let now = Moment::now();
            disabled.watch_exceptions(&table.exceptions, now);
            let table = Arc::new(table.with_disabled(&disabled));
            let before = self.0.table.swap(table.clone());
            exceptions::changed(&before.exceptions, &table.exceptions, now);
            table
        };
        metrics::stages_live(&table.chains);
        metrics::table_made(true);
        table
    }

    /// Records that this revision is live, and what it lacks.
    pub(crate) fn is_live(
        &self,
        entry: &HistoryEntry,
        state: &mut TableState,
        problem: Option<TableProblem>,
    ) {
        state.source.is_live(entry);
        self.note(Live {
            revision: Arc::new(entry.revision().clone()),
            since: Moment::now(),
            problem,
            prepared: state.prepared.hashes(),
            history: state.history.status(),
            revisions: state.history.entries(),
        });
        self.prune(state);
    }

    /// The problem after a table was built. As long as missing modules were not requested from servers, the
    /// previous one is kept.
    pub(crate) fn problem_of(&self, built: &BuiltTable) -> Option<TableProblem> {
        if built.lacks_modules {
            return self.0.live.load().problem.clone();
        }
        self.problem_with(&built.bad)
    }

    /// The reports about these definitions.
    pub(crate) fn problem_with(&self, bad: &[BadDefinition]) -> Option<TableProblem> {
        TableProblem::with(bad, self.0.live.load().problem.as_ref())
    }

    /// Records what is live and what is not. It is logged afterwards, so that the status agrees with the log.
    fn note(&self, live: Live) {
        metrics::table_live(live.revision.number, self.hash(), live.problem.is_none());
        let live = Arc::new(live);
        let before = self.0.live.swap(live.clone());
        live::log_bad(before.problem.as_ref(), live.problem.as_ref());
    }

    /// Records the state of the history.
    fn show(&self, history: &History) {
        let live = Live {
            history: history.status(),
            ..(**self.0.live.load()).clone()
        };
        self.0.live.store(Arc::new(live));
    }

    /// Records that the live table matches the definitions, except for these.
    pub(crate) fn settled(&self, state: &TableState, problem: Option<TableProblem>) {
        self.note(Live {
            problem,
            prepared: state.prepared.hashes(),
            history: state.history.status(),
            ..(**self.0.live.load()).clone()
        });
    }

    /// Records why the definitions are not live.
    pub(crate) fn failed(&self, error: Arc<Error>) {
        let before = self.0.live.load_full();
        metrics::table_made(false);
        metrics::table_live(before.revision.number, self.hash(), false);
        self.0.live.store(Arc::new(Live {
            problem: Some(TableProblem::after(before.problem.as_ref(), error)),
            ..(*before).clone()
        }));
    }
}

struct FirstTable {
    built: BuiltTable,
    entry: Arc<HistoryEntry>,
    problem: Option<TableProblem>,
}

/// The table of the definitions; the last live one if they were rolled back, or no table can be built from them.
async fn first_table(source: &mut Source, history: &History) -> Result<FirstTable, Error> {
    let read = source.read_first().await;
    let inputs = source.inputs();
    let last = history.last();
    if let Some(entry) = last.filter(|last| last.instead_of.as_deref() == Some(inputs.as_str())) {
        return Ok(FirstTable {
            built: rebuilt(source, entry).await?,
            entry: entry.clone(),
            problem: None,
        });
    }
    let making = async {
        source
            .make(read?, Modules::Current(Servers::all()), Purpose::Start)
            .await
    };
    match (making.await, last) {
        (Ok(built), last) => {
            let new = entry_of(&built, history.next_number(), Origin::Start, None);
            let entry = match last {
                Some(last) if last.is_like(&new) => last.clone(),
                _ => Arc::new(new),
            };
            let problem = TableProblem::with(&built.bad, None);
            Ok(FirstTable {
                built,
                entry,
                problem,
            })
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(entry)) => match rebuilt(source, entry).await {
            Ok(built) => Ok(FirstTable {
                built,
                entry: entry.clone(),
                problem: Some(TableProblem::after(None, Arc::new(error))),
            }),
            Err(gone) => {
                tracing::error!("the last live table cannot be restored: {gone}");
                Err(error)
            }
        },
    }
}

fn table(source: &Source, built: BuiltTable, revision: u64, slot: OwnedSemaphorePermit) -> Table {
    Table {
        revision,
        hash: built.hash,
        index: Arc::new(ChainIndex::new(built.chains.iter().map(|chain| &**chain))),
        chains: built.chains,
        plugins: built.plugins,
        exceptions: built.exceptions.into(),
        namespaces: source.namespaces.clone(),
        authorizer: source.authorizer.clone(),
        request_timeout: source.request_timeout,
        observer: Some(source.observer.clone()),
        slot: Some(Arc::new(slot)),
    }
}

/// Writes the files of the last change that a kill left unwritten, except those that were changed since.
async fn complete_change(stores: &Stores, history: &mut History) -> Result<(), Error> {
    let Some(last) = history.last().filter(|last| !last.pending.is_empty()).cloned() else {
        return Ok(());
    };
    let incomplete = |source| Error::IncompleteChange {
        revision: last.revision().number,
        source,
    };
    if let Some(store) = stores.of_changes(&last.pending).ok().flatten() {
        let files = store.read().await.map_err(incomplete)?;
        let is_unwritten = |change: &&FileChange| {
            let file = files.iter().find(|file| file.path == change.path);
            file.map(|file| &file.text) == change.before.as_ref()
        };
        let rest: Vec<_> = last.pending.iter().filter(is_unwritten).cloned().collect();
        store.commit(&rest).await.map_err(incomplete)?;
        tracing::warn!(
            revision = last.revision().number,
            written = rest.len(),
            "an interrupted change of definitions was completed"
        );
    }
    history.complete().await;
    Ok(())
}

/// Rebuilds this revision.
pub(crate) async fn rebuilt(source: &Source, entry: &HistoryEntry) -> Result<BuiltTable, Error> {
    let modules = modules_of(entry);
    let definitions = source.stores.set_of(entry);
    // What was allowed then may not be now.
    let usable = source.usable(definitions).await?;
    // A stage that was live without its module is live without it again.
    let mut built = source.make_of(usable.served(), modules, MayFail::All).await?;
    built.bad.splice(0..0, usable.bad);
    Ok(built)
}

/// The modules of this revision.
pub(crate) fn modules_of(entry: &HistoryEntry) -> Modules {
    let digests = entry.revision().modules.iter().filter_map(|module| {
        let digest = module.digest.parse().ok()?;
        Some(((module.stage.clone(), module.candidate), digest))
    });
    Modules::AsOf(Arc::new(digests.collect()))
}

pub(crate) fn entry_of(built: &BuiltTable, number: u64, origin: Origin, by: Option<String>) -> HistoryEntry {
    HistoryEntry {
        detail: RevisionDetail {
            revision: Revision {
                number,
                hash: Some(built.hash),
                at: Moment::now(),
                origin,
                by,
                chains: built.chains.len(),
                modules: built.modules.clone(),
            },
            files: built.files.clone(),
        },
        instead_of: None,
        pending: Vec::new(),
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("table", &self.table())
            .field("live", &self.0.live.load())
            .finish_non_exhaustive()
    }
}
