//! How far roll-outs are, in memory and in the directory of the history.

use std::sync::Arc;

use admittance_admission::{Digest, Phase};
use admittance_definitions::Share;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Rollout, RolloutAction, RolloutState, RolloutStatus};
use crate::{Moment, disabled::is_stage, metrics};

/// How far a roll-out is, for other replicas and for later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutProgress {
    /// Phase, chain and stage: `Mutating:pods/images`.
    pub stage: String,
    /// The digest of what is rolled out: module, settings, and the definition of the roll-out.
    pub subject: Digest,
    /// The index of its share in the steps.
    pub step: usize,
    /// Whether it goes on by itself.
    pub state: RolloutState,
    /// The beginning of this step, or of this state if that is later.
    pub since: Moment,
    /// Why it was aborted, or who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The roll-outs of the live table. Lives as long as the host.
#[derive(Debug, Default)]
pub(crate) struct Rollouts {
    /// Those from before a restart, until there is a table.
    kept: Vec<RolloutProgress>,
    live: Vec<Live>,
}

/// A roll-out of the live table.
#[derive(Debug)]
struct Live {
    rollout: Arc<Rollout>,
    progress: Arc<RolloutProgress>,
    /// When the step ends, by the clock that only goes forward.
    end: Option<Instant>,
    /// Whether it began in this program, and nothing happened since.
    is_new: bool,
}

impl Rollouts {
    pub(crate) fn new(kept: Vec<RolloutProgress>) -> Self {
        Self {
            kept,
            live: Vec::new(),
        }
    }

    /// These are the roll-outs of the new live table: those that were there before go on, and others begin. Returns whether
    /// any began or is gone.
    pub(crate) fn adopt(&mut self, rollouts: impl Iterator<Item = Arc<Rollout>>) -> bool {
        let mut before = std::mem::take(&mut self.live);
        let mut is_changed = false;
        for rollout in rollouts {
            let is_same = |progress: &RolloutProgress| {
                progress.stage == rollout.stage && progress.subject == rollout.subject
            };
            let known = before.extract_if(.., |known| is_same(&known.progress)).next();
            let kept = self.kept.extract_if(.., |kept| is_same(kept)).next();
            self.live.push(match (known, kept) {
                (Some(known), _) => Live { rollout, ..known },
                (None, Some(kept)) => Live::kept(rollout, kept),
                (None, None) => {
                    is_changed = true;
                    Live::begin(rollout)
                }
            });
        }
        for gone in &before {
            let is_replaced = self
                .live
                .iter()
                .any(|live| live.rollout.stage == gone.rollout.stage);
            if !is_replaced {
                metrics::rollout(&gone.rollout.stage, None, false);
            }
        }
        is_changed |= !before.is_empty() || !self.kept.is_empty();
        self.kept.clear();
        is_changed
    }

    /// How far the roll-out of this stage is.
    pub(crate) fn of(&self, phase: Phase, chain: &str, stage: &str) -> Option<Arc<RolloutProgress>> {
        let mut live = self.live.iter();
        let live = live.find(|live| is_stage(&live.progress.stage, phase, chain, stage))?;
        Some(live.progress.clone())
    }

    pub(crate) fn stages(&self) -> Vec<String> {
        self.live.iter().map(|live| live.progress.stage.clone()).collect()
    }

    pub(crate) fn list(&self) -> Vec<RolloutProgress> {
        self.live.iter().map(|live| (*live.progress).clone()).collect()
    }

    /// When the next step begins by itself.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.live.iter().filter_map(|live| live.end).min()
    }

    /// Begins the steps whose time has come, and aborts the roll-outs that have reached a limit. Returns whether there is
    /// any.
    pub(super) fn advance(&mut self) -> bool {
        let (instant, now) = (Instant::now(), Moment::now());
        let mut is_changed = false;
        for live in &mut self.live {
            let is_over = || {
                let by_clock = live.progress.next(&live.rollout);
                live.end.is_some_and(|end| end <= instant) || by_clock.is_some_and(|next| next <= now)
            };
            if live.progress.state == RolloutState::Aborted {
                continue;
            }
            if let Some(problem) = live.rollout.problem() {
                live.enter(0, RolloutState::Aborted, Some(problem));
            } else if is_over() {
                live.next();
            } else {
                continue;
            }
            is_changed = true;
        }
        is_changed
    }

    /// Goes where another replica is with the same roll-outs. Returns whether any is elsewhere now.
    pub(super) fn follow(&mut self, theirs: Vec<RolloutProgress>) -> bool {
        let mut is_changed = false;
        for theirs in theirs {
            let is_same = |live: &&mut Live| {
                live.progress.stage == theirs.stage && live.progress.subject == theirs.subject
            };
            let Some(live) = self.live.iter_mut().find(is_same) else {
                continue;
            };
            if live.yields_to(&theirs) {
                live.rollout.restart();
                *live = Live::kept(live.rollout.clone(), theirs);
                is_changed = true;
            }
        }
        is_changed
    }

    /// # Errors
    ///
    /// The state, if it does not allow the action.
    pub(super) fn steer(
        &mut self,
        stage: &str,
        action: RolloutAction,
        by: Option<&str>,
    ) -> Result<RolloutStatus, RolloutState> {
        use {RolloutAction::*, RolloutState::*};
        let mut live = self.live.iter_mut();
        let Some(live) = live.find(|live| live.rollout.stage == stage) else {
            return Err(Aborted);
        };
        let (step, state) = (live.progress.step, live.progress.state);
        let by = |done: &str| Some(format!("{done} by {}", by.unwrap_or("an unknown user")));
        match (action, state) {
            (Next, Progressing | Paused) => live.next(),
            (Pause, Progressing | Paused) => live.enter(step, Paused, by("paused")),
            (Resume, Paused) => live.enter(step, Progressing, None),
            (Resume, Aborted) => live.enter(0, Progressing, None),
            (Abort, Progressing | Paused | Completed) => live.enter(0, Aborted, by("aborted")),
            _ => return Err(state),
        }
        Ok(live.progress.status(&live.rollout))
    }
}

impl Live {
    fn begin(rollout: Arc<Rollout>) -> Self {
        let progress = RolloutProgress {
            stage: rollout.stage.clone(),
            subject: rollout.subject,
            step: 0,
            state: RolloutState::Progressing,
            since: Moment::now(),
            reason: None,
        };
        let mut new = Self {
            rollout,
            progress: Arc::new(progress),
            end: None,
            is_new: true,
        };
        new.enter(0, RolloutState::Progressing, None);
        new.is_new = true;
        new
    }

    /// As it was before a restart. A step whose time ended meanwhile is not passed over: the next one begins now.
    fn kept(rollout: Arc<Rollout>, progress: RolloutProgress) -> Self {
        let next = progress.next(&rollout);
        let rest = next.map(|next| next.0.duration_since(Moment::now().0).unwrap_or_default());
        let live = Self {
            rollout,
            progress: Arc::new(progress),
            end: rest.map(|rest| Instant::now() + rest),
            is_new: false,
        };
        live.show();
        live
    }

    /// Whether another replica knows better.
    fn yields_to(&self, theirs: &RolloutProgress) -> bool {
        let is_later = theirs.since > self.progress.since;
        match self.progress.state {
            _ if self.is_new => true,
            // A limit that is reached here may not be reached there: only a new beginning counts.
            RolloutState::Aborted => is_later && (theirs.state == RolloutState::Aborted || theirs.step == 0),
            _ => is_later,
        }
    }

    /// Begins the next step; completes the last one.
    fn next(&mut self) {
        let RolloutProgress { step, state, .. } = *self.progress;
        let reason = self.progress.reason.clone();
        match step + 1 < self.rollout.definition.shares.len() {
            true => self.enter(step + 1, state, reason),
            false => self.enter(step, RolloutState::Completed, None),
        }
    }

    fn enter(&mut self, step: usize, state: RolloutState, reason: Option<String>) {
        if state != RolloutState::Aborted {
            self.rollout.restart();
        }
        self.progress = Arc::new(RolloutProgress {
            step,
            state,
            since: Moment::now(),
            reason,
            ..(*self.progress).clone()
        });
        let lasts = (state == RolloutState::Progressing).then_some(self.rollout.definition.pause);
        self.end = lasts.map(|pause| Instant::now() + pause);
        self.is_new = false;
        self.show();
    }

    /// In the log and the metrics.
    fn show(&self) {
        let RolloutProgress {
            stage, state, reason, ..
        } = &*self.progress;
        let share = self.progress.share(&self.rollout);
        metrics::rollout(stage, share, *state == RolloutState::Aborted);
        let share = percent(share);
        if *state == RolloutState::Aborted {
            let reason = reason.as_deref().unwrap_or_default();
            tracing::warn!(
                target: "admittance::audit",
                action = "rollout", %stage, share, %state, reason,
                "the roll-out of the candidate of {stage} is aborted, its plugin decides all requests: {reason}"
            );
        } else {
            tracing::info!(
                target: "admittance::audit",
                action = "rollout", %stage, share, %state, reason,
                "the candidate of {stage} decides {share} of its requests"
            );
        }
    }
}

impl RolloutProgress {
    /// The share of the requests that the candidate decides; `None` for none.
    pub(crate) fn share(&self, rollout: &Rollout) -> Option<Share> {
        let shares = &rollout.definition.shares;
        let share = shares.get(self.step).or_else(|| shares.last());
        share.copied().filter(|_| self.state != RolloutState::Aborted)
    }

    /// When the step ends by itself.
    fn next(&self, rollout: &Rollout) -> Option<Moment> {
        let is_progressing = self.state == RolloutState::Progressing;
        is_progressing.then(|| Moment(self.since.0 + rollout.definition.pause))
    }

    pub(crate) fn status(&self, rollout: &Rollout) -> RolloutStatus {
        let counts = rollout.counts();
        RolloutStatus {
            state: self.state,
            share: percent(self.share(rollout)),
            steps: rollout.definition.shares.iter().map(Share::to_string).collect(),
            by: rollout.definition.by,
            since: self.since,
            next: self.next(rollout),
            reason: self.reason.clone(),
            decided: counts.decided,
            failed: counts.failed,
            compared: counts.compared,
            refused: counts.refused,
        }
    }
}

fn percent(share: Option<Share>) -> String {
    share.map_or_else(|| "0%".to_owned(), |share| share.to_string())
}
