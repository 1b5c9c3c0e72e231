//! Holds the live state of a host, and is the only code that changes it.

use std::sync::Arc;

use admittance_definitions::BadDefinition;

use crate::{
    Error, Host, Moment, Table,
    history::{History, HistoryEntry},
    live::{
        TableProblem,
        disabled::Stages,
        exceptions, log_bad_definitions,
        prepared::{PreparedHashes, PreparedTable, PreparedTables},
        source::{BuiltTable, TableSource},
    },
    status::{HistoryStatus, metrics},
};

/// The live table with its status. Both are replaced together, so that whoever reads them sees a consistent state.
#[derive(Clone, Debug)]
pub(crate) struct LiveState {
    pub(crate) table: Arc<Table>,
    pub(crate) entry: Arc<HistoryEntry>,
    pub(crate) since: Moment,
    pub(crate) problem: Option<TableProblem>,
    pub(crate) prepared_hashes: PreparedHashes,
    pub(crate) history: HistoryStatus,
    pub(crate) revisions: Arc<[Arc<HistoryEntry>]>,
}

pub(crate) struct TableState {
    pub(crate) source: TableSource,
    pub(crate) history: History,
    pub(crate) prepared_tables: PreparedTables,
    /// The problem that the current definitions had when a rollback to an earlier revision went live. The status
    /// reports this problem while the rollback is live, until the definitions change.
    pub(crate) replaced_problem: Option<TableProblem>,
}

impl TableState {
    pub(crate) fn newest_entry(&self) -> Option<&HistoryEntry> {
        self.prepared_tables
            .newest_entry()
            .or_else(|| self.history.last().map(|last| &**last))
    }

    /// Returns whether the newest table has the same definitions and plugins as `entry`. If that table is live already,
    /// a table that still waits to go live is outdated, and is kept as the earlier one.
    pub(crate) fn is_newest(&mut self, entry: &HistoryEntry) -> bool {
        if self.history.is_newest(entry) {
            self.prepared_tables.retire_newest();
            return true;
        }
        self.prepared_tables
            .newest_entry()
            .is_some_and(|newest| newest.is_like(entry) && newest.instead_of.is_none())
    }

    pub(crate) fn new_live_state(
        &self,
        table: Arc<Table>,
        entry: Arc<HistoryEntry>,
        problem: Option<TableProblem>,
    ) -> LiveState {
        LiveState {
            table,
            entry,
            since: Moment::now(),
            problem,
            prepared_hashes: self.prepared_tables.hashes(),
            history: self.history.status(),
            revisions: self.history.entries(),
        }
    }
}

impl Host {
    /// Changes the live state, and returns the previous one. The caller has locked the `Stages`, so no other thread
    /// changes the live state at the same time.
    fn change_live(&self, _lock: &Stages, change: impl FnOnce(&mut LiveState)) -> Arc<LiveState> {
        let before = self.0.live.load_full();
        let mut live = (*before).clone();
        change(&mut live);
        let (number, hash) = (live.entry.revision().number, live.table.hash);
        metrics::record_live_table(number, hash, live.problem.is_none());
        self.0.live.store(Arc::new(live));
        self.0.changes.send_replace(());
        before
    }

    /// Goes live with a table, and adds it to the history. It is live even if the history cannot be written.
    pub(crate) async fn go_live(
        &self,
        state: &mut TableState,
        prepared_table: PreparedTable,
        problem: Option<TableProblem>,
    ) -> Arc<Table> {
        state.history.add(prepared_table.entry.clone());
        let table = self.make_live(state, prepared_table, problem);
        if let Err(error) = state.history.write().await {
            tracing::error!("{error}");
        }
        self.change_live(&self.0.disabled_stages.lock(), |live| {
            live.history = state.history.status();
        });
        table
    }

    pub(crate) fn make_live(
        &self,
        state: &mut TableState,
        PreparedTable {
            built_table: built,
            entry,
            slot,
        }: PreparedTable,
        problem: Option<TableProblem>,
    ) -> Arc<Table> {
        let table = Table::new(&state.source, built, entry.revision().number, slot);
        state.source.record_live(&entry);
        let now = Moment::now();
        let (before, table) = {
            let mut disabled = self.0.disabled_stages.lock();
            if disabled.change_rollouts(|rollouts| rollouts.adopt(table.rollouts())) {
                let disabled = self.0.disabled_stages.clone();
                tokio::spawn(async move { disabled.keep_rollouts().await });
            }
            disabled.watch_exceptions(&table.exceptions, now);
            let table = Arc::new(table.with_disabled_stages(&disabled));
            let live = state.new_live_state(table.clone(), entry, problem);
            (self.change_live(&disabled, |state| *state = live), table)
        };
        exceptions::log_new_exceptions(&before.table.exceptions, &table.exceptions, now);
        metrics::register_stage_metrics(&table.chains);
        metrics::count_table(true);
        self.log_problem(&before);
        self.prune_store(state);
        table
    }

    /// Replaces the live table by a copy with these stages disabled, and with the current shares of the candidates.
    pub(crate) fn apply_disabled_stages(&self, stages: &Stages) {
        let table = Arc::new(self.table().with_disabled_stages(stages));
        metrics::register_stage_metrics(&table.chains);
        self.change_live(stages, |live| live.table = table);
    }

    pub(crate) fn update_live_status(&self, state: &TableState, problem: Option<TableProblem>) {
        let before = self.change_live(&self.0.disabled_stages.lock(), |live| {
            live.problem = problem;
            live.prepared_hashes = state.prepared_tables.hashes();
            live.history = state.history.status();
        });
        self.log_problem(&before);
    }

    pub(crate) fn record_failure(&self, error: Arc<Error>) {
        metrics::count_table(false);
        self.change_live(&self.0.disabled_stages.lock(), |live| {
            live.problem = Some(TableProblem::after_attempt(live.problem.as_ref(), error));
        });
    }

    pub(crate) fn problem_of_table(&self, built: &BuiltTable) -> Option<TableProblem> {
        if built.lacks_modules {
            return self.0.live.load().problem.clone();
        }
        self.problem_of_definitions(&built.bad_definitions)
    }

    pub(crate) fn problem_of_definitions(&self, bad: &[BadDefinition]) -> Option<TableProblem> {
        TableProblem::of_bad_definitions(bad, self.0.live.load().problem.as_ref())
    }

    fn log_problem(&self, before: &LiveState) {
        log_bad_definitions(before.problem.as_ref(), self.0.live.load().problem.as_ref());
    }
}
