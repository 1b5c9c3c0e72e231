use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Authorizer, Chain, Deadline, Evaluation, NamespaceSource, Outcome, Outline, Phase, Request, Selection,
    Surroundings,
};
use tokio::time::Instant;

use crate::{PluginStatus, journal, measure};

/// The chains that are live, as one whole. A request takes the table once and keeps it to its end, so
/// it never sees half of a change.
#[derive(Clone)]
pub struct Table {
    chains: Vec<Arc<Chain>>,
    plugins: Vec<PluginStatus>,
    namespaces: Arc<dyn NamespaceSource>,
    authorizer: Arc<dyn Authorizer>,
    request_timeout: Duration,
}

impl Table {
    pub(crate) fn new(
        chains: Vec<Arc<Chain>>,
        plugins: Vec<PluginStatus>,
        namespaces: Arc<dyn NamespaceSource>,
        authorizer: Arc<dyn Authorizer>,
        request_timeout: Duration,
    ) -> Self {
        Self {
            chains,
            plugins,
            namespaces,
            authorizer,
            request_timeout,
        }
    }

    /// The chains, in the order in which a request passes them.
    pub fn chains(&self) -> &[Arc<Chain>] {
        &self.chains
    }

    /// The plugins in the chains.
    pub fn plugins(&self) -> &[PluginStatus] {
        &self.plugins
    }

    /// The chain of this phase and name.
    pub fn chain(&self, phase: Phase, name: &str) -> Option<&Chain> {
        let mut chains = self.chains.iter();
        let found = chains.find(|chain| chain.phase == phase && *chain.name == *name);
        found.map(|chain| &**chain)
    }

    /// Whether some chain may be for a request of which only this is known. When none is, the request
    /// need not be read.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.chains.iter().any(|chain| chain.may_match(outline))
    }

    /// Pass the request through every chain that matches it, within the host's request timeout.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.admit_by(request, &Selection::All, self.request_timeout)
            .await
    }

    /// Pass the request through those of the selected chains that match it, within the host's request
    /// timeout and within `timeout`.
    pub async fn admit_by(&self, request: Request, selection: &Selection, timeout: Duration) -> Outcome {
        let started = Instant::now();
        let matching: Vec<_> = self
            .chains
            .iter()
            .map(|chain| &**chain)
            .filter(|chain| selection.selects(chain) && chain.matches(&request))
            .collect();
        let is_matched = !matching.is_empty();
        let deadline = Deadline::after(self.request_timeout.min(timeout));
        let mut evaluation = Evaluation::new(request, deadline);
        let surroundings = Surroundings {
            namespaces: &*self.namespaces,
            authorizer: &*self.authorizer,
        };
        evaluation.run(&matching, surroundings).await;
        let outcome = evaluation.outcome();
        if is_matched {
            measure::record(&outcome, started.elapsed());
            journal::write(&outcome);
        }
        outcome
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("chains", &self.chains)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}
