use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use admittance_admission::{Digest, Outcome, Request};
use admittance_catalog::InUse;
use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, watch};

use crate::{
    DecisionLog, Error, HostBuilder, RecordingConfig, RequestRecording, Table, TrafficHour,
    changes::stores::Stores,
    decisions::observer::Observer,
    live::{
        TableProblem, TableSlots,
        assembly::Assembler,
        disabled::DisabledStages,
        state::{LiveState, TableState},
    },
    requests::evaluate::Evaluator,
    status::{Status, StorageStatus, candidate::CandidateReport},
};

/// A program embeds the host with this type, which holds the live table. Cheap to clone; lives as long as the program.
#[derive(Clone, derive_more::Debug)]
#[debug("Host {{ live: {:?}, .. }}", _0.live.load())]
pub struct Host(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// The live table. Only `live/state.rs` replaces it. While it does so, it holds the lock on the disabled stages, so
    /// that two threads never replace the table at the same time.
    pub(crate) live: ArcSwap<LiveState>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) request_timeout: Duration,
    /// The state of the tables. It is locked while a table goes live. Reading definitions and building a table may take
    /// long, so they happen without this lock.
    pub(crate) state: Mutex<TableState>,
    /// The number of rollbacks so far. Each rollback increases it, which cancels the tables that are being built.
    pub(crate) rollbacks: watch::Sender<u64>,
    pub(crate) building: AtomicUsize,
    pub(crate) changes: watch::Sender<()>,
    pub(crate) assembler: Arc<Assembler>,
    pub(crate) slots: TableSlots,
    pub(crate) evaluator: Evaluator,
    pub(crate) observer: Arc<Observer>,
    pub(crate) disabled_stages: Arc<DisabledStages>,
    pub(crate) goes_live_on_request: bool,
    /// Notified when a table went live that was not built from the newest definitions. The host then reads the
    /// definitions again and builds another table.
    pub(crate) reread: Notify,
}

/// A table is being built as long as this guard exists.
pub(crate) struct BuildGuard<'a>(&'a Inner);

impl Drop for BuildGuard<'_> {
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

    /// Returns the live table.
    pub fn table(&self) -> Arc<Table> {
        self.0.live.load().table.clone()
    }

    /// Returns the content hash of the live table. Two hosts with the same hash give the same verdicts.
    pub fn hash(&self) -> Digest {
        self.0.live.load().table.hash
    }

    /// Passes a request through the chains that match it, and returns the outcome.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.table().admit(request).await
    }

    /// Returns the status of the live table.
    pub fn status(&self) -> Status {
        let live = self.0.live.load_full();
        let (table, revision) = (&live.table, live.entry.revision());
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: revision.number,
            hash: table.hash,
            prepared: live.prepared_hashes.newest,
            live_since: live.since,
            origin: revision.origin.clone(),
            by: revision.by.clone(),
            problem: live.problem.as_ref().map(TableProblem::to_status),
            building: self.0.building.load(Ordering::Relaxed) > 0,
            tables: self.0.slots.count(),
            plugins: self.0.assembler.plugins.count(),
            history: live.history.clone(),
            disabled_missing: self.0.disabled_stages.lock().missing_stages(table),
            stores: self.0.stores.status(),
            chains: table.status(&self.0.assembler.reach),
            exceptions: table.status_of_exceptions(),
        }
    }

    /// Returns how much disk space the store and the history use.
    pub async fn storage(&self) -> Vec<StorageStatus> {
        let limit = self.0.state.lock().await.source.store_limit;
        let catalog_store = self.0.assembler.catalog.store();
        let store = catalog_store.map(|store| store.directory().to_owned());
        let history = self.0.live.load().history.directory.clone();
        let measure = move || {
            let store = store.map(|directory| StorageStatus::measure("store", directory, limit));
            let history = history.map(|directory| StorageStatus::measure("history", directory, None));
            store.into_iter().chain(history).collect()
        };
        // The task fails only when the runtime shuts down.
        tokio::task::spawn_blocking(measure).await.unwrap_or_default()
    }

    /// Returns a report on each candidate of the live table.
    pub fn candidates(&self) -> Vec<CandidateReport> {
        let table = self.table();
        let stages = table.chains.iter().flat_map(|chain| &chain.stages);
        stages
            .filter_map(|stage| Some(stage.trial()?.report(stage.progress.as_deref())))
            .collect()
    }

    /// Records the requests that match a chain until the recording is dropped. Delivers each after it was decided.
    pub fn record(&self, config: RecordingConfig) -> RequestRecording {
        self.0.observer.recorders.open(config)
    }

    /// Returns the log of decisions. It is empty unless [`HostBuilder::decisions`] was called.
    pub fn decisions(&self) -> &DecisionLog {
        &self.0.observer.decisions
    }

    /// Returns statistics of the requests that matched a chain: of the last hour, and of the hour before.
    pub fn traffic(&self) -> [TrafficHour; 2] {
        self.0.observer.traffic.hours(Instant::now())
    }

    pub(crate) fn prune_store(&self, state: &TableState) {
        let (Some(store), Some(limit)) = (self.0.assembler.catalog.store(), state.source.store_limit) else {
            return;
        };
        let mut in_use = InUse::default();
        in_use.modules.extend(state.history.module_digests());
        for plugin in self.table().plugins().iter().chain(state.prepared_tables.plugins()) {
            let (module, compiled) = plugin.store_keys();
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
                    left = pruned.size_left,
                    "the least recently used entries are removed from the store"
                );
            }
        });
    }

    pub(crate) fn begin_build(&self) -> BuildGuard<'_> {
        self.0.building.fetch_add(1, Ordering::Relaxed);
        BuildGuard(&self.0)
    }

    /// Waits until one more table may be in memory. Older tables are freed when their requests end, so the wait is
    /// limited to a little more than the request timeout.
    pub(crate) async fn wait_for_slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        let patience = self.0.request_timeout + Duration::from_secs(10);
        self.0.slots.take(patience).await
    }
}
