//! Keeps tables that are ready but wait to go live until all replicas have prepared the same table.

use std::{sync::Arc, time::Duration};

use admittance_admission::{Digest, Moment};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::{
    Host, Table, history::HistoryEntry, live::TableProblem, live::plugins::LivePlugin, live::source::BuiltTable,
    live::state::TableState,
};

/// The maximum time that a request to change definitions waits for the change to go live before it returns.
const GO_LIVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct PreparedTable {
    pub(crate) built_table: BuiltTable,
    pub(crate) entry: Arc<HistoryEntry>,
    pub(crate) slot: OwnedSemaphorePermit,
}

#[derive(Default)]
pub(crate) struct PreparedTables {
    /// The table with the newest definitions, which waits to go live; `None` if it is live already.
    newest: Option<PreparedTable>,
    earlier: Option<PreparedTable>,
}

impl PreparedTables {
    /// Moves the table in `newest` to `earlier`. It is called when the live table already contains the newest
    /// definitions, so that the table in `newest` is outdated. The table is not dropped, because the replicas may have
    /// agreed to go live with it.
    pub(crate) fn retire_newest(&mut self) {
        if let Some(newest) = self.newest.take() {
            self.earlier = Some(newest);
        }
    }

    pub(crate) fn newest_entry(&self) -> Option<&HistoryEntry> {
        self.newest.as_ref().map(|table| &*table.entry)
    }

    pub(crate) fn plugins(&self) -> impl Iterator<Item = &Arc<LivePlugin>> {
        let tables = self.newest.iter().chain(&self.earlier);
        tables.flat_map(|table| &table.built_table.plugins)
    }

    pub(crate) fn hashes(&self) -> PreparedHashes {
        let hash = |table: &Option<PreparedTable>| Some(table.as_ref()?.built_table.hash);
        PreparedHashes {
            newest: hash(&self.newest),
            earlier: hash(&self.earlier),
        }
    }

    fn take(&mut self, hash: Digest) -> Option<PreparedTable> {
        let has_hash = |table: &mut PreparedTable| table.built_table.hash == hash;
        let newest = self.newest.take_if(has_hash);
        if newest.is_some() {
            self.earlier = None;
        }
        newest.or_else(|| self.earlier.take_if(has_hash))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreparedHashes {
    pub(crate) newest: Option<Digest>,
    pub(crate) earlier: Option<Digest>,
}

/// The tables that a host could serve at once, by their content hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableHashes {
    /// The content hash of the live table.
    pub live: Digest,
    /// The content hash of the newest table, which waits to go live. If no table waits, the hash of the live table.
    pub newest: Digest,
    /// The content hash of an earlier table that still waits to go live; `None` if there is no such table.
    pub earlier: Option<Digest>,
    /// The reason why the newest table lacks some of the newest definitions, such as a mistake in one of them; `None`
    /// if the newest table has them all.
    pub problem: Option<String>,
}

impl Host {
    /// Returns the tables that [`go_live_with`](Self::go_live_with) can make live at once.
    pub fn table_hashes(&self) -> TableHashes {
        let (hash, live) = (self.hash(), self.0.live.load());
        TableHashes {
            live: hash,
            newest: live.prepared_hashes.newest.unwrap_or(hash),
            earlier: live.prepared_hashes.earlier,
            problem: live.problem.as_ref().map(|problem| problem.error.to_string()),
        }
    }

    /// Goes live with the prepared table that has this content hash. Returns whether such a table is live now.
    pub async fn go_live_with(&self, hash: Digest) -> bool {
        let mut state = self.0.state.lock().await;
        let is_newest = state.prepared_tables.hashes().newest == Some(hash);
        let Some(mut table) = state.prepared_tables.take(hash) else {
            return self.hash() == hash;
        };
        let revision = &mut Arc::make_mut(&mut table.entry).detail.revision;
        revision.number = state.history.next_number();
        revision.at = Moment::now();
        let problem = self.0.live.load().problem.clone();
        self.go_live(&mut state, table, problem).await;
        let is_stale = !is_newest && state.prepared_tables.newest.is_none();
        drop(state);
        self.log_change();
        if is_stale {
            self.0.reread.notify_one();
        }
        true
    }

    /// Goes live with a table. If the embedding program decides when tables go live, a new table is only kept as
    /// prepared, and waits for [`go_live_with`](Self::go_live_with).
    pub(crate) async fn go_live_or_wait(
        &self,
        state: &mut TableState,
        table: PreparedTable,
        problem: Option<TableProblem>,
    ) -> Arc<Table> {
        let hash = table.built_table.hash;
        if !self.0.goes_live_on_request || self.hash() == hash {
            state.prepared_tables.retire_newest();
            return self.go_live(state, table, problem).await;
        }
        tracing::info!(hash = %hash.to_short_hex(), "a table is prepared, and waits for the other replicas");
        if let Some(before) = state.prepared_tables.newest.replace(table) {
            state.prepared_tables.earlier = Some(before);
        }
        self.update_live_status(state, problem);
        self.table()
    }

    /// Waits for a table with this content hash to go live, at most [`GO_LIVE_TIMEOUT`]. Returns whether it is live.
    pub(crate) async fn wait_until_live(&self, hash: Digest) -> bool {
        let mut changes = self.changes();
        let live = async { while self.hash() != hash && changes.changed().await.is_ok() {} };
        timeout(GO_LIVE_TIMEOUT, live).await.is_ok()
    }
}
