//! Keeps the progress of rollouts in memory, and writes it to the directory of the history.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use admittance_admission::{Digest, Phase};
use admittance_definitions::Share;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Rollout, RolloutAction, RolloutState, RolloutStatus};
use crate::{Moment, live::disabled::is_stage, status::metrics};

/// The progress of a rollout, in the form in which it is written to disk and reported to other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutProgress {
    /// The stage that the rollout belongs to, by phase, chain and name: `Mutating:pods/images`.
    pub stage: String,
    /// A digest of the candidate's module and settings, and of the rollout's definition. If one of these changes, the
    /// digest changes, and a new rollout begins.
    pub subject: Digest,
    /// The number of times that the rollout was restarted after an abort.
    #[serde(default)]
    pub attempt: u32,
    /// The number of changes to the rollout so far, on any replica: each new step or new state counts as a change. The
    /// clocks of replicas differ, so replicas compare this number to find the latest change.
    #[serde(default)]
    pub changes: u64,
    /// The index of the rollout's current step.
    pub step: usize,
    /// Whether the rollout continues by itself, waits for a user, or has ended.
    pub state: RolloutState,
    /// The time at which the current step began, or at which the state last changed if that was later.
    pub since: Moment,
    /// The reason why the rollout was aborted, or the user who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The name of the replica that made the last change to this rollout, such as its next step or its abort; absent if
    /// this replica itself made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Rollouts {
    /// The rollouts that were read from disk at the start. When the first table goes live, its rollouts continue from
    /// here, and all others are dropped.
    stored_progress: Vec<RolloutProgress>,
    live_rollouts: Vec<LiveRollout>,
    pub(super) is_led: bool,
}

#[derive(Debug)]
struct LiveRollout {
    rollout: Arc<Rollout>,
    progress: Arc<RolloutProgress>,
    /// The end of the current step, in the monotonic and the system clock; `None` if the step does not end by itself.
    end: Option<(Instant, Moment)>,
}

impl Rollouts {
    pub(crate) fn new(stored_progress: Vec<RolloutProgress>) -> Self {
        Self {
            stored_progress,
            ..Self::default()
        }
    }

    /// Replaces the rollouts by those of a table that goes live. Returns whether the table begins a new rollout, or
    /// lacks one of the previous rollouts.
    pub(crate) fn adopt(&mut self, rollouts: impl Iterator<Item = Arc<Rollout>>) -> bool {
        let mut old_rollouts = std::mem::take(&mut self.live_rollouts);
        let mut is_changed = false;
        for rollout in rollouts {
            let is_same =
                |progress: &RolloutProgress| progress.stage == rollout.stage && progress.subject == rollout.subject;
            let previous_rollout = old_rollouts.extract_if(.., |rollout| is_same(&rollout.progress)).next();
            let stored_rollout = self.stored_progress.extract_if(.., |progress| is_same(progress)).next();
            self.live_rollouts.push(match (previous_rollout, stored_rollout) {
                (Some(previous), _) => LiveRollout { rollout, ..previous },
                (None, Some(stored)) => LiveRollout::resume(rollout, stored),
                (None, None) => {
                    is_changed = true;
                    LiveRollout::begin(rollout)
                }
            });
        }
        for old_rollout in &old_rollouts {
            let is_replaced = self
                .live_rollouts
                .iter()
                .any(|live| live.rollout.stage == old_rollout.rollout.stage);
            if !is_replaced {
                metrics::record_rollout(&old_rollout.rollout.stage, None, false);
            }
        }
        is_changed |= !old_rollouts.is_empty() || !self.stored_progress.is_empty();
        self.stored_progress.clear();
        is_changed
    }

    pub(crate) fn get(&self, phase: Phase, chain: &str, stage: &str) -> Option<Arc<RolloutProgress>> {
        let mut rollouts = self.live_rollouts.iter();
        let live_rollout = rollouts.find(|live| is_stage(&live.progress.stage, phase, chain, stage))?;
        Some(live_rollout.progress.clone())
    }

    pub(crate) fn stages(&self) -> Vec<String> {
        self.live_rollouts
            .iter()
            .map(|live| live.progress.stage.clone())
            .collect()
    }

    pub(crate) fn list(&self) -> Vec<RolloutProgress> {
        self.live_rollouts.iter().map(|live| (*live.progress).clone()).collect()
    }

    pub(crate) fn next_end(&self) -> Option<Instant> {
        let ends = self.live_rollouts.iter().filter_map(|live| live.end);
        ends.map(|(end, _)| end).min().filter(|_| !self.is_led)
    }

    pub(super) fn set_led(&mut self, is_led: bool) {
        self.is_led = is_led;
    }

    pub(super) fn advance(&mut self) -> bool {
        let (instant, now) = (Instant::now(), Moment::now());
        let mut is_changed = false;
        for live_rollout in &mut self.live_rollouts {
            let is_over = live_rollout.end.is_some_and(|end| end.0 <= instant || end.1 <= now);
            if live_rollout.progress.state == RolloutState::Aborted {
                continue;
            }
            if let Some(problem) = live_rollout.rollout.problem() {
                live_rollout.enter(0, RolloutState::Aborted, Some(problem));
            } else if is_over && !self.is_led {
                live_rollout.begin_next_step();
            } else {
                continue;
            }
            is_changed = true;
        }
        is_changed
    }

    /// Takes over the progress of rollouts that another replica reports. Reported progress replaces this replica's
    /// progress only if it is newer, or says that the rollout was aborted. Returns whether any progress was replaced.
    pub(super) fn follow(&mut self, reported_progress: Vec<RolloutProgress>) -> bool {
        let mut is_changed = false;
        for progress in reported_progress {
            let is_same = |live: &&mut LiveRollout| {
                live.progress.stage == progress.stage && live.progress.subject == progress.subject
            };
            let Some(live_rollout) = self.live_rollouts.iter_mut().find(is_same) else {
                continue;
            };
            if progress.rank() > live_rollout.progress.rank() {
                live_rollout.follow(progress);
                is_changed = true;
            }
        }
        is_changed
    }

    pub(super) fn steer(
        &mut self,
        stage: &str,
        action: RolloutAction,
        user: Option<&str>,
    ) -> Result<RolloutStatus, RolloutState> {
        use {RolloutAction::*, RolloutState::*};
        let mut rollouts = self.live_rollouts.iter_mut();
        let Some(live) = rollouts.find(|live_rollout| live_rollout.rollout.stage == stage) else {
            return Err(Aborted);
        };
        let (step, state) = (live.progress.step, live.progress.state);
        let reason = |verb: &str| Some(format!("{verb} by {}", user.unwrap_or("an unknown user")));
        match (action, state) {
            (Next, Progressing | Paused) => live.begin_next_step(),
            (Pause, Progressing | Paused) => live.enter(step, Paused, reason("paused")),
            (Resume, Paused) => live.enter(step, Progressing, None),
            (Resume, Aborted) => live.restart(),
            (Abort, Progressing | Paused | Completed) => live.enter(0, Aborted, reason("aborted")),
            _ => return Err(state),
        }
        Ok(live.progress.status(&live.rollout))
    }
}

impl LiveRollout {
    fn begin(rollout: Arc<Rollout>) -> Self {
        let progress = RolloutProgress {
            stage: rollout.stage.clone(),
            subject: rollout.subject,
            attempt: 0,
            changes: 0,
            step: 0,
            state: RolloutState::Progressing,
            since: Moment::now(),
            reason: None,
            replica: None,
        };
        rollout.restart();
        let live_rollout = Self {
            end: Some(end_after(rollout.definition.pause)),
            rollout,
            progress: Arc::new(progress),
        };
        live_rollout.publish();
        live_rollout
    }

    /// Continues a rollout after a restart of this program. A step whose time is over ends now; no step is skipped.
    fn resume(rollout: Arc<Rollout>, progress: RolloutProgress) -> Self {
        let pause = rollout.definition.pause;
        let remaining_time = progress.step_end(&rollout).map(|next| {
            let remainder = next.0.duration_since(Moment::now().0).unwrap_or_default();
            // The system clock may have been set back since the step began. So at most the step's full length remains.
            remainder.min(pause)
        });
        let live_rollout = Self {
            rollout,
            progress: Arc::new(progress),
            end: remaining_time.map(end_after),
        };
        live_rollout.publish();
        live_rollout
    }

    fn follow(&mut self, progress: RolloutProgress) {
        let is_next = progress.changes == self.progress.changes + 1;
        self.rollout.restart();
        *self = Self::resume(self.rollout.clone(), progress);
        // If the other replica is ahead of this replica by one change only, it has just made that change, such as the
        // beginning of a step. So the step lasts for its full length from now.
        if let Some(end) = self.end.as_mut().filter(|_| is_next) {
            *end = end_after(self.rollout.definition.pause);
        }
    }

    fn begin_next_step(&mut self) {
        let RolloutProgress { step, state, .. } = *self.progress;
        let reason = self.progress.reason.clone();
        if step + 1 < self.rollout.definition.shares.len() {
            self.enter(step + 1, state, reason)
        } else {
            self.enter(step, RolloutState::Completed, None)
        }
    }

    fn restart(&mut self) {
        Arc::make_mut(&mut self.progress).attempt += 1;
        self.enter(0, RolloutState::Progressing, None);
    }

    fn enter(&mut self, step: usize, state: RolloutState, reason: Option<String>) {
        if state != RolloutState::Aborted {
            self.rollout.restart();
        }
        self.progress = Arc::new(RolloutProgress {
            changes: self.progress.changes + 1,
            step,
            state,
            since: Moment::now(),
            reason,
            replica: None,
            ..(*self.progress).clone()
        });
        let step_length = (state == RolloutState::Progressing).then_some(self.rollout.definition.pause);
        self.end = step_length.map(end_after);
        self.publish();
    }

    fn publish(&self) {
        let RolloutProgress { stage, state, .. } = &*self.progress;
        let reason = self.progress.reason_and_replica();
        let share = self.progress.share(&self.rollout);
        metrics::record_rollout(stage, share, *state == RolloutState::Aborted);
        let share = format_share(share);
        if *state == RolloutState::Aborted {
            let reason = reason.as_deref().unwrap_or_default();
            tracing::warn!(
                target: "admittance::audit",
                action = "rollout", %stage, share, %state, reason,
                "the rollout of the candidate of {stage} is aborted, its plugin decides all requests: {reason}"
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
    /// Returns the rank of this progress. Replicas may report different progress for the same rollout, and adopt the
    /// one with the highest rank. Only a restart of the rollout ranks higher than an abort. Otherwise, the latest
    /// change ranks highest.
    fn rank(&self) -> impl Ord + use<> {
        let is_aborted = self.state == RolloutState::Aborted;
        (self.attempt, is_aborted, self.changes, Reverse(self.step), self.state)
    }

    /// Returns the reason for the last change. If another replica made the change, appends the name of that replica.
    pub fn reason_and_replica(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        Some(match &self.replica {
            Some(replica) => format!("{reason} (in replica {replica})"),
            None => reason.clone(),
        })
    }

    pub(crate) fn share(&self, rollout: &Rollout) -> Option<Share> {
        let shares = &rollout.definition.shares;
        let share = shares.get(self.step).or_else(|| shares.last());
        share.copied().filter(|_| self.state != RolloutState::Aborted)
    }

    /// Returns the time at which the current step ends; `None` if only a user can end it.
    fn step_end(&self, rollout: &Rollout) -> Option<Moment> {
        let is_progressing = self.state == RolloutState::Progressing;
        is_progressing.then(|| Moment(self.since.0 + rollout.definition.pause))
    }

    pub(crate) fn status(&self, rollout: &Rollout) -> RolloutStatus {
        let counts = rollout.counts();
        RolloutStatus {
            state: self.state,
            share: format_share(self.share(rollout)),
            steps: rollout.definition.shares.iter().map(Share::to_string).collect(),
            by: rollout.definition.rollout_key,
            since: self.since,
            next: self.step_end(rollout),
            reason: self.reason_and_replica(),
            decided: counts.decided_count,
            failed: counts.failed_count,
            failure_limit: rollout.definition.failure_limit.allowed_count(counts.decided_count),
            compared: counts.compared_count,
            refused: counts.refused_count,
            refusal_limit: rollout.definition.refusal_limit.allowed_count(counts.compared_count),
        }
    }
}

/// Returns the time that is `duration` from now, in the monotonic clock and in the system clock.
fn end_after(duration: Duration) -> (Instant, Moment) {
    (Instant::now() + duration, Moment(Moment::now().0 + duration))
}

fn format_share(share: Option<Share>) -> String {
    share.map_or_else(|| "0%".to_owned(), |share| share.to_string())
}
