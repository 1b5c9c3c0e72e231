use std::{borrow::Borrow, ops::Deref, sync::Arc};

use admittance_admission::{Chain, Mode, Stage, StageSpec};
use admittance_definitions::{HookStatus, PreparedHook};

use crate::{
    DisabledStage, StageStatus,
    live::disabled::Stages,
    rollout::candidate::{HookWithCandidate, Trial},
    rollout::{Rollout, RolloutProgress},
    status::statistics::StageStatistics,
};

/// A stage of a live table, with its statistics, candidate and rollout, and whether the stage is disabled.
#[derive(Clone, Debug)]
pub struct LiveStage {
    stage: Stage,
    mode: Mode,
    /// Whether the embedding program disabled the stage in code.
    is_disabled: bool,
    pub(crate) prepared_hook: PreparedHook,
    pub(crate) statistics: Arc<StageStatistics>,
    hook_with_candidate: Option<Arc<HookWithCandidate>>,
    pub(crate) progress: Option<Arc<RolloutProgress>>,
    pub(crate) disabled: Option<Arc<DisabledStage>>,
}

pub(crate) type LiveChain = Chain<LiveStage>;

impl LiveStage {
    pub(crate) fn new(
        spec: StageSpec,
        mut prepared_hook: PreparedHook,
        hook_with_candidate: Option<Arc<HookWithCandidate>>,
        statistics: Arc<StageStatistics>,
    ) -> Self {
        if let Some(hook) = &hook_with_candidate {
            prepared_hook.hook = hook.clone();
        }
        Self {
            mode: spec.mode,
            is_disabled: spec.is_disabled,
            stage: Stage {
                spec,
                hook: prepared_hook.hook.clone(),
            },
            prepared_hook,
            statistics,
            hook_with_candidate,
            progress: None,
            disabled: None,
        }
    }

    pub(crate) fn native(stage: Stage, statistics: Arc<StageStatistics>) -> Self {
        let prepared_hook = PreparedHook::new(stage.hook, HookStatus::new("native", "native"));
        Self::new(stage.spec, prepared_hook, None, statistics)
    }

    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.hook_with_candidate.as_ref().map(|hook| &*hook.trial)
    }

    pub(crate) fn rollout(&self) -> Option<&Arc<Rollout>> {
        self.trial()?.rollout.as_ref()
    }

    /// Returns the hook that passes a share of the requests to the candidate, as the rollout says. Returns `None` if
    /// the stage has no rollout.
    fn deciding_hook(&self) -> Option<HookWithCandidate> {
        let share = self.progress.as_ref()?.share(self.rollout()?)?;
        Some(self.hook_with_candidate.as_ref()?.with_decided_share(share))
    }

    fn set_state(&mut self, disabled: Option<Arc<DisabledStage>>, progress: Option<Arc<RolloutProgress>>) {
        let is_audited = disabled.as_ref().is_some_and(|disabled| disabled.audit);
        let spec = &mut self.stage.spec;
        spec.mode = if is_audited { Mode::Audit } else { self.mode };
        spec.is_disabled = self.is_disabled || disabled.is_some() && !is_audited;
        (self.disabled, self.progress) = (disabled, progress);
        self.stage.hook = match self.deciding_hook() {
            Some(hook) => Arc::new(hook),
            None => self.prepared_hook.hook.clone(),
        };
    }

    pub(crate) fn status(&self) -> StageStatus {
        let (state, calls, last_failure) = self.statistics.status();
        StageStatus {
            name: self.spec.name.to_string(),
            hook: self.prepared_hook.status.clone(),
            mode: self.mode,
            failure_policy: self.spec.failure_policy,
            state,
            calls,
            last_failure,
            candidate: self.trial().map(|trial| trial.status(self.progress.as_deref())),
            disabled: self.disabled.as_deref().cloned(),
        }
    }
}

pub(crate) fn with_disabled_stages(chain: &Arc<LiveChain>, disabled: &Stages) -> Arc<LiveChain> {
    let state = |stage: &LiveStage| {
        let name = &stage.spec.name;
        let progress = disabled.rollouts.get(chain.phase, &chain.name, name);
        (disabled.get(chain.phase, &chain.name, name), progress)
    };
    let is_as_defined = |stage: &LiveStage| {
        stage.disabled.is_none() && stage.progress.is_none() && matches!(state(stage), (None, None))
    };
    if chain.stages.iter().all(is_as_defined) {
        return chain.clone();
    }
    let mut changed = LiveChain::clone(chain);
    for stage in &mut changed.stages {
        let (disabled, progress) = state(stage);
        stage.set_state(disabled, progress);
    }
    Arc::new(changed)
}

/// Returns a description of the first stage in these chains that calls a server; `None` if there is no such stage.
pub(crate) fn stage_calling_server(chains: &[&LiveChain]) -> Option<String> {
    chains.iter().find_map(|chain| {
        let stage = chain.stages.iter().find(|stage| stage.prepared_hook.calls_server)?;
        Some(format!("stage {} of chain {}", stage.spec.name, chain.name))
    })
}

impl Deref for LiveStage {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Borrow<Stage> for LiveStage {
    fn borrow(&self) -> &Stage {
        &self.stage
    }
}
