//! Starts a host: completes a change of definitions that a crash interrupted, and builds the first table.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicUsize},
    time::Duration,
};

use admittance_definitions::FileChange;
use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify, watch};

use crate::{
    Error, Host, Moment, Origin, Revision, RevisionDetail, Table,
    changes::stores::Stores,
    history::{History, HistoryEntry},
    host::Inner,
    live::{
        TableProblem, TableSlots,
        assembly::{FetchScope, MissingModules, Modules},
        disabled::{DisabledStages, follow_ends},
        exceptions, log_bad_definitions,
        prepared::PreparedTables,
        source::{BuiltTable, Purpose, TableSource},
        state::TableState,
    },
    requests::evaluate::Evaluator,
    rollout::Rollouts,
    status::metrics,
};

impl Host {
    pub(crate) async fn start(
        mut source: TableSource,
        mut history: History,
        goes_live_on_request: bool,
    ) -> Result<Self, Error> {
        complete_change(&source.stores, &mut history).await?;
        let slots = TableSlots::default();
        let slot = slots.take(Duration::ZERO).await?;
        if let Some(last) = history.last() {
            source.record_live(last);
            source.stores.record_last_live(&source.live_files).await;
        }
        let FirstTable {
            built_table,
            entry,
            problem,
        } = first_table(&mut source, &history).await?;
        if history.last() != Some(&entry) {
            history.add(entry.clone());
            if let Err(error) = history.write().await {
                tracing::error!("{error}");
            }
        }
        let revision = entry.revision().number;
        if let Some(problem) = &problem
            && problem.bad_definitions().is_empty()
        {
            tracing::error!(
                revision,
                "the definitions cannot be loaded; serving the last live table: {}",
                problem.error
            );
        }
        log_bad_definitions(None, problem.as_ref());
        source.record_live(&entry);
        metrics::count_table(problem.is_none());
        metrics::record_live_table(revision, built_table.hash, problem.is_none());
        source.assembler.limit_to_background();
        let disabled = Arc::new(DisabledStages::open(history.directory()));
        let table = Table::new(&source, built_table, revision, slot);
        let adopt = |rollouts: &mut Rollouts| rollouts.adopt(table.rollouts());
        let has_new_rollouts = disabled.lock().change_rollouts(adopt);
        let table = Arc::new(table.with_disabled_stages(&disabled.lock()));
        metrics::register_stage_metrics(&table.chains);
        let now = Moment::now();
        exceptions::log_new_exceptions(&[], &table.exceptions, now);
        let ends = {
            let mut disabled = disabled.lock();
            disabled.watch_exceptions(&table.exceptions, now);
            disabled.ends()
        };
        let is_held = entry.instead_of.as_deref() == Some(&*source.input_digest());
        let state = TableState {
            source,
            history,
            prepared_tables: PreparedTables::default(),
            replaced_problem: problem.clone().filter(|_| is_held),
        };
        let source = &state.source;
        let host = Self(Arc::new(Inner {
            live: ArcSwap::from_pointee(state.new_live_state(table, entry, problem)),
            stores: source.stores.clone(),
            request_timeout: source.request_timeout,
            rollbacks: watch::Sender::default(),
            building: AtomicUsize::new(0),
            changes: watch::Sender::default(),
            evaluator: Evaluator::new(&source.assembler),
            assembler: source.assembler.clone(),
            observer: source.observer.clone(),
            state: Mutex::new(state),
            goes_live_on_request,
            reread: Notify::new(),
            slots,
            disabled_stages: disabled,
        }));
        let limits = host.0.assembler.trials.limits.clone();
        tokio::spawn(follow_ends(Arc::downgrade(&host.0), ends, limits));
        if has_new_rollouts {
            // If the rollout progress cannot be written to disk, `keep_rollouts` logs that, and the host starts anyway.
            let _ = host.0.disabled_stages.keep_rollouts().await;
        }
        host.prune_store(&*host.0.state.lock().await);
        Ok(host)
    }
}

struct FirstTable {
    built_table: BuiltTable,
    entry: Arc<HistoryEntry>,
    problem: Option<TableProblem>,
}

/// Builds the first table, or rebuilds the last one if the definitions cannot be loaded or a rollback was live.
async fn first_table(source: &mut TableSource, history: &History) -> Result<FirstTable, Error> {
    let reading = source.read_first_definitions().await;
    let inputs = source.input_digest();
    let last = history.last();
    if let Some(entry) = last.filter(|last| last.instead_of.as_deref() == Some(inputs.as_str())) {
        let mistakes = match reading {
            Ok(usable) => source.mistakes_in(usable).await,
            Err(error) => Some(error),
        };
        return Ok(FirstTable {
            built_table: rebuild_table(source, entry).await?,
            entry: entry.clone(),
            problem: mistakes.map(|error| TableProblem::after_attempt(None, Arc::new(error))),
        });
    }
    let making = async {
        source
            .build(reading?, Modules::Current(FetchScope::all()), Purpose::Start)
            .await
    };
    match (making.await, last) {
        (Ok(built_table), last) => {
            let new = entry_of(&built_table, history.next_number(), Origin::Start, None);
            let entry = match last {
                Some(last) if last.is_like(&new) => last.clone(),
                _ => Arc::new(new),
            };
            let problem = TableProblem::of_bad_definitions(&built_table.bad_definitions, None);
            Ok(FirstTable {
                built_table,
                entry,
                problem,
            })
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(entry)) => match rebuild_table(source, entry).await {
            Ok(built_table) => Ok(FirstTable {
                built_table,
                entry: entry.clone(),
                problem: Some(TableProblem::after_attempt(None, Arc::new(error))),
            }),
            Err(restore_error) => {
                tracing::error!("the last live table cannot be restored: {restore_error}");
                Err(error)
            }
        },
    }
}

/// Completes a change that a crash interrupted, except for files that another program has changed since.
async fn complete_change(stores: &Stores, history: &mut History) -> Result<(), Error> {
    let Some(last) = history.last().filter(|last| !last.pending.is_empty()).cloned() else {
        return Ok(());
    };
    let incomplete = |source| Error::IncompleteChange {
        revision: last.revision().number,
        source,
    };
    if let Some(store) = stores.store_of_changes(&last.pending).ok().flatten() {
        let files = store.read().await.map_err(incomplete)?;
        let is_unwritten = |change: &&FileChange| {
            let file = files.iter().find(|file| file.path == change.path);
            file.map(|file| &file.text) == change.before.as_ref()
        };
        let unwritten_changes: Vec<_> = last.pending.iter().filter(is_unwritten).cloned().collect();
        store.commit(&unwritten_changes).await.map_err(incomplete)?;
        tracing::warn!(
            revision = last.revision().number,
            written = unwritten_changes.len(),
            "an interrupted change of definitions was completed"
        );
    }
    history.complete_change().await;
    Ok(())
}

pub(crate) async fn rebuild_table(source: &TableSource, entry: &HistoryEntry) -> Result<BuiltTable, Error> {
    let modules = modules_of(entry);
    let definitions = source.stores.set_of(entry);
    // The configuration may have changed since the revision was written. It says what namespaced chains may use, so the
    // definitions are checked again.
    let usable = source.find_usable(definitions).await?;
    let mut built_table = source
        .build_all(usable.served_set(), modules, MissingModules::All)
        .await?;
    built_table.bad_definitions.splice(0..0, usable.bad_definitions);
    Ok(built_table)
}

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
        changed: OnceLock::new(),
    }
}
