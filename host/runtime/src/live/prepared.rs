//! Tables that are complete, and go live when the program says so: when all replicas have prepared the same.

use std::{sync::Arc, time::Duration};

use admittance_admission::{Digest, Moment};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::{
    Host, Table, history::HistoryEntry, live::TableProblem, live::plugins::Loaded, live::source::BuiltTable,
    live::state::TableState,
};

/// The time that a requested change waits until it is live.
const PATIENCE: Duration = Duration::from_secs(5);

/// A table that can go live, with its entry in the history and its slot.
pub(crate) struct PreparedTable {
    pub(crate) built: BuiltTable,
    pub(crate) entry: Arc<HistoryEntry>,
    pub(crate) slot: OwnedSemaphorePermit,
}

/// The tables that wait.
#[derive(Default)]
pub(crate) struct PreparedTables {
    /// The table of the newest definitions; `None` if it is live.
    newest: Option<PreparedTable>,
    /// The previous table that waits: others may have agreed on it already.
    earlier: Option<PreparedTable>,
}

impl PreparedTables {
    /// The definitions of the newest are as in the live table.
    pub(crate) fn retire_newest(&mut self) {
        if let Some(newest) = self.newest.take() {
            self.earlier = Some(newest);
        }
    }

    pub(crate) fn newest(&self) -> Option<&HistoryEntry> {
        self.newest.as_ref().map(|table| &*table.entry)
    }

    pub(crate) fn plugins(&self) -> impl Iterator<Item = &Arc<Loaded>> {
        let tables = self.newest.iter().chain(&self.earlier);
        tables.flat_map(|table| &table.built.plugins)
    }

    pub(crate) fn hashes(&self) -> PreparedHashes {
        let hash = |table: &Option<PreparedTable>| Some(table.as_ref()?.built.hash);
        PreparedHashes {
            newest: hash(&self.newest),
            earlier: hash(&self.earlier),
        }
    }

    fn take(&mut self, hash: Digest) -> Option<PreparedTable> {
        let is_it = |table: &mut PreparedTable| table.built.hash == hash;
        let newest = self.newest.take_if(is_it);
        if newest.is_some() {
            self.earlier = None;
        }
        newest.or_else(|| self.earlier.take_if(is_it))
    }
}

/// The content hashes of tables that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreparedHashes {
    pub(crate) newest: Option<Digest>,
    pub(crate) earlier: Option<Digest>,
}

/// The tables that a host could serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prepared {
    /// The content hash of the live table.
    pub live: Digest,
    /// The content hash of the newest table: the live one, unless another one waits.
    pub newest: Digest,
    /// The content hash of an earlier table that waits too.
    pub earlier: Option<Digest>,
    /// The reason for which the newest definitions, or some of them, are in neither.
    pub problem: Option<String>,
}

impl Host {
    /// The tables that it could serve. What is not live waits for [`go_live_with`](Self::go_live_with).
    pub fn prepared(&self) -> Prepared {
        let (hash, live) = (self.hash(), self.0.live.load());
        Prepared {
            live: hash,
            newest: live.prepared.newest.unwrap_or(hash),
            earlier: live.prepared.earlier,
            problem: live.problem.as_ref().map(|problem| problem.error.to_string()),
        }
    }

    /// Makes the prepared table with this content hash live. Returns whether a table with it is live now.
    pub async fn go_live_with(&self, hash: Digest) -> bool {
        let mut state = self.0.state.lock().await;
        let is_newest = state.prepared.hashes().newest == Some(hash);
        let Some(mut table) = state.prepared.take(hash) else {
            return self.hash() == hash;
        };
        let revision = &mut Arc::make_mut(&mut table.entry).detail.revision;
        revision.number = state.history.next_number();
        revision.at = Moment::now();
        let problem = self.0.live.load().problem.clone();
        self.go_live(&mut state, table, problem).await;
        let is_stale = !is_newest && state.prepared.newest.is_none();
        drop(state);
        self.log_change();
        // Until now the definitions matched the table that was live before.
        if is_stale {
            self.0.reread.notify_one();
        }
        true
    }

    /// Goes live with a table, unless the program says when: then the table waits, except if it gives the same verdicts as
    /// the live one.
    pub(crate) async fn offer(
        &self,
        state: &mut TableState,
        table: PreparedTable,
        problem: Option<TableProblem>,
    ) -> Arc<Table> {
        let hash = table.built.hash;
        if !self.0.waits || self.hash() == hash {
            state.prepared.retire_newest();
            return self.go_live(state, table, problem).await;
        }
        tracing::info!(hash = %hash.short(), "a table is prepared, and waits for the other replicas");
        if let Some(before) = state.prepared.newest.replace(table) {
            state.prepared.earlier = Some(before);
        }
        self.settle(state, problem);
        self.table()
    }

    /// Waits until a table with this content hash is live, but not for long.
    pub(crate) async fn until_live(&self, hash: Digest) -> bool {
        let mut changes = self.changes();
        let live = async { while self.hash() != hash && changes.changed().await.is_ok() {} };
        timeout(PATIENCE, live).await.is_ok()
    }
}
