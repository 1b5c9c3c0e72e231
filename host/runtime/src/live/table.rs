use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Authorizer, Chain, ChainIndex, Deadline, Digest, Evaluation, EvaluationSources, NamespaceSource, Outcome, Outline,
    Phase, Reach, Request, Selection, StageResult,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    Moment,
    decisions::observer::{ObservedDecision, Observer},
    live::disabled::Stages,
    live::exceptions::LiveException,
    live::plugins::LivePlugin,
    live::source::{BuiltTable, TableSource},
    live::stage::{LiveChain, LiveStage, with_disabled_stages},
    rollout::Rollout,
    status::{ChainStatus, ExceptionStatus},
};

/// A table of live chains. Each request uses a single table until it ends, so it never sees half of a change.
#[derive(Clone, derive_more::Debug)]
#[debug("Table {{ revision: {revision:?}, chains: {chains:?}, request_timeout: {request_timeout:?}, .. }}")]
pub struct Table {
    pub(crate) revision: u64,
    pub(crate) hash: Digest,
    pub(crate) chains: Vec<Arc<LiveChain>>,
    pub(crate) index: Arc<ChainIndex>,
    pub(crate) plugins: Vec<Arc<LivePlugin>>,
    pub(crate) exceptions: Arc<[LiveException]>,
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) request_timeout: Duration,
    /// The observer of the table's outcomes; `None` if the table serves no requests.
    pub(crate) observer: Option<Arc<Observer>>,
    /// A permit from the semaphore that limits the number of tables in memory. It is returned when the table is
    /// dropped. Copies of a table share one permit. `None` if the table serves no requests.
    pub(crate) _slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl Table {
    pub(crate) fn new(
        source: &TableSource,
        built_table: BuiltTable,
        revision: u64,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            revision,
            hash: built_table.hash,
            plugins: built_table.plugins,
            exceptions: built_table.exceptions.into(),
            observer: Some(source.observer.clone()),
            _slot: Some(Arc::new(slot)),
            ..Self::without_observer(source, built_table.chains)
        }
    }

    /// Creates a table of these chains that serves no live requests, such as a table for an evaluation. So it has no
    /// observer for metrics, logs and recordings.
    pub(crate) fn without_observer(source: &TableSource, chains: Vec<Arc<LiveChain>>) -> Self {
        Self {
            revision: 0,
            hash: Digest::of_bytes(""),
            index: Arc::new(ChainIndex::new(chains.iter().map(|chain| &**chain))),
            chains,
            plugins: Vec::new(),
            exceptions: [].into(),
            namespaces: source.namespaces.clone(),
            authorizer: source.authorizer.clone(),
            request_timeout: source.request_timeout,
            observer: None,
            _slot: None,
        }
    }

    /// Returns the number of the table's revision. The first revision has number 1.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the content hash of the table. Two tables with the same hash give the same verdicts.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Returns the chains in the order in which a request passes them.
    pub fn chains(&self) -> impl ExactSizeIterator<Item = &Chain<LiveStage>> {
        self.chains.iter().map(|chain| &**chain)
    }

    /// Returns the plugins of the table's stages, including the plugins of candidates.
    pub fn plugins(&self) -> &[Arc<LivePlugin>] {
        &self.plugins
    }

    /// Returns the chain with this phase and name; `None` if the table does not contain it.
    pub fn chain(&self, phase: Phase, name: &str) -> Option<&Chain<LiveStage>> {
        Some(&**self.chains.get(self.index.position(phase, name)?)?)
    }

    pub(crate) fn rollouts(&self) -> impl Iterator<Item = Arc<Rollout>> {
        let stages = self.chains.iter().flat_map(|chain| &chain.stages);
        stages.filter_map(|stage| stage.rollout().cloned())
    }

    pub(crate) fn with_disabled_stages(&self, disabled: &Stages) -> Self {
        let chains = self.chains.iter().map(|chain| with_disabled_stages(chain, disabled));
        Self {
            chains: chains.collect(),
            ..self.clone()
        }
    }

    /// Returns whether a chain may match a request with this outline. If not, the request's body need not be read.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        match self.index.candidates_of_outline(outline) {
            Some(positions) => self.chains_at(positions).any(|chain| chain.may_match(outline)),
            None => self.chains().any(|chain| chain.may_match(outline)),
        }
    }

    fn chains_at(&self, positions: Vec<usize>) -> impl Iterator<Item = &LiveChain> {
        let chains = positions.into_iter();
        chains.filter_map(|position| self.chains.get(position).map(|chain| &**chain))
    }

    /// Passes the request through all chains that match it, within the host's request timeout.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.admit_selected(request, &Selection::All, self.request_timeout)
            .await
    }

    /// Passes the request through the selected chains that match it, within `timeout` and the host's request timeout.
    pub async fn admit_selected(&self, mut request: Request, selection: &Selection, timeout: Duration) -> Outcome {
        let start_time = Instant::now();
        let matching = self.find_matching_chains(&request, selection);
        let observer = self.observer.as_ref().filter(|_| !matching.is_empty());
        let recorders = observer.map(|observer| observer.recorders.due_recorders(&mut request));
        let (request, outcome) = self.evaluate(request, &matching, timeout).await;
        if let Some((observer, recorders)) = observer.zip(recorders) {
            let observed = self.observe_decision(request, selection, &outcome, start_time);
            observer.observe(self, observed, recorders);
        }
        outcome
    }

    pub(crate) async fn evaluate(
        &self,
        request: Request,
        chains: &[&LiveChain],
        timeout: Duration,
    ) -> (Request, Outcome) {
        let deadline = Deadline::after(self.request_timeout.min(timeout));
        let mut evaluation = Evaluation::new(request, deadline);
        let sources = EvaluationSources {
            namespaces: &*self.namespaces,
            authorizer: &*self.authorizer,
        };
        evaluation.run(chains, sources).await;
        evaluation.finish()
    }

    /// `started` is the time at which the request entered the chains.
    pub(crate) fn observe_decision<'o>(
        &self,
        request: Request,
        selection: &'o Selection,
        outcome: &'o Outcome,
        start_time: Instant,
    ) -> ObservedDecision<'o> {
        ObservedDecision {
            request,
            selection,
            outcome,
            duration: start_time.elapsed(),
            time: Moment::now(),
            revision: self.revision,
        }
    }

    pub(crate) fn find_matching_chains(&self, request: &Request, selection: &Selection) -> Vec<&LiveChain> {
        self.chains_at(self.index.candidates_of_request(request))
            .filter(|chain| selection.selects(chain) && chain.matches(request))
            .collect()
    }

    pub(crate) fn count_outcome(&self, outcome: &Outcome) {
        for row in &outcome.trace {
            let stage = self.chain(row.phase, &row.chain).and_then(|chain| {
                let mut stages = chain.stages.iter();
                stages.find(|stage| Arc::ptr_eq(&stage.spec.name, &row.stage))
            });
            if let Some(stage) = stage {
                stage.statistics.record(row);
                if row.by_candidate
                    && let Some(rollout) = stage.rollout()
                {
                    rollout.count_decided(matches!(row.result, StageResult::Failed { .. }));
                }
            }
        }
    }

    pub(crate) fn status(&self, reach: &Reach) -> Vec<ChainStatus> {
        self.chains().map(|chain| chain_status(chain, reach)).collect()
    }

    pub(crate) fn status_of_exceptions(&self) -> Vec<ExceptionStatus> {
        let now = Moment::now();
        let exceptions = self.exceptions.iter();
        exceptions.map(|live| live.status(&self.chains, now)).collect()
    }
}

fn chain_status(chain: &LiveChain, reach: &Reach) -> ChainStatus {
    ChainStatus {
        name: chain.name.to_string(),
        phase: chain.phase,
        unreached: reach.find_unreached(chain.namespace.as_deref(), &chain.rules),
        stages: chain.stages.iter().map(LiveStage::status).collect(),
    }
}
