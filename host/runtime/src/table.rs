use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Authorizer, Chain, ChainIndex, Deadline, Evaluation, NamespaceSource, Outcome, Outline, Phase, Request,
    Selection, Surroundings,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    assembly::AssembledChain,
    journal, metrics,
    plugins::Loaded,
    recording::{self, Recorders},
    status::{ChainStatus, StageStatus},
};

/// The live chains. A request takes the table once and keeps it to its end, so it never sees a partial
/// change.
pub struct Table {
    pub(crate) revision: u64,
    pub(crate) chains: Vec<AssembledChain>,
    /// The index of `chains`.
    pub(crate) index: ChainIndex,
    pub(crate) plugins: Vec<Arc<Loaded>>,
    pub(crate) namespaces: Arc<dyn NamespaceSource>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) request_timeout: Duration,
    pub(crate) recorders: Arc<Recorders>,
    /// A slot for tables in memory, released with the last request that uses this table.
    pub(crate) _slot: OwnedSemaphorePermit,
}

impl Table {
    /// The revision number, from 1.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The chains, in the order in which a request passes them.
    pub fn chains(&self) -> impl ExactSizeIterator<Item = &Chain> {
        self.chains.iter().map(|known| &*known.chain)
    }

    /// The plugins in the chains, including candidates.
    pub fn plugins(&self) -> &[Arc<Loaded>] {
        &self.plugins
    }

    /// The chain of this phase and name.
    pub fn chain(&self, phase: Phase, name: &str) -> Option<&Chain> {
        Some(&*self.known(phase, name)?.chain)
    }

    fn known(&self, phase: Phase, name: &str) -> Option<&AssembledChain> {
        self.chains.get(self.index.position(phase, name)?)
    }

    /// Whether a chain may match a request of which only this is known. If not, the request need not be read.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        match self.index.candidates_of(outline) {
            Some(positions) => self.chains_at(positions).any(|chain| chain.may_match(outline)),
            None => self.chains().any(|chain| chain.may_match(outline)),
        }
    }

    fn chains_at(&self, positions: Vec<usize>) -> impl Iterator<Item = &Chain> {
        let known = positions
            .into_iter()
            .filter_map(|position| self.chains.get(position));
        known.map(|known| &*known.chain)
    }

    /// Passes the request through every chain that matches it, within the host's request timeout.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.admit_by(request, &Selection::All, self.request_timeout)
            .await
    }

    /// Passes the request through the selected chains that match it, within the host's request timeout and
    /// within `timeout`.
    pub async fn admit_by(&self, mut request: Request, selection: &Selection, timeout: Duration) -> Outcome {
        let started = Instant::now();
        let matching: Vec<_> = self
            .chains_at(self.index.candidates(&request))
            .filter(|chain| selection.selects(chain) && chain.matches(&request))
            .collect();
        let is_matched = !matching.is_empty();
        let taken = is_matched.then(|| self.recorders.take(&mut request)).flatten();
        let deadline = Deadline::after(self.request_timeout.min(timeout));
        let mut evaluation = Evaluation::new(request, deadline);
        let surroundings = Surroundings {
            namespaces: &*self.namespaces,
            authorizer: &*self.authorizer,
        };
        evaluation.run(&matching, surroundings).await;
        let outcome = evaluation.outcome();
        if is_matched {
            metrics::record(&outcome, started.elapsed());
            self.count(&outcome);
            journal::write(&outcome);
        }
        if let Some(taken) = taken {
            recording::deliver(taken, &outcome, self.revision);
        }
        outcome
    }

    /// For `status`.
    fn count(&self, outcome: &Outcome) {
        for row in &outcome.trace {
            let stage = self.known(row.phase, &row.chain).and_then(|known| {
                let position =
                    |stage: &admittance_admission::Stage| Arc::ptr_eq(&stage.spec.name, &row.stage);
                known.stages.get(known.chain.stages.iter().position(position)?)
            });
            if let Some(stage) = stage {
                stage.statistics.record(&row.result, row.duration);
            }
        }
    }

    pub(crate) fn status(&self) -> Vec<ChainStatus> {
        self.chains.iter().map(chain_status).collect()
    }
}

fn chain_status(known: &AssembledChain) -> ChainStatus {
    let stages = known.chain.stages.iter().zip(&known.stages);
    ChainStatus {
        name: known.chain.name.to_string(),
        phase: known.chain.phase,
        stages: stages
            .map(|(stage, known)| {
                let (state, calls, last_failure) = known.statistics.status();
                StageStatus {
                    name: stage.spec.name.to_string(),
                    hook: known.hook.clone(),
                    mode: stage.spec.mode,
                    failure_policy: stage.spec.failure_policy,
                    state,
                    calls,
                    last_failure,
                    candidate: known.trial.as_ref().map(|trial| trial.status()),
                }
            })
            .collect(),
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("revision", &self.revision)
            .field("chains", &self.chains)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}
